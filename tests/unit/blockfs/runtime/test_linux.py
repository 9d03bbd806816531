from __future__ import annotations

import ctypes
import errno
import mmap
import os
import shutil
from pathlib import Path

import pytest

from blockfs.runtime import linux


class Failing:
    """A libc whose syncfs fails with these, then succeeds."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def syncfs(self, _: int) -> int:
        if not self.numbers:
            return 0
        ctypes.set_errno(self.numbers.pop(0))
        return -1


def test_syncfs_goes_on_after_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was killed in rename(2) leaves an EINTR to whoever syncs next; what is dirty must be written."""
    libc = Failing(errno.EINTR, errno.EINTR)
    monkeypatch.setattr(linux, "_libc", libc)
    linux.syncfs(os.fsencode(tmp_path))
    assert not libc.numbers


def test_syncfs_tells_lost_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linux, "_libc", Failing(errno.EINTR, errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        linux.syncfs(os.fsencode(tmp_path))


def test_who_has_a_file_open_or_mapped_is_found(tmp_path: Path) -> None:
    """Breaks when a file is taken away that a program has mapped: what it stores then is lost."""
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    ours = os.open(path, os.O_RDWR)
    copy = os.dup(ours)
    assert not linux.is_open_elsewhere(ours)
    for flags, protection in ((os.O_RDONLY, mmap.PROT_READ), (os.O_RDWR, mmap.PROT_READ | mmap.PROT_WRITE)):
        other = os.open(path, flags)
        assert linux.is_open_elsewhere(ours)
        with mmap.mmap(other, 4096, prot=protection):
            os.close(other)
            assert linux.is_open_elsewhere(ours)
        assert not linux.is_open_elsewhere(ours)
    path.unlink()
    assert not linux.is_open_elsewhere(ours)
    os.close(copy)
    os.close(ours)


def test_a_process_has_the_groups_that_it_says_and_one_that_is_gone_has_none() -> None:
    assert linux.supplementary_groups(os.getpid()) == set(os.getgroups())
    with pytest.raises(FileNotFoundError):
        linux.supplementary_groups(1 << 30)


def test_a_copy_was_born_later_whatever_times_it_is_given(tmp_path: Path) -> None:
    """Breaks when a volume put back from a backup passes for the one that was lost."""
    original, copy = tmp_path / "original", tmp_path / "copy"
    original.write_bytes(b"x")
    os.utime(original, ns=(1, 1))
    shutil.copy2(original, copy)
    born, copied = (linux.birth_ns(bytes(path)) for path in (original, copy))
    assert born is not None, "these tests need a filesystem that keeps the time of birth"
    assert copied is not None
    assert 1 < born <= copied
    original.write_bytes(b"y")
    original.rename(tmp_path / "moved")
    assert linux.birth_ns(bytes(tmp_path / "moved")) == born
    with pytest.raises(FileNotFoundError):
        linux.birth_ns(bytes(original))
