"""Pages that only the kernel has: waiting until it has handed over what programs had written.

syncfs(2) begins that, but newer kernels do not wait for the answers of a FUSE mount: with Linux 6.18.44 it took 0.5 ms
while the mount answered a write after 3 s. Who asks for a single file still waits. Only a file that is open, or mapped,
for writing has such pages: closing writes them back.

A path is what users make of it: while it is walked they put a symlink, or another file, in the place of what was there.
The process may be root's. So it is walked name by name, no symlink is followed, and nothing is opened but the very
inode that is meant.
"""

from __future__ import annotations

import os
from itertools import islice
from typing import Final

from blockfs.engine.filesystem import Filesystem
from blockfs.runtime.atomic import space_errors
from blockfs.runtime.linux import open_cached, write_back_all
from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from blockfs.service.maintenance import paths_of
from blockfs.tree.schema import ROOT_INO

_TRIES: Final = 4  # a name may go, and another come, between the look and the open
_NAMES: Final = 4  # of a file, that are tried
_LOOK: Final = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC  # opens nothing: no program or device hears of it
_FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC

log = Log()


def take_pages(filesystem: Filesystem, mountpoint: bytes) -> None:
    """Wait until all that was written before the call has come in. From a thread, without the engine's lock.

    Args:
        filesystem: What is mounted.
        mountpoint: Where.

    Raises:
        NoSpaceError: Pages could not be written for want of space: they are lost.
        OSError: Pages could not be written: likewise.
    """
    if not filesystem.files.written():
        return
    try:
        root = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        log.warning("mount.pages_not_taken", reason=str(error))
        return
    try:
        take_pages_below(filesystem, root)
    finally:
        os.close(root)


def take_pages_below(filesystem: Filesystem, root: int) -> None:
    """As `take_pages`, for a mount that may have been detached: `root` is a descriptor of its root."""
    if os.fstat(root).st_ino != ROOT_INO:  # somebody has detached it, or mounted over it
        log.warning("mount.pages_not_taken", reason="the mountpoint does not lead to the mount")
        return
    for ino in filesystem.files.written():
        _take_pages_of(filesystem, root, ino)  # of one without a name: only who has it open will ever read it


def take_pages_of_locked(filesystem: Filesystem, mountpoint: bytes, ino: int) -> bool:
    """As `take_pages`, for one file whose inode the kernel keeps locked until this returns (fuse_lseek).

    So nothing is waited for that may itself wait for that lock. Directories may: link(2), rename(2) and unlink(2) lock
    them first, then the inode, and looking up a name needs the directory. close(2) does in older kernels: there this
    must not be called (`Agreed.writes_unlocked`).

    Returns:
        Whether the file could be opened by a name that the kernel knows.
    """
    try:
        root = os.open(mountpoint, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it is detached, and its mountpoint gone: no name leads there
        return False
    try:
        if os.fstat(root).st_ino != ROOT_INO:
            return False
        with filesystem.lock:
            names = list(islice(paths_of(filesystem.tree, ino), _NAMES))
        for path in names:
            try:
                descriptor = _opened(open_cached(path, _LOOK, root), root, ino)
            except OSError:
                continue
            if descriptor is not None:
                _write_back(descriptor, path)
                return True
        return False
    finally:
        os.close(root)


def _take_pages_of(filesystem: Filesystem, root: int, ino: int) -> None:
    for _ in range(_TRIES):
        with filesystem.lock:
            path = next(paths_of(filesystem.tree, ino), None)
        if path is None or _taken(root, path, ino):
            return


def _taken(root: int, path: bytes, ino: int) -> bool:
    """Take the pages of one file, if it can be opened. False: its path leads to another one by now."""
    try:
        descriptor = _opened(_found(path, root), root, ino)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:  # another user's, of a mount that is not root's
        log.warning("mount.pages_not_taken", path=path, reason=str(error))
        return True
    if descriptor is None:
        return False
    _write_back(descriptor, path)
    return True


def _found(path: bytes, root: int) -> int:
    """Look up what has a path now, however long that is: a descriptor that is good for nothing but to be looked at."""
    found = os.dup(root)
    for name in path.split(b"/"):
        folder = found
        try:
            found = os.open(name, _LOOK, dir_fd=folder)  # a symlink is found itself, and has nothing below it
        finally:
            os.close(folder)
    return found


def _opened(found: int, root: int, ino: int) -> int | None:
    """Open what was found if it is that file of the mount, and let go of what was found. None: it is another one."""
    try:
        there = os.fstat(found)
        if (there.st_dev, there.st_ino) != (os.fstat(root).st_dev, ino):
            return None
        return os.open(b"/proc/self/fd/%d" % found, _FLAGS)  # itself: its path may lead elsewhere by now
    finally:
        os.close(found)


def _write_back(descriptor: int, path: bytes) -> None:
    """Write the pages of an open file, and close it."""
    try:
        with space_errors(f"{shown(path)}: not all that was written found room"):
            write_back_all(descriptor)
    finally:
        os.close(descriptor)
