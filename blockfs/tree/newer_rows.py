"""Rows that a program of the plain format would not understand, and the format number that keeps it away.

Format 3 has rows `failed`, format 4 rows `hot`, perhaps beside those. With the last of them the number goes back, in
the same change set.
"""

from __future__ import annotations

from blockfs.tree.committed import CommittedView
from blockfs.tree.overlay import OverlayStore
from blockfs.tree.schema import (
    META_FORMAT,
    FailedFlush,
    HotRow,
    Table,
    encode_failed_flush,
    encode_format,
    encode_hot,
    failed_flush_key,
    format_with,
    hot_key,
)


class NewerRows:
    """The rows of one tree that has a mount. Under the engine's lock."""

    def __init__(self, store: OverlayStore) -> None:
        self._store = store
        self._failed: set[int] = set()
        self._hot: dict[int, dict[int, HotRow]] = {}

    def find(self, view: CommittedView) -> None:
        """Learn what is there; once, when the mount has begun."""
        self._failed = {row.ino for row in view.failed_flushes()}
        for row in view.hot_rows():
            self._hot.setdefault(row.ino, {})[row.number] = row

    @property
    def _format(self) -> int:
        return format_with(has_failed=bool(self._failed), has_hot=bool(self._hot))

    def put_failed(self, row: FailedFlush) -> None:
        """See `Tree.put_failed_flush`."""
        before = self._format
        self._failed.add(row.ino)
        self._store.put(Table.META, failed_flush_key(row.ino), encode_failed_flush(row))
        self._follow(before)

    def drop_failed(self, ino: int) -> None:
        """See `Tree.drop_failed_flush`."""
        if ino in self._failed:
            before = self._format
            self._failed.remove(ino)
            self._store.delete(Table.META, failed_flush_key(ino))
            self._follow(before)

    def hot(self, ino: int) -> list[HotRow]:
        """See `Tree.hot`."""
        return list(self._hot.get(ino, {}).values())

    def all_hot(self) -> list[HotRow]:
        """See `Tree.all_hot`."""
        return [row for rows in self._hot.values() for row in rows.values()]

    def put_hot(self, row: HotRow) -> None:
        """See `Tree.put_hot`."""
        before = self._format
        self._hot.setdefault(row.ino, {})[row.number] = row
        self._store.put(Table.META, hot_key(row.ino, row.number), encode_hot(row))
        self._follow(before)

    def drop_hot(self, ino: int, number: int) -> None:
        """See `Tree.drop_hot`."""
        rows = self._hot.get(ino, {})
        if number in rows:
            before = self._format
            del rows[number]
            if not rows:
                del self._hot[ino]
            self._store.delete(Table.META, hot_key(ino, number))
            self._follow(before)

    def _follow(self, before: int) -> None:
        """Change the format number, if it must."""
        if self._format != before:
            self._store.put(Table.META, META_FORMAT, encode_format(self._format))
