"""rename(2) and renameat2(2): the checks in Linux's order, then the change.

All functions are called with the engine's lock held.
"""

from __future__ import annotations

import errno
from collections import Counter

import msgspec
from msgspec.structs import replace

from blockfs.engine.names.attributes import RenameFlags
from blockfs.engine.names.inodes import LINKS_MAX, Inodes, check_name
from blockfs.errors import FsError
from blockfs.runtime.output import shown
from blockfs.tree.schema import ROOT_INO, Inode, Kind


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller asks for.

    Attributes:
        parent: Directory of the source.
        name: Its name there.
        new_parent: Directory of the destination.
        new_name: Name there.
        flags: EXCHANGE, or any of NOREPLACE and WHITEOUT.
    """

    parent: int
    name: bytes
    new_parent: int
    new_name: bytes
    flags: RenameFlags = RenameFlags.NONE


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A rename that may be done.

    Attributes:
        source: The renamed inode.
        target: What is at the destination, if anything: replaced, or exchanged.
    """

    source: Inode
    target: Inode | None

    @property
    def is_nothing(self) -> bool:
        """Both names are links to one inode: POSIX says nothing happens."""
        return self.target is not None and self.target.ino == self.source.ino


def check_rename(inodes: Inodes, request: Rename) -> Moved:
    """Find what a rename is about, or refuse it.

    Raises:
        FsError: EINVAL unknown flags, or a directory into itself; ENOENT; ENOTDIR; EISDIR; EEXIST; ENOTEMPTY; EMLINK;
            ENAMETOOLONG; EROFS: in a snapshot; EBUSY: the directory of snapshots.
    """
    known = (
        RenameFlags.EXCHANGE if RenameFlags.EXCHANGE in request.flags else RenameFlags.NOREPLACE | RenameFlags.WHITEOUT
    )
    if int(request.flags) & ~int(known):
        raise FsError(errno.EINVAL, f"rename flags {int(request.flags)}")
    inodes.writable_directory(request.new_parent)
    source = inodes.child(request.parent, request.name)
    inodes.check_movable(source)
    check_name(request.new_name)
    target = inodes.find(request.new_parent, request.new_name)
    if target is not None and RenameFlags.NOREPLACE in request.flags:
        raise FsError(errno.EEXIST, f"{shown(request.new_name)} in directory {request.new_parent}")
    if target is None and request.flags is RenameFlags.EXCHANGE:
        raise FsError(errno.ENOENT, f"{shown(request.new_name)} in directory {request.new_parent}")
    if target is not None:
        inodes.check_movable(target)
    _check_loops(inodes, request, source, target)
    moved = Moved(source=source, target=target)
    if not moved.is_nothing:
        if target is not None and request.flags is not RenameFlags.EXCHANGE:
            _check_replaceable(inodes, source, target)
        _check_link_counts(inodes, request, moved)
    return moved


def _check_loops(inodes: Inodes, request: Rename, source: Inode, target: Inode | None) -> None:
    """A directory must not move below itself; one on the way to the source is not empty."""
    if request.parent == request.new_parent:
        return
    if source.kind is Kind.DIRECTORY and is_below(inodes, request.new_parent, source.ino):
        raise FsError(errno.EINVAL, f"directory {source.ino} into itself")
    if target is not None and target.kind is Kind.DIRECTORY and is_below(inodes, request.parent, target.ino):
        exchange = request.flags is RenameFlags.EXCHANGE
        raise FsError(errno.EINVAL if exchange else errno.ENOTEMPTY, f"directory {target.ino} contains the source")


def is_below(inodes: Inodes, ino: int, ancestor: int) -> bool:
    """Whether directory `ino` is `ancestor` or in it, at any depth."""
    while ino != ancestor:
        if ino == ROOT_INO:
            return False
        place = next(inodes.tree.places(ino), None)
        if place is None:
            return False
        ino = place[0]
    return True


def _check_replaceable(inodes: Inodes, source: Inode, target: Inode) -> None:
    if source.kind is Kind.DIRECTORY and target.kind is not Kind.DIRECTORY:
        raise FsError(errno.ENOTDIR, f"inode {target.ino}")
    if source.kind is not Kind.DIRECTORY and target.kind is Kind.DIRECTORY:
        raise FsError(errno.EISDIR, f"inode {target.ino}")
    if target.kind is Kind.DIRECTORY and next(inodes.tree.entries(target.ino), None) is not None:
        raise FsError(errno.ENOTEMPTY, f"directory {target.ino}")


def _check_link_counts(inodes: Inodes, request: Rename, moved: Moved) -> None:
    for ino, links in _link_changes(request, moved).items():
        if links > 0 and inodes.directory(ino).nlink + links > LINKS_MAX:
            raise FsError(errno.EMLINK, f"directory {ino}")


def _link_changes(request: Rename, moved: Moved) -> Counter[int]:
    """Subdirectories that each of the two parents gains or loses."""
    changes: Counter[int] = Counter({request.parent: 0, request.new_parent: 0})
    if moved.source.kind is Kind.DIRECTORY:
        changes[request.parent] -= 1
        changes[request.new_parent] += 1
    if moved.target is not None and moved.target.kind is Kind.DIRECTORY:
        changes[request.new_parent] -= 1
        if request.flags is RenameFlags.EXCHANGE:
            changes[request.parent] += 1
    return changes


def apply_rename(inodes: Inodes, request: Rename, moved: Moved) -> None:
    """Do a rename that `check_rename` allowed, under the same hold of the lock."""
    now_ns = inodes.now_ns()
    tree, source, target = inodes.tree, moved.source, moved.target
    # Neither source nor target can be one of these parents (`_check_loops`), so their rows stay what was read.
    for ino, links in _link_changes(request, moved).items():
        inodes.touch_directory(inodes.directory(ino), now_ns, links=links)
    tree.link(request.new_parent, request.new_name, source.ino)
    if target is not None and request.flags is RenameFlags.EXCHANGE:
        tree.link(request.parent, request.name, target.ino)
        inodes.put(replace(target, ctime_ns=now_ns))
    else:
        tree.unlink(request.parent, request.name)
        if target is not None:
            inodes.drop_name(target, now_ns)
    inodes.put(replace(source, ctime_ns=now_ns))
