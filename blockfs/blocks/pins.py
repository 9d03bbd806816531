"""Pins: durable rows that say "this owner needs this block". The block directory knows no other roots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from uuid import UUID

from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, checked_block_id
from blockfs.blocks.index import BATCH_ROWS, SCAN_ROWS, Index
from blockfs.errors import UsageError

_OWNER_BYTES: Final = 16


class Pins:
    """The pins of one block directory. Thread-safe."""

    def __init__(self, index: Index) -> None:
        self._index = index

    def add(self, owner: str, ids: Iterable[BlockId]) -> None:
        """Pin blocks. Each transaction of some hundred is durable by itself; all are when this returns.

        Where a collection is running, it may have read the pins already: so the same transaction raises the epochs of
        the rows, which it looks at again before it deletes.
        """
        prefix = _prefix(owner)
        source = iter(ids)
        while batch := list(islice(source, BATCH_ROWS)):
            with self._index.writing() as txn:
                epoch = self._index.number(txn, b"epoch")
                swept = self._index.is_swept(txn, epoch)
                for block_id in batch:
                    if block_id == ZERO_BLOCK:
                        continue
                    txn.put(prefix + checked_block_id(block_id), b"", db=self._index.pins_database)
                    if not swept:
                        self._index.raise_epoch(txn, block_id, epoch)

    def remove(self, owner: str, ids: Iterable[BlockId] | None = None) -> None:
        """Drop pins; ids that are not pinned are ignored. None: all of the owner's."""
        prefix = _prefix(owner)
        source = self.of(owner) if ids is None else iter(ids)
        while batch := list(islice(source, BATCH_ROWS)):
            with self._index.writing() as txn:
                for block_id in batch:
                    txn.delete(prefix + block_id, db=self._index.pins_database)

    def of(self, owner: str) -> Iterator[BlockId]:
        """An owner's ids, ascending."""
        prefix = _prefix(owner)
        for key in self._keys(prefix):
            if not key.startswith(prefix):
                return
            yield BlockId(key[_OWNER_BYTES:])

    def all(self) -> Iterator[bytes]:
        """The pinned ids of all owners, some more than once."""
        return (key[_OWNER_BYTES:] for key in self._keys(b""))

    def owners(self) -> Iterator[str]:
        """Everybody who has pins, as UUID texts."""
        first = b"\0" * _OWNER_BYTES
        while True:
            key = next(self._keys(first), None)
            if key is None:
                return
            owner = key[:_OWNER_BYTES]
            yield str(UUID(bytes=owner))
            if owner == b"\xff" * _OWNER_BYTES:
                return
            first = (int.from_bytes(owner, "big") + 1).to_bytes(_OWNER_BYTES, "big")

    def _keys(self, first: bytes) -> Iterator[bytes]:
        """Keys from `first` on; no transaction is open between two lists of them."""
        while True:
            with self._index.reading() as txn, txn.cursor(db=self._index.pins_database) as cursor:
                found = cursor.set_range(first) if first else cursor.first()
                keys = list(islice(cursor.iternext(keys=True, values=False), SCAN_ROWS)) if found else []
            yield from keys
            if len(keys) < SCAN_ROWS:
                return
            first = keys[-1] + b"\0"


def _prefix(owner: str) -> bytes:
    try:
        return UUID(owner).bytes
    except ValueError:
        raise UsageError(f"{owner!r} can't own pins: expected a UUID") from None


assert _OWNER_BYTES + ID_SIZE <= 511  # LMDB's longest key
