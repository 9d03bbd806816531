"""Extended attributes: names, limits and flags as setxattr(2) has them; POSIX ACLs, which are tied to the mode."""

from __future__ import annotations

import errno
from typing import Final

from msgspec.structs import replace

from blockfs.engine.names.acl import ACCESS, DEFAULT, PERMISSION_BITS, Acl
from blockfs.engine.names.attributes import S_ISGID, XattrFlags
from blockfs.engine.names.inodes import Inodes
from blockfs.errors import FsError
from blockfs.runtime.output import shown
from blockfs.tree.schema import NAME_MAX, XATTR_VALUE_MAX, Inode, Kind

_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")
_ACLS: Final = (ACCESS, DEFAULT)  # all that there is of system.*
OWN_MODE: Final = b"blocksync.mode"
"""Of a snapshot's top that has fewer rights than its original: the mode of that one, 2 bytes, big endian. In no
namespace, so that nobody can read, set or remove it; it is in no list."""
_LIST_MAX: Final = 65536  # XATTR_LIST_MAX: listxattr(2) cannot return more


def get_xattr(inodes: Inodes, ino: int, name: bytes) -> bytes:
    """Value of an attribute.

    Raises:
        FsError: ENOENT; ENODATA; EOPNOTSUPP and ERANGE as `check_xattr_name`.
    """
    inodes.inode(ino)
    check_xattr_name(name)
    value = inodes.tree.xattr(ino, name)
    if value is None:
        raise FsError(errno.ENODATA, f"{shown(name)} of inode {ino}")
    return value


def list_xattrs(inodes: Inodes, ino: int) -> list[bytes]:
    """Names of all attributes of an inode, in byte order, but for `OWN_MODE`.

    Raises:
        FsError: ENOENT.
    """
    inodes.inode(ino)
    return [name for name, _ in inodes.tree.xattrs(ino) if name != OWN_MODE]


def set_xattr(
    inodes: Inodes, ino: int, name: bytes, value: bytes, flags: XattrFlags, *, keeps_setgid: bool = True
) -> None:
    """Set an attribute. An access ACL also sets the mode; one that says no more than a mode is not stored.

    Args:
        inodes: The inodes.
        ino: Which one.
        name: With its namespace.
        value: Any bytes, or an ACL.
        flags: CREATE or REPLACE.
        keeps_setgid: Whether the caller may set the file's setgid bit; an access ACL by anyone else clears it.

    Raises:
        FsError: ENOENT; EEXIST with CREATE; ENODATA with REPLACE; one of these with both; E2BIG for a value over
            64 KiB; ENOSPC when the names would not fit a list; EOPNOTSUPP and ERANGE as `check_xattr_name`; for an ACL
            EINVAL if it is malformed, EOPNOTSUPP on a symlink, EACCES for a default one on anything but a directory.
    """
    inode = inodes.inode(ino)
    inodes.check_changeable(inode)
    check_xattr_name(name)
    if len(value) > XATTR_VALUE_MAX:
        raise FsError(errno.E2BIG, f"a value of {len(value)} bytes")
    exists = inodes.tree.xattr(ino, name) is not None
    if exists and XattrFlags.CREATE in flags:
        raise FsError(errno.EEXIST, f"{shown(name)} of inode {ino}")
    if not exists and XattrFlags.REPLACE in flags:
        raise FsError(errno.ENODATA, f"{shown(name)} of inode {ino}")
    if not exists and _list_size(list_xattrs(inodes, ino)) + len(name) + 1 > _LIST_MAX:
        raise FsError(errno.ENOSPC, f"too many attributes on inode {ino}")
    if name in _ACLS:
        acl = _checked_acl(inode, name, value)
        if name == ACCESS:
            inode = replace(inode, mode=inode.mode & ~PERMISSION_BITS & ~(0 if keeps_setgid else S_ISGID) | acl.mode)
            _store_access_acl(inodes, ino, acl)
        else:
            inodes.tree.set_xattr(ino, name, value)
    else:
        inodes.tree.set_xattr(ino, name, value)
    inodes.put(replace(inode, ctime_ns=inodes.now_ns()))


def remove_xattr(inodes: Inodes, ino: int, name: bytes) -> None:
    """Remove an attribute. An ACL that is not there is removed, too.

    Raises:
        FsError: ENOENT; ENODATA; EOPNOTSUPP and ERANGE as `check_xattr_name`.
    """
    inodes.check_changeable(inodes.inode(ino))
    if name in _ACLS and inodes.tree.xattr(ino, name) is None:
        return
    get_xattr(inodes, ino, name)
    inodes.tree.remove_xattr(ino, name)
    inodes.put(replace(inodes.inode(ino), ctime_ns=inodes.now_ns()))


def follow_chmod(inodes: Inodes, inode: Inode) -> None:
    """The mode was set: the access ACL, if there is one, says the same."""
    value = inodes.tree.xattr(inode.ino, ACCESS)
    if value is not None:
        inodes.tree.set_xattr(inode.ino, ACCESS, Acl.decode(value).with_mode(inode.mode).encode())


def inherit_acl(inodes: Inodes, directory: Inode, inode: Inode, umask: int) -> Inode:
    """Give a new inode what its directory's default ACL says; without one the umask counts, as acl(5) has it.

    Returns:
        The inode, its mode cut to what is granted.
    """
    if inode.kind is Kind.SYMLINK:
        return inode
    value = inodes.tree.xattr(directory.ino, DEFAULT)
    if value is None:
        return replace(inode, mode=inode.mode & ~umask) if inode.mode & umask else inode
    acl = Acl.decode(value).inherited(inode.mode)
    _store_access_acl(inodes, inode.ino, acl)
    if inode.kind is Kind.DIRECTORY:
        inodes.tree.set_xattr(inode.ino, DEFAULT, value)
    return replace(inode, mode=inode.mode & ~PERMISSION_BITS | acl.mode)


def _checked_acl(inode: Inode, name: bytes, value: bytes) -> Acl:
    if inode.kind is Kind.SYMLINK:
        raise FsError(errno.EOPNOTSUPP, f"an ACL on symlink {inode.ino}")
    if name == DEFAULT and inode.kind is not Kind.DIRECTORY:
        raise FsError(errno.EACCES, f"a default ACL on inode {inode.ino}, which is no directory")
    return Acl.decode(value)


def _store_access_acl(inodes: Inodes, ino: int, acl: Acl) -> None:
    if not acl.is_minimal:
        inodes.tree.set_xattr(ino, ACCESS, acl.encode())
    elif inodes.tree.xattr(ino, ACCESS) is not None:
        inodes.tree.remove_xattr(ino, ACCESS)


def check_xattr_name(name: bytes) -> None:
    """Refuse names that cannot be attributes here.

    Raises:
        FsError: EOPNOTSUPP outside user., trusted., security. and POSIX ACLs; ERANGE over 255 bytes; EINVAL for a
            bare prefix.
    """
    if len(name) > NAME_MAX:
        raise FsError(errno.ERANGE, f"an attribute name of {len(name)} bytes")
    if not name.startswith(_NAMESPACES) and name not in _ACLS:
        raise FsError(errno.EOPNOTSUPP, f"attribute {shown(name)}")
    if name in _NAMESPACES or b"\0" in name:
        raise FsError(errno.EINVAL, f"attribute {shown(name)}")


def _list_size(names: list[bytes]) -> int:
    return sum(len(name) + 1 for name in names)
