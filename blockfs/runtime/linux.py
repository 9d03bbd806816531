"""Linux calls that Python's os module lacks."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import signal
import struct
from typing import Final

from blockfs.runtime.atomic import space_errors

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h
MNT_FORCE: Final = 1  # abort the connection to a FUSE server that does not answer
MNT_DETACH: Final = 2  # take the mount out of the tree now, end it when the last open file is closed

# The calls of the mount API that has no wrappers in older libcs; one number on all architectures (linux/mount.h).
_FSOPEN: Final = 430
_FSCONFIG: Final = 431
_FSMOUNT: Final = 432
_OPENAT2: Final = 437
_CLOEXEC: Final = 1
_RESOLVE_NO_XDEV: Final = 0x01  # linux/openat2.h
_RESOLVE_NO_SYMLINKS: Final = 0x04
_RESOLVE_CACHED: Final = 0x20
_OPEN_HOW: Final = struct.Struct("=QQQ")  # flags, mode, resolve
_CONFIG_CREATE: Final = 6

_SYNC_FILE_RANGE_WAIT_BEFORE: Final = 1  # linux/fs.h
_SYNC_FILE_RANGE_WRITE: Final = 2
_SYNC_FILE_RANGE_WAIT_AFTER: Final = 4

_libc: Final = ctypes.CDLL(None, use_errno=True)
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_STATFS_BYTES: Final = 512  # more than any struct statfs, which begins with a long that is f_type
_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800  # linux/stat.h
_STATX_BYTES: Final = 256
_STATX_BTIME_AT: Final = 80  # stx_btime
_KEEP_SIZE: Final = 0x01  # FALLOC_FL_KEEP_SIZE, linux/falloc.h
_PUNCH_HOLE_KEEP_SIZE: Final = 0x02 | 0x01  # FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, linux/falloc.h


def syncfs(path: bytes) -> None:
    """Write all dirty pages of the filesystem that holds `path`. Releases the GIL.

    On a blocksync mount this has the kernel hand its pages and times to the mount process: call it before asking that
    process to flush. It may return before they are there: that process waits for them (`blockfs.fuse.writeback`).

    Raises:
        NoSpaceError: Pages could not be written, now or since the last call, for want of space. They are lost.
        OSError: The path can't be opened, or writing failed.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with space_errors(f"{os.fsdecode(path)}: not all that was written to files found room"):
            syncfs_descriptor(descriptor)
    finally:
        os.close(descriptor)


def syncfs_descriptor(descriptor: int) -> None:
    """Like `syncfs`, for an open file."""
    while _libc.syncfs(descriptor) != 0:
        error = _last_error(b"syncfs")
        # Linux tells EINTR here when a process that was killed in rename(2) or unlink(2) had not yet sent a file's
        # times (fuse_flush_time_update): once, whoever asks. No page is concerned, and a mount never fails a write so.
        if error.errno != errno.EINTR:
            raise error


def birth_ns(path: bytes) -> int | None:
    """When a file was made, which no program can set: a copy has another time. None if the host does not tell.

    Raises:
        OSError: As statx(2).
    """
    found = ctypes.create_string_buffer(_STATX_BYTES)
    if _libc.statx(_AT_FDCWD, ctypes.c_char_p(path), 0, _STATX_BTIME, found) != 0:
        raise _last_error(path)
    (mask,) = struct.unpack_from("=I", found)
    seconds, nanoseconds = struct.unpack_from("=qI", found, _STATX_BTIME_AT)
    return seconds * 10**9 + nanoseconds if mask & _STATX_BTIME and seconds >= 0 else None


def filesystem_magic(descriptor: int) -> int:
    """What kind of filesystem an open file lies on: `f_type` of fstatfs(2), which Python's statvfs leaves out.

    Raises:
        OSError: The host failed.
    """
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(descriptor, found) != 0:
        raise _last_error(b"fstatfs")
    return ctypes.c_long.from_buffer(found).value


def supplementary_groups(pid: int) -> set[int]:
    """Groups of a process, or thread, besides its first one.

    Raises:
        OSError: It is gone.
    """
    with open(f"/proc/{pid}/status", "rb") as lines:
        return {int(gid) for line in lines if line.startswith(b"Groups:") for gid in line.split()[1:]}


def write_back(descriptor: int, offset: int, length: int, *, wait: bool) -> None:
    """Have the host write a file's dirty pages in a range. Makes nothing durable: fdatasync does. Releases the GIL.

    Args:
        descriptor: A regular file.
        offset: First byte.
        length: Bytes.
        wait: Until they are written, else until the host has taken the requests.

    Raises:
        OSError: Writing failed. With `wait`, that was the descriptor's only notice: no later fdatasync tells it again.
    """
    flags = _SYNC_FILE_RANGE_WRITE | (_SYNC_FILE_RANGE_WAIT_AFTER if wait else 0)
    if _libc.sync_file_range(descriptor, offset, length, flags) != 0:
        raise _last_error(b"sync_file_range")


def allocate(descriptor: int, offset: int, length: int, *, keeps_size: bool = False) -> None:
    """Have the host set aside room for a range of a file; what is there stays. The file grows, unless `keeps_size`.

    Raises:
        OSError: There is no room, or the host can't.
    """
    if _libc.fallocate(descriptor, _KEEP_SIZE if keeps_size else 0, offset, length) != 0:
        raise _last_error(b"fallocate")


def punch_hole(descriptor: int, offset: int, length: int) -> None:
    """Make a range of a file a hole; its size stays. Python has no fallocate(2) with a mode.

    Raises:
        OSError: The host failed, or can't.
    """
    if _libc.fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, offset, length) != 0:
        raise _last_error(b"fallocate")


def is_open_elsewhere(descriptor: int) -> bool:
    """Whether somebody, of whichever process, has a file open by another open(2), or mapped. In doubt somebody has.

    The host grants a lease for writing only if nobody has. Who opens the file in that moment waits for us to give it
    back, and has SIGIO sent to us: it must be ignored.

    Args:
        descriptor: A regular file of the user's, open for reading and writing. Copies of it (dup(2)) do not count.
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def stamp_stores(descriptor: int) -> None:
    """Have the next store into each mapped page of a file change its times. Releases the GIL.

    The kernel stamps a page that is mapped once, at its first store, until it is written back. So that is begun here
    for all dirty pages, and not waited for, but of those that are being written already: nothing is made durable. Where
    pages are never written back (tmpfs) nothing is done.

    Args:
        descriptor: A regular file, open for reading at least.

    Raises:
        OSError: Writing failed, now or before anybody was told.
    """
    flags = _SYNC_FILE_RANGE_WAIT_BEFORE | _SYNC_FILE_RANGE_WRITE
    if _libc.sync_file_range(descriptor, 0, 0, flags) != 0:
        raise _last_error(b"sync_file_range")


def check_written(descriptor: int) -> None:
    """Learn whether pages of a file could not be written back, by whomever. Writes nothing. Releases the GIL.

    Raises:
        OSError: Some could not, since the descriptor was told last. That was its only notice.
    """
    # The kernel waits for what it is writing in the range, here one byte, and then tells of any failure in the file.
    if _libc.sync_file_range(descriptor, 0, 1, _SYNC_FILE_RANGE_WAIT_BEFORE) != 0:
        raise _last_error(b"sync_file_range")


def write_back_all(descriptor: int) -> None:
    """Write all dirty pages of a file, and wait for those too that are being written. Releases the GIL.

    Raises:
        OSError: Writing failed, now or before anybody was told.
    """
    flags = _SYNC_FILE_RANGE_WAIT_BEFORE | _SYNC_FILE_RANGE_WRITE | _SYNC_FILE_RANGE_WAIT_AFTER
    if _libc.sync_file_range(descriptor, 0, 0, flags) != 0:
        raise _last_error(b"sync_file_range")


def open_cached(path: bytes, flags: int, root: int) -> int:
    """Open a file if the kernel has all of its path in memory: no directory is looked into, and none is locked.

    No symlink is followed, and nothing that is mounted on the way.

    Args:
        path: Relative to `root`, without `..`.
        flags: Of open(2), without those that make something.
        root: Descriptor of a directory.

    Raises:
        BlockingIOError: The kernel would have to ask a filesystem for a name.
        OSError: It can't be opened otherwise; ENOSYS, EINVAL: Linux before 5.12.
    """
    resolve = _RESOLVE_CACHED | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_XDEV
    how = ctypes.create_string_buffer(_OPEN_HOW.pack(flags, 0, resolve), _OPEN_HOW.size)
    descriptor = int(_libc.syscall(_OPENAT2, root, ctypes.c_char_p(path), how, ctypes.c_size_t(_OPEN_HOW.size)))
    if descriptor < 0:
        raise _last_error(path)
    return descriptor


def umount2(mountpoint: bytes, flags: int = 0) -> None:
    """Unmount. Dirty pages are written first. Releases the GIL.

    Raises:
        OSError: EBUSY, EPERM, EINVAL (not a mountpoint), …
    """
    if _libc.umount2(ctypes.c_char_p(mountpoint), flags) != 0:
        raise _last_error(mountpoint)


def mount(source: bytes, target: bytes, filesystem_type: bytes, flags: int, options: bytes) -> None:
    """Mount a filesystem, as the call of the same name in section 2.

    Raises:
        OSError: Refused; EPERM without CAP_SYS_ADMIN.
    """
    if _libc.mount(source, target, filesystem_type, ctypes.c_ulong(flags), options) != 0:
        raise _last_error(target)


def detached_mount(filesystem_type: bytes) -> int:
    """Mount a filesystem that needs no source, in no place: only the returned directory descriptor leads into it.

    Raises:
        OSError: EPERM without CAP_SYS_ADMIN, ENODEV for a type that the kernel does not have.
    """
    context = _libc.syscall(_FSOPEN, ctypes.c_char_p(filesystem_type), _CLOEXEC)
    if context < 0:
        raise _last_error(filesystem_type)
    try:
        if _libc.syscall(_FSCONFIG, context, _CONFIG_CREATE, None, None, 0) != 0:
            raise _last_error(filesystem_type)
        mount = int(_libc.syscall(_FSMOUNT, context, _CLOEXEC, 0))
        if mount < 0:
            raise _last_error(filesystem_type)
        return mount
    finally:
        os.close(context)


def die_with_parent() -> None:
    """Have the kernel kill this process when the thread that forked it ends, however it ends."""
    if _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise _last_error(b"prctl")


def _last_error(what: bytes) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
