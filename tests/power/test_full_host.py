"""A host without room: whoever writes is told, nothing is lost, and there is a way out without help from outside."""

from __future__ import annotations

import errno
import os
import random
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from blockfs.exitcodes import ExitCode
from tests.power.disk import RecordedDisk
from tests.power.faults import FAIL_ONE_FLUSH
from tests.power.hosts import MIB, btrfs_with_quota, fill, small_ext4
from tests.power.trial import blocksync
from tests.system.machines import Machines

pytestmark = pytest.mark.usefixtures("fuse")

_NOISE = random.Random(1)


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the host is: not below the machines' home, which must be left without mounts."""
    return tmp_path_factory.mktemp("host")


class Setup:
    """A volume on a small host, mounted; unmounted at the end, whatever happens."""

    def __init__(self, machines: Machines, host: Path) -> None:
        self.machines = machines
        self.host = host
        self.volume = host / "volume"
        self.path = machines.home / "m"
        self.path.mkdir()
        machines.run("init", self.volume)
        self.mount()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if os.path.ismount(self.path):
            self.umount()

    def mount(self, *, before: str = "") -> None:
        """Mount; `before` is Python that plants a fault in the mount's process."""
        blocksync("mount", self.volume, self.path, before=before)
        self.machines.mounts["m"] = self.path

    def umount(self) -> None:
        """Unmount. An earlier failure to write may be told once more: then again."""
        for expect in (None, 0):
            if os.path.ismount(self.path):
                self.machines.run("umount", self.path, expect=expect)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the mount process by a signal, and take away the mount that may be left."""
        fd = os.pidfd_open(int((self.volume / "lock").read_text()))
        signal.pidfd_send_signal(fd, number)
        select.select([fd], [], [])
        os.close(fd)
        self.umount()

    def umount_after_failure(self) -> None:
        """Unmount when the disk has failed: that may be told first, and LMDB may have given up."""
        first = self.machines.run("umount", self.path, expect=None).exit_code
        if os.path.ismount(self.path):
            first = self.machines.run("umount", self.path, expect=None).exit_code
        assert first in {ExitCode.DONE, ExitCode.CHANGES_LOST}
        assert not os.path.ismount(self.path)

    def write(self, name: str, data: bytes) -> None:
        """Write and fsync; raises what the writer hears, at whatever call."""
        fd = os.open(self.path / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            for at in range(0, len(data), MIB):
                os.pwrite(fd, data[at : at + MIB], at)
                os.fsync(fd)
        finally:
            os.close(fd)

    def check_sound(self) -> None:
        """Unmounted: metadata and blocks are in order."""
        self.machines.run("fsck", self.volume)
        self.machines.run("scrub", self.volume)


def available(path: Path) -> int:
    found = os.statvfs(path)
    return found.f_bavail * found.f_frsize


@pytest.fixture
def full(machines: Machines, place: Path) -> Iterator[Setup]:
    """An ext4 on which somebody else has taken all room, below a volume with a sealed and a staged file."""
    with small_ext4(place) as host, Setup(machines, host) as made:
        made.write("sealed", _NOISE.randbytes(4 * MIB))
        machines.run("flush", made.path)
        made.write("staged", _NOISE.randbytes(MIB))
        fill(host)
        assert available(host) == 0
        yield made


def test_a_full_host_is_left_by_unlink_and_gc(full: Setup) -> None:
    kept = (full.path / "staged").read_bytes()
    for refused in (lambda: full.write("new", b"x" * MIB), (full.path / "folder").mkdir):
        with pytest.raises(OSError, match="No space left") as caught:
            refused()
        assert caught.value.errno == errno.ENOSPC
    (full.path / "sealed").unlink()
    full.machines.run("gc", full.path)
    assert available(full.host) > 3 * MIB
    assert (full.path / "staged").read_bytes() == kept
    full.write("new", b"y" * MIB)  # at once, without a remount
    full.umount()
    full.check_sound()
    full.mount()
    assert (full.path / "staged").read_bytes() == kept
    assert (full.path / "new").read_bytes() == b"y" * MIB
    assert not (full.path / "sealed").exists()


def test_clones_and_snapshots_leave_the_reserve_and_use_what_was_removed_a_moment_ago(
    machines: Machines, place: Path
) -> None:
    with small_ext4(place) as host, Setup(machines, host) as made:
        made.write("sealed", _NOISE.randbytes(MIB))
        machines.run("flush", made.path)
        made.write("staged", _NOISE.randbytes(8 * MIB))
        fill(host)
        makers = (("clone", made.path / "sealed", made.path / "copy"), ("snapshot", "create", made.path, "s"))
        for maker in makers:
            machines.run(*maker, expect=ExitCode.NO_SPACE)
        (made.path / "staged").unlink()
        for maker in makers:
            machines.run(*maker)
        made.umount()
        made.check_sound()


def test_a_volume_on_a_full_host_can_be_mounted_and_made_smaller(full: Setup) -> None:
    kept = (full.path / "staged").read_bytes()
    full.kill()
    fill(full.host)
    full.mount()
    assert (full.path / "staged").read_bytes() == kept
    (full.path / "sealed").unlink()
    full.machines.run("gc", full.path)
    assert available(full.host) > 3 * MIB
    full.umount()
    full.check_sound()


def test_garbage_on_a_full_host_is_collected_offline(machines: Machines, place: Path) -> None:
    with small_ext4(place) as host, Setup(machines, host) as made:
        made.write("sealed", _NOISE.randbytes(4 * MIB))
        machines.run("flush", made.path)
        (made.path / "sealed").unlink()
        made.umount()
        fill(host)
        assert available(host) == 0
        machines.run("gc", made.volume)
        assert available(host) > 3 * MIB
        made.check_sound()


def test_free_space_tells_what_writers_may_use(machines: Machines, place: Path) -> None:
    with small_ext4(place) as host, Setup(machines, host) as made:
        promised = available(made.path)
        assert promised < available(host)
        with pytest.raises(OSError, match="No space left"):
            made.write("big", _NOISE.randbytes(48 * MIB))
        assert available(made.path) < MIB  # what is left is less than the reserve
        assert available(host) > 0
        made.umount()
        made.check_sound()


def test_a_quota_is_seen_like_a_small_disk(machines: Machines, place: Path) -> None:
    with btrfs_with_quota(place, 24 * MIB) as host, Setup(machines, host) as made:
        found = os.statvfs(made.path)
        assert found.f_blocks * found.f_frsize == 24 * MIB
        assert 0 < found.f_bavail * found.f_frsize < 24 * MIB


def test_a_quota_is_told_apart_from_a_full_disk(machines: Machines, place: Path) -> None:
    with btrfs_with_quota(place, 24 * MIB) as host, Setup(machines, host) as made:
        kept = _NOISE.randbytes(4 * MIB)
        made.write("kept", kept)
        with pytest.raises(OSError, match="quota") as caught:
            made.write("big", _NOISE.randbytes(64 * MIB))
        assert caught.value.errno == errno.EDQUOT
        assert (made.path / "kept").read_bytes() == kept
        (made.path / "big").unlink()
        machines.run("flush", made.path, expect=None)  # may tell of the failed write once more
        machines.run("flush", made.path)  # commits the removal
        made.write("after", kept[::-1])
        made.umount()
        made.check_sound()
        made.mount()
        assert (made.path / "kept").read_bytes() == kept
        assert (made.path / "after").read_bytes() == kept[::-1]


def test_a_disk_that_fails_is_an_error_and_loses_nothing_durable(machines: Machines, place: Path) -> None:
    with RecordedDisk(place) as disk, Setup(machines, disk.path) as made:
        sealed, staged = _NOISE.randbytes(2 * MIB), _NOISE.randbytes(MIB)
        made.write("sealed", sealed)
        machines.run("flush", made.path)
        made.write("staged", staged)
        disk.fail("writes")
        with pytest.raises(OSError, match="Input/output") as caught:
            made.write("new", _NOISE.randbytes(4 * MIB))
        assert caught.value.errno == errno.EIO
        assert machines.run("flush", made.path, expect=None).exit_code != 0
        disk.recover()
        assert (made.path / "sealed").read_bytes() == sealed
        assert (made.path / "staged").read_bytes() == staged
        made.umount_after_failure()
        disk.remount()
        made.mount()
        assert (made.path / "sealed").read_bytes() == sealed
        assert (made.path / "staged").read_bytes() == staged
        made.write("new", sealed[::-1])
        machines.run("flush", made.path)
        assert (made.path / "new").read_bytes() == sealed[::-1]
        made.umount()
        made.check_sound()


def _is_refused(call: Callable[[], object]) -> bool:
    with pytest.raises(OSError, match="Input/output") as caught:
        call()
    return caught.value.errno == errno.EIO


def test_what_one_failed_flush_lost_is_eio_until_it_is_written_again(machines: Machines, place: Path) -> None:
    """The kernel's pages of the mount go, too; all this lasts over a remount, and nothing else is concerned."""
    trigger = place / "trigger"
    old, new = _NOISE.randbytes(MIB), _NOISE.randbytes(MIB)
    with small_ext4(place) as host, Setup(machines, host) as made:
        made.umount()
        made.mount(before=FAIL_ONE_FLUSH.format(trigger=os.fspath(trigger)))
        made.write("file", old)
        machines.run("flush", made.path)
        file = made.path / "file"
        with file.open("r+b", buffering=0) as writer, file.open("r+b", buffering=0) as other:
            os.pwrite(writer.fileno(), new[: 64 << 10], 128 << 10)
            trigger.touch()
            assert _is_refused(lambda: os.fsync(writer.fileno()))
            assert _is_refused(file.read_bytes)
            assert os.pread(writer.fileno(), 64 << 10, 0) == old[: 64 << 10]
            assert _is_refused(lambda: os.fsync(other.fileno()))
        for command in (
            ("flush", made.path),
            ("snapshot", "create", made.path, "s"),
            ("clone", file, made.path / "copy"),
        ):
            told = machines.run(*command, expect=ExitCode.CORRUPTION)
            assert "file: bytes 131072 to 196607 could not be written" in told.stderr
        told = machines.run("fsck", made.path, expect=ExitCode.CORRUPTION)
        assert "lost: file: bytes 131072 to 196607" in told.stdout
        ended = machines.run("umount", made.path, expect=ExitCode.CHANGES_LOST)
        assert "file: bytes 131072 to 196607" in ended.stderr
        made.mount()
        assert _is_refused(file.read_bytes)
        with file.open("r+b") as rewriting:
            rewriting.seek(128 << 10)
            rewriting.write(new[: 64 << 10])
            rewriting.flush()
            os.fsync(rewriting.fileno())
        machines.run("flush", made.path)
        assert file.read_bytes() == old[: 128 << 10] + new[: 64 << 10] + old[192 << 10 :]
        made.umount()
        made.check_sound()


_LOSE_META_PAGE = """
import fcntl, os
from blockfs.tree.store import Tree
write = Tree.write
def lose(tree, change_set):
    if os.path.exists({trigger!r}):
        for number in map(int, os.listdir("/proc/self/fd")):
            try:
                is_data = os.readlink(f"/proc/self/fd/{{number}}").endswith("/tree/data.mdb")
            except FileNotFoundError:
                continue
            if is_data and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_DSYNC:
                os.dup2(os.open("/dev/null", os.O_RDONLY), number)
    write(tree, change_set)
Tree.write = lose
"""
"""LMDB writes its meta page through a descriptor of its own, with O_DSYNC: a failure there is what makes it panic."""


def test_a_mount_that_commits_nothing_any_more_ends_and_says_what_is_lost(machines: Machines, place: Path) -> None:
    trigger = place / "trigger"
    with small_ext4(place) as host, Setup(machines, host) as made:
        made.umount()
        made.mount(before=_LOSE_META_PAGE.format(trigger=os.fspath(trigger)))
        made.write("durable", b"d" * MIB)
        trigger.touch()
        for _ in range(2):  # the failure itself; then MDB_PANIC
            with pytest.raises(OSError, match="Input/output"):
                made.write("later", b"x" * 4096)
        assert (made.path / "durable").read_bytes() == b"d" * MIB
        ended = machines.run("umount", made.path, expect=ExitCode.CHANGES_LOST)
        assert "was fsynced" in ended.stderr
        assert not os.path.ismount(made.path)
        made.mount()
        assert (made.path / "durable").read_bytes() == b"d" * MIB
        made.umount()
        made.check_sound()
