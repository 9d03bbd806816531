"""Conditional changes for the syncer: each is made only if the place it changes still holds what was decided on.

Apply never changes a live inode's content. A new content is a new inode: prepared as an orphan, which a crash leaves
nameless and the next mount removes, and then put under its name in one change set, while what was there moves to the
trash. So late writes of a process that has the old file open reach the old inode, and nothing is ever a mixture.

Nothing here waits for a disk, except `set_blocks`. A change is durable after the next commit; its version numbers don't
change any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.extents import block_count, block_length
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, BlockId
from blockfs.engine.content.bounds import MAX_SIZE
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.leaves import set_run
from blockfs.engine.context import Stores
from blockfs.engine.copies.conditions import (
    Applied,
    Expectation,
    Place,
    Reason,
    RefusedError,
    applied,
    check_version,
    refusing,
)
from blockfs.engine.names.acl import ACCESS
from blockfs.engine.names.attributes import MODE_BITS, SPECIAL_BITS, AttributeChanges, Caller, RenameFlags
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.names.xattrs import follow_chmod
from blockfs.errors import UsageError
from blockfs.tree.schema import Inode, Kind
from blockfs.xattrs import PREFIX, Carried, carried, to_change

_LOCKED_IDS: Final = 16384  # ids put into leaves in one go: other requests wait about 5 ms for it


class Apply:
    """Conditional changes of one mount. Thread-safe. Every method may raise RefusedError."""

    def __init__(self, stores: Stores, table: FileTable, namespace: Namespace) -> None:
        self._stores = stores
        self._table = table
        self._namespace = namespace
        self._prepared: set[int] = set()

    # --- new files ---

    def prepare_file(
        self, *, size_bytes: int, mode: int, caller: Caller, mtime_ns: int, base: tuple[int, int] | None = None
    ) -> int:
        """Begin a new, nameless file.

        Args:
            size_bytes: Its size.
            mode: Permission bits.
            caller: Its owner.
            mtime_ns: Its time of change.
            base: (inode, content version) whose blocks it starts with, or None: all holes.

        Returns:
            A handle, for `set_blocks`, `install_file` and `abandon_file`.

        Raises:
            RefusedError: The base is not that content any more, or not sealed.
            NoSpaceError: The host is nearly full.
            UsageError: A size out of range.
        """
        if not 0 <= size_bytes <= MAX_SIZE:
            raise UsageError(f"size {size_bytes}: expected 0 to 2**63-1")
        tree = self._stores.tree
        with self._stores.lock:
            if base is not None:
                self._check_sealed(*base)
            names = self._namespace.new_names
            names.ask()
            if base is not None:
                names.ask(names.leaf_bytes(self._table.row(base[0]), self._stores.block_size))
            now_ns = self._namespace.inodes.now_ns()
            inode = tree.put_inode(
                Inode(
                    ino=tree.new_ino(),
                    kind=Kind.FILE,
                    mode=mode & MODE_BITS,
                    uid=caller.uid,
                    gid=caller.gid,
                    nlink=0,
                    size_bytes=size_bytes,
                    atime_ns=now_ns,
                    mtime_ns=mtime_ns,
                    ctime_ns=now_ns,
                    btime_ns=now_ns,
                ),
                content_changed=True,
            )
            tree.add_orphan(inode.ino)
            if base is not None:
                tree.clone_leaves(base[0], inode.ino)
                tree.truncate_leaves(inode.ino, block_count(size_bytes, self._stores.block_size))
            self._prepared.add(inode.ino)
            return inode.ino

    def set_blocks(self, handle: int, first: int, ids: bytes) -> list[BlockId]:
        """Give a prepared file the ids of its blocks from index `first` on. Waits for disks.

        Args:
            handle: From `prepare_file`.
            first: Index of the first block.
            ids: Concatenated ids, holes as ZERO_BLOCK.

        Returns:
            Those that are not stored, distinct; if there are any, nothing was changed.

        Raises:
            NoSpaceError: The host is nearly full; nothing was changed.
            CorruptBlockError: The host lost a block that was being stored; likewise.
            OSError: The host failed; likewise.
            UsageError: No such handle, not ids, or beyond the file.
        """
        if len(ids) % ID_SIZE or first < 0:
            raise UsageError(f"{len(ids)} bytes are no list of {ID_SIZE}-byte block ids")
        count = len(ids) // ID_SIZE
        singles = [BlockId(ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE)]
        if PADDING_ID in singles:
            raise UsageError("32 NUL bytes are the Merkle padding and name no block")
        with self._stores.lock:
            size_bytes = self._prepared_inode(handle).size_bytes
            self._namespace.new_names.ask(len(ids))
        if first + count > block_count(size_bytes, self._stores.block_size):
            raise UsageError(f"blocks {first} to {first + count - 1} lie beyond a file of {size_bytes} bytes")
        hold = self._stores.blocks.hold()
        kept = False
        try:
            missing = self._stores.blocks.missing(singles, hold)
            if missing:
                return missing
            self._stores.config.checkpoint("blocks.sync")
            self._stores.blocks.sync()  # one that a seal has just put counts as stored, and is not durable yet
            for at in range(0, count, _LOCKED_IDS):
                with self._stores.lock:
                    self._prepared_inode(handle)
                    run = ids[at * ID_SIZE : (at + _LOCKED_IDS) * ID_SIZE]
                    set_run(self._stores.tree, handle, first + at, run)
                    if not kept and at + _LOCKED_IDS >= count:
                        self._stores.tree.keep(hold)
                        kept = True
        finally:
            if not kept:
                hold.release()
        return []

    def install_file(self, handle: int, place: Place, expect: Expectation, *, trash: Place | None = None) -> Applied:
        """Put a prepared file under a name.

        Args:
            handle: From `prepare_file`; it is used up.
            place: Where.
            expect: What must be there.
            trash: Where that goes. Must be given unless the place is to be free.

        Raises:
            RefusedError: See `Reason`; the handle stays valid.
            NoSpaceError: The host is nearly full; likewise.
            UsageError: No such handle, no trash for what is there, or the last block is longer than the file.
        """
        with self._stores.lock:
            last_id, most = self._last_block(handle)
        # Ids don't fix a length. Bytes past the end would come to light when the file grows.
        if next(self._stores.blocks.stored_lengths([last_id])) > most:
            raise UsageError("the last block has bytes past the end of the file; set it to the block that hasn't")
        tree, inodes = self._stores.tree, self._namespace.inodes
        with self._stores.lock, refusing():
            prepared = self._prepared_inode(handle)
            directory = inodes.writable_directory(place.parent)
            displaced = self._make_way(place, expect, trash)
            directory = inodes.writable_directory(place.parent)
            now_ns = inodes.now_ns()
            installed = tree.put_inode(replace(prepared, nlink=1, ctime_ns=now_ns))
            tree.remove_orphan(handle)
            tree.link(place.parent, place.name, handle)
            inodes.touch_directory(directory, now_ns)
            self._prepared.discard(handle)
            self._keep_xattrs(displaced, handle)
            return applied(installed, displaced)

    def abandon_file(self, handle: int) -> None:
        """Drop a prepared file; one that is installed or dropped already is fine."""
        with self._stores.lock:
            if handle in self._prepared:
                self._prepared.discard(handle)
                self._stores.tree.remove_inode(handle)

    def _prepared_inode(self, handle: int) -> Inode:
        if handle not in self._prepared:
            raise UsageError(f"no prepared file has the handle {handle}")
        return self._table.row(handle)

    def _last_block(self, handle: int) -> tuple[BlockId, int]:
        """Id of a prepared file's last block, and how many bytes of it the file has."""
        size_bytes, block_size = self._prepared_inode(handle).size_bytes, self._stores.block_size
        last = max(0, block_count(size_bytes, block_size) - 1)
        ids = self._stores.tree.block_ids(handle, last, 1)
        return BlockId(ids), block_length(last, size_bytes, block_size)

    # --- everything else ---

    def mkdir(self, place: Place, *, mode: int, caller: Caller) -> Applied:
        """Make a directory under a free name.

        Raises:
            RefusedError: OCCUPIED, GONE.
        """
        with self._stores.lock, refusing():
            made = self._namespace.mkdir(place.parent, place.name, mode=mode, caller=caller)
            return applied(self._namespace.inodes.inode(made.ino))

    def symlink(self, place: Place, *, target: bytes, caller: Caller) -> Applied:
        """Make a symlink under a free name.

        Raises:
            RefusedError: OCCUPIED, GONE.
        """
        with self._stores.lock, refusing():
            made = self._namespace.symlink(place.parent, place.name, target=target, caller=caller)
            return applied(self._namespace.inodes.inode(made.ino))

    def move(self, place: Place, to: Place, expect: Expectation) -> Applied:
        """Move what is expected at `place` to a free name. It may be open: a move changes no content.

        Raises:
            RefusedError: GONE, CHANGED, OCCUPIED.
        """
        with self._stores.lock, refusing():
            self._expected(place, expect)
            self._rename(place, to)
            found = self._stores.tree.lookup(to.parent, to.name)
            assert found is not None
            return applied(self._namespace.inodes.inode(found))

    def remove(self, place: Place, expect: Expectation, *, trash: Place | None = None) -> Applied:
        """Take what is expected away from `place`.

        Args:
            place: Where it is.
            expect: What must be there.
            trash: Where it goes; None: a directory is removed if it is empty, everything else is unlinked.

        Raises:
            RefusedError: GONE, CHANGED, BUSY, NOT_EMPTY; OCCUPIED if the trash place is.
        """
        with self._stores.lock, refusing():
            inode = self._expected(place, expect)
            self._check_quiet(inode)
            if trash is not None:
                self._rename(place, trash)
                return applied(self._namespace.inodes.inode(inode.ino), inode.ino)
            if inode.kind is Kind.DIRECTORY:
                self._namespace.rmdir(place.parent, place.name)
            else:
                self._namespace.unlink(place.parent, place.name)
            left = self._stores.tree.inode(inode.ino)
            return Applied(ino=inode.ino, version=0, content_version=0) if left is None else applied(left)

    def set_meta(
        self,
        expect: Expectation,
        *,
        mode: int | None = None,
        keep_special: bool = False,
        mtime_ns: int | None = None,
        xattrs: Carried | None = None,
        xattr_bytes: int = 0,
        seen: Carried | None = None,
    ) -> Applied:
        """Set metadata of an inode whose content is still the expected one.

        Args:
            expect: Which.
            mode: Permission bits.
            keep_special: The setuid, setgid and sticky bits stay as they are, whatever `mode` says.
            mtime_ns: Time of change.
            xattrs: All its attributes of users, without those that are larger than travels (`carried`): they stay.
            xattr_bytes: What travels.
            seen: What they were when that was decided; see `to_change`.

        Raises:
            RefusedError: GONE, CHANGED, BUSY.
            UsageError: No inode is named.
        """
        if expect.ino is None:
            raise UsageError("set_meta needs an inode")
        with self._stores.lock, refusing():
            inode = self._namespace.inodes.inode(expect.ino)
            check_version(inode, expect)
            self._check_quiet(inode)
            if mode is not None and keep_special:
                mode = mode & ~SPECIAL_BITS | inode.mode & SPECIAL_BITS
            if mode is not None or mtime_ns is not None:
                self._namespace.setattr(expect.ino, AttributeChanges(mode=mode, mtime_ns=mtime_ns))
            if xattrs is not None:
                have = carried(self._stores.tree.xattrs(inode.ino), xattr_bytes)
                self._set_xattrs(inode.ino, to_change(have, xattrs, seen))
            return applied(self._namespace.inodes.inode(expect.ino))

    def _set_xattrs(self, ino: int, changes: Mapping[bytes, bytes | None]) -> None:
        for name, value in changes.items():
            if value is None:
                self._namespace.removexattr(ino, name)
            else:
                self._namespace.setxattr(ino, name, value)

    def _keep_xattrs(self, old: int | None, new: int) -> None:
        """What replaces a file keeps its attributes of users, and the ACL of its name, under the new mode."""
        tree = self._stores.tree
        for name, value in () if old is None else list(tree.xattrs(old)):
            if name.startswith(PREFIX) or name == ACCESS:
                tree.set_xattr(new, name, value)
        follow_chmod(self._namespace.inodes, self._namespace.inodes.inode(new))

    # --- conditions: all under the lock that covers the change, too ---

    def _make_way(self, place: Place, expect: Expectation, trash: Place | None) -> int | None:
        """Free a place, if it holds what is expected; returns the displaced inode."""
        if expect.ino is None:
            self._namespace.new_names.take(place.parent, place.name)
            return None
        if trash is None:
            raise UsageError("what is displaced needs a place in the trash")
        inode = self._expected(place, expect)
        self._check_quiet(inode)
        self._namespace.new_names.ask()
        self._rename(place, trash)
        return inode.ino

    def _expected(self, place: Place, expect: Expectation) -> Inode:
        inode = self._namespace.inodes.child(place.parent, place.name)
        if inode.ino != expect.ino:
            raise RefusedError(Reason.CHANGED)
        check_version(inode, expect)
        return inode

    def _check_quiet(self, inode: Inode) -> None:
        """Refuse a file that somebody may be about to change, or has changed without the journal knowing yet."""
        state = self._table.peek(inode.ino)
        if state is None:
            return
        # What is mapped may be closed long since, and written: the kernel tells only of the close then.
        is_mapped = state.hot is not None and not state.handles and state.hot.is_in_use
        if state.writers or is_mapped or not state.is_published:
            raise RefusedError(Reason.BUSY)

    def _check_sealed(self, ino: int, content_version: int) -> None:
        """Refuse a base whose leaves are not exactly the content of that version."""
        inode = self._stores.tree.inode(ino)
        if inode is None or inode.kind is not Kind.FILE or inode.content_version != content_version:
            raise RefusedError(Reason.CHANGED)
        state = self._table.peek(ino)
        if state is None:
            return
        has_lost = state.failures is not None and bool(state.failures.pages)
        if has_lost or not state.is_sealed:
            raise RefusedError(Reason.CHANGED)

    def _rename(self, place: Place, to: Place) -> None:
        # NOREPLACE replaces nothing, so nothing must be flushed first: it never waits.
        self._namespace.rename(place.parent, place.name, to.parent, to.name, flags=RenameFlags.NOREPLACE)
