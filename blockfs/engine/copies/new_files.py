"""New files for the syncer, many in one go: each whole under its name, or not there.

What `Apply` does in three steps for a file that replaces another one, or is long, is one step here: nobody sees a file
without a name, and one look at the block directory is for all of them. Nothing waits for a disk but that look, and the
sync of what a seal stores just then. A file is durable after the next commit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from blockfs.blocks.extents import block_count, block_length
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, BlockId
from blockfs.engine.content.leaves import set_run
from blockfs.engine.context import Stores
from blockfs.engine.copies.conditions import Applied, Place, Reason, applied, reason_of
from blockfs.engine.names.attributes import MODE_BITS, Caller
from blockfs.engine.names.namespace import Namespace
from blockfs.errors import FsError, NoSpaceError, UsageError
from blockfs.tree.schema import Inode, Kind

MOST_IDS: Final = LEAF_IDS
"""Blocks of one file: one leaf."""

_LOCKED_FILES: Final = 32  # made in one go: other requests wait about 3 ms for them


class NewFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be made under a free name.

    Attributes:
        place: The name.
        size_bytes: Its size.
        mode: Permission bits.
        caller: Its owner.
        mtime_ns: Its time of change.
        ids: Concatenated ids of all its blocks, holes as ZERO_BLOCK; at most `MOST_IDS`.
    """

    place: Place
    size_bytes: int
    mode: int
    caller: Caller
    mtime_ns: int
    ids: bytes


Made: TypeAlias = Applied | Reason | FsError | UsageError | list[BlockId]
"""What became of a file: made; refused; impossible under that name; its last block is longer than it is; or the ids of
its blocks that are not stored."""


class NewFiles:
    """Makes files in one mount. Thread-safe."""

    def __init__(self, stores: Stores, namespace: Namespace) -> None:
        self._stores = stores
        self._namespace = namespace

    def make(self, files: Sequence[NewFile]) -> list[Made]:
        """Make as many as there is room for, in order.

        Returns:
            What became of the first of them: of one at least, if there are any.

        Raises:
            NoSpaceError: The host is nearly full; nothing was made.
            CorruptBlockError: The host lost a block that was being stored; likewise.
            OSError: The host failed; likewise.
            UsageError: Ids or sizes that fit no file; nothing was made.
        """
        singles = [_ids_of(file, self._stores.block_size) for file in files]
        hold = self._stores.blocks.hold()
        made: list[Made] = []
        try:
            blocks = self._stores.blocks
            missing = frozenset(blocks.missing([each for ids in singles for each in ids], hold))
            stored = blocks.stored_lengths([ids[-1] if ids else ZERO_BLOCK for ids in singles])
            unfit: dict[int, UsageError | list[BlockId]] = {}
            for at, (file, ids, length) in enumerate(zip(files, singles, stored, strict=True)):
                # Ids don't fix a length. Bytes past the end would come to light when the file grows.
                if length > block_length(max(0, len(ids) - 1), file.size_bytes, self._stores.block_size):
                    unfit[at] = UsageError("the last block has bytes past the end of the file; name one that hasn't")
                elif not missing.isdisjoint(ids):
                    unfit[at] = [each for each in dict.fromkeys(ids) if each in missing]
            self._stores.config.checkpoint("blocks.sync")
            blocks.sync()  # one that a seal has just put counts as stored, and is not durable yet
            while len(made) < len(files) and self._make_some(files, unfit, made):
                pass
        finally:
            with self._stores.lock:
                if any(isinstance(each, Applied) for each in made):
                    self._stores.tree.keep(hold)
                else:
                    hold.release()
        return made

    def _make_some(
        self, files: Sequence[NewFile], unfit: Mapping[int, UsageError | list[BlockId]], made: list[Made]
    ) -> bool:
        """Make the next ones, in one hold of the lock; returns whether there was room for all of them."""
        inodes = self._namespace.inodes
        touched: set[int] = set()
        begin = len(made)
        with self._stores.lock:
            now_ns = inodes.now_ns()
            try:
                for at in range(begin, min(begin + _LOCKED_FILES, len(files))):
                    made.append(unfit[at] if at in unfit else self._make(files[at], now_ns))
                    if isinstance(made[-1], Applied):
                        touched.add(files[at].place.parent)
            except NoSpaceError:
                if not made:
                    raise
                return False
            finally:
                for parent in touched:
                    inodes.touch_directory(inodes.directory(parent), now_ns)
        return True

    def _make(self, file: NewFile, now_ns: int) -> Applied | Reason | FsError:
        """Under the lock. It decides before it changes."""
        tree, place = self._stores.tree, file.place
        try:
            self._namespace.new_names.take(place.parent, place.name, more_bytes=len(file.ids))
        except FsError as error:
            return reason_of(error) or error
        inode = tree.put_inode(
            Inode(
                ino=tree.new_ino(),
                kind=Kind.FILE,
                mode=file.mode & MODE_BITS,
                uid=file.caller.uid,
                gid=file.caller.gid,
                nlink=1,
                size_bytes=file.size_bytes,
                atime_ns=now_ns,
                mtime_ns=file.mtime_ns,
                ctime_ns=now_ns,
                btime_ns=now_ns,
            ),
            content_changed=True,
        )
        set_run(tree, inode.ino, 0, file.ids)
        tree.link(place.parent, place.name, inode.ino)
        return applied(inode)


def _ids_of(file: NewFile, block_size: int) -> list[BlockId]:
    """The ids of a file's blocks.

    Raises:
        UsageError: They are not one for each block, or too many.
    """
    if not 0 <= file.size_bytes <= MOST_IDS * block_size:
        raise UsageError(f"size {file.size_bytes}: expected up to {MOST_IDS} blocks")
    count = block_count(file.size_bytes, block_size)
    if len(file.ids) != count * ID_SIZE:
        raise UsageError(f"{len(file.ids)} bytes of block ids for {count} blocks")
    ids = [BlockId(file.ids[at : at + ID_SIZE]) for at in range(0, len(file.ids), ID_SIZE)]
    if PADDING_ID in ids:
        raise UsageError("32 NUL bytes are the Merkle padding and name no block")
    return ids
