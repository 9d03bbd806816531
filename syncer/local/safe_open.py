"""Names below a root, opened step by step without ever following a symlink.

Somebody else may rename or replace any directory at any time, so a path is only a wish. Every access starts at the
root's descriptor and opens segment by segment with O_NOFOLLOW: it can fail, it can't leave the root.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from syncer.core.model import LocalTag, RelPath
from syncer.errors import LocalChangedError
from syncer.local.syscalls import Status, status

DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a fifo must not hang us

_NO_SUCH_PLACE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})


def open_directory(root: int, path: RelPath) -> int:
    """Open a directory below `root`; the caller closes it. b"" opens the root once more.

    Raises:
        LocalChangedError: It is gone, or a segment is a symlink or no directory.
        OSError: As open(2).
    """
    descriptor = os.open(b".", DIRECTORY_FLAGS, dir_fd=root)
    for segment in path.split(b"/") if path else ():
        try:
            below = os.open(segment, DIRECTORY_FLAGS, dir_fd=descriptor)
        except OSError as error:
            if error.errno in _NO_SUCH_PLACE:
                raise LocalChangedError(path, "the directory is gone or is no directory any more") from None
            raise
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


@contextmanager
def parent_directory(root: int, path: RelPath) -> Iterator[tuple[int, bytes]]:
    """The directory that holds `path`, open for the duration, and the last segment."""
    above, _, name = path.rpartition(b"/")
    descriptor = open_directory(root, RelPath(above))
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)


def open_file(root: int, path: RelPath) -> int:
    """Open a file for reading; the caller closes it. A symlink in its place is refused (ELOOP).

    Raises:
        LocalChangedError: It is gone or is a symlink.
        OSError: As open(2).
    """
    with parent_directory(root, path) as (directory, name):
        return _open(directory, name, path)


class Opener:
    """Opens files one after the other: a directory stays open for those of them that lie in it. For one thread."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._above: RelPath | None = None
        self._directory = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def open(self, path: RelPath) -> int:
        """As `open_file`.

        The directory may have another name by now, so only the file's evidence says whether it is the one that is
        meant; after `open_file` that is no different.
        """
        above, _, name = path.rpartition(b"/")
        if above != self._above:
            self._leave()
            self._directory = open_directory(self._root, RelPath(above))
            self._above = RelPath(above)
        return _open(self._directory, name, path)

    def _leave(self) -> None:
        if self._above is not None:
            os.close(self._directory)
            self._above = None


def _open(directory: int, name: bytes, path: RelPath) -> int:
    try:
        return os.open(name, FILE_FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno in _NO_SUCH_PLACE:
            raise LocalChangedError(path, "it is gone or is no file any more") from None
        raise


def tag_of(found: Status) -> LocalTag:
    """The evidence in a status.

    Its device number is 0: all of a root is one filesystem (the scan sees to that), whose number may change at boot.
    """
    return LocalTag(
        device=0,
        ino=found.ino,
        btime_ns=found.btime_ns,
        size_bytes=found.size_bytes,
        mtime_ns=found.mtime_ns,
        ctime_ns=found.ctime_ns,
    )


def same_inode(found: LocalTag, expect: LocalTag) -> bool:
    """The same file system object, whatever became of its content."""
    return found.inode == expect.inode


def same_but_ctime(found: LocalTag, expect: LocalTag) -> bool:
    """Equal evidence but for ctime, which our own rename of the file changes."""
    return found.inode == expect.inode and found.size_bytes == expect.size_bytes and found.mtime_ns == expect.mtime_ns


def look(directory: int, name: bytes, path: RelPath) -> LocalTag:
    """The evidence of an entry.

    Raises:
        LocalChangedError: There is no such entry.
    """
    try:
        return tag_of(status(name, directory))
    except FileNotFoundError:
        raise LocalChangedError(path, "it is gone") from None


@contextmanager
def naming(folder: int, name: bytes = b"") -> Iterator[None]:
    """Let errors of the host name the whole path: a name below a descriptor says nothing to a person.

    Args:
        folder: Descriptor of the folder that names are looked up in.
        name: The name that is used in it; b"": the one that the error has.
    """
    try:
        yield
    except OSError as error:
        with suppress(OSError):  # no /proc: then what it says already must do
            error.filename = os.path.join(os.readlink(b"/proc/self/fd/%d" % folder), name or error.filename or b"")
        raise
