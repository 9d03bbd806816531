"""A native mount on a host that is full: what docs/guide/full-disk.md says of it. XFS only: see `REFLINKS`."""

from __future__ import annotations

import errno
import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.hostfs import MIB, reflinking, run
from tests.system.machines import Machines

FRONTENDS = ("kernel",)
SEALED = os.urandom(16 * MIB)
SYNCED = os.urandom(4 * MIB)
RESERVE = 320 * MIB // 64
"""What others leave of the host."""
NAMES = MIB // 4096 + 1
"""How many new names begin between two looks for room, at most."""


@pytest.fixture
def machines(fuse: None, tmp_path: Path) -> Iterator[Machines]:
    """A folder on a small XFS."""
    with reflinking(tmp_path, "xfs") as host:
        (host / "home").mkdir()
        made = Machines(host / "home")
        try:
            yield made
        finally:
            ends = [os.pidfd_open(made.mount_pid(name)) for name, path in made.mounts.items() if path.is_mount()]
            made.close()
            for end in ends:
                select.select([end], [], [])  # it lets go of the host
                os.close(end)


@pytest.fixture
def mount(machines: Machines) -> Path:
    """A native mount with a file that is sealed, and one that is synced."""
    machines.run("init", machines.home / "volume-m")
    machines.folder("m")
    mount = machines.remount("m", "--native")
    (mount / "sealed").write_bytes(SEALED)
    machines.run("flush", mount)
    write(mount / "synced", SYNCED)
    return mount


def write(path: Path, data: bytes) -> None:
    """Write and sync."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def fill(path: Path) -> bytes:
    """Write a file until the host is full, and sync; returns what was taken."""
    taken = bytearray()
    with path.open("wb", buffering=0) as file:
        for size in (MIB, 4096):
            data = os.urandom(size)
            while True:
                try:
                    done = file.write(data)
                except OSError as error:
                    assert error.errno == errno.ENOSPC  # noqa: PT017 - the file must be closed when it is told
                    break
                taken += data[:done]
        os.fsync(file.fileno())  # what was taken has its place
    return bytes(taken)


def room(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


def until_room(path: Path, size_bytes: int) -> None:
    """Wait until a host has freed what was removed: XFS does it behind the removal, and `statvfs` has it hurry."""
    deadline = time.monotonic() + 60
    while room(path) <= size_bytes:
        assert time.monotonic() < deadline, f"{path} still has room for {room(path)} bytes"
        time.sleep(0.1)


def hears_no_space(call: object, *arguments: object) -> None:
    assert callable(call)
    with pytest.raises(OSError, match="No space left") as told:
        call(*arguments)
    assert told.value.errno == errno.ENOSPC


def make_names(mount: Path) -> list[str]:
    """New names until they are refused: before more of them than the ballast has room for; returns them."""
    made: list[str] = []
    while len(made) < NAMES:
        try:
            (mount / f"new-{len(made)}").touch()
        except OSError as error:
            assert error.errno == errno.ENOSPC  # noqa: PT017 - how often it did not come is what counts
            return made
        made.append(f"new-{len(made)}")
    raise AssertionError("nobody looked for room")


def check(mount: Path, large: bytes | None) -> None:
    assert (mount / "sealed").read_bytes() == SEALED
    assert (mount / "synced").read_bytes() == SYNCED
    if large is not None:
        assert (mount / "large").read_bytes() == large


def test_who_writes_is_told_and_all_goes_on_once_there_is_room(machines: Machines, mount: Path) -> None:
    large = fill(mount / "large")
    assert room(machines.home) < RESERVE  # the kernel knows of no reserve
    assert room(mount) == 0
    check(mount, large)
    names = make_names(mount)
    hears_no_space((mount / "folder").mkdir)
    assert machines.run("clone", mount / "sealed", mount / "clone", expect=None).exit_code == 17
    assert machines.run("snapshot", mount, "s", expect=None).exit_code == 17
    assert machines.run("flush", mount, expect=None).exit_code in {0, 17}
    check(mount, large)
    (mount / "sealed").rename(mount / "renamed")
    (mount / "renamed").rename(mount / "sealed")
    os.truncate(mount / "synced", len(SYNCED) // 2)
    os.truncate(mount / "large", len(large) // 2)
    assert (mount / "synced").read_bytes() == SYNCED[: len(SYNCED) // 2]

    (mount / "large").unlink()
    machines.run("gc", mount)
    until_room(mount, 100 * MIB)
    write(mount / "synced", SYNCED)
    write(mount / "large", large[: 50 * MIB])  # at once, without a remount
    machines.run("flush", mount)
    machines.run("snapshot", mount, "s")
    check(mount / ".snapshots/s", large[: 50 * MIB])
    machines.run("umount", mount, "--seal")
    assert not list((machines.home / "volume-m").glob("hot/*"))
    machines.remount("m", "--no-native")
    assert {path.name for path in mount.iterdir()} == {*names, "sealed", "synced", "large"}
    check(mount, large[: 50 * MIB])
    machines.run("fsck", mount)
    machines.run("scrub", mount)


def test_a_mount_that_dies_on_a_full_host_loses_nothing_that_was_synced(machines: Machines, mount: Path) -> None:
    large = fill(mount / "large")
    names = make_names(mount)
    run("sync", mount)
    assert machines.kill_mount("m")
    machines.run("umount", mount)
    machines.remount("m", "--native")
    check(mount, large)
    assert {path.name for path in mount.iterdir()} == {*names, "sealed", "synced", "large"}
    (mount / "large").unlink()
    machines.run("gc", mount)
    write(mount / "large", large[: 50 * MIB])
    machines.run("flush", mount)
    check(mount, large[: 50 * MIB])
    machines.run("umount", mount)
    machines.run("fsck", machines.home / "volume-m")
    machines.run("scrub", machines.home / "volume-m")
