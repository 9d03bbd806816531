"""Opening a file of the mount to wait for its pages: that very file, wherever it lies, and nothing else.

On a folder of the host in place of a mount; that pages come in: `tests/system/test_write_back.py`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.fuse import writeback
from blockfs.runtime.linux import open_cached

DATA = b"pages"
PATH_MAX = os.pathconf("/", "PC_PATH_MAX")


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    """Descriptor of the folder."""
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The inodes of which pages were written back."""
    found: list[int] = []
    monkeypatch.setattr(writeback, "write_back_all", lambda descriptor: found.append(os.fstat(descriptor).st_ino))
    return found


def test_a_file_is_taken_at_its_path(tmp_path: Path, root: int, written: list[int]) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_bytes(DATA)
    assert writeback._taken(root, b"folder/file", file.stat().st_ino)
    assert written == [file.stat().st_ino]


def test_a_file_whose_path_is_longer_than_the_kernel_takes_one_is_taken(root: int, written: list[int]) -> None:
    """Breaks as a snapshot without what had been written before it."""
    name, levels = b"d" * 200, PATH_MAX // 200 + 1
    folder = os.dup(root)
    for _ in range(levels):
        os.mkdir(name, dir_fd=folder)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=folder)
        os.close(folder)
        folder = below
    file = os.open(b"file", os.O_CREAT | os.O_RDWR, dir_fd=folder)
    ino = os.fstat(file).st_ino
    os.close(file)
    os.close(folder)
    assert writeback._taken(root, (name + b"/") * levels + b"file", ino)
    assert written == [ino]


@pytest.mark.parametrize("path", [b"link/file", b"folder/link", b"outside/file"])
def test_no_symlink_is_followed(tmp_path: Path, root: int, written: list[int], path: bytes) -> None:
    """Breaks as a file that any user has root open, anywhere on the host: a symlink takes the place of a folder."""
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_bytes(DATA)
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder" / "link").symlink_to("file")
    (tmp_path / "outside").symlink_to(tmp_path / "folder")
    descriptors = len(os.listdir("/proc/self/fd"))
    assert not writeback._taken(root, path, file.stat().st_ino)
    with pytest.raises(OSError, match="symbolic links") as raised:
        open_cached(path, os.O_RDONLY | os.O_NOFOLLOW, root)
    assert raised.value.errno == errno.ELOOP
    assert written == []
    assert len(os.listdir("/proc/self/fd")) == descriptors


def test_what_is_not_that_file_is_not_opened(
    tmp_path: Path, root: int, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks as a writer of somebody's FIFO that goes on, or a device that acts, since a mount has opened it."""
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_bytes(DATA)
    ino = (tmp_path / "file").stat().st_ino
    opened: list[bytes] = []
    real = os.open

    def noting(path: bytes, flags: int, **keywords: int) -> int:
        if not flags & os.O_PATH:
            opened.append(path)
        return real(path, flags, **keywords)

    monkeypatch.setattr(os, "open", noting)
    assert not writeback._taken(root, b"fifo", ino)
    assert opened == written == []


def test_a_file_of_that_number_in_another_filesystem_is_another_one(
    root: int, written: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when something is mounted on a folder of the mount."""
    other = os.open("/proc/self/status", os.O_RDONLY)
    ino = os.fstat(other).st_ino
    assert writeback._opened(other, root, ino) is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(other)
    assert written == []
