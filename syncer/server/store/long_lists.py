"""A long block list on its way into the catalogue: leaf by leaf, as it comes, in memory that does not grow with it.

Its new leaves are stored in small transactions before the version that names them: each of these holds up others for
some milliseconds, where one with all of them would for seconds. A leaf that no version names is nobody's harm: it
holds ids that its account may name, and the next sweep takes it. If that comes before the version, the list is gone
through once more, from a file.
"""

from __future__ import annotations

import time
from typing import Final, Self

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import LEAF_BYTES
from blockfs.blocks.ids import ID_SIZE, BlockId, LeafKey
from syncer.server.catalogue import contents
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.commits import Commits
from syncer.server.errors import MissingBlocks
from syncer.server.store.spool import IdSpool

_BATCH_LEAVES: Final = 16
"""Looked at in one go: some milliseconds of processor time."""


class LongList:
    """One list. Close it. For one thread at a time.

    Attributes:
        spool: Its ids so far.
    """

    def __init__(
        self, catalogue: Catalogue, commits: Commits, blocks: BlockDirectory, account: str, folder: str
    ) -> None:
        """Begin.

        Args:
            catalogue: Where leaves are looked up.
            commits: Stores them.
            blocks: Where the blocks must be.
            account: Who names them.
            folder: For the spool.
        """
        self._catalogue = catalogue
        self._commits = commits
        self._blocks = blocks
        self._account = account
        self.spool: Final = IdSpool(folder)
        self._missing: Final = IdSpool(folder)
        self._begin()

    def _begin(self) -> None:
        self._rest = bytearray()
        self._keys = bytearray()
        self._roots = bytearray()

    def feed(self, ids: bytes) -> None:
        """Take the next ids; waits for the disk."""
        self.spool.append(ids)
        self._feed(ids)

    def _feed(self, ids: bytes) -> None:
        self._rest += ids
        step = _BATCH_LEAVES * LEAF_BYTES
        at = 0
        while len(self._rest) - at >= step:
            self._look_at(bytes(self._rest[at : at + step]))
            at += step
        if at:
            del self._rest[:at]

    def prepared(self, size_bytes: int, *, again: bool) -> contents.Prepared:
        """All of it, ready to be committed.

        Args:
            size_bytes: Of the object.
            again: Leaves were swept since: look at all of it once more.

        Raises:
            MissingBlocks: Blocks that the account has not sent.
        """
        if again:
            self._begin()
            for run in self.spool.runs():
                self._feed(run)
        if self._rest:
            self._look_at(bytes(self._rest))
            self._rest.clear()
        if len(self._missing):
            raise MissingBlocks(self._missing)
        keys = tuple(LeafKey(bytes(self._keys[at : at + ID_SIZE])) for at in range(0, len(self._keys), ID_SIZE))
        root = contents.root_of_leaves(bytes(self._roots), lambda: self.spool.ids(0, len(self.spool)))
        return contents.Prepared(size_bytes=size_bytes, object_hash=root, keys=keys, new={}, known=frozenset(keys))

    @property
    def last(self) -> BlockId | None:
        """The id of its last block."""
        count = len(self.spool)
        return BlockId(self.spool.ids(count - 1, 1)) if count else None

    def forget(self) -> None:
        """There was nothing: an empty object may be told with one id."""
        self.spool.clear()
        self._begin()

    def close(self) -> None:
        """Let go of the spool; not of ids that are missing: a reply tells them, and lets go."""
        self.spool.close()
        if not len(self._missing):
            self._missing.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look_at(self, ids: bytes) -> None:
        """Find out about some leaves, and store what is new and may be named."""
        began = time.thread_time()
        leaves = (ids[at : at + LEAF_BYTES] for at in range(0, len(ids), LEAF_BYTES))
        with self._blocks.hold() as hold:
            with self._catalogue.reading() as view:
                account = view.account(self._account)
                found = contents.look_at_leaves(view, account, leaves)
                missing = contents.missing_of(view, account, found.new.values(), (), self._blocks, hold)
            self._keys += b"".join(found.keys)
            self._roots += b"".join([found.roots[key] for key in found.keys])
            if missing:
                self._missing.append(b"".join(missing))
                lacking = frozenset(missing)
                rows = {key: row for key, row in found.new.items() if not _names_any(row, lacking)}
            else:
                rows = found.new
            if rows:
                self._commits.run(lambda change: self._store(change, rows))
        time.sleep(min(0.05, time.thread_time() - began))  # as long as it took: others come first

    def _store(self, change: Change, rows: dict[LeafKey, bytes]) -> None:
        contents.store_leaves(change, change.make_account(self._account), rows)


def _names_any(row: bytes, wanted: frozenset[BlockId]) -> bool:
    """Whether a leaf's row, its root and then its ids, names one of these."""
    return any(BlockId(row[at : at + ID_SIZE]) in wanted for at in range(ID_SIZE, len(row), ID_SIZE))
