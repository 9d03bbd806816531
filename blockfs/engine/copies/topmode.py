"""The mode of a snapshot's top. Below `.snapshots` nothing hides what a folder above the original hides.

So where such a folder keeps somebody out, the copy has no rights but its owner's, and an attribute that no mount shows
tells the mode that a restored one gets back.
"""

from __future__ import annotations

import struct
from typing import Final

from msgspec.structs import replace

from blockfs.engine.names.acl import ACCESS, Acl
from blockfs.engine.names.xattrs import OWN_MODE
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import ROOT_INO, Inode, Kind

_SEARCHABLE: Final = 0o111
_OTHERS: Final = 0o077
_VALUE: Final = struct.Struct(">H")

Xattrs = list[tuple[bytes, bytes]]


def is_hidden(view: TreeReader, ino: int) -> bool:
    """Whether a folder above keeps anybody out. One with an access ACL counts as one: it may name whom."""
    while ino != ROOT_INO:
        place = next(view.places(ino), None)
        folder = None if place is None else view.inode(place[0])
        if folder is None:
            return True  # damage, which fsck will find
        ino = folder.ino
        if folder.mode & _SEARCHABLE != _SEARCHABLE or view.xattr(ino, ACCESS) is not None:
            return True
    return False


def closed(inode: Inode, xattrs: Xattrs) -> tuple[Inode, Xattrs]:
    """A top that only its owner gets at. A symlink has no rights that could be taken."""
    if inode.kind is Kind.SYMLINK or not inode.mode & _OTHERS:
        return inode, xattrs
    own = OWN_MODE, _VALUE.pack(inode.mode)
    return _with_mode(inode, inode.mode & ~_OTHERS, [*xattrs, own])


def own_mode(view: TreeReader, inode: Inode) -> int:
    """The mode that the original of this copy had."""
    value = view.xattr(inode.ino, OWN_MODE)
    if value is None or len(value) != _VALUE.size:
        return inode.mode
    return int(_VALUE.unpack(value)[0])


def opened(inode: Inode, xattrs: Xattrs, mode: int) -> tuple[Inode, Xattrs]:
    """The opposite of `closed`: with the mode that `own_mode` told."""
    return _with_mode(inode, mode, [one for one in xattrs if one[0] != OWN_MODE])


def _with_mode(inode: Inode, mode: int, xattrs: Xattrs) -> tuple[Inode, Xattrs]:
    """As after a chmod: the access ACL says the same."""
    follow = [(name, Acl.decode(value).with_mode(mode).encode() if name == ACCESS else value) for name, value in xattrs]
    return replace(inode, mode=mode), follow
