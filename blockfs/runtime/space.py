"""How much room a host filesystem has for us: what statvfs(3) says, or what a btrfs quota leaves, which it doesn't.

A quota must be known before it is used up. btrfs takes each page of a mapped file that becomes dirty from the quota,
and kills the process with SIGBUS if there is none (LMDB's lock file is such a file). The numbers are those that the
kernel itself compares (fs/btrfs/qgroup.c, qgroup_check_limits). Limits of higher qgroups can't be read by users.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from functools import lru_cache
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec

# linux/btrfs.h: _IOR(0x94, 31, struct btrfs_ioctl_fs_info_args), _IOWR(0x94, 18, struct btrfs_ioctl_ino_lookup_args)
_FS_INFO: Final = 0x8400941F
_FS_INFO_BYTES: Final = 1024
_FSID: Final = slice(16, 32)
_INO_LOOKUP: Final = 0xD0009412
_INO_LOOKUP_BYTES: Final = 4096
_SUBVOLUME_TOP: Final = 256  # BTRFS_FIRST_FREE_OBJECTID: the inode of a subvolume's directory

_QUOTACTL_FD: Final = 443  # one number on all architectures
_XGETQUOTA: Final = 0x5803  # linux/dqblk_xfs.h, XQM_CMD(3)
_USER: Final = 0
_GROUP: Final = 1
_DISK_QUOTA: Final = struct.Struct("=8xQQ")  # struct fs_disk_quota: version, flags, mask, id; hard and soft limit
_DISK_QUOTA_BYTES: Final = 256  # more than it has

_libc: Final = ctypes.CDLL(None, use_errno=True)

_FILESYSTEMS: Final = Path("/sys/fs/btrfs")
_LIMITS: Final = {1 << 0: ("max_referenced", "referenced"), 1 << 1: ("max_exclusive", "exclusive")}  # limit_flags
_RESERVED: Final = ("rsv_data", "rsv_meta_pertrans", "rsv_meta_prealloc")


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """Room of a filesystem, or of a quota if that leaves less.

    Attributes:
        total_bytes: Size of the filesystem; the quota's limit.
        free_bytes: Not in use; as the next for a quota.
        available_bytes: What an ordinary user may still use.
        is_quota: A quota leaves less than the filesystem has.
    """

    total_bytes: int
    free_bytes: int
    available_bytes: int
    is_quota: bool


def host_space(path: str | bytes) -> Space:
    """The room there is where a path lies.

    Args:
        path: An existing file or directory.

    Raises:
        OSError: It does not exist.
    """
    found = os.statvfs(path)
    available_bytes = found.f_bavail * found.f_frsize
    folder = _qgroup(path)
    quota = None if folder is None else _quota(folder)
    if quota is not None and quota.available_bytes < available_bytes:
        return quota
    return Space(
        total_bytes=found.f_blocks * found.f_frsize,
        free_bytes=found.f_bfree * found.f_frsize,
        available_bytes=available_bytes,
        is_quota=False,
    )


def charges_mapped_pages(path: str | bytes) -> bool:
    """Whether the host may lack room for what is written to a mapped file in place, and kills who does that: btrfs.

    Args:
        path: An existing file or directory.

    Raises:
        OSError: It does not exist.
    """
    return _qgroup(path) is not None


@lru_cache(maxsize=64)
def _qgroup(path: str | bytes) -> Path | None:
    """Where the kernel shows the qgroup of a path's subvolume, if there is one; None if this is no btrfs."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        info, top = bytearray(_FS_INFO_BYTES), bytearray(_INO_LOOKUP_BYTES)
        struct.pack_into("=QQ", top, 0, 0, _SUBVOLUME_TOP)  # tree 0: the one that the descriptor is in
        fcntl.ioctl(descriptor, _FS_INFO, info)
        fcntl.ioctl(descriptor, _INO_LOOKUP, top)
    except OSError:  # ENOTTY, EINVAL: another filesystem
        return None
    finally:
        os.close(descriptor)
    (tree,) = struct.unpack_from("=Q", top)
    return _FILESYSTEMS / str(UUID(bytes=bytes(info[_FSID]))) / "qgroups" / f"0_{tree}"


def _quota(folder: Path) -> Space | None:
    """What the limits of a qgroup leave; None without limits."""

    def number(name: str) -> int:
        return int((folder / name).read_bytes())

    try:
        flags = number("limit_flags")
        limits = [(number(most), number(used)) for flag, (most, used) in _LIMITS.items() if flags & flag]
        reserved = sum(number(name) for name in _RESERVED) if limits else 0
    except OSError:  # quotas are off, or this kernel does not tell (before 5.9)
        return None
    if not limits:
        return None
    left, total_bytes = min((max(0, most - used - reserved), most) for most, used in limits)
    return Space(total_bytes=total_bytes, free_bytes=left, available_bytes=left, is_quota=True)


def has_block_limit(descriptor: int, uid: int, gid: int) -> bool:
    """Whether a quota limits how many blocks a user, or his group, may use where an open file lies.

    statvfs(3) does not tell. XFS counts a block that several files share for each of them.

    Args:
        descriptor: Any file or directory there.
        uid: Of the user. Root's id holds defaults for others, and does not count.
        gid: Of the group.
    """
    return any(number and _limits(descriptor, kind, number) for kind, number in ((_USER, uid), (_GROUP, gid)))


def _limits(descriptor: int, kind: int, number: int) -> bool:
    found = ctypes.create_string_buffer(_DISK_QUOTA_BYTES)
    if _libc.syscall(_QUOTACTL_FD, descriptor, (_XGETQUOTA << 8) | kind, number, found) != 0:
        return False  # no quotas, none of this kind, or a kernel before 5.14
    hard, soft = _DISK_QUOTA.unpack_from(found)
    return bool(hard or soft)
