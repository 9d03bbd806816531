"""A committed state of the tree with changes on top that nobody has written yet: what a repair would make of it."""

from __future__ import annotations

from collections.abc import Iterator

from sortedcontainers import SortedDict

from blockfs.tree.overlay import KeyValues, prefix_end
from blockfs.tree.schema import Table


class RepairedRows:
    """`KeyValues` over others, with changes in memory. One thread.

    Args:
        base: What lies below; it must not change.
    """

    def __init__(self, base: KeyValues) -> None:
        self._base = base
        self.changes: list[SortedDict[bytes, bytes | None]] = [SortedDict() for _ in Table]
        """Per table: key to new value, None for a removed row."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value of a row, or None."""
        changes = self.changes[table]
        return changes[key] if key in changes else self._base.get(table, key)

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        """Set a row."""
        self.changes[table][key] = value

    def delete(self, table: Table, key: bytes) -> None:
        """Remove a row; it need not exist."""
        self.changes[table][key] = None

    def scan(self, table: Table, prefix: bytes = b"", after: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose key starts with `prefix`, in key order, from the first key greater than `after` on.

        Sees changes that are made meanwhile, as long as they are after its position.
        """
        changes = self.changes[table]
        below = self._base.scan(table, prefix, after)
        row = next(below, None)
        position, end = after, prefix_end(prefix)
        while True:
            key = self._next_change(table, prefix, position, end)
            if row is not None and (key is None or row[0] < key):
                position = row[0]
                if position not in changes:
                    yield row
                row = next(below, None)
            elif key is not None:
                if row is not None and row[0] == key:
                    row = next(below, None)
                position, value = key, changes[key]
                if value is not None:
                    yield key, value
            else:
                return

    def _next_change(self, table: Table, prefix: bytes, after: bytes | None, end: bytes | None) -> bytes | None:
        changes = self.changes[table]
        if not changes:
            return None
        start = prefix if after is None or after < prefix else after
        return next(changes.irange(start, end, inclusive=(start is not after, False)), None)
