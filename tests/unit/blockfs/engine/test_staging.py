from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockfs.engine.config import no_checkpoint
from blockfs.engine.content import hostfile, staging
from blockfs.engine.content.hostfile import HostIoError, data_extents, read_range, read_range_into
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.staging import StagingDirectory, StagingFile, decode_name, encode_name
from blockfs.errors import BlockfsError, CorruptionError, NoSpaceError, QuotaError, UsageError


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[StagingDirectory]:
    opened = StagingDirectory(os.fsencode(tmp_path), open_files=2, checkpoint=no_checkpoint)
    yield opened
    opened.close()


@pytest.mark.parametrize("key", [(1, 0, 1), (2**63, 8388607, 2**40)])
def test_names_round_trip(key: tuple[int, int, int]) -> None:
    assert decode_name(encode_name(key)) == key


@pytest.mark.parametrize("name", [b"", b"1.2", b"1.2.3.4", b"1.2.x", b"01.2.3", b"1.2.-3", b".probe", b"1.2.\xb2"])
def test_foreign_names_are_none_of_ours(name: bytes) -> None:
    assert decode_name(name) is None


def test_only_so_many_descriptors_stay_open(directory: StagingDirectory) -> None:
    """A copy of 10,000 small files must not exhaust the process's descriptors."""
    files = [directory.create((ino, 0, 1)) for ino in range(20)]
    assert sum(file.fd >= 0 for file in files) == 2
    for number, file in enumerate(files):
        with directory.using(file) as fd:
            os.pwrite(fd, b"%d" % number, 0)
    for number, file in enumerate(files):
        with directory.using(file) as fd:
            assert os.pread(fd, 10, 0) == b"%d" % number
    assert sum(file.fd >= 0 for file in files) == 2


def test_what_was_written_is_synced_before_its_descriptor_is_closed(
    directory: StagingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells of a failed write-back whoever has the file open: of a file that nobody has, it forgets it."""
    synced: list[int] = []
    lost = {3, 5}

    def sync(fd: int) -> None:
        ino = int(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")).split(".")[0])
        synced.append(ino)
        if ino in lost:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", sync)
    files = [directory.create((ino, 0, 1)) for ino in range(9)]
    assert not synced
    for file in files:
        os.pwrite(directory.acquire(file, writes=True), b"x", 0)
        directory.release(file)
    assert sum(file.fd >= 0 for file in files) == 2
    assert synced == list(range(7))
    lost.clear()
    for file in files:
        if file.key[0] in (3, 5):
            with pytest.raises(HostIoError):
                directory.check(file)
        else:
            directory.check(file)
    with directory.using(files[8]), directory.using(files[7]), directory.using(files[6]):
        pass
    assert synced == [*range(7), 7, 8], "each once, until it is written again"


def test_a_file_in_use_stays_open_when_it_is_removed(directory: StagingDirectory) -> None:
    """A reader in a thread must never meet a closed or reused descriptor."""
    file = directory.create((1, 0, 1))
    fd = directory.acquire(file)
    os.pwrite(fd, b"read me", 0)
    directory.doom(file)
    directory.sweep()
    assert directory.names() == []
    assert os.pread(fd, 10, 0) == b"read me"
    directory.release(file)
    assert file.fd == -1


def test_several_may_sweep_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits of the collector, of the control socket and of the sealer end at any time: another is faster here."""
    faster: list[Callable[[], None]] = []

    class Raced(deque[StagingFile]):
        def popleft(self) -> StagingFile:
            if faster:
                faster.pop()()
            return super().popleft()

    monkeypatch.setattr(staging, "deque", Raced)
    directory = StagingDirectory(os.fsencode(tmp_path), open_files=2, checkpoint=no_checkpoint)
    directory.doom(directory.create((1, 0, 1)))
    faster.append(directory.sweep)
    directory.sweep()
    assert not faster
    assert directory.names() == []
    directory.close()


def test_a_file_that_can_not_be_removed_now_is_removed_later(
    directory: StagingDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What asks for it has committed already, and has nothing to do with it."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    directory.doom(directory.create((1, 0, 1)))
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", fail)
        directory.sweep()
    assert directory.names() == [(1, 0, 1)]
    directory.sweep()
    assert directory.names() == []


def test_a_large_file_can_be_synced_piece_by_piece(directory: StagingDirectory) -> None:
    file = directory.create((1, 0, 1))
    with directory.using(file) as fd:
        os.pwrite(fd, b"x" * (9 << 20), 0)
        os.pwrite(fd, b"x" * 4096, 1 << 39)  # what lies between costs nothing
    pauses: list[None] = []
    directory.sync(file, lambda: pauses.append(None))
    assert len(pauses) == 4


def test_a_piece_that_fails_is_a_failed_sync(directory: StagingDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel tells it once: to the piece, and no more to the fdatasync."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    file = directory.create((1, 0, 1))
    with directory.using(file) as fd:
        os.pwrite(fd, b"x" * 4096, 0)
    with monkeypatch.context() as patched:
        patched.setattr(hostfile, "write_back", fail)
        with pytest.raises(HostIoError):
            directory.sync(file, lambda: None)
    with pytest.raises(HostIoError):
        directory.sync(file)


def test_an_idle_file_is_closed_when_it_is_removed(directory: StagingDirectory) -> None:
    file = directory.create((1, 0, 1))
    directory.doom(file)
    directory.sweep()
    assert file.fd == -1


def test_a_missing_file_is_corruption(directory: StagingDirectory) -> None:
    with pytest.raises(CorruptionError, match="inode 7"):
        directory.existing((7, 0, 1))


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.EIO, HostIoError), (errno.ENOSPC, NoSpaceError), (errno.EDQUOT, QuotaError)]
)
def test_a_failed_flush_is_never_believed_again(
    directory: StagingDirectory, monkeypatch: pytest.MonkeyPatch, code: int, expected: type[BlockfsError]
) -> None:
    """The kernel marks pages clean after a failed write-back: the next fdatasync would succeed and lie."""
    file = directory.create((1, 0, 1))
    real = os.fdatasync

    def fail(_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(expected):
        directory.sync(file)
    monkeypatch.setattr(os, "fdatasync", real)
    with pytest.raises(HostIoError):
        directory.sync(file)


def test_staged_nul_bytes_are_data(directory: StagingDirectory) -> None:
    file = directory.create((1, 0, 1))
    with directory.using(file) as fd:
        os.pwrite(fd, bytes(PAGE), 5 * PAGE)
        os.pwrite(fd, b"x", 9 * PAGE + 17)
        assert list(data_extents(fd)) == [(5 * PAGE, PAGE), (9 * PAGE, PAGE)]


def test_reading_past_the_end_gives_nul_bytes(directory: StagingDirectory) -> None:
    file = directory.create((1, 0, 1))
    with directory.using(file) as fd:
        os.pwrite(fd, b"abc", 0)
        for offset, expected in ((1, b"bc\0\0\0"), (9000, b"\0\0")):
            assert read_range(fd, offset, len(expected)) == expected
            buffer = bytearray(b"?" * len(expected))
            read_range_into(fd, offset, memoryview(buffer))
            assert buffer == expected


def test_the_probe_passes_here_and_leaves_nothing(tmp_path: Path) -> None:
    hostfile.probe(os.fsencode(tmp_path))
    assert os.listdir(tmp_path) == []


def test_a_host_that_blurs_holes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recovery would take holes for staged NUL bytes and overwrite sealed data with them."""

    def blurred(_: int) -> Iterator[tuple[int, int]]:
        yield 0, 8 * PAGE

    monkeypatch.setattr(hostfile, "data_extents", blurred)
    with pytest.raises(UsageError, match="SEEK_DATA"):
        hostfile.probe(os.fsencode(tmp_path))


def test_a_link_in_the_place_of_staged_data_is_not_followed(directory: StagingDirectory, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    os.symlink("precious", os.path.join(directory.path, encode_name((5, 0, 1))))
    with pytest.raises(OSError, match="symbolic links"):
        directory.acquire(directory.existing((5, 0, 1)), writes=True)
