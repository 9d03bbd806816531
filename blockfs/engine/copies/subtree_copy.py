"""Copying a subtree of a committed state: new inodes that share all leaves. No block is read or written.

The copy grows below the directory of snapshots under a name that nobody can ask for, in many change sets, each of them
consistent: a directory counts the subdirectories it has so far, a file the names it has so far. Whoever asked for it
gives it its place in a last change set of its own. A crash before that leaves what the next mount removes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from blockfs.blocks.ids import LeafKey
from blockfs.engine.context import Stores
from blockfs.engine.copies.topmode import Xattrs, closed, is_hidden, opened, own_mode
from blockfs.engine.names.newnames import LEAF_BYTES, NAME_BYTES
from blockfs.engine.portions import LEAVES_PER_STEP
from blockfs.errors import CorruptionError
from blockfs.tree.committed import CommittedView
from blockfs.tree.schema import MAX_TOTAL_BYTES, SNAPSHOTS_INO, UNFINISHED_PREFIX, Inode, Kind


def unfinished_name(top: int) -> bytes:
    """The name of what is being made or removed."""
    return UNFINISHED_PREFIX + b"%d" % top


class SubtreeCopy:
    """A copy of one subtree that is being made.

    Args:
        stores: Of the mount.
        view: Where the originals are; everything sealed there.
        source: The top of the originals, in `view`.
        ask: Asked for bytes before each row that is made; see `NewNames.ask`.
        now_ns: Time of birth and of the last change of the copies; None: they are frozen, with all times of the
            originals, and `Tree.copy_of` knows them.

    Attributes:
        top: The copy of `source`.
        files: Regular files copied so far, hard links once.
        logical_bytes: Sum of their sizes, as far as a row holds it.
    """

    def __init__(
        self,
        stores: Stores,
        view: CommittedView,
        source: int,
        ask: Callable[[int], None],
        *,
        now_ns: int | None,
    ) -> None:
        self._stores = stores
        self._tree = stores.tree
        self._view = view
        self._source = source
        self._ask = ask
        self._now_ns = now_ns
        self._linked: dict[int, tuple[int, int]] = {}  # original with names left to be met → copy, names met
        self.top = 0
        self.files = 0
        self.logical_bytes = 0

    def steps(self) -> Iterator[None]:
        """Make it, for `work_through`."""
        source = self._original(self._source)
        self.top = self._tree.new_ino()
        yield from self._add(source, self.top, SNAPSHOTS_INO, unfinished_name(self.top))
        folders = [(self.top, self._view.entries(source.ino))]
        while folders:
            folder, entries = folders[-1]
            entry = next(entries, None)
            if entry is None:
                folders.pop()
                continue
            name, original = entry[0], self._original(entry[1])
            if original.ino in self._linked:
                self._link_again(original, folder, name)
                yield
                continue
            ino = self._tree.new_ino()
            yield from self._add(original, ino, folder, name)
            if original.kind is Kind.DIRECTORY:
                folders.append((ino, self._view.entries(original.ino)))

    def _original(self, ino: int) -> Inode:
        found = self._view.inode(ino)
        if found is None:
            raise CorruptionError(f"tree: a name leads to inode {ino}, which does not exist; run `blocksync fsck`")
        return found

    def _add(self, original: Inode, ino: int, folder: int, name: bytes) -> Iterator[None]:
        """Make the copy of an inode under its first name."""
        tree = self._tree
        xattrs = list(self._view.xattrs(original.ino))
        if ino == self.top:
            original, xattrs = self._as_top(original, xattrs)
        self._ask(NAME_BYTES + sum(len(value) for _, value in xattrs))
        self._put(original, ino)
        tree.link(folder, name, ino)
        if original.kind is Kind.DIRECTORY:
            parent = tree.inode(folder)
            assert parent is not None
            tree.put_inode(replace(parent, nlink=parent.nlink + 1))
        elif original.nlink > 1 and folder != SNAPSHOTS_INO:
            self._linked[original.ino] = (ino, 1)
        if original.kind is Kind.SYMLINK:
            target = self._view.symlink_target(original.ino)
            if target is None:
                raise CorruptionError(f"tree: symlink {original.ino} has no target; run `blocksync fsck`")
            tree.set_symlink_target(ino, target)
        for xattr, value in xattrs:
            tree.set_xattr(ino, xattr, value)
        yield
        if original.kind is Kind.FILE:
            self.files += 1
            self.logical_bytes = min(self.logical_bytes + original.size_bytes, MAX_TOTAL_BYTES)
            yield from self._share_leaves(original.ino, ino)

    def _as_top(self, original: Inode, xattrs: Xattrs) -> tuple[Inode, Xattrs]:
        if self._now_ns is not None:
            return opened(original, xattrs, own_mode(self._view, original))
        return closed(original, xattrs) if is_hidden(self._view, original.ino) else (original, xattrs)

    def _put(self, original: Inode, ino: int) -> None:
        nlink = 2 if original.kind is Kind.DIRECTORY else 1
        if self._now_ns is None:
            self._tree.put_inode(replace(original, ino=ino, nlink=nlink, origin=original.ino))
            self._tree.put_copy(self.top, original.ino, ino)
        else:
            now_ns = self._now_ns
            copy = replace(original, ino=ino, nlink=nlink, origin=0, ctime_ns=now_ns, btime_ns=now_ns)
            self._tree.put_inode(copy, content_changed=True)

    def _link_again(self, original: Inode, folder: int, name: bytes) -> None:
        self._ask(NAME_BYTES)
        ino, met = self._linked[original.ino]
        inode = self._tree.inode(ino)
        assert inode is not None
        self._tree.put_inode(replace(inode, nlink=met + 1))
        self._tree.link(folder, name, ino)
        if met + 1 == original.nlink:
            del self._linked[original.ino]
        else:
            self._linked[original.ino] = (ino, met + 1)

    def _share_leaves(self, original: int, ino: int) -> Iterator[None]:
        for count, (index, key) in enumerate(self._view.leaf_keys(original), 1):
            self._ask(LEAF_BYTES)
            self._tree.take_leaf(ino, index, key, lambda key=key: self._ids(key))  # type: ignore[misc]
            if count % LEAVES_PER_STEP == 0:
                yield

    def _ids(self, key: LeafKey) -> bytes:
        return self._view.leaf_ids(key)
