"""Mounts that meet a bug of ours: where nothing is changed they go on, else they end and no half change stays."""

from __future__ import annotations

import errno
import os
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from blockfs.control.client import ControlClient, RequestError
from tests.conftest import Mounted
from tests.crash.faulty import HALF, LOOK
from tests.system.machines import Machines

PROJECT = Path(__file__).parents[2]
PATIENCE_S = 60.0
GONE = "|".join(os.strerror(number) for number in (errno.EIO, errno.ENOTCONN, errno.ECONNABORTED))


@pytest.fixture
def faulty(nothing_left: None, machines: Machines) -> Mounted:
    """A mount with bugs, and a file that was fsynced."""
    volume, mountpoint = machines.home / "volume-m", machines.home / "m"
    machines.run("init", volume)
    mountpoint.mkdir()
    subprocess.run([sys.executable, "-m", "tests.crash.faulty", volume, mountpoint], cwd=PROJECT, check=True)
    machines.mounts["m"] = mountpoint
    with (mountpoint / "kept").open("wb") as file:
        file.write(b"kept")
        file.flush()
        os.fsync(file.fileno())
    return Mounted(machines, "m", volume, mountpoint)


def log_of(mounted: Mounted) -> str:
    return (mounted.volume / "mount.log").read_text()


def test_a_bug_in_a_request_that_changes_nothing_costs_that_request(faulty: Mounted) -> None:
    for _ in range(3):
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.stat(faulty.path / os.fsdecode(LOOK))
    assert "Traceback" in log_of(faulty)
    assert "request.crashed" in log_of(faulty)
    (faulty.path / "later").write_bytes(b"the mount goes on")
    faulty.umount()
    faulty.remount()
    assert (faulty.path / "later").read_bytes() == b"the mount goes on"


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "mkdir": lambda _, new: new.mkdir(),
    "create": lambda _, new: new.touch(),
    "mknod": lambda _, new: os.mkfifo(new),
    "symlink": lambda _, new: new.symlink_to("target"),
    "link": lambda kept, new: new.hardlink_to(kept),
    "rename": lambda kept, new: kept.rename(new),
    "setxattr": lambda kept, new: os.setxattr(kept, b"user." + os.fsencode(new.name), b"value"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_bug_in_the_middle_of_a_change_ends_the_mount_and_no_half_stays(faulty: Mounted, kind: str) -> None:
    process = os.pidfd_open(faulty.pid)
    with pytest.raises(OSError, match=GONE):
        CHANGES[kind](faulty.path / "kept", faulty.path / os.fsdecode(HALF))
    assert_it_ends_as_if_killed(faulty, process)


def test_a_bug_in_a_control_thread_ends_the_mount_too_and_is_told(faulty: Mounted) -> None:
    """The engine's lock is free after it; the commit thread must not make its half durable."""
    process = os.pidfd_open(faulty.pid)
    with ControlClient(os.fsencode(faulty.volume)) as client, pytest.raises(RequestError, match="a bug") as caught:
        client.clone(b"kept", HALF)
    assert caught.value.exit_code == 19
    assert_it_ends_as_if_killed(faulty, process)


def test_a_mount_that_a_bug_ends_lets_go_of_who_uses_it(faulty: Mounted) -> None:
    """Open files fail; nobody waits for an answer that never comes."""
    process = os.pidfd_open(faulty.pid)
    with (faulty.path / "kept").open("rb", buffering=0) as opened:
        with pytest.raises(OSError, match=GONE):
            (faulty.path / os.fsdecode(HALF)).mkdir()
        assert select.select([process], [], [], PATIENCE_S)[0]
        with pytest.raises(OSError, match=GONE):
            os.fsync(opened.fileno())
    assert_it_ends_as_if_killed(faulty, process)


def assert_it_ends_as_if_killed(faulty: Mounted, process: int) -> None:
    try:
        assert select.select([process], [], [], PATIENCE_S)[0], "the mount process did not end"
    finally:
        os.close(process)
    assert not os.path.ismount(faulty.path)
    assert "mount.abandoned" in log_of(faulty)
    faulty.run("fsck", faulty.volume)
    faulty.remount()
    assert (faulty.path / "kept").read_bytes() == b"kept"
    assert os.listxattr(faulty.path / "kept") == []
    assert [entry.name for entry in faulty.path.iterdir()] == ["kept"]
