"""`scrub --from peers`: a node's damaged blocks come from its neighbour, with the server away."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncer.cli.main import run
from syncer.cli.roots import FORMAT, Registry, RootRecord, encoded_path
from tests import effort
from tests.kit.netns import Lan, Node

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
DATA = random.Random(13).randbytes(40 * 65536 + 100)
ONLY = random.Random(14).randbytes(65536)
KINDS = (("64KiB", "mounted"), ("16KiB", "unmounted"), ("256KiB", "mounted"))[: effort.count("scrubs from peers")]
"""Block size of the volume, where the share's is 64 KiB, and how it is scrubbed."""


class Machines:
    """A server, a node with a volume, and a node with a folder that runs the daemon."""

    def __init__(self, lan: Lan, block_size: str) -> None:
        self.server, self.broken, self.whole = lan.nodes
        site = self.server.home / "server"
        self.serving = self.server.start(
            BLOCKSYNC, "serve", site, "--listen", f"{self.server.ipv4}:8800", stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.serving.stdout is not None
        assert any("listening on" in line for line in self.serving.stdout)
        self.url = f"pithos+http://{self.server.ipv4}:8800/v1/default/images"
        self.token_file = site / "token"
        self.volume = self.broken.home / "volume"
        self.root, self.other = self.broken.home / "root", self.whole.home / "root"
        self.broken.run(BLOCKSYNC, "init", self.volume, "--block-size", block_size)
        self.other.mkdir()
        self.root.mkdir()
        self.broken.run(BLOCKSYNC, "mount", self.volume, self.root)

    def link(self) -> None:
        """Both have the same file, and one of them is there for others."""
        for node, root in ((self.broken, self.root), (self.whole, self.other)):
            node.run(BLOCKSYNC, "link", root, self.url, "--token-file", self.token_file)
        (self.root / "image").write_bytes(DATA)
        for node, root in ((self.broken, self.root), (self.whole, self.other)):
            node.run(BLOCKSYNC, "reconcile", root, "--no-peers")
        (self.root / "here alone").write_bytes(ONLY)
        self.broken.run(BLOCKSYNC, "flush", self.root)
        daemon = self.whole.start(BLOCKSYNC, "watch", stderr=subprocess.DEVNULL)
        assert daemon.poll() is None
        self.until_there(self.whole)
        self.server.kill(self.serving)

    def until_there(self, node: Node) -> None:
        """Its daemon has a key and a link."""
        while True:
            done = node.run(BLOCKSYNC, "peers", "--json", expect=None)
            told = json.loads(done.stdout.splitlines()[-1])
            if told["type"] == "peers" and told["figures"] and told["figures"]["links"]:
                return

    def damage(self, *texts: bytes) -> None:
        """Spoil the volume's blocks with these bytes."""
        for segment in (self.volume / "blocks" / "segments").glob("*.seg"):
            raw = segment.read_bytes()
            with segment.open("r+b") as file:
                for text in texts:
                    if (found := raw.find(text)) >= 0:
                        file.seek(found)
                        file.write(b"damage!")

    def scrub(self, path: Path, expect: int) -> dict[str, Any]:
        done = self.broken.run(BLOCKSYNC, "scrub", path, "--from", "peers", "--json", expect=expect)
        return dict(json.loads(done.stdout.splitlines()[-1]))


@contextmanager
def machines(home: Path, block_size: str) -> Iterator[Machines]:
    with Lan(3, home=home) as lan:
        made = Machines(lan, block_size)
        try:
            yield made
        finally:
            subprocess.run([BLOCKSYNC, "umount", made.root], check=False, capture_output=True)


@pytest.mark.parametrize(("block_size", "state"), KINDS)
def test_damaged_blocks_of_a_volume_come_from_the_neighbour(
    fuse: None, tmp_path: Path, block_size: str, state: str
) -> None:
    with machines(tmp_path, block_size) as made:
        made.link()
        if state == "unmounted":
            made.broken.run(BLOCKSYNC, "umount", made.root)
        made.damage(*(DATA[place : place + 64] for place in (0, 5 * 65536 + 20_000, len(DATA) - 100)))
        made.damage(ONLY[:64])
        told = made.scrub(made.volume, expect=15)
        assert len(told["fetched"]) == 3
        assert len(told["not_found"]) == 1  # what only this volume has nobody can bring
        assert sorted(told["fetched"] + told["not_found"]) == sorted(told["corrupt"])
        if state == "unmounted":
            made.broken.run(BLOCKSYNC, "mount", made.volume, made.root)
        assert (made.root / "image").read_bytes() == DATA


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


def test_a_sound_volume_asks_nobody(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No namespace here: a frame would be one on the machine's network."""
    link(volume)
    assert run(["scrub", str(volume), "--from", "peers", "--json"]) == 0
    shutil.rmtree(volume)
