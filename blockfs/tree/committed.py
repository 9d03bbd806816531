"""Reads of what is durably committed: one LMDB snapshot, usable from any thread without the engine's lock."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import chain, islice, takewhile

import lmdb

from blockfs.blocks.environment import lmdb_error, lmdb_errors
from blockfs.blocks.hashing import leaf_key
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, LeafKey
from blockfs.errors import CorruptionError
from blockfs.tree.environment import ADVICE
from blockfs.tree.overlay import KeyValues, scan_snapshot
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import (
    META_FAILED,
    META_HOT,
    Cursor,
    FailedFlush,
    HotRow,
    Inode,
    Table,
    copy_key,
    decode_failed_flush,
    decode_hot,
    decode_inode,
    decode_leaf_map_key,
    decode_leaf_ref,
    decode_u64,
    split_ino_key,
    u64,
)
from blockfs.tree.waiting import Pause, asking


class Snapshot:
    """`KeyValues` over one LMDB read transaction. A damaged page is a CorruptionError, wherever it is met.

    Args:
        transaction: Ended by `close`.
        databases: Handles indexed by `Table`.
        path: Directory of the environment, for messages.
        pause: Asked while rows are scanned.
    """

    def __init__(
        self,
        transaction: lmdb.Transaction[bytes],
        databases: list[lmdb._Database],
        path: bytes,
        pause: Pause | None = None,
    ) -> None:
        self._pause = pause
        self._transaction = transaction
        self._databases = databases
        self._path = os.fsdecode(path)

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a row, or None."""
        try:
            return self._transaction.get(key, db=self._databases[table])
        except lmdb.Error as error:
            raise lmdb_error(error, self._path, ADVICE) from error

    def scan(self, table: Table, prefix: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix`, in key order, from the first key greater than `after` on."""
        with lmdb_errors(self._path, ADVICE):
            rows = scan_snapshot(self._transaction, self._databases[table], prefix, after)
            yield from rows if self._pause is None else asking(rows, self._pause)

    def last_key(self, table: Table) -> bytes | None:
        """The greatest key of a table; None if it is empty."""
        with lmdb_errors(self._path, ADVICE), self._transaction.cursor(self._databases[table]) as cursor:
            return cursor.key() if cursor.last() else None

    def row_count(self, table: Table) -> int:
        """How many rows a table has."""
        return int(self._transaction.stat(self._databases[table])["entries"])

    def close(self) -> None:
        """End the snapshot. Idempotent."""
        self._transaction.abort()


class CommittedView(TreeReader):
    """One consistent state of the tree, as it would be found after a crash at the moment it was taken.

    One thread at a time. It holds LMDB pages of its age: close it after use.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        super().__init__(snapshot)
        self._snapshot = snapshot

    def close(self) -> None:
        """End the view. Idempotent."""
        self._snapshot.close()

    @property
    def rows(self) -> KeyValues:
        """The rows as they are stored."""
        return self._snapshot

    # --- the journal ---

    @property
    def cursor(self) -> Cursor:
        """Where this state is in the journal."""
        last = self._snapshot.last_key(Table.JOURNAL)
        sequence = self.journal_start() if last is None else decode_u64(last)
        return Cursor(mount_generation=self.mount_row().generation, sequence=sequence)

    def changes(self, since: Cursor) -> tuple[list[int], Cursor] | None:
        """Inodes that were changed or removed after a cursor, in the order of their latest change.

        Returns:
            The inos (one that `inode` does not know any more was removed) and the cursor of this state; None if the
            journal does not reach back to `since`, or `since` is of another mount generation: compare everything.
        """
        now = self.cursor
        if since.mount_generation != now.mount_generation or since.sequence < self.journal_start():
            return None
        if since.sequence > now.sequence:
            return None
        rows = self._snapshot.scan(Table.JOURNAL, after=u64(since.sequence))
        return [decode_u64(row) for _, row in rows], now

    def copies(self, top: int, after: int = 0) -> Iterator[tuple[int, int]]:
        """Originals with an ino greater than `after` and their copies in a snapshot, ascending."""
        for key, row in self._snapshot.scan(Table.COPIES, u64(top), copy_key(top, after)):
            yield decode_u64(key[8:]), decode_u64(row)

    # --- everything ---

    def inodes(self, after: int = 0) -> Iterator[Inode]:
        """All inodes with an ino greater than `after`, in order."""
        for key, row in self._snapshot.scan(Table.INODES, after=u64(after)):
            yield decode_inode(split_ino_key(key)[0], row)

    def all_leaf_keys(self, *, but: int | None = None) -> Iterator[tuple[int, int, LeafKey]]:
        """All leaf_map rows, but those of one inode: (ino, leaf index, leaf key)."""
        for key, row in self._leaf_map(but):
            ino, index = decode_leaf_map_key(key)
            yield ino, index, LeafKey(row)

    def _leaf_map(self, but: int | None) -> Iterator[tuple[bytes, bytes]]:
        if but is None:
            return self._snapshot.scan(Table.LEAF_MAP)
        first = u64(but)
        before = takewhile(lambda row: row[0] < first, self._snapshot.scan(Table.LEAF_MAP))
        return chain(before, self._snapshot.scan(Table.LEAF_MAP, after=u64(but + 1)))

    def leaves(self) -> Iterator[tuple[LeafKey, bytes]]:
        """All leaves, each once: (leaf key, ids)."""
        for key, ids in self._snapshot.scan(Table.LEAVES):
            yield LeafKey(key), ids

    def leaf_references(self) -> Iterator[tuple[LeafKey, int, int]]:
        """All leaf_refs rows: (leaf key, references, ids that are no holes)."""
        for key, row in self._snapshot.scan(Table.LEAF_REFS):
            references, blocks = decode_leaf_ref(row)
            yield LeafKey(key), references, blocks

    def referenced_blocks(self) -> int:
        """Ids in all leaves that are no holes: at least as many as there are distinct ones."""
        return sum(blocks for _, _, blocks in self.leaf_references())

    def referenced_blocks_about(self, looked_at: int = 4096) -> int:
        """The same, from so many leaves. Their keys are digests, so the first ones are as good as any."""
        counts = [blocks for _, _, blocks in islice(self.leaf_references(), looked_at)]
        return sum(counts) * self._snapshot.row_count(Table.LEAF_REFS) // max(1, len(counts))

    def failed_flushes(self) -> Iterator[FailedFlush]:
        """What the host failed to write of all files."""
        for key, row in self._snapshot.scan(Table.META, META_FAILED):
            yield decode_failed_flush(key, row)

    def hot_rows(self, ino: int | None = None) -> Iterator[HotRow]:
        """The hot files of one file, or of all."""
        for key, row in self._snapshot.scan(Table.META, META_HOT + (b"" if ino is None else u64(ino))):
            yield decode_hot(key, row)

    def live_ids(self) -> Iterator[bytes]:
        """The ids that files refer to, leaf by leaf: concatenated 32-byte ids, each leaf once, holes included."""
        for _, ids in self._snapshot.scan(Table.LEAVES):
            yield ids

    def marked_ids(self) -> Iterator[bytes]:
        """Like `live_ids`, to tell what may be deleted: every leaf is verified, and that none was left out.

        Raises:
            CorruptionError: A leaf is not what its key says, or one is missing. SHA-256 of 8 KiB for each 256 blocks.
        """
        count = 0
        for key, ids in self._snapshot.scan(Table.LEAVES):
            if leaf_key(ids) != key:
                raise CorruptionError(f"tree: leaf {bytes(key).hex()} is damaged; {ADVICE}")
            count += 1
            yield ids
        if count != self._snapshot.row_count(Table.LEAVES):
            raise CorruptionError(f"tree: only {count} leaves were found, not all that there are; {ADVICE}")

    def unique_ids(self) -> set[BlockId]:
        """The distinct ids that files refer to, without holes. Memory: about 100 bytes each."""
        found: set[BlockId] = set()
        for ids in self.live_ids():
            found.update(BlockId(ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE))
        found.discard(ZERO_BLOCK)
        return found
