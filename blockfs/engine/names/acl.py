"""POSIX access control lists as the kernel hands them over: the values of `system.posix_acl_access` and `…_default`.

Pure. The kernel enforces them (`default_permissions`); the filesystem keeps them and the mode bits in agreement. The
group bits of a mode stand for the mask if there is one, else for the owning group.

Value: a header (u32: version 2), then entries of u16 tag, u16 permissions (rwx), u32 id (of named users and groups,
else 0xFFFFFFFF), all little-endian. Source: Linux, include/uapi/linux/posix_acl_xattr.h and fs/posix_acl.c.
"""

from __future__ import annotations

import errno
import struct
from enum import IntEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.errors import FsError

ACCESS: Final = b"system.posix_acl_access"
DEFAULT: Final = b"system.posix_acl_default"
PERMISSION_BITS: Final = 0o777

_HEADER: Final = struct.Struct("<I")
_ENTRY: Final = struct.Struct("<HHI")
_VERSION: Final = 2


class Tag(IntEnum):
    """Whom an entry is about."""

    OWNER = 0x01
    USER = 0x02
    OWNING_GROUP = 0x04
    GROUP = 0x08
    MASK = 0x10
    OTHERS = 0x20


_NAMED: Final = {Tag.USER, Tag.GROUP}


class AclEntry(msgspec.Struct, frozen=True):
    """One line of a list.

    Attributes:
        tag: Whom it is about.
        permissions: rwx, 0 to 7.
        identity: Of a named user or group.
    """

    tag: Tag
    permissions: int
    identity: int


class Acl(msgspec.Struct, frozen=True):
    """A list."""

    entries: tuple[AclEntry, ...]

    @classmethod
    def decode(cls, value: bytes) -> Acl:
        """Read an attribute's value.

        Raises:
            FsError: EINVAL: not a valid list; EOPNOTSUPP: another version.
        """
        if len(value) < _HEADER.size or (len(value) - _HEADER.size) % _ENTRY.size:
            raise FsError(errno.EINVAL, f"an ACL of {len(value)} bytes")
        if _HEADER.unpack_from(value)[0] != _VERSION:
            raise FsError(errno.EOPNOTSUPP, "an ACL of another version")
        try:
            entries = tuple(AclEntry(Tag(tag), *rest) for tag, *rest in _ENTRY.iter_unpack(value[_HEADER.size :]))
        except ValueError:
            raise FsError(errno.EINVAL, "an ACL with an unknown tag") from None
        acl = cls(entries)
        acl._check()
        return acl

    def encode(self) -> bytes:
        """The attribute's value."""
        entries = (_ENTRY.pack(entry.tag, entry.permissions, entry.identity) for entry in self.entries)
        return _HEADER.pack(_VERSION) + b"".join(entries)

    @property
    def is_minimal(self) -> bool:
        """Whether a mode says the same."""
        return len(self.entries) == 3

    @property
    def mode(self) -> int:
        """The permission bits that go with it."""
        by_tag = {entry.tag: entry.permissions for entry in self.entries if entry.tag not in _NAMED}
        group = by_tag.get(Tag.MASK, by_tag[Tag.OWNING_GROUP])
        return by_tag[Tag.OWNER] << 6 | group << 3 | by_tag[Tag.OTHERS]

    def with_mode(self, mode: int) -> Acl:
        """The list after a chmod."""
        has_mask = any(entry.tag is Tag.MASK for entry in self.entries)
        group = Tag.MASK if has_mask else Tag.OWNING_GROUP
        now = {Tag.OWNER: mode >> 6 & 7, group: mode >> 3 & 7, Tag.OTHERS: mode & 7}
        return Acl(tuple(replace(entry, permissions=now.get(entry.tag, entry.permissions)) for entry in self.entries))

    def inherited(self, mode: int) -> Acl:
        """What a file that is made with `mode` gets from its directory's default list."""
        return self.with_mode(self.mode & mode)

    def _check(self) -> None:
        """Linux's rules: entries by tag, each once but for named ones, and a mask if there are such.

        Raises:
            FsError: EINVAL.
        """
        tags = [entry.tag for entry in self.entries]
        once = [tag for tag in tags if tag not in _NAMED]
        complete = {Tag.OWNER, Tag.OWNING_GROUP, Tag.OTHERS} <= set(once) and (
            Tag.MASK in once or len(once) == len(tags)
        )
        in_order = tags == sorted(tags) and len(once) == len(set(once))
        if not complete or not in_order or any(entry.permissions > 7 for entry in self.entries):
            raise FsError(errno.EINVAL, "an ACL with missing, double or misplaced entries")
