"""Extended attributes: names, limits and flags as setxattr(2) has them."""

from __future__ import annotations

import errno
from dataclasses import replace
from typing import Final

from blockfs.engine.attributes import XattrFlags
from blockfs.engine.nodes import Nodes
from blockfs.errors import FsError
from blockfs.tree.schema import NAME_MAX, XATTR_VALUE_MAX

_NAMESPACES: Final = (b"user.", b"trusted.", b"security.")  # system.* would be POSIX ACLs: nobody enforces them here
_LIST_MAX: Final = 65536  # XATTR_LIST_MAX: listxattr(2) cannot return more


def get_xattr(nodes: Nodes, ino: int, name: bytes) -> bytes:
    """Value of an attribute.

    Raises:
        FsError: ENOENT; ENODATA; EOPNOTSUPP and ERANGE as `check_xattr_name`.
    """
    nodes.inode(ino)
    check_xattr_name(name)
    value = nodes.tree.xattr(ino, name)
    if value is None:
        raise FsError(errno.ENODATA, f"{name!r} of inode {ino}")
    return value


def list_xattrs(nodes: Nodes, ino: int) -> list[bytes]:
    """Names of all attributes of an inode, in byte order.

    Raises:
        FsError: ENOENT.
    """
    nodes.inode(ino)
    return [name for name, _ in nodes.tree.xattrs(ino)]


def set_xattr(nodes: Nodes, ino: int, name: bytes, value: bytes, flags: XattrFlags) -> None:
    """Set an attribute.

    Raises:
        FsError: ENOENT; EEXIST with CREATE; ENODATA with REPLACE; EINVAL with both; E2BIG for a value over 64 KiB;
            ENOSPC when the names would not fit a list; EOPNOTSUPP and ERANGE as `check_xattr_name`.
    """
    inode = nodes.inode(ino)
    nodes.check_changeable(inode)
    check_xattr_name(name)
    if len(value) > XATTR_VALUE_MAX:
        raise FsError(errno.E2BIG, f"a value of {len(value)} bytes")
    if flags == XattrFlags.CREATE | XattrFlags.REPLACE:
        raise FsError(errno.EINVAL, "XATTR_CREATE with XATTR_REPLACE")
    exists = nodes.tree.xattr(ino, name) is not None
    if exists and XattrFlags.CREATE in flags:
        raise FsError(errno.EEXIST, f"{name!r} of inode {ino}")
    if not exists and XattrFlags.REPLACE in flags:
        raise FsError(errno.ENODATA, f"{name!r} of inode {ino}")
    if not exists and _list_size(list_xattrs(nodes, ino)) + len(name) + 1 > _LIST_MAX:
        raise FsError(errno.ENOSPC, f"too many attributes on inode {ino}")
    nodes.tree.set_xattr(ino, name, value)
    nodes.put(replace(inode, ctime_ns=nodes.now_ns()))


def remove_xattr(nodes: Nodes, ino: int, name: bytes) -> None:
    """Remove an attribute.

    Raises:
        FsError: ENOENT; ENODATA; EOPNOTSUPP and ERANGE as `check_xattr_name`.
    """
    nodes.check_changeable(nodes.inode(ino))
    get_xattr(nodes, ino, name)
    nodes.tree.remove_xattr(ino, name)
    nodes.put(replace(nodes.inode(ino), ctime_ns=nodes.now_ns()))


def check_xattr_name(name: bytes) -> None:
    """Refuse names that cannot be attributes here.

    Raises:
        FsError: EOPNOTSUPP outside user., trusted. and security.; ERANGE over 255 bytes; EINVAL for a bare prefix.
    """
    if len(name) > NAME_MAX:
        raise FsError(errno.ERANGE, f"an attribute name of {len(name)} bytes")
    if not name.startswith(_NAMESPACES):
        raise FsError(errno.EOPNOTSUPP, f"attribute {name!r}")
    if name in _NAMESPACES or b"\0" in name:
        raise FsError(errno.EINVAL, f"attribute {name!r}")


def _list_size(names: list[bytes]) -> int:
    return sum(len(name) + 1 for name in names)
