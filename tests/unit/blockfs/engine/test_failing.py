"""What the host failed to write is lost, and is never shown, sealed or vouched for until it is written again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from blockfs.engine.content import staging as staging_module
from blockfs.engine.copies.apply import Apply
from blockfs.engine.copies.conditions import RefusedError
from blockfs.engine.durable import failing
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import BlockfsError, FormatTooNewError, FsError
from blockfs.service import maintenance
from blockfs.service.changes import sealed_file
from blockfs.tree import upgrade
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.schema import META_FORMAT, PLAIN_FORMAT, ROOT_INO, SNAPSHOTS_INO, Table, decode_format
from tests.unit.blockfs.engine.volumes import USER, config, content, create, find, make

BLOCK = 8192
OLD, NEW, NEWER = b"o", b"n", b"m"


class Disk:
    """A host's disk that may fail to write staging files back. What it fails to write, the kernel forgets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, staging: bytes) -> None:
        self.code: int | None = None
        self._staging = os.path.realpath(os.fsdecode(staging))
        self._real = os.fdatasync
        self._durable: dict[str, bytes] = {}
        monkeypatch.setattr(os, "fdatasync", self._fdatasync)

    def _fdatasync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if self.code is None or not path.startswith(self._staging):
            self._real(fd)
            self._durable[path] = os.pread(fd, 1 << 20, 0)
            return
        self.forget(fd)
        raise OSError(self.code, os.strerror(self.code))

    def forget(self, fd: int) -> None:
        """The file is what is on the disk, and NUL elsewhere: what the page cache may have after it dropped pages."""
        durable = self._durable.get(os.readlink(f"/proc/self/fd/{fd}"), b"")
        os.pwrite(fd, durable.ljust(os.fstat(fd).st_size, b"\0"), 0)


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config())
    yield opened
    opened.abandon()


@pytest.fixture
def disk(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch, filesystem.volume.staging_path)


@pytest.fixture
def ino(filesystem: Filesystem) -> int:
    """A file with four sealed pages."""
    made = create(filesystem, b"f")
    filesystem.files.write(made, 0, OLD * 16384)
    filesystem.files.flush()
    return made


@pytest.fixture
def failed(filesystem: Filesystem, disk: Disk, ino: int) -> int:
    """Its second page was written again, and the background's flush failed."""
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    return ino


def fail_in_background(filesystem: Filesystem, disk: Disk, code: int = errno.EIO) -> None:
    disk.code = code
    with pytest.raises(FlushFailedError, match="could not be written"):
        filesystem._flusher.publish_older(0.0)
    disk.code = None


def rewrite(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 4096, NEWER * 4096, may_block=True)


def tree_format(filesystem: Filesystem) -> int:
    with filesystem.tree.committed() as view:
        return decode_format(view.rows.get(Table.META, META_FORMAT))


def reopened(filesystem: Filesystem) -> Filesystem:
    filesystem.close()
    return Filesystem.open(filesystem.volume.path, config())


def is_lost(call: Callable[[], object], code: int = errno.EIO) -> bool:
    """That a call fails because of lost data, naming the file."""
    with pytest.raises(FlushFailedError, match=r"^f: bytes 4096 to 8191 could not be written to the host") as met:
        call()
    return met.value.errno == code


# --- readers ---


def test_a_failed_range_is_neither_nul_nor_old_but_an_error(filesystem: Filesystem, failed: int) -> None:
    read = filesystem.files.read
    assert is_lost(lambda: read(failed, 4096, 1, may_block=True))
    assert is_lost(lambda: read(failed, 0, 16384, may_block=True))
    assert read(failed, 0, 4096, may_block=True) == OLD * 4096
    assert read(failed, 8192, 8192, may_block=True) == OLD * 8192


def test_a_reader_gets_eio_also_if_there_was_no_space(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    """A thin disk may be full only when it is written."""
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk, errno.ENOSPC)
    assert is_lost(lambda: filesystem.files.read(ino, 4096, 1, may_block=True))
    assert is_lost(lambda: filesystem.files.fsync(ino), errno.ENOSPC)


def test_a_seal_does_not_make_it_well(filesystem: Filesystem, failed: int) -> None:
    """The generation was dropped with its flag, and NUL bytes were sealed: then fsync succeeded."""
    while filesystem._seal_queue.seal_due():
        pass
    assert filesystem.staged_bytes == 0
    assert is_lost(lambda: filesystem.files.read(failed, 4096, 4096, may_block=True))
    assert is_lost(lambda: filesystem.files.fsync(failed))


def test_what_was_flushed_before_is_not_lost(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    filesystem.files.write(ino, 0, NEW * 4096)
    filesystem.files.fsync(ino)
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    filesystem.files.write(ino, 8192, NEW * 4096)
    filesystem._flusher.publish_older(0.0)
    assert filesystem.files.read(ino, 0, 4096, may_block=True) == NEW * 4096
    assert filesystem.files.read(ino, 8192, 4096, may_block=True) == NEW * 4096
    rewrite(filesystem, ino)
    with pytest.raises(FlushFailedError):
        filesystem.files.fsync(ino)
    filesystem.files.flush()
    assert content(filesystem, b"f") == NEW * 4096 + NEWER * 4096 + NEW * 4096 + OLD * 4096


def test_a_range_that_is_written_again_is_well(filesystem: Filesystem, failed: int) -> None:
    rewrite(filesystem, failed)
    assert content(filesystem, b"f") == OLD * 4096 + NEWER * 4096 + OLD * 8192
    with pytest.raises(FlushFailedError, match=r"it was written again"):
        filesystem.files.fsync(failed)  # nobody has been told yet
    filesystem.files.fsync(failed)
    filesystem.files.flush()
    assert content(filesystem, b"f") == OLD * 4096 + NEWER * 4096 + OLD * 8192


def test_a_part_of_a_lost_page_can_not_be_written(filesystem: Filesystem, failed: int) -> None:
    """What is beside it in the page is not known."""
    assert is_lost(lambda: filesystem.files.write(failed, 5000, b"x", may_block=True))


def test_what_is_cut_away_is_not_failed(filesystem: Filesystem, failed: int) -> None:
    filesystem.files.truncate(failed, 4096, may_block=True)
    filesystem.files.truncate(failed, 8192, may_block=True)
    assert content(filesystem, b"f") == OLD * 4096 + bytes(4096)
    with pytest.raises(FlushFailedError):
        filesystem.files.fsync(failed)
    filesystem.files.fsync(failed)
    filesystem.commit()
    assert tree_format(filesystem) == PLAIN_FORMAT


def test_a_write_during_the_flush_that_fails_is_lost_too(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    """The kernel may have met it."""
    real = disk.forget

    def write_and_forget(fd: int) -> None:
        disk.forget = real  # type: ignore[method-assign]
        filesystem.files.write(ino, 8192, NEW * 4096)
        real(fd)

    disk.forget = write_and_forget  # type: ignore[method-assign]
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    for page in (1, 2):
        with pytest.raises(FlushFailedError):
            filesystem.files.read(ino, page * 4096, 1, may_block=True)


def test_what_lies_under_newer_data_is_not_lost(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    filesystem.files.write(ino, 4096, NEW * 4096)
    filesystem._table.get(ino).is_open = False  # as a seal does that begins
    rewrite(filesystem, ino)
    older, newer = filesystem._table.get(ino).generations
    newer.unsynced.clear()
    disk.code = errno.EIO
    filesystem._flusher.publish_older(0.0)
    disk.code = None
    assert not older.pages
    assert content(filesystem, b"f") == OLD * 4096 + NEWER * 4096 + OLD * 8192
    filesystem.files.flush()


def test_a_failure_of_the_kernels_own_write_back_is_met_by_the_seal(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has flushed yet, and the page cache has dropped the pages."""

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    filesystem.files.write(ino, 4096, NEW * 4096)
    with monkeypatch.context() as patched:
        patched.setattr(staging_module, "check_written", fail)
        assert is_lost(filesystem.files.flush)
    assert is_lost(filesystem.files.flush)
    assert is_lost(lambda: filesystem.files.read(ino, 4096, 4096, may_block=True))
    assert is_lost(lambda: filesystem.files.fsync(ino))


# --- who is told ---


def test_each_handle_that_was_open_is_told_once(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    handles = [filesystem.files.open(ino, os.O_RDWR) for _ in range(2)]
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    rewrite(filesystem, ino)
    filesystem.files.flush()
    for handle in handles:
        with pytest.raises(FlushFailedError):
            filesystem.files.fsync(ino, handle=handle)
        filesystem.files.fsync(ino, handle=handle)
    filesystem.files.fsync(ino, handle=filesystem.files.open(ino))


def test_the_first_later_one_is_told_if_nobody_was(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    """Also after the file was closed and sealed."""
    handle = filesystem.files.open(ino, os.O_RDWR)
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    rewrite(filesystem, ino)
    filesystem.files.release(handle)
    filesystem.files.flush()
    later = filesystem.files.open(ino)
    with pytest.raises(FlushFailedError):
        filesystem.files.fsync(ino, handle=later)
    filesystem.files.fsync(ino, handle=later)
    filesystem.files.fsync(ino, handle=filesystem.files.open(ino))


def test_the_fsync_that_met_it_has_told_its_handle(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    handle, other = filesystem.files.open(ino, os.O_RDWR), filesystem.files.open(ino)
    filesystem.files.write(ino, 4096, NEW * 4096)
    disk.code = errno.EIO
    assert is_lost(lambda: filesystem.files.fsync(ino, handle=handle, datasync=True))
    disk.code = None
    rewrite(filesystem, ino)
    filesystem.files.fsync(ino, handle=handle)
    with pytest.raises(FlushFailedError):
        filesystem.files.fsync(ino, handle=other)


def test_fsync_vouches_for_nothing_as_long_as_a_range_is_lost(filesystem: Filesystem, failed: int) -> None:
    """A program that repeats it would take the second answer for the truth."""
    handle = filesystem.files.open(failed, os.O_RDWR)
    for _ in range(3):
        assert is_lost(lambda: filesystem.files.fsync(failed, handle=handle))
    rewrite(filesystem, failed)
    filesystem.files.fsync(failed, handle=handle)


# --- mounts ---


def test_it_lasts_over_a_remount(filesystem: Filesystem, failed: int) -> None:
    again = reopened(filesystem)
    assert again.tree.mount_row().generation == 1, "it ended cleanly"
    assert is_lost(lambda: again.files.read(failed, 4096, 1, may_block=True))
    assert is_lost(lambda: again.files.fsync(failed))
    assert is_lost(again.files.flush)
    rewrite(again, failed)
    again.files.fsync(failed)
    last = reopened(again)
    assert content(last, b"f") == OLD * 4096 + NEWER * 4096 + OLD * 8192
    last.files.fsync(failed)
    last.close()


def test_who_was_not_told_before_a_remount_is_told_after_it(filesystem: Filesystem, failed: int) -> None:
    rewrite(filesystem, failed)
    filesystem.files.flush()
    again = reopened(filesystem)
    with pytest.raises(FlushFailedError):
        again.files.fsync(failed)
    again.files.fsync(failed)
    last = reopened(again)
    last.files.fsync(failed)
    assert tree_format(last) == PLAIN_FORMAT
    last.close()


def test_a_new_file_that_is_lost_is_no_empty_file_afterwards(filesystem: Filesystem, disk: Disk) -> None:
    ino = create(filesystem, b"new")
    filesystem.files.write(ino, 0, NEW * 5000)
    fail_in_background(filesystem, disk)
    again = reopened(filesystem)
    assert again.namespace.getattr(ino).size_bytes == 5000
    with pytest.raises(FlushFailedError, match=r"^new: bytes 0 to 4999"):
        again.files.read(ino, 0, 5000, may_block=True)
    again.close()


def test_a_kill_after_the_rewriting_finds_the_failure_unless_it_was_flushed(
    filesystem: Filesystem, failed: int
) -> None:
    rewrite(filesystem, failed)
    filesystem.commit()
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert is_lost(lambda: again.files.read(failed, 4096, 1, may_block=True))
    rewrite(again, failed)
    with pytest.raises(FlushFailedError):
        again.files.fsync(failed)
    again.abandon()
    last = Filesystem.open(again.volume.path, config())
    assert content(last, b"f") == OLD * 4096 + NEWER * 4096 + OLD * 8192
    last.close()


def test_a_commit_that_fails_as_well_loses_no_failure(
    filesystem: Filesystem, disk: Disk, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise BlockfsError("the host fails")

    filesystem.files.write(ino, 4096, NEW * 4096)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem.tree, "write", fail)
        fail_in_background(filesystem, disk)
    again = reopened(filesystem)
    assert is_lost(lambda: again.files.read(ino, 4096, 1, may_block=True))
    again.close()


def test_what_was_fsynced_is_there_if_nothing_of_the_failure_could_be_written_down(
    filesystem: Filesystem, disk: Disk, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on ext4: the next mount finds what is on the disk, not what was sealed before it, and not NUL."""

    def fail(_: object) -> None:
        raise BlockfsError("the host fails")

    filesystem.files.write(ino, 0, NEW * 8192)
    filesystem.files.fsync(ino)
    filesystem.files.write(ino, 4096, NEWER * 4096)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem.tree, "write", fail)
        fail_in_background(filesystem, disk)
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == NEW * 8192 + OLD * 8192
    again.close()


def test_what_lies_in_a_lost_page_is_never_sealed_also_if_a_kill_left_it_there(
    filesystem: Filesystem, disk: Disk, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, NEW * 8192)
    filesystem.files.fsync(ino)
    filesystem.files.write(ino, 4096, NEWER * 4096)
    with monkeypatch.context() as patched:
        patched.setattr(failing, "punch", lambda *_: None)
        fail_in_background(filesystem, disk)
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    with pytest.raises(FlushFailedError):
        again.files.flush()
    assert again.tree.block_ids(ino, 0, 1) == block_id(NEW * 4096 + OLD * 4096)
    assert is_lost(lambda: again.files.read(ino, 4096, 1, may_block=True))
    again.close()


def test_the_end_of_a_mount_tells_of_what_its_last_flush_lost(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    filesystem.files.write(ino, 4096, NEW * 4096)
    disk.code = errno.EIO
    assert is_lost(filesystem.close)
    disk.code = None
    again = Filesystem.open(filesystem.volume.path, config())
    assert again.tree.mount_row().generation == 1, "it ended cleanly"
    assert is_lost(lambda: again.files.read(ino, 4096, 1, may_block=True))
    again.close()


def test_a_read_only_mount_shows_it_too(filesystem: Filesystem, failed: int) -> None:
    filesystem.close()
    again = Filesystem.open(filesystem.volume.path, replace(config(), read_only=True))
    assert is_lost(lambda: again.files.read(failed, 4096, 1, may_block=True))
    assert again.files.read(failed, 0, 4096, may_block=True) == OLD * 4096
    again.close()


def test_an_older_program_refuses_the_volume_until_the_range_is_written_again(
    filesystem: Filesystem, failed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would read what is below."""
    filesystem.close()
    with monkeypatch.context() as patched:
        patched.setattr(upgrade, "FORMAT", PLAIN_FORMAT)  # all that it knows
        with pytest.raises(FormatTooNewError) as refused:
            Filesystem.open(filesystem.volume.path, config())
    assert refused.value.exit_code == 14
    again = Filesystem.open(filesystem.volume.path, config())
    rewrite(again, failed)
    with pytest.raises(FlushFailedError):
        again.files.fsync(failed)
    again.close()
    monkeypatch.setattr(upgrade, "FORMAT", PLAIN_FORMAT)
    Filesystem.open(filesystem.volume.path, config()).close()


def test_a_volume_on_a_sound_host_keeps_its_format(filesystem: Filesystem, ino: int) -> None:
    again = reopened(filesystem)
    assert tree_format(again) == PLAIN_FORMAT
    again.close()


# --- what refuses the file ---


def test_flush_names_the_file_and_seals_all_others(filesystem: Filesystem, failed: int) -> None:
    other = create(filesystem, b"other")
    filesystem.files.write(other, 0, b"x" * BLOCK)
    assert is_lost(filesystem.files.flush)
    assert is_lost(lambda: filesystem.files.flush(failed))
    filesystem.files.flush(other)
    assert filesystem.staged_bytes == 0


def test_a_snapshot_names_the_file(filesystem: Filesystem, failed: int) -> None:
    assert is_lost(lambda: filesystem.snapshots.create(ROOT_INO, b"s"))
    assert filesystem.snapshots.all() == []
    assert not list(filesystem.tree.entries(SNAPSHOTS_INO))
    folder = filesystem.namespace.mkdir(ROOT_INO, b"d", mode=0o755, caller=USER).ino
    filesystem.snapshots.create(folder, b"of another folder")
    rewrite(filesystem, failed)
    filesystem.snapshots.create(ROOT_INO, b"s")


def test_a_clone_names_the_file(filesystem: Filesystem, failed: int) -> None:
    assert is_lost(lambda: filesystem.clone(failed, ROOT_INO, b"g"))
    assert find(filesystem, b"g") is None
    rewrite(filesystem, failed)
    filesystem.clone(failed, ROOT_INO, b"g")
    assert content(filesystem, b"g") == OLD * 4096 + NEWER * 4096 + OLD * 8192


def test_a_clone_that_meets_the_failure_is_not_made(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    filesystem.files.write(ino, 4096, NEW * 4096)
    monkeypatch.setattr(staging_module, "check_written", fail)
    assert is_lost(lambda: filesystem.clone(ino, ROOT_INO, b"g"))
    assert find(filesystem, b"g") is None


def test_a_damaged_file_replaces_no_sound_one(filesystem: Filesystem, failed: int) -> None:
    """Write a temporary file, rename it over the old one."""
    old = create(filesystem, b"old")
    assert is_lost(lambda: filesystem.namespace.rename(ROOT_INO, b"f", ROOT_INO, b"old", may_block=True))
    assert find(filesystem, b"old") == old


def test_the_sync_is_told_of_no_content(filesystem: Filesystem, failed: int) -> None:
    filesystem.commit()
    with filesystem.tree.committed() as view:
        row = view.inode(failed)
        assert row is not None
        assert sealed_file(view, failed, row.content_version) is None
    apply: Apply = filesystem.apply
    with pytest.raises(RefusedError):
        apply.prepare_file(size_bytes=16384, mode=0o644, caller=USER, mtime_ns=0, base=(failed, row.content_version))
    rewrite(filesystem, failed)
    filesystem.files.flush()
    with filesystem.tree.committed() as view:
        row = view.inode(failed)
        assert row is not None
        assert sealed_file(view, failed, row.content_version) is not None


def test_fsck_names_it(filesystem: Filesystem, failed: int) -> None:
    reply = maintenance.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path)
    (found,) = reply.findings
    assert found.kind == Problem.FAILED_FLUSH.value
    (lost,) = reply.lost
    assert (lost.path, lost.start, lost.end) == (b"f", 4096, 8192)
    rewrite(filesystem, failed)
    filesystem.files.flush()
    assert maintenance.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path).findings == []


def test_the_failure_goes_with_the_file(filesystem: Filesystem, failed: int) -> None:
    filesystem.namespace.unlink(ROOT_INO, b"f")
    filesystem.commit()
    assert tree_format(filesystem) == PLAIN_FORMAT
    filesystem.files.flush()
    with pytest.raises(FsError):
        filesystem.files.open(failed)


def test_what_nobody_can_name_any_more_stops_no_flush(filesystem: Filesystem, failed: int) -> None:
    """A temporary file: removed, and still open."""
    filesystem.namespace.remember(failed)
    handle = filesystem.files.open(failed, os.O_RDWR)
    filesystem.namespace.unlink(ROOT_INO, b"f")
    filesystem.files.flush()
    filesystem.snapshots.create(ROOT_INO, b"s")
    with pytest.raises(FlushFailedError, match="which has no name"):
        filesystem.files.fsync(failed, handle=handle)
    filesystem.files.release(handle)
    filesystem.namespace.forget(failed)
    filesystem.commit()
    assert tree_format(filesystem) == PLAIN_FORMAT


def test_the_kernel_is_told_to_forget_the_pages(filesystem: Filesystem, disk: Disk, ino: int) -> None:
    """It would show them as long as it likes."""
    forgotten: list[int] = []
    filesystem.files.call_on_failure(forgotten.append)
    filesystem.files.write(ino, 4096, NEW * 4096)
    fail_in_background(filesystem, disk)
    assert forgotten == [ino]
