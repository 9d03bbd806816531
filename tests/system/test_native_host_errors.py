"""A native mount whose disk fails below it: XFS on a loop device whose file finds no more room."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.hostfs import REFLINKS, run, umount
from tests.system.machines import Ended, Machines

FRONTENDS = ("kernel",)
GOING_DOWN = 0x8004587D  # FS_IOC_GOINGDOWN of XFS and ext4
NO_LOG_FLUSH = 2
MIB = 1 << 20
DISK = 96 * MIB  # so much of the loop device can be written; what is beyond is an I/O error
SYNCED = os.urandom(8 * MIB)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs for the file of the loop device: it can be made larger."""
    path = tmp_path / "disk"
    path.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", path)
    try:
        yield path
    finally:
        umount(path)


@pytest.fixture
def machines(fuse: None, disk: Path, tmp_path: Path) -> Iterator[Machines]:
    """A folder on a host that thinks its disk is four times as large as it is."""
    size, *mkfs = REFLINKS["xfs"]
    image, host = disk / "host.img", tmp_path / "host"
    host.mkdir()
    with image.open("wb") as file:
        file.truncate(int(size) * MIB)
    run(*map(str, mkfs), image)
    run("mount", "-o", "loop", image, host)
    try:
        (host / "home").mkdir()
        made = Machines(host / "home")
        try:
            yield made
        finally:
            made.close()
    finally:
        umount(host)


def end(machines: Machines, name: str) -> Ended:
    """`umount --seal`, and wait until the process has let go of the host."""
    process = os.pidfd_open(machines.mount_pid(name))
    ended = machines.run("umount", machines.mounts[name], "--seal", expect=None)
    if not machines.mounts[name].is_mount():
        select.select([process], [], [])
    os.close(process)
    return ended


def test_who_syncs_is_told_and_what_was_synced_before_stays(machines: Machines, disk: Path) -> None:
    """Breaks if a page that the kernel gave up counts as written, or goes into a block."""
    volume = machines.home / "volume-m"
    machines.run("init", volume)
    machines.folder("m")
    mount = machines.remount("m", "--native")
    (mount / "synced").write_bytes(SYNCED)
    run("sync", mount / "synced")
    with (mount / "lost").open("wb", buffering=0) as file:
        file.write(os.urandom(DISK))
        told = []
        for _ in range(2):
            with pytest.raises(OSError, match=r"error|space") as failed:  # not once only: it stays lost
                os.fsync(file.fileno())
            told.append(failed.value.errno)
    assert set(told) <= {errno.EIO, errno.ENOSPC}
    assert (mount / "synced").read_bytes() == SYNCED

    run("mount", "-o", "remount,size=1g", disk)  # somebody has mended the disk
    ended = end(machines, "m")
    assert ended.exit_code == 19
    assert "has ended" in ended.stderr
    assert "lost" in ended.stderr
    assert str(mount) not in Path("/proc/self/mountinfo").read_text()
    machines.run("fsck", volume)
    assert (machines.remount("m") / "synced").read_bytes() == SYNCED
    assert end(machines, "m").exit_code == 0
    machines.run("scrub", volume)


@pytest.mark.parametrize("mode", ["--native", "--no-native"])
def test_umount_ends_a_mount_whose_host_was_shut_down(machines: Machines, mode: str) -> None:
    """As XFS does itself when its log can't be written."""
    volume = machines.home / "volume-m"
    machines.run("init", volume)
    machines.folder("m")
    mount = machines.remount("m", mode)
    (mount / "synced").write_bytes(SYNCED)
    run("sync", mount / "synced")
    (mount / "lost").write_bytes(b"x")
    process = os.pidfd_open(machines.mount_pid("m"))
    host = os.open(machines.home, os.O_RDONLY)
    fcntl.ioctl(host, GOING_DOWN, NO_LOG_FLUSH.to_bytes(4, sys.byteorder))
    os.close(host)
    ended = machines.run("umount", machines.mounts.pop("m"), expect=None)
    select.select([process], [], [])
    os.close(process)
    assert ended.exit_code == 19, ended
    assert "the mount has ended" in ended.stderr
    assert str(mount) not in Path("/proc/self/mountinfo").read_text()
