"""The FUSE kernel protocol: numbers and layouts. Pure.

Source: include/uapi/linux/fuse.h in Linux 6.18 (protocol 7.45). All integers are of the machine's own byte order, and
each structure is a multiple of 8 bytes. docs/design/kernel-frontend.md says which of them are used, and why.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag
from struct import Struct
from typing import Final

MAJOR: Final = 7
MINOR: Final = 45
"""What we speak; both sides use the lower minor version of the two."""

MAX_REQUEST: Final = 1 << 20  # bytes of a read or write: the most that every kernel since 4.20 can be asked for
MAX_PAGES: Final = MAX_REQUEST // 4096
BUFFER_BYTES: Final = MAX_REQUEST + 4096
"""The largest request with its headers. The kernel refuses to fill a smaller buffer, whatever it has for us."""


class Opcode(IntEnum):
    """Kinds of requests; those that are missing here are answered with ENOSYS."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    READLINK = 5
    SYMLINK = 6
    MKNOD = 8
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    LINK = 13
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    SETXATTR = 21
    GETXATTR = 22
    LISTXATTR = 23
    REMOVEXATTR = 24
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    RELEASEDIR = 29
    FSYNCDIR = 30
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    NOTIFY_REPLY = 41
    BATCH_FORGET = 42
    FALLOCATE = 43
    READDIRPLUS = 44
    RENAME2 = 45
    LSEEK = 46
    COPY_FILE_RANGE = 47
    TMPFILE = 51
    STATX = 52
    COPY_FILE_RANGE_64 = 53


class Notification(IntEnum):
    """What we tell without having been asked."""

    INVAL_INODE = 2
    INVAL_ENTRY = 3


class InitFlag(IntFlag):
    """What INIT negotiates. From bit 32 on they travel in fields of their own (INIT_EXT)."""

    ASYNC_READ = 1 << 0
    ATOMIC_O_TRUNC = 1 << 3
    EXPORT_SUPPORT = 1 << 4
    BIG_WRITES = 1 << 5
    DONT_MASK = 1 << 6
    DO_READDIRPLUS = 1 << 13
    ASYNC_DIO = 1 << 15
    WRITEBACK_CACHE = 1 << 16
    PARALLEL_DIROPS = 1 << 18
    POSIX_ACL = 1 << 20
    MAX_PAGES = 1 << 22
    HANDLE_KILLPRIV_V2 = 1 << 28
    INIT_EXT = 1 << 30
    PASSTHROUGH = 1 << 37


class SetattrField(IntFlag):
    """Which fields of a SETATTR count. With ATIME_NOW and MTIME_NOW the kernel sends the times, too."""

    MODE = 1 << 0
    UID = 1 << 1
    GID = 1 << 2
    SIZE = 1 << 3
    ATIME = 1 << 4
    MTIME = 1 << 5
    CTIME = 1 << 10
    KILL_SUIDGID = 1 << 11


OPEN_KILL_SUIDGID: Final = 1 << 0
WRITE_KILL_SUIDGID: Final = 1 << 2
FSYNC_DATASYNC: Final = 1 << 0
FOPEN_KEEP_CACHE: Final = 1 << 1
FOPEN_PASSTHROUGH: Final = 1 << 7
"""The kernel reads, writes and maps the backing file itself. All handles of an inode have it, or none has."""

STACK_DEPTH: Final = 1
"""How many filesystems may lie on each other from a backing file's up to ours: its own lies on none."""

IN_HEADER: Final = Struct("=IIQQIIIHxx")
"""Length of it all, opcode, unique, node, uid, gid, pid, length of extensions at the end in units of 8 bytes."""

OUT_HEADER: Final = Struct("=IiQ")
"""Length of it all, negative errno or 0, unique. A notification: unique 0, its code instead of the errno."""

ATTR: Final = Struct("=QQQqqqIIIIIIIIII")
"""ino, size, blocks of 512, atime, mtime, ctime, their nanoseconds, mode, nlink, uid, gid, rdev, blksize, flags."""

ENTRY: Final = Struct("=QQQQII")
"""Node (0: there is none), generation, validity of name and attributes in s, and in further ns; `ATTR` follows."""

ATTR_OUT: Final = Struct("=QII")
"""Validity in s, and in further ns, padding; `ATTR` follows."""

STATX_OUT: Final = Struct("=QII16x")
"""Validity in s, and in further ns, flags, spare; `STATX` follows."""

STATX: Final = Struct("=IIQIIIHxxQQQQ" + "qI4x" * 4 + "IIII112x")
"""mask, blksize, attributes, nlink, uid, gid, mode, ino, size, blocks, attributes_mask; atime, btime, ctime, mtime each
with its nanoseconds; rdev major and minor, dev major and minor."""

OPEN_OUT: Final = Struct("=QIi")
"""Handle, FOPEN flags, backing id (0: none)."""

DIRENT: Final = Struct("=QQII")
"""ino, position of the next one, length of the name, type; the name follows, padded to 8 bytes."""

STATFS_OUT: Final = Struct("=QQQQQIII28x")
"""blocks, free, available, files, free files, bsize, longest name, frsize."""

INIT_IN: Final = Struct("=IIII")
"""major, minor, max_readahead, flags; with INIT_EXT the upper flags follow, and 44 bytes to come."""

INIT_IN_EXT: Final = Struct("=I")
INIT_OUT: Final = Struct("=IIIIHHIIHHII24x")
"""major, minor, max_readahead, flags, max_background, congestion_threshold, max_write, time_gran, max_pages,
map_alignment, upper flags, max_stack_depth (0: no passthrough)."""

SETATTR_IN: Final = Struct("=I4xQQQqqqIIII4xII4x")
"""`SetattrField`s, handle, size, lock owner, atime, mtime, ctime, their nanoseconds, mode, uid, gid."""

MKNOD_IN: Final = Struct("=IIII")
"""mode, rdev, umask, padding; the name follows. The kernel has not applied the umask (DONT_MASK)."""

MKDIR_IN: Final = Struct("=II")
"""mode, umask; the name follows."""

CREATE_IN: Final = Struct("=IIII")
"""Flags of open(2), mode, umask, OPEN_ flags; the name follows."""

OPEN_IN: Final = Struct("=II")
"""Flags of open(2), OPEN_ flags."""

READ_IN: Final = Struct("=QQI")
"""Handle, offset, size; of READDIRPLUS the position and the room. 20 bytes more have no use here."""

WRITE_IN: Final = Struct("=QQIIQII")
"""Handle, offset, size, WRITE_ flags, lock owner, flags of open(2), padding; the data follow."""

RENAME_IN: Final = Struct("=Q")
RENAME2_IN: Final = Struct("=QII")
"""New directory, flags of renameat2(2), padding; two names follow."""

LINK_IN: Final = Struct("=Q")
HANDLE_IN: Final = Struct("=Q")
FSYNC_IN: Final = Struct("=QII")
SETXATTR_IN: Final = Struct("=II")
"""Size of the value, flags of setxattr(2); name and value follow. (8 bytes more if SETXATTR_EXT were negotiated.)"""

GETXATTR_IN: Final = Struct("=II")
"""Room for the answer, or 0: its length is asked for."""

GETXATTR_OUT: Final = Struct("=II")
FORGET_IN: Final = Struct("=Q")
BATCH_FORGET_IN: Final = Struct("=II")
FORGET_ONE: Final = Struct("=QQ")
INTERRUPT_IN: Final = Struct("=Q")
FALLOCATE_IN: Final = Struct("=QQQII")
"""Handle, offset, length, mode, padding."""

LSEEK_IN: Final = Struct("=QqII")
"""Handle, offset, whence, padding."""

COPY_FILE_RANGE_IN: Final = Struct("=QQQQQQQ")
"""Handle and offset to read, node, handle and offset to write, length, flags."""

STATX_IN: Final = Struct("=IIQII")
WRITE_OUT: Final = Struct("=II")
OFFSET_OUT: Final = Struct("=Q")
"""Of LSEEK the offset; of COPY_FILE_RANGE_64 the bytes that were copied."""

BACKING_OPEN: Final = 0x4010_E501
"""ioctl(2) of /dev/fuse, _IOW(229, 1, struct fuse_backing_map): registers a file, answers its backing id (from 1)."""

BACKING_CLOSE: Final = 0x4004_E502
"""_IOW(229, 2, uint32_t): forgets a backing id. Handles and mappings that use its file keep it."""

BACKING_MAP: Final = Struct("=iIQ")
"""Descriptor, flags, padding."""

BACKING_ID: Final = Struct("=I")
INVAL_INODE_OUT: Final = Struct("=Qqq")
"""Node, offset (below 0: attributes only), length (0: to the end)."""

INVAL_ENTRY_OUT: Final = Struct("=QII")
"""Directory, length of the name, flags; the name and a NUL follow."""
