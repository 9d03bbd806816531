"""The tree of one volume: typed rows, leaf reference counts, journal, grouped commits.

All methods are called with the engine's lock held, except `write` and `committed`, which need none.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import lmdb
from msgspec.structs import replace

from blockfs.blocks.environment import close_environment, lmdb_errors
from blockfs.blocks.hashing import LEAF_IDS, leaf_key
from blockfs.blocks.ids import ID_SIZE, LeafKey
from blockfs.errors import CorruptionError
from blockfs.runtime import linux
from blockfs.runtime.atomic import sync_directory
from blockfs.tree import journal
from blockfs.tree.committed import CommittedView, Snapshot
from blockfs.tree.environment import (
    ADVICE,
    create_tables,
    make_directory,
    open_tables,
    open_tree_environment,
)
from blockfs.tree.newer_rows import NewerRows
from blockfs.tree.overlay import ChangeSet, OverlayStore, Releasable
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import (
    META_JOURNAL_START,
    META_MOUNT,
    META_RESERVED,
    FailedFlush,
    Generation,
    HotRow,
    Inode,
    Kind,
    SnapshotRow,
    Table,
    canonical_leaf,
    copy_key,
    decode_leaf_ref,
    encode_generation,
    encode_inode,
    encode_leaf_ref,
    encode_mount,
    encode_reserved,
    encode_snapshot,
    ino_key,
    leaf_map_key,
    non_holes,
    parent_key,
    u64,
)
from blockfs.tree.upgrade import upgrade, write_first_rows
from blockfs.tree.waiting import Pause, go_on, held

_CACHED_INODES: Final = 65536  # about 25 MiB of decoded rows; forgotten all at once


class Tree(TreeReader):
    """Names, inodes and leaves of one volume.

    Writes go to the active change set. A commit is `freeze` under the lock, `write` without it, then `retire` (or
    `thaw` if the write failed) under it again.

    Attributes:
        renamed_by_upgrade: Opening it has upgraded its format, and had to rename an entry of the root to this; or None.
        copying: Held by whoever copies leaves from a committed state of some time ago, until the copies are durable.
        on_name: Told of each directory entry that begins to exist, or ends to: (parent ino, name, exists).
    """

    def __init__(
        self, store: OverlayStore, *, journal_rows: int, read_only: bool, renamed_by_upgrade: bytes | None = None
    ) -> None:
        super().__init__(store)
        self.renamed_by_upgrade = renamed_by_upgrade
        self.copying = threading.Lock()
        self.on_name: Callable[[int, bytes, bool], None] = lambda _parent, _name, _exists: None
        self._store = store
        self._read_only = read_only
        self._journal_rows = journal_rows
        self._numbers: journal.Numbers | None = None
        self._keeps_nothing = False
        self._cache: dict[int, Inode] = {}
        self._newer = NewerRows(store)
        self._closing = threading.Lock()  # a snapshot must not begin while LMDB is being closed
        self._closed = False

    @classmethod
    def create(
        cls,
        path: bytes,
        *,
        now_ns: int = 0,
        uid: int = 0,
        gid: int = 0,
        journal_rows: int = journal.JOURNAL_ROWS,
    ) -> Tree:
        """Make a tree with an empty root directory in the new directory `path`, durably, and open it.

        Args:
            path: Must not exist.
            now_ns: All times of the root.
            uid: Owner of the root.
            gid: Group of the root.
            journal_rows: Length the journal is kept to.

        Raises:
            FileExistsError: `path` exists.
            NoSpaceError: The host is full.
        """
        make_directory(path)
        environment = open_tree_environment(path)
        try:
            with lmdb_errors(os.fsdecode(path), ADVICE), environment.begin(write=True) as transaction:
                # One transaction: after a crash there is a whole tree or none.
                databases = create_tables(environment, transaction)
                write_first_rows(transaction, databases, now_ns, uid, gid)
            sync_directory(path)
        except BaseException:
            close_environment(environment)
            raise
        return cls(OverlayStore(environment, databases, path), journal_rows=journal_rows, read_only=False)

    @classmethod
    def open(cls, path: bytes, *, read_only: bool = False, journal_rows: int = journal.JOURNAL_ROWS) -> Tree:
        """Open an existing tree; the same one may be open several times in a process. To write, `begin_mount` first.

        A tree of an earlier format is upgraded in place, see `upgrade`.

        Args:
            path: The directory.
            read_only: `begin_mount` is refused; many may read while one writes.
            journal_rows: Length the journal is kept to.

        Raises:
            NotFoundError: No such directory.
            CorruptionError: It is no readable tree.
            FormatTooNewError: Made by a newer blocksync.
        """
        environment = open_tree_environment(path)
        try:
            renamed = upgrade(environment, path)
            databases = open_tables(environment, path)
        except BaseException:
            close_environment(environment)
            raise
        store = OverlayStore(environment, databases, path)
        return cls(store, journal_rows=journal_rows, read_only=read_only, renamed_by_upgrade=renamed)

    def close(self) -> None:
        """Close LMDB; what is not committed is lost. Idempotent. Open `committed` views become useless."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._store.close()

    # --- mount ---

    def begin_mount(self) -> bool:
        """Record durably that a mount is under way; allows writes.

        Returns:
            Whether the last mount ended with `end_mount`. If not, or in a copy, the mount generation has changed.

        Raises:
            NoSpaceError: The host is full.
            CorruptionError: The mount row is damaged.
        """
        assert self._numbers is None
        assert not self._read_only
        with self._store.errors(), self._store.environment.begin(write=True) as transaction:
            birth_ns = linux.birth_ns(os.path.join(self._store.path, b"data.mdb"))
            self._numbers, was_clean = journal.begin_mount(transaction, self._store.databases[Table.META], birth_ns)
        self._store.refresh()
        self._find_newer_rows()
        return was_clean

    def begin_reading(self) -> bool:
        """Begin a mount that leaves no trace: changes are possible, are seen here, and are never committed.

        Returns:
            Whether the last mount ended with `end_mount`.

        Raises:
            CorruptionError: The mount row is damaged.
        """
        assert self._numbers is None
        self._keeps_nothing = True
        with self._store.errors(), self._store.environment.begin() as transaction:
            self._numbers, was_clean = journal.begin_reading(transaction, self._store.databases[Table.META])
        self._find_newer_rows()
        return was_clean

    def _find_newer_rows(self) -> None:
        with self.committed() as view:
            self._newer.find(view)

    def end_mount(self) -> None:
        """Record durably that the mount ended cleanly. Everything must be committed.

        Raises:
            NoSpaceError: The host is full; the next mount will take this one for unclean.
        """
        assert self._numbers is not None
        assert not self._keeps_nothing
        assert self._store.is_clean, "commit first"
        row = encode_mount(self._numbers.clean_row())
        with self._store.errors(), self._store.environment.begin(write=True) as transaction:
            transaction.put(META_MOUNT, row, db=self._store.databases[Table.META])
        self._numbers = None
        self._store.refresh()

    def _issue(self) -> journal.Numbers:
        assert self._numbers is not None, "begin_mount first"
        reservation = self._numbers.reserve()
        if reservation is not None:
            # Goes with the changes that use the numbers: none of them is durable before its reservation.
            self._store.put(Table.META, META_RESERVED, encode_reserved(reservation))
        return self._numbers

    # --- inodes ---

    def inode(self, ino: int) -> Inode | None:
        """The inode row, or None if there is no such inode."""
        found = self._cache.get(ino)
        if found is None:
            found = super().inode(ino)
            if found is not None:
                self._remember(found)
        return found

    def _remember(self, inode: Inode) -> None:
        if len(self._cache) >= _CACHED_INODES:
            self._cache.clear()
        self._cache[inode.ino] = inode

    def inode_count(self) -> int:
        """Inodes as of the last commit."""
        return self._store.row_count(Table.INODES)

    @property
    def last_sequence(self) -> int:
        """The greatest sequence handed out so far: after a commit, everything up to it is durable."""
        assert self._numbers is not None, "begin_mount first"
        return self._numbers.last_sequence

    def new_ino(self) -> int:
        """An ino that was never used."""
        return self._issue().take_ino()

    def put_inode(self, inode: Inode, *, content_changed: bool = False, journal: bool = True) -> Inode:
        """Store an inode row.

        Args:
            inode: New values; its version fields are ignored, the tree assigns them. Not so for one in a snapshot,
                which is stored as it is, and not journalled.
            content_changed: The content (file) or target changed: a new content_version. Always so for a new inode.
            journal: False only for changes nobody needs to hear about (atime): the version stays.

        Returns:
            The row as stored.
        """
        before = self.inode(inode.ino)
        if inode.is_frozen:
            stored = inode
        elif before is not None and not (journal or content_changed):
            stored = replace(inode, version=before.version, content_version=before.content_version)
        else:
            version = self._move_journal_row(inode.ino, before)
            content_version = version if content_changed or before is None else before.content_version
            stored = replace(inode, version=version, content_version=content_version)
        self._store.put(Table.INODES, u64(inode.ino), encode_inode(stored))
        self._remember(stored)
        return stored

    def _move_journal_row(self, ino: int, before: Inode | None) -> int:
        """Give an inode's journal row a new sequence."""
        sequence = self._issue().take_sequence()
        if before is not None:
            self._store.delete_unique(Table.JOURNAL, u64(before.version))
        self._store.put(Table.JOURNAL, u64(sequence), u64(ino))
        return sequence

    def remove_inode(self, ino: int) -> None:
        """Drop an inode with its leaves, xattrs, target, generations, orphan row and the like; a journal row remains.

        Names are the caller's: there must be none.
        """
        before = self.inode(ino)
        assert before is not None
        if not before.is_frozen:
            self._move_journal_row(ino, before)
        key = u64(ino)
        if before.kind is Kind.FILE:
            self.truncate_leaves(ino, 0)
            for generation in list(self.generations(ino)):
                self.drop_generation(generation)
        elif before.kind is Kind.SYMLINK:
            self._store.delete(Table.SYMLINKS, key)
        for name, _ in list(self.xattrs(ino)):
            self.remove_xattr(ino, name)
        self.drop_failed_flush(ino)
        for row in self.hot(ino):
            self.drop_hot(ino, row.number)
        self._store.delete(Table.ORPHANS, key)
        self._store.delete(Table.INODES, key)
        self._cache.pop(ino, None)

    # --- names ---

    def link(self, parent: int, name: bytes, ino: int) -> None:
        """Set a directory entry and its reverse row; replaces an entry of that name. nlink is the caller's."""
        displaced = self.lookup(parent, name)
        if displaced is None:
            self.on_name(parent, name, True)
        else:
            self._store.delete(Table.PARENTS, parent_key(displaced, parent, name))
        self._store.put(Table.DENTRIES, ino_key(parent, name), u64(ino))
        self._store.put(Table.PARENTS, parent_key(ino, parent, name), b"")

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a directory entry, which must exist, and its reverse row. nlink is the caller's."""
        ino = self.lookup(parent, name)
        assert ino is not None
        self._store.delete(Table.DENTRIES, ino_key(parent, name))
        self._store.delete(Table.PARENTS, parent_key(ino, parent, name))
        self.on_name(parent, name, False)

    def add_orphan(self, ino: int) -> None:
        """Record that an inode has no name but is in use: it is removed at the next mount at the latest."""
        self._store.put(Table.ORPHANS, u64(ino), b"")

    def remove_orphan(self, ino: int) -> None:
        """Record that an orphan got a name."""
        self._store.delete(Table.ORPHANS, u64(ino))

    # --- leaves ---

    def set_leaf(self, ino: int, index: int, ids: bytes | None) -> None:
        """Replace one leaf of a file.

        Args:
            ino: A regular file.
            index: Leaf number: block index // 256.
            ids: Up to 256 concatenated block ids, holes as `ZERO_BLOCK`; None, b"" or holes only: no leaf. Trailing
                holes are not stored.
        """
        stored = canonical_leaf(ids or b"")
        self._set_leaf_key(ino, index, leaf_key(stored) if stored else None, stored)

    def _set_leaf_key(self, ino: int, index: int, new: LeafKey | None, ids: bytes | None) -> None:
        """Refer to a leaf that exists, or to a new one if `ids` are given."""
        map_key = leaf_map_key(ino, index)
        old = self.leaf_key(ino, index)
        if old == new:
            return
        # Drop first: if the old leaf is not counted, the refusal leaves everything as it was.
        allocated = -self._unrefer(old) if old is not None else 0
        if new is not None:
            allocated += self._refer(new, ids)
            self._store.put(Table.LEAF_MAP, map_key, new)
        else:
            self._store.delete(Table.LEAF_MAP, map_key)
        if allocated:
            self._set_allocated(ino, self.allocated_blocks(ino) + allocated)

    def _set_allocated(self, ino: int, blocks: int) -> None:
        if blocks:
            self._store.put(Table.ALLOCATIONS, u64(ino), u64(blocks))
        else:
            self._store.delete(Table.ALLOCATIONS, u64(ino))

    def _refer(self, key: LeafKey, ids: bytes | None) -> int:
        """Count one reference more; returns the leaf's blocks that are no holes."""
        row = self._store.get(Table.LEAF_REFS, key)
        if row is None:
            assert ids is not None
            references, blocks = 0, non_holes(ids)
            self._store.put(Table.LEAVES, key, ids)
        else:
            references, blocks = decode_leaf_ref(row)
        self._store.put(Table.LEAF_REFS, key, encode_leaf_ref(references + 1, blocks))
        return blocks

    def _unrefer(self, key: LeafKey) -> int:
        """Count one reference less and drop the leaf with the last; returns its blocks that are no holes."""
        row = self._store.get(Table.LEAF_REFS, key)
        if row is None:
            raise CorruptionError(f"tree: leaf {key.hex()} is used but not counted; run `blocksync fsck`")
        references, blocks = decode_leaf_ref(row)
        if references > 1:
            self._store.put(Table.LEAF_REFS, key, encode_leaf_ref(references - 1, blocks))
        else:
            for table in (Table.LEAF_REFS, Table.LEAVES, Table.LEAF_ROOTS):
                self._store.delete(table, key)
        return blocks

    def truncate_leaves(self, ino: int, block_count: int) -> None:
        """Make blocks from `block_count` on holes. Costs time for the leaves that are removed only."""
        whole, rest = divmod(block_count, LEAF_IDS)
        if rest:
            ids = self.leaf(ino, whole)
            if ids is not None and len(ids) > rest * ID_SIZE:
                self.set_leaf(ino, whole, ids[: rest * ID_SIZE])
            whole += 1
        for index, _ in list(self.leaf_keys(ino, whole)):
            self._set_leaf_key(ino, index, None, None)

    def clone_leaves(self, src: int, dst: int) -> None:
        """Give `dst` exactly the leaves of `src`. No block is copied: 40 bytes per 256 blocks."""
        assert src != dst
        self.truncate_leaves(dst, 0)
        for index, key in list(self.leaf_keys(src)):
            self._set_leaf_key(dst, index, key, None)

    def take_leaf(self, ino: int, index: int, key: LeafKey, ids: Callable[[], bytes]) -> None:
        """Give a file a leaf of an older committed state.

        Args:
            ino: A regular file.
            index: Leaf number.
            key: Of the leaf.
            ids: Tells the leaf's ids if it has gone meanwhile. Their blocks are stored still: see `subtree_copy`.
        """
        gone = self._store.get(Table.LEAF_REFS, key) is None
        self._set_leaf_key(ino, index, key, ids() if gone else None)

    def remember_leaf_roots(self, roots: Mapping[LeafKey, bytes]) -> None:
        """Cache Merkle roots of full-width leaves; those that are gone meanwhile are ignored."""
        for key, root in roots.items():
            if self._store.get(Table.LEAF_REFS, key) is not None:
                self._store.put(Table.LEAF_ROOTS, key, root)

    # --- staging generations, targets, xattrs ---

    def put_generation(self, generation: Generation) -> None:
        """Record a live staging generation, or a new valid_below of it."""
        key, row = encode_generation(generation)
        self._store.put(Table.GENERATIONS, key, row)

    def drop_generation(self, generation: Generation) -> None:
        """Record that a staging generation is superseded; its file may go once this is durable."""
        key, _ = encode_generation(generation)
        self._store.delete(Table.GENERATIONS, key)

    def put_failed_flush(self, row: FailedFlush) -> None:
        """Record what the host failed to write of a file. An older program refuses the volume from then on."""
        self._newer.put_failed(row)

    def drop_failed_flush(self, ino: int) -> None:
        """Take back `put_failed_flush`: all was written again. It need not have been."""
        self._newer.drop_failed(ino)

    def hot(self, ino: int) -> list[HotRow]:
        """The hot files of a file."""
        return self._newer.hot(ino)

    def all_hot(self) -> list[HotRow]:
        """The hot files of all files."""
        return self._newer.all_hot()

    def put_hot(self, row: HotRow) -> None:
        """Record a hot file, or what it is now. An older program refuses the volume from then on."""
        self._newer.put_hot(row)

    def drop_hot(self, ino: int, number: int) -> None:
        """Take back `put_hot`: the file `hot/INO.NUMBER` may go once this is durable. It need not have been."""
        self._newer.drop_hot(ino, number)

    def set_symlink_target(self, ino: int, target: bytes) -> None:
        """Set what a symlink points to."""
        self._store.put(Table.SYMLINKS, u64(ino), target)

    def set_xattr(self, ino: int, name: bytes, value: bytes) -> None:
        """Set an extended attribute."""
        self._store.put(Table.XATTRS, ino_key(ino, name), value)

    def remove_xattr(self, ino: int, name: bytes) -> None:
        """Remove an extended attribute; it need not exist."""
        self._store.delete(Table.XATTRS, ino_key(ino, name))

    # --- snapshots ---

    def put_copy(self, top: int, origin: int, ino: int) -> None:
        """Record which inode of a snapshot is the copy of an original."""
        self._store.put(Table.COPIES, copy_key(top, origin), u64(ino))

    def drop_copy(self, top: int, origin: int) -> None:
        """Take back `put_copy`."""
        self._store.delete(Table.COPIES, copy_key(top, origin))

    def put_snapshot(self, top: int, row: SnapshotRow) -> None:
        """Record what is known of a snapshot, by the ino of its top."""
        self._store.put(Table.SNAPSHOTS, u64(top), encode_snapshot(row))

    def drop_snapshot(self, top: int) -> None:
        """Take back `put_snapshot`."""
        self._store.delete(Table.SNAPSHOTS, u64(top))

    def void_cursors(self) -> None:
        """Make all cursors void that do not reach the changes of this change set: compare everything."""
        self._store.put(Table.META, META_JOURNAL_START, u64(self.last_sequence))

    # --- commit ---

    def keep(self, hold: Releasable) -> None:
        """Let the active set own a hold on blocks: released when the set that refers to them is durable."""
        self._store.keep(hold)

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Call this, under the engine's lock, once all changes made so far are durable."""
        self._store.on_durable(callback)

    @property
    def is_clean(self) -> bool:
        """Whether nothing waits for a commit."""
        return self._store.is_clean

    def freeze(self) -> ChangeSet | None:
        """Start a commit of all changes made so far; None if there is nothing to write. One at a time."""
        return None if self._keeps_nothing else self._store.freeze()

    def write(self, change_set: ChangeSet) -> None:
        """Write a frozen change set as one fully synced transaction. Call without the lock.

        Raises:
            NoSpaceError: Host full. Nothing was lost: `thaw`, and commit again later.
            BlockfsError: Host error. Likewise.
        """
        self._store.write(change_set, self._trim_journal)

    def _trim_journal(self, transaction: lmdb.Transaction[bytes]) -> None:
        journal.trim(transaction, self._store.databases, self._journal_rows)

    def retire(self, change_set: ChangeSet) -> None:
        """End a commit that was written: holds are released and callbacks run; all, whatever one of them raises.

        Raises:
            BlockfsError: The new state can't be read. Nothing was lost: the set is thawed, commit again later.
        """
        self._store.retire(change_set)

    def thaw(self, change_set: ChangeSet) -> None:
        """End a commit that failed: its changes, holds and callbacks go back into the active set."""
        self._store.thaw(change_set)

    def commit(self) -> None:
        """Freeze, write and retire in one go: for recovery and tools, when nobody waits for the lock.

        Raises:
            NoSpaceError: Host full; the changes are still in the active set.
            BlockfsError: Host error; likewise.
        """
        change_set = self.freeze()
        if change_set is None:
            return
        try:
            self.write(change_set)
        except BaseException:
            self.thaw(change_set)
            raise
        self.retire(change_set)

    @contextlib.contextmanager
    def committed(self, pause: Pause | None = None) -> Iterator[CommittedView]:
        """A consistent view of what is durable now. Safe from any thread, needs no lock. Its scans ask `pause`."""
        view = self.open_view(pause)
        try:
            yield view
        finally:
            view.close()

    def view_for_marking(self, pause: Pause = go_on) -> CommittedView:
        """Like `open_view`, of a state that also names all leaves that are being copied from an older state.

        A collection must mark from this: a copied leaf may have lost its last other reference meanwhile. `pause`: asked
        while a copy is waited for, which may take long.
        """
        with held(self.copying, pause):
            return self.open_view()

    def open_view(self, pause: Pause | None = None) -> CommittedView:
        """Like `committed`, for views that outlive a block: call its `close`."""
        with self._closing:
            assert not self._closed
            with self._store.errors():
                transaction = self._store.environment.begin()
            return CommittedView(Snapshot(transaction, self._store.databases, self._store.path, pause))
