"""`scrub --from peers`: a node's damaged blocks come from its neighbour, with the server away."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from syncer.cli.main import run
from syncer.cli.registry.roots import FORMAT, Registry, RootRecord, encoded_path
from tests import effort
from tests.kit.netns import Lan
from tests.kit.program import BLOCKSYNC, Machine, Site, has_peer, is_there

DATA = random.Random(13).randbytes(40 * 65536 + 100)
ONLY = random.Random(14).randbytes(65536)
ALL = (("64KiB", "mounted"), ("16KiB", "unmounted"), ("256KiB", "beside a daemon"))
KINDS = effort.first("scrubs from peers", ALL)
"""Block size of the volume, where the share's is 64 KiB, and how it is scrubbed."""


class Two:
    """A machine with a volume, its neighbour with a folder, and their server, which is away when it matters."""

    def __init__(self, lan: Lan, block_size: str) -> None:
        server, broken, whole = lan.nodes
        site = Site(server)
        self.volume = broken.home / "volume"
        broken.run(BLOCKSYNC, "init", self.volume, "--block-size", block_size)
        (broken.home / "root").mkdir()
        broken.run(BLOCKSYNC, "mount", self.volume, broken.home / "root")
        self.broken, self.whole = Machine(broken, site), Machine(whole, site)
        (self.broken.root / "image").write_bytes(DATA)
        for machine in (self.broken, self.whole):
            machine("reconcile", machine.root, "--no-peers")
        site.kill()
        (self.broken.root / "here alone").write_bytes(ONLY)
        self.broken("flush", self.broken.root)
        self.whole.watch()
        self.whole.until("peers", is_there)

    def damage(self, *texts: bytes) -> None:
        """Spoil the volume's blocks with these bytes."""
        for segment in (self.volume / "blocks" / "segments").glob("*.seg"):
            raw = segment.read_bytes()
            with segment.open("r+b") as file:
                for text in texts:
                    if (found := raw.find(text)) >= 0:
                        file.seek(found)
                        file.write(b"damage!")


@pytest.mark.parametrize(("block_size", "state"), KINDS)
def test_damaged_blocks_of_a_volume_come_from_the_neighbour(
    fuse: None, tmp_path: Path, block_size: str, state: str
) -> None:
    with Lan(3, home=tmp_path) as lan:
        two = Two(lan, block_size)
        try:
            if state == "unmounted":
                two.broken("umount", two.broken.root)
            elif state == "beside a daemon":
                two.broken.watch()
                two.broken.until("peers", has_peer)
            two.damage(*(DATA[place : place + 64] for place in (0, 5 * 65536 + 20_000, len(DATA) - 100)))
            two.damage(ONLY[:64])
            told = two.broken.json("scrub", two.volume, "--from", "peers", expect=15)
            assert len(told["fetched"]) == 3
            assert len(told["not_found"]) == 1  # what only this volume has nobody can bring
            assert sorted(told["fetched"] + told["not_found"]) == sorted(told["corrupt"])
            if state == "unmounted":
                two.broken("mount", two.volume, two.broken.root)
            assert (two.broken.root / "image").read_bytes() == DATA
        finally:
            for process in two.broken.node.started:
                two.broken.node.kill(process)  # a cycle that looks for its server has the mount open
            two.broken("umount", two.broken.root, expect=None)


# --- who can't be asked


@pytest.fixture
def volume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A volume, in a home where peers are not off."""
    for name in ("state", "data", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / name))
    monkeypatch.delenv("BLOCKSYNC_PEERS")
    assert run(["init", str(tmp_path / "volume")]) == 0
    return tmp_path / "volume"


def link(volume: Path) -> None:
    """As `link` does with the mount point of a volume."""
    text = (volume / "volume.toml").read_text()
    uuid = next(line.split('"')[1] for line in text.splitlines() if line.startswith("uuid"))
    record = RootRecord(
        format=FORMAT, uuid="u1", path=encoded_path(b"/mnt/images"), url="pithos+http://h/a/c", block_size=65536,
        folder=None, volume_uuid=uuid,
    )  # fmt: skip
    Registry(os.environ).write(record, "secret")


def refused(volume: Path, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["scrub", str(volume), "--from", "peers"]) == 2
    return capsys.readouterr().err


def test_a_volume_without_a_linked_root_has_no_peers(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(volume, capsys)
    assert f"{volume}/blocks is of no linked root" in said
    assert "./peers" in said


@pytest.mark.parametrize("how", ["all", "root", "environment"])
def test_a_root_whose_peers_are_off_asks_nobody_and_says_by_what(
    volume: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    link(volume)
    if how == "environment":
        monkeypatch.setenv("BLOCKSYNC_PEERS", "off")
    else:
        assert run(["peers", "off", *(["/mnt/images"] if how == "root" else [])]) == 0
    said = refused(volume, capsys)
    assert "peers of /mnt/images are off by" in said
    assert ("BLOCKSYNC_PEERS=off" if how == "environment" else "`blocksync peers off`") in said


def test_a_sound_volume_asks_nobody_and_a_root_without_a_key_is_told_of(
    volume: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No namespace here: a frame would be one on the machine's network."""
    link(volume)
    assert run(["scrub", str(volume), "--from", "peers", "--json"]) == 0
    assert (
        "devices on the network can't be asked for /mnt/images: the share's key is not known" in capsys.readouterr().err
    )
