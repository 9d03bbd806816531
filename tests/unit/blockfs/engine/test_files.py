from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from blockfs.engine.content.hostfile import HostIoError
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import AttributeChanges
from blockfs.errors import FsError, MissingBlockError, NoSpaceError, QuotaError, WouldBlock
from blockfs.runtime.space import Space, host_space
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import USER, config, content, create, findings, make

TIB = 1 << 40
LARGEST = 2**63 - 1


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume"), config())
    yield opened
    opened.close()


@pytest.fixture
def ino(filesystem: Filesystem) -> int:
    return create(filesystem, b"f")


def test_reads_beyond_the_end_are_short(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"abc")
    assert filesystem.files.read(ino, 1, 100) == b"bc"
    assert filesystem.files.read(ino, 3, 100) == b""
    assert filesystem.files.read(ino, LARGEST, 100) == b""


def test_an_empty_write_changes_nothing(filesystem: Filesystem, ino: int) -> None:
    assert filesystem.files.write(ino, 100, b"") == 0
    assert filesystem.namespace.getattr(ino).size_bytes == 0


def test_a_memoryview_can_be_written(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, memoryview(b"abcdef")[2:4])
    assert content(filesystem, b"f") == b"cd"


@pytest.mark.parametrize("offset", [LARGEST, LARGEST - 1])
def test_a_write_past_the_largest_size_is_efbig(filesystem: Filesystem, ino: int, offset: int) -> None:
    with pytest.raises(FsError) as caught:
        filesystem.files.write(ino, offset, b"xx")
    assert caught.value.errno == errno.EFBIG


def test_the_largest_file_has_a_last_byte(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, LARGEST - 1, b"x")
    assert filesystem.namespace.getattr(ino).size_bytes == LARGEST
    assert filesystem.files.read(ino, LARGEST - 2, 100) == b"\0x"
    filesystem.files.flush()
    assert filesystem.files.read(ino, LARGEST - 2, 100, may_block=True) == b"\0x"


@pytest.mark.parametrize(("size", "code"), [(LARGEST + 1, errno.EFBIG), (-1, errno.EINVAL)])
def test_sizes_out_of_range_are_refused(filesystem: Filesystem, ino: int, size: int, code: int) -> None:
    with pytest.raises(FsError) as caught:
        filesystem.files.truncate(ino, size)
    assert caught.value.errno == code


def test_a_huge_sparse_file_takes_no_memory(filesystem: Filesystem, ino: int) -> None:
    tracemalloc.start()
    filesystem.files.truncate(ino, 10**15)
    filesystem.files.write(ino, 10**15 - 4096, b"end" * 1000)
    assert filesystem.files.read(ino, 10**14, 100) == bytes(100)
    filesystem.files.flush()
    filesystem.files.truncate(ino, 10**14)
    filesystem.files.truncate(ino, 10**15)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert filesystem.files.read(ino, 10**15 - 4096, 4096) == bytes(4096)


def test_a_hole_is_read_at_the_price_of_the_reply(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.truncate(ino, 1 << 50)
    filesystem.files.write(ino, (1 << 50) - 1, b"x")
    filesystem.files.flush()
    tracemalloc.start()
    assert filesystem.files.read(ino, 1 << 49, 1 << 20) == bytes(1 << 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20


def test_a_write_across_a_range_border_lands_in_two_staging_files(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, TIB - 5000, b"ab" * 5000)
    assert filesystem.files.read(ino, TIB - 5001, 20000) == b"\0" + b"ab" * 5000
    assert len(os.listdir(filesystem.volume.staging_path)) == 2
    filesystem.files.flush()
    assert filesystem.files.read(ino, TIB - 5001, 20000, may_block=True) == b"\0" + b"ab" * 5000


def test_directories_have_no_content(filesystem: Filesystem) -> None:
    with pytest.raises(FsError) as caught:
        filesystem.files.open(ROOT_INO)
    assert caught.value.errno == errno.EISDIR


@pytest.mark.parametrize("call", ["open", "read", "write", "truncate"])
def test_a_file_that_is_not_there_is_enoent(filesystem: Filesystem, call: str) -> None:
    files = filesystem.files
    with pytest.raises(FsError) as caught:
        {
            "open": lambda: files.open(4711),
            "read": lambda: files.read(4711, 0, 1),
            "write": lambda: files.write(4711, 0, b"x"),
            "truncate": lambda: files.truncate(4711, 5),
        }[call]()
    assert caught.value.errno == errno.ENOENT


def test_a_link_or_device_has_no_content(filesystem: Filesystem) -> None:
    link = filesystem.namespace.symlink(ROOT_INO, b"l", target=b"t", caller=USER)
    with pytest.raises(FsError) as caught:
        filesystem.files.open(link.ino)
    assert caught.value.errno == errno.EINVAL


def test_writers_are_counted(filesystem: Filesystem, ino: int) -> None:
    files = filesystem.files
    reader, writer = files.open(ino, os.O_RDONLY), files.open(ino, os.O_WRONLY)
    assert files.writers(ino) == 1
    files.release(writer)
    files.release(reader)
    assert files.writers(ino) == 0


def test_an_unlinked_file_is_there_until_it_is_forgotten(filesystem: Filesystem, ino: int) -> None:
    filesystem.namespace.remember(ino)
    handle = filesystem.files.open(ino, os.O_RDWR)
    filesystem.namespace.unlink(ROOT_INO, b"f")
    filesystem.files.write(ino, 0, b"still")
    assert filesystem.files.read(ino, 0, 10) == b"still"
    filesystem.files.release(handle)
    filesystem.namespace.forget(ino)
    assert filesystem.staged_bytes == 0
    filesystem.commit()
    assert os.listdir(filesystem.volume.staging_path) == []
    filesystem.files.fsync(ino)  # a late one: nothing to do, nothing to complain about


# --- times ---


def test_a_write_moves_mtime_and_ctime(filesystem: Filesystem, ino: int) -> None:
    filesystem.namespace.setattr(ino, AttributeChanges(mtime_ns=1, ctime_ns=1))
    filesystem.files.write(ino, 0, b"x")
    after = filesystem.namespace.getattr(ino)
    assert after.mtime_ns > 1
    assert after.ctime_ns > 1


def test_a_kernel_that_stamps_writes_itself_is_not_overruled(filesystem: Filesystem, ino: int) -> None:
    before = filesystem.namespace.setattr(ino, AttributeChanges(mtime_ns=1, ctime_ns=1))
    filesystem.files.write(ino, 0, b"x", stamps=False)
    filesystem.files.flush()
    after = filesystem.namespace.getattr(ino)
    assert (after.mtime_ns, after.ctime_ns) == (before.mtime_ns, before.ctime_ns)
    assert after.size_bytes == 1


def test_an_explicit_mtime_wins_over_earlier_writes(filesystem: Filesystem, ino: int) -> None:
    """rsync and cp -p write first and set the time then; publishing later must not undo it."""
    filesystem.files.write(ino, 0, b"x")
    filesystem.namespace.setattr(ino, AttributeChanges(mtime_ns=123))
    assert filesystem.namespace.getattr(ino).mtime_ns == 123
    filesystem.files.fsync(ino)
    filesystem.files.flush()
    assert filesystem.namespace.getattr(ino).mtime_ns == 123


def test_a_write_after_an_explicit_mtime_wins(filesystem: Filesystem, ino: int) -> None:
    filesystem.namespace.setattr(ino, AttributeChanges(mtime_ns=123))
    filesystem.files.write(ino, 0, b"x")
    assert filesystem.namespace.getattr(ino).mtime_ns > 123
    filesystem.files.flush()
    assert filesystem.namespace.getattr(ino).mtime_ns > 123


def test_a_chmod_keeps_the_mtime_of_an_unpublished_write(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x")
    written = filesystem.namespace.getattr(ino).mtime_ns
    filesystem.namespace.setattr(ino, AttributeChanges(mode=0o600))
    assert filesystem.namespace.getattr(ino).mtime_ns == written
    filesystem.files.fsync(ino)
    assert filesystem.namespace.getattr(ino).mtime_ns == written


# --- waiting ---


def test_completing_a_cold_page_would_block(filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch) -> None:
    filesystem.files.write(ino, 0, b"x" * 4096)
    filesystem.files.flush()
    real = filesystem.blocks.read

    def cold(block_id: bytes, start: int, length: int, *, may_block: bool = True) -> bytes:
        if not may_block:
            raise WouldBlock
        return real(block_id, start, length)  # type: ignore[arg-type]

    monkeypatch.setattr(filesystem.blocks, "read", cold)
    with pytest.raises(WouldBlock):
        filesystem.files.write(ino, 10, b"y")
    with pytest.raises(WouldBlock):
        filesystem.files.read(ino, 0, 5)
    filesystem.files.write(ino, 10, b"y", may_block=True)
    assert content(filesystem, b"f") == b"x" * 10 + b"y" + b"x" * 4085


@pytest.mark.parametrize("sealed", [False, True], ids=["staged", "sealed, and nothing of it is kept"])
def test_a_page_that_changes_while_it_is_read_is_read_again(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch, sealed: bool
) -> None:
    """The completing read runs without the lock: what it found is void if somebody wrote meanwhile."""
    filesystem.files.write(ino, 0, b"x" * 4096)
    filesystem.files.flush()

    def meanwhile() -> None:
        filesystem.files.write(ino, 0, b"z" * 4096)
        if sealed:
            filesystem.files.flush()

    interrupt_reads(filesystem, monkeypatch, meanwhile)
    filesystem.files.write(ino, 10, b"y", may_block=True)
    assert content(filesystem, b"f") == b"z" * 10 + b"y" + b"z" * 4085


def test_a_seal_while_one_edge_of_a_write_is_read_does_not_take_the_other(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first page is staged where the write goes until the seal closes that; the last one has to be read."""
    filesystem.files.write(ino, 0, b"x" * 8192)
    filesystem.files.flush()
    handle = filesystem.files.open(ino, os.O_RDWR)  # what is known of the file stays the same over the seal
    filesystem.files.write(ino, 0, b"z" * 4096)
    interrupt_reads(filesystem, monkeypatch, filesystem.files.flush)
    filesystem.files.write(ino, 4090, b"y" * 12, may_block=True)
    filesystem.files.release(handle)
    assert content(filesystem, b"f") == b"z" * 4090 + b"y" * 12 + b"x" * 4090


def interrupt_reads(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """No block is in memory; while the first one is read, something happens."""
    real = filesystem.blocks.read
    happenings = iter([meanwhile])

    def cold(block_id: bytes, start: int, length: int, *, may_block: bool = True) -> bytes:
        if not may_block:
            raise WouldBlock
        found = real(block_id, start, length)  # type: ignore[arg-type]
        next(happenings, lambda: None)()
        return found

    monkeypatch.setattr(filesystem.blocks, "read", cold)


def test_cutting_inside_a_sealed_block_would_block(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x" * 4096)
    filesystem.files.flush()
    with pytest.raises(WouldBlock):
        filesystem.files.truncate(ino, 100)
    filesystem.files.truncate(ino, 0)
    assert content(filesystem, b"f") == b""


def test_too_much_staged_would_block_and_a_waiting_writer_gets_room(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(staged_limit_bytes=64 << 10))
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * (64 << 10))
    with pytest.raises(WouldBlock):
        filesystem.files.write(ino, 1 << 20, b"y")
    filesystem.files.write(ino, 1 << 20, b"y", may_block=True)
    assert filesystem.staged_bytes == 4096
    assert filesystem.files.read(ino, 0, 5, may_block=True) == b"xxxxx"
    filesystem.close()


def test_a_file_with_little_staged_does_not_wait_for_somebodys_stream(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(staged_limit_bytes=1 << 20))
    stream, page = create(filesystem, b"stream"), create(filesystem, b"page")
    filesystem.files.write(stream, 0, b"x" * (1 << 20))
    with pytest.raises(WouldBlock):
        filesystem.files.write(stream, 1 << 20, b"x" * 4096)
    for number in range(5):
        filesystem.files.write(page, number * 4096, b"y" * 4096)
    with pytest.raises(WouldBlock):  # now it has more than its share
        filesystem.files.write(page, 5 * 4096, b"y" * 4096)
    filesystem.close()


def test_files_with_little_staged_have_a_limit_together(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(staged_limit_bytes=64 << 10))
    filesystem.files.write(create(filesystem, b"stream"), 0, b"x" * (64 << 10))
    first, second, third = (create(filesystem, name) for name in (b"1", b"2", b"3"))
    filesystem.files.write(first, 0, b"y")
    filesystem.files.write(second, 0, b"y")
    with pytest.raises(WouldBlock):
        filesystem.files.write(third, 0, b"y" * 4097)
    filesystem.close()


def test_less_is_staged_where_the_host_has_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealing makes blocks before it lets staged data go."""
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(staged_limit_bytes=2 << 30))
    ino = create(filesystem, b"f")
    fields = list(os.statvfs(tmp_path))
    for number, (free_bytes, limit_bytes) in enumerate(
        [(1 << 40, 2 << 30), (4 << 30, 1 << 30), (100 << 20, 256 << 20), (1 << 40, 2 << 30)]
    ):
        fields[4] = free_bytes // fields[1]
        monkeypatch.setattr(os, "statvfs", lambda _path: os.statvfs_result(fields))
        for megabyte in (2 * number, 2 * number + 1):  # the host is asked once for each
            filesystem.files.write(ino, megabyte << 20, b"x" * (1 << 20))
        assert abs(filesystem._table.staged_limit_bytes - limit_bytes) < 8 << 20
    filesystem.close()


def test_a_write_larger_than_the_limit_gets_through(tmp_path: Path) -> None:
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(staged_limit_bytes=4096))
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * 100_000, may_block=True)
    filesystem.files.write(ino, 0, b"y" * 100_000, may_block=True)
    assert content(filesystem, b"f") == b"y" * 100_000
    filesystem.close()


# --- a host that fails ---


def test_a_full_host_fails_the_write_and_keeps_what_was(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x" * 10000)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", full)
        with pytest.raises(NoSpaceError):
            filesystem.files.write(ino, 5000, b"y" * 10000)
    assert content(filesystem, b"f") == b"x" * 10000


def test_a_write_cut_short_counts_whole_pages_only(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page that is staged in part would be completed with NUL bytes by a recovery."""
    filesystem.files.write(ino, 0, b"o" * 12288)
    filesystem.files.flush()
    real = os.pwritev

    def short(fd: int, parts: list[bytes], offset: int) -> int:
        joined = b"".join(parts)
        if len(joined) < 6000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, [joined[:6000]], offset)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", short)
        patched.setattr(os, "pwrite", full)
        assert filesystem.files.write(ino, 0, b"n" * 12288, may_block=True) == 4096
    assert content(filesystem, b"f") == b"n" * 4096 + b"o" * 8192
    filesystem.files.fsync(ino)
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == b"n" * 4096 + b"o" * 8192
    again.close()


def test_a_commit_that_fails_is_an_error_and_is_made_up_for(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x" * 100)

    def full(_: object) -> None:
        raise NoSpaceError("committing metadata: no space")

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.tree, "write", full)
        with pytest.raises(NoSpaceError):
            filesystem.files.fsync(ino)
    assert content(filesystem, b"f") == b"x" * 100
    filesystem.files.fsync(ino)
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == b"x" * 100
    again.close()


def test_a_host_error_of_a_write_is_eio(filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwritev", fail)
        with pytest.raises(HostIoError):
            filesystem.files.write(ino, 0, b"y")


def test_a_missing_block_is_an_error_of_the_read(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x")
    filesystem.files.flush()

    def missing(block_id: bytes, *_: object, **__: object) -> bytes:
        raise MissingBlockError(block_id)

    monkeypatch.setattr(filesystem.blocks, "read", missing)
    with pytest.raises(MissingBlockError):
        filesystem.files.read(ino, 0, 1, may_block=True)


def test_a_block_that_was_replaced_and_collected_before_it_was_read_is_looked_up_again_however_often(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x")
    filesystem.files.flush()
    real = filesystem.blocks.read
    others = iter([b"1", b"2", b"3"])

    def late(block_id: bytes, *arguments: object, **options: object) -> bytes:
        other = next(others, None)
        if other is None:
            return real(block_id, *arguments, **options)  # type: ignore[arg-type]
        filesystem.files.write(ino, 0, other)
        filesystem.files.flush()
        raise MissingBlockError(block_id)

    monkeypatch.setattr(filesystem.blocks, "read", late)
    assert filesystem.files.read(ino, 0, 1, may_block=True) == b"3"


# --- many at once ---


def test_readers_writers_and_sealers_at_once_see_whole_pages(tmp_path: Path) -> None:
    """Each writer owns a page and writes it whole with one letter: no reader may ever see a mixture."""
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=8192), config())
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"a" * 4096 * 4)
    problems: list[int] = []
    done = threading.Event()

    def write(page: int) -> None:
        for turn in range(150):
            filesystem.files.write(ino, page * 4096, bytes([97 + turn % 26]) * 4096, may_block=True)

    def read() -> None:
        while not done.is_set():
            data = filesystem.files.read(ino, 0, 4096 * 4, may_block=True)
            problems.extend(at for at in range(0, len(data), 4096) if len(set(data[at : at + 4096])) != 1)

    def seal() -> None:
        while not done.is_set():
            filesystem.files.flush()
            filesystem.files.fsync(ino)

    writers = [threading.Thread(target=write, args=(page,)) for page in range(4)]
    others = [threading.Thread(target=read), threading.Thread(target=seal)]
    for thread in writers + others:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in others:
        thread.join()
    assert problems == []
    filesystem.files.flush()
    assert content(filesystem, b"f") == bytes([97 + 149 % 26]) * 4096 * 4
    assert findings(filesystem) == []
    filesystem.close()


def test_a_nearly_full_host_keeps_its_reserve(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Metadata commits, sealing and deletion need room when nothing else gets any. It comes back at once."""
    ino, other = create(filesystem, b"a"), create(filesystem, b"b")
    host = host_space(filesystem.volume.path)
    room = filesystem.files._writer._room
    with monkeypatch.context() as patched:
        nearly_full = replace(host, free_bytes=10 * 4096, available_bytes=10 * 4096)
        patched.setattr(room, "host", lambda: nearly_full)
        patched.setattr(room, "_reserve_bytes", 4096 * 8)
        patched.setattr(room, "_unchecked_bytes", 1 << 20)
        assert filesystem.namespace.statfs().blocks_available == 2
        filesystem.files.write(ino, 0, b"x" * 8192)
        patched.setattr(room, "_unchecked_bytes", 1 << 20)
        for refused in (
            lambda: filesystem.files.write(ino, 0, b"x" * 8193, may_block=True),
            lambda: filesystem.namespace.setxattr(ino, b"user.a", bytes(8193)),
        ):
            with pytest.raises(NoSpaceError):
                refused()
        patched.setattr(room, "_reserve_bytes", 4096 * 10)
        with pytest.raises(NoSpaceError):
            create(filesystem, b"c")
        filesystem.namespace.unlink(ROOT_INO, b"b")
        filesystem.commit()
    assert filesystem.tree.inode(other) is None or filesystem.namespace.getattr(other).nlink == 0
    create(filesystem, b"c")
    filesystem.files.write(ino, 0, b"x" * 8193)


def test_the_reserve_of_a_quota_is_told_as_a_quota(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody must get to its end: there, btrfs kills the process that touches a mapped page."""
    ino = create(filesystem, b"a")
    limited = Space(total_bytes=24 << 20, free_bytes=3 << 20, available_bytes=3 << 20, is_quota=True)
    monkeypatch.setattr(filesystem.files._writer._room, "host", lambda: limited)
    monkeypatch.setattr(filesystem.files._writer._room, "_reserve_bytes", 32 << 20)
    monkeypatch.setattr(filesystem.files._writer._room, "_unchecked_bytes", 1 << 20)
    with pytest.raises(QuotaError):
        filesystem.files.write(ino, 0, b"x", may_block=True)
    assert filesystem.namespace.statfs().blocks == (24 << 20) // 4096
