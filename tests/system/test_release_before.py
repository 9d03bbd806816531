"""The release before this one: what it wrote is opened unchanged, it opens what this one wrote, and they talk.

It is run: tests/golden has its program. So nothing here says what a format is; both programs do.
"""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from blockfs.engine.config import EngineConfig
from syncer.core.model import Nid
from syncer.core.planner.outcome import Forgotten
from syncer.state.shareindex import IdIndex, follow
from syncer.state.statedb import StateDB
from tests import effort
from tests.golden.contents import Manifest, describe
from tests.kit.hostfs import reflinking
from tests.kit.starting import PROJECT
from tests.system.machines import Machines, content

GOLDEN: Final = Path(__file__).parents[1] / "golden"
BLOCK: Final = 4096
NOTHING: Final = dict.fromkeys(("pushed", "pulled", "moved", "deleted", "conflicts", "mutating_requests"), 0)


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the release before."""
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(GOLDEN / "program-04c8a87.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder


def noise(seed: int, size: int) -> bytes:
    return hashlib.shake_128(b"%d" % seed).digest(size)


def fill(root: Path) -> None:
    """One of every kind, with what fills lists, leaves and several blocks."""
    (root / "deep/er").mkdir(parents=True)
    (root / "deep/er/small").write_bytes(b"small\n")
    (root / "deep/empty").touch()
    (root / "large").write_bytes(noise(1, 300 * BLOCK + 7))
    (root / "copy").write_bytes(noise(1, 200 * BLOCK))
    with (root / "sparse").open("wb") as file:
        file.write(b"begin")
        file.truncate(8 << 20)
    (root / "link").symlink_to("deep/er")
    (root / "deep/ü").write_bytes(b"\0" * BLOCK + b"after zeros")
    (root / "deep/er/small").chmod(0o640)
    os.utime(root / "copy", ns=(-1, -1_000_000_007))


def change(root: Path, number: int) -> None:
    """Something of each kind that a user does."""
    with (root / "large").open("r+b") as file:
        file.seek(number * 50 * BLOCK + 100)
        file.write(b"changed %d" % number)
    (root / f"new-{number}").write_bytes(noise(10 + number, 3 * BLOCK))
    (root / "deep").rename(root / "deeper") if (root / "deep").exists() else (root / "deeper").rename(root / "deep")
    (root / f"folder-{number}").mkdir()
    (root / f"folder-{number}/file").write_bytes(b"%d" % number)
    (root / f"new-{number - 1}").unlink(missing_ok=True)
    (root / "copy").chmod(0o600 + number)


def at_rest(machines: Machines, *roots: Path) -> None:
    """Everything is known: nothing is done, and not a byte of a file is read."""
    for root in roots:
        summary = machines.reconcile(root)
        assert {name: summary[name] for name in NOTHING} == NOTHING
        assert summary["bytes_read_local"] == 0


def settle(machines: Machines, *roots: Path) -> None:
    """One cycle of each, after which both have everything."""
    for root in roots:
        machines.reconcile(root)
    assert content(roots[0]) == content(roots[1])


@contextmanager
def running(machines: Machines, program: Path) -> Iterator[None]:
    """Server and mount of a release, which end as they should."""
    machines.program = program
    machines.serve()
    machines.remount("volume")
    yield
    machines.run("umount", machines.home / "volume")
    machines.stop_server()
    machines.run("fsck", machines.home / "volume-volume")


def told(machines: Machines, volume: Path, folder: Path) -> list[object]:
    """What the commands say of what is kept: names, times and sizes of versions in the trash, and of snapshots.

    The release before knows no cause of an entry: it shows it with the id.
    """
    trash, snapshots = ("trash", "ls", folder), ("snapshot", "list", volume)
    kept, taken = [machines.run(*command, "--json").lines for command in (trash, snapshots)]
    for line in kept:
        line.pop("why", None)
        line["id"] = line["id"].partition(".")[0]
    return [kept, taken]


def test_what_one_release_wrote_the_other_opens_unchanged(machines: Machines, before: Path) -> None:
    """Volume, block directory, state of both kinds of root, lists, trash, server's store: there and back."""
    machines.environment["BLOCKSYNC_NATIVE"] = "0"  # what a native mount leaves it refuses: below
    volume, folder = machines.home / "volume", machines.folder("folder")
    volume.mkdir()
    machines.program = before
    machines.run("init", machines.home / "volume-volume", "--block-size", str(BLOCK))
    expected: Manifest = {}
    kept: list[object] = []
    for number, program in enumerate([before, PROJECT, before]):
        with running(machines, program):
            if number == 0:
                fill(volume)
                machines.link(volume, folder)
                settle(machines, volume, folder)
            else:
                assert describe(volume) == expected
                assert told(machines, volume, folder) == kept
                at_rest(machines, folder)
                summary = machines.reconcile(volume)  # what the other one left staged, and nothing else
                assert (summary["pushed"], summary["blocks_sent"]) == (1, 1)
                assert summary["bytes_read_local"] <= BLOCK
            change(volume, number)
            settle(machines, volume, folder)
            change(folder, number + 10)
            settle(machines, folder, volume)
            machines.run("snapshot", "create", volume, f"by {number}")
            machines.reconcile(folder)  # the evidence of all is old enough to be trusted
            with (volume / "staged").open("wb", buffering=0) as file:
                file.write(b"by %d" % number)
                os.fsync(file.fileno())
            expected, kept = describe(volume), told(machines, volume, folder)


def test_the_release_before_refuses_a_volume_with_an_adopted_segment(machines: Machines, before: Path) -> None:
    """Until a large new file is sealed it opens the volume."""
    machines.environment["BLOCKSYNC_NATIVE"] = "0"  # else nothing is staged
    mountpoint = machines.volume("volume")
    volume = machines.home / "volume-volume"
    machines.run("umount", mountpoint)
    machines.program = before
    machines.run("fsck", volume)
    machines.program = PROJECT
    machines.remount("volume")
    (mountpoint / "large").write_bytes(noise(1, EngineConfig().adopt_bytes))
    machines.run("umount", mountpoint, "--seal")
    machines.run("fsck", volume)
    machines.program = before
    for arguments in (("fsck", volume), ("scrub", volume), ("gc", volume), ("mount", volume, mountpoint)):
        assert "blocks.toml" in machines.run(*arguments, expect=14).stderr


def test_the_release_before_refuses_what_a_native_mount_left_until_it_is_sealed(
    fuse: None, tmp_path: Path, before: Path
) -> None:
    """Breaks when it would show old content, or when there is no way back to it."""
    with reflinking(tmp_path, "xfs") as host:
        (host / "home").mkdir()
        machines = Machines(host / "home")
        try:
            machines.program = before
            machines.run("init", machines.home / "volume-volume")
            machines.folder("volume")
            machines.program = PROJECT
            mountpoint, volume = machines.remount("volume"), machines.home / "volume-volume"
            machines.run("umount", mountpoint)
            machines.program = before
            machines.run("fsck", volume)  # nothing was written
            machines.program = PROJECT
            machines.remount("volume", "--frontend", "kernel")  # pyfuse3 has no native mounts
            data = noise(2, 5 << 20)
            (mountpoint / "file").write_bytes(data)
            machines.run("umount", mountpoint)
            machines.program = before
            for arguments in (("fsck", volume), ("scrub", volume), ("gc", volume), ("mount", volume, mountpoint)):
                machines.run(*arguments, expect=14)
            machines.program = PROJECT
            machines.remount("volume")
            machines.run("umount", mountpoint, "--seal")
            machines.program = before
            machines.run("fsck", volume)
            machines.remount("volume")
            assert (mountpoint / "file").read_bytes() == data
            machines.run("umount", mountpoint)
        finally:
            machines.close()


# --- sockets and wire


@pytest.mark.parametrize("ours", effort.first("ways between releases", ["daemons", "commands"]))
def test_commands_of_one_release_speak_to_daemons_of_the_other(machines: Machines, before: Path, ours: str) -> None:
    """A mount, a server and `watch` go on through an update; or an older command is still somewhere in the PATH."""
    daemons, commands = (PROJECT, before) if ours == "daemons" else (before, PROJECT)
    machines.program = daemons
    volume, folder = machines.volume("volume", "--block-size", str(BLOCK)), machines.folder("folder")
    machines.serve()
    machines.program = commands
    fill(volume)
    machines.link(volume, folder)
    settle(machines, volume, folder)
    change(volume, 1)
    machines.run("clone", volume / "large", volume / "clone")
    settle(machines, volume, folder)
    change(folder, 2)
    settle(machines, folder, volume)
    at_rest(machines, volume, folder)
    machines.run("snapshot", "create", volume, "one")
    machines.run("snapshot", "list", volume, "--json")
    machines.run("snapshot", "delete", volume, "one")
    for command in ("flush", "gc", "fsck", "scrub", "stats"):
        machines.run(command, volume, "--json")
    machines.program = daemons
    with watching(machines):
        machines.program = commands
        for verb in ("pause", "resume"):
            *_, summary = machines.run(verb, folder, "--json").lines
            assert summary["daemon"] is True
        (status, *_) = machines.run("status", folder, "--json").lines
        assert status["watch"] is not None
        machines.run("peers", "--json")
    machines.run("umount", volume)


@contextmanager
def watching(machines: Machines) -> Iterator[None]:
    """A daemon for all roots, ready as a service manager understands it."""
    address = machines.home / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(bytes(address))
        manager.settimeout(120)
        environment = {**machines.environment, "NOTIFY_SOCKET": str(address)}
        with (machines.home / "log").open("w") as log:
            command = [*machines.command, "watch"]
            process = subprocess.Popen(command, stderr=log, env=environment, cwd=machines.program)
        try:
            assert b"READY=1" in manager.recv(4096)
            yield
        finally:
            process.terminate()
            assert process.wait(60) == 0


# --- the index of a share


def test_the_release_before_reads_an_index_that_this_one_wrote(tmp_path: Path, before: Path) -> None:
    """Of the other way tests/unit/syncer/state/test_shareindex.py has a golden file."""
    with tarfile.open(GOLDEN / "share-index-1.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    folder = tmp_path / "state"
    with StateDB.open(str(folder)) as state, IdIndex.open(str(folder / "share-index")) as index:
        state.record([Forgotten(nid=Nid(2))])
        assert list(follow(index, state.rows, lambda _nid, _content: None, BLOCK, [Nid(2)]))
    script = """
import hashlib, sys
from syncer.state.shareindex import IdIndex
from syncer.state.statedb import StateDB
with StateDB.open(sys.argv[1]) as state, IdIndex.open(sys.argv[1] + "/share-index") as index, state.rows() as rows:
    print(index.is_current(rows))
    for number in (b"1", b"3", b"209", b"4"):
        print([(spot.nid, spot.index) for spot in index.spots(hashlib.sha256(number).digest(), rows)])
"""
    command = [sys.executable, "-c", script, folder]
    told = subprocess.run(command, cwd=before, capture_output=True, text=True, check=True).stdout
    assert told.split("\n")[:-1] == ["True", "[(1, 0)]", "[(1, 3)]", "[(3, 199)]", "[]"]
