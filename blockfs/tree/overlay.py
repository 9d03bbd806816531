"""Ordered key-value sub-databases with two in-memory change sets in front of LMDB.

Readers see the active change set, then the committing one, then the last committed LMDB snapshot. Knows no row's
meaning. All methods belong under the owner's lock, except `OverlayStore.write`, which reads a frozen set only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import AbstractContextManager, ExitStack
from itertools import islice
from typing import Final, Protocol

import lmdb
from sortedcontainers import SortedDict

from blockfs.blocks.environment import close_environment, lmdb_error, lmdb_errors
from blockfs.tree.environment import ADVICE
from blockfs.tree.schema import SCANNED, Table

_FIRST_CHUNK: Final = 16  # rows fetched by the first step of a scan; doubles up to the next one
_LAST_CHUNK: Final = 512


class Releasable(Protocol):
    """A promise that ends, e.g. an `EpochHold` of the block directory."""

    def release(self) -> None:
        """End it. Must be idempotent."""


class KeyValues(Protocol):
    """What can be read row by row: the overlay or one committed snapshot."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a row, or None."""

    def scan(self, table: Table, prefix: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix`, in key order, from the first key greater than `after` on."""


class ChangeSet:
    """Changes that will be committed together, and what waits for that commit.

    Attributes:
        changes: Per table: key to new value, None for a removed row.
        holds: Released when the set is durable.
        callbacks: Called when the set is durable, in order.
        exact: False once it contains changes of a failed commit, whose rows may be in LMDB nevertheless.
    """

    __slots__ = ("callbacks", "changes", "exact", "holds")

    def __init__(self) -> None:
        self.changes: list[MutableMapping[bytes, bytes | None]] = [
            SortedDict() if table in SCANNED else {} for table in Table
        ]
        self.holds: list[Releasable] = []
        self.callbacks: list[Callable[[], None]] = []
        self.exact = True

    def __bool__(self) -> bool:
        return bool(self.holds or self.callbacks) or any(self.changes)


def prefix_end(prefix: bytes) -> bytes | None:
    """The least key greater than all keys that start with `prefix`; None if there is no such key."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def scan_snapshot(
    transaction: lmdb.Transaction[bytes], database: lmdb._Database, prefix: bytes, after: bytes | None
) -> Iterator[tuple[bytes, bytes]]:
    """Rows of one LMDB snapshot with a key prefix, in order, after a key."""
    with transaction.cursor(database) as cursor:
        found = cursor.set_range(prefix if after is None else after)
        if found and after is not None and cursor.key() == after:
            found = cursor.next()
        if not found:
            return
        for key, value in cursor.iternext():
            if not key.startswith(prefix):
                return
            yield key, value


class OverlayStore:
    """The sub-databases as they will be once everything in memory is committed.

    Args:
        environment: Opened by `open_environment`; closed by `close`.
        databases: Handles indexed by `Table`.
        path: Directory of the environment.
    """

    def __init__(self, environment: lmdb.Environment, databases: list[lmdb._Database], path: bytes) -> None:
        self.environment = environment
        self.databases = databases
        self.path = path
        self._path = os.fsdecode(path)
        self._active = ChangeSet()
        self._committing: ChangeSet | None = None
        self._changes = 0  # counts changes of what readers see: a scan that meets a new number seeks again
        self._snapshot: lmdb.Transaction[bytes] = environment.begin()

    def close(self) -> None:
        """Drop what is not committed, and close LMDB."""
        self._snapshot.abort()
        close_environment(self.environment)

    def errors(self) -> AbstractContextManager[None]:
        """Raise LMDB errors of the block inside as errors of ours."""
        return lmdb_errors(self._path, ADVICE)

    # --- reading ---

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a row, or None.

        Raises:
            CorruptionError: A page of the database is damaged.
        """
        changes = self._active.changes[table]
        if key in changes:
            return changes[key]
        if self._committing is not None:
            changes = self._committing.changes[table]
            if key in changes:
                return changes[key]
        try:
            return self._snapshot.get(key, db=self.databases[table])
        except lmdb.Error as error:
            raise lmdb_error(error, self._path, ADVICE) from error

    def scan(self, table: Table, prefix: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix`, in key order, from the first key greater than `after` on.

        Each step sees all changes made since the last one, as long as they are after its position.
        """
        assert table in SCANNED
        limit = _FIRST_CHUNK
        position = after
        while True:
            stamp = self._changes
            rows, end = self._chunk(table, prefix, position, limit)
            for key, value in rows:
                position = key
                yield key, value
                if self._changes != stamp:
                    limit = _FIRST_CHUNK
                    break
            else:
                if end is None:
                    return
                position = end
                limit = min(limit * 2, _LAST_CHUNK)

    def _chunk(
        self, table: Table, prefix: bytes, after: bytes | None, limit: int
    ) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
        """Some next rows, and the key up to which they are complete (None: there are no more)."""
        with self.errors():
            rows: dict[bytes, bytes | None] = dict(
                islice(scan_snapshot(self._snapshot, self.databases[table], prefix, after), limit)
            )
        end = max(rows) if len(rows) == limit else None
        overlaid = False
        for change_set in (self._committing, self._active):
            if change_set is None or not change_set.changes[table]:
                continue
            changes = change_set.changes[table]
            assert isinstance(changes, SortedDict)
            start = prefix if after is None else after
            keys = list(islice(changes.irange(start, prefix_end(prefix), inclusive=(after is None, False)), limit))
            if not keys:
                continue
            overlaid = True
            if len(keys) == limit:
                end = keys[-1] if end is None else min(end, keys[-1])
            for key in keys:
                rows[key] = changes[key]
        if not overlaid:
            return list(rows.items()), end  # type: ignore[arg-type]  # LMDB rows have values
        complete = sorted(key for key in rows if end is None or key <= end)
        return [(key, value) for key in complete if (value := rows[key]) is not None], end

    def row_count(self, table: Table) -> int:
        """Rows of a table as of the last commit."""
        return int(self._snapshot.stat(self.databases[table])["entries"])

    # --- writing to the active set ---

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set a row."""
        self._changes += 1
        self._active.changes[table][key] = value

    def delete(self, table: Table, key: bytes) -> None:
        """Remove a row; it need not exist."""
        self._changes += 1
        self._active.changes[table][key] = None

    def delete_unique(self, table: Table, key: bytes) -> None:
        """Remove a row whose key is never used again: if the active set made it, nothing remains to be written."""
        changes = self._active.changes[table]
        if self._active.exact and key in changes:
            self._changes += 1
            del changes[key]
        else:
            self.delete(table, key)

    def keep(self, hold: Releasable) -> None:
        """Let the active set own a hold: released when the set is durable."""
        self._active.holds.append(hold)

    def on_durable(self, callback: Callable[[], None]) -> None:
        """Call this when the active set is durable, under the owner's lock."""
        self._active.callbacks.append(callback)

    @property
    def is_clean(self) -> bool:
        """Whether nothing waits for a commit."""
        return not self._active and self._committing is None

    # --- commit ---

    def freeze(self) -> ChangeSet | None:
        """Start a commit: the active set becomes the committing one. None if there is nothing to commit."""
        assert self._committing is None, "one commit at a time"
        if not self._active:
            return None
        self._committing, self._active = self._active, ChangeSet()
        return self._committing

    def write(self, change_set: ChangeSet, finish: Callable[[lmdb.Transaction[bytes]], None]) -> None:
        """Write a frozen set as one fully synced transaction. Needs no lock.

        Args:
            change_set: From `freeze`.
            finish: Further work inside the same transaction.

        Raises:
            NoSpaceError: Host full; nothing was written. `thaw` and try again later.
            BlockfsError: Host error; `thaw` and try again later.
        """
        if not any(change_set.changes):
            return
        with self.errors(), self.environment.begin(write=True) as transaction:
            for table in Table:
                database = self.databases[table]
                for key, value in sorted(change_set.changes[table].items()):
                    if value is None:
                        transaction.delete(key, db=database)
                    else:
                        transaction.put(key, value, db=database)
            finish(transaction)

    def retire(self, change_set: ChangeSet) -> None:
        """End a commit that was written: readers go to LMDB, holds end, callbacks run; all, whatever one raises.

        Raises:
            BlockfsError: LMDB can't be read at the new state. The set is thawed: the next commit writes it again.
        """
        assert change_set is self._committing
        try:
            self.refresh()
        except BaseException:
            self.thaw(change_set)
            raise
        self._committing = None
        with ExitStack() as all_of_them:  # last in, first out
            for callback in reversed(change_set.callbacks):
                all_of_them.callback(callback)
            for hold in reversed(change_set.holds):
                all_of_them.callback(hold.release)

    def thaw(self, change_set: ChangeSet) -> None:
        """End a commit that failed: its changes go back under those made since, to be committed with them."""
        assert change_set is self._committing
        newer, self._active, self._committing = self._active, change_set, None
        for table in Table:
            self._active.changes[table].update(newer.changes[table])
        self._active.holds += newer.holds
        self._active.callbacks += newer.callbacks
        self._active.exact = False
        self._changes += 1

    def refresh(self) -> None:
        """Read from the newest LMDB snapshot from now on; if there can't be one, go on with the old one.

        Raises:
            BlockfsError: There can't be one.
        """
        with self.errors():
            newest = self.environment.begin()
        self._snapshot.abort()
        self._snapshot = newest
        self._changes += 1
