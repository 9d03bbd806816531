"""What sweeps took out of the index and what is still to be punched: places in the order in which they were deleted.

A sweep goes through the ids, whose places lie anywhere. In the table `free`, whose keys are places, each would change a
page of its own, so that a transaction of some hundred rows wrote some hundred pages, and more the larger the index is.
Here places are added at the end, some hundred to a page. They are sorted when they are punched, many thousands at once.

Only for the one collector, under its lock: numbers are used again once their entries are gone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from blockfs.blocks.index import Index, Reading, Row, Writing
from blockfs.blocks.layout import REPAIR_ADVICE
from blockfs.blocks.segment import pack_place
from blockfs.errors import CorruptionError

_NAME: Final = b"garbage"
_NUMBER: Final = struct.Struct(">Q")
_PLACE: Final = struct.Struct(">III")
_PLACES: Final = 168  # of 12 bytes: two values to a page of LMDB, and none that takes pages of its own


class Listed(NamedTuple):
    """The first entries.

    Attributes:
        keys: Their keys.
        packed: Their places as bytes, which sort by place and take a quarter of the memory.
    """

    keys: list[bytes]
    packed: list[bytes]

    def places(self) -> Iterator[tuple[int, int, int]]:
        """(Segment, offset, length) of each, ascending; offset and length as `unpack_place` takes them."""
        return map(_PLACE.unpack, sorted(self.packed))


class FreedPlaces:
    """The table of one index. It is made by the first collection, so older volumes need no other format.

    A version that does not know it leaves its places alone: they are never used again, and the next collection that
    does punches them.
    """

    def __init__(self, index: Index) -> None:
        self._index = index
        self._database = index.open_table(_NAME)

    def add(self, txn: Writing, rows: Iterable[Row]) -> None:
        """List the payloads of deleted rows."""
        places = [_PLACE.pack(row.segment, *pack_place(row.offset, row.stored_length, row.codec)) for row in rows]
        with txn.cursor(db=self._database) as cursor:
            number = _NUMBER.unpack(cursor.key())[0] + 1 if cursor.last() else 0
            for at in range(0, len(places), _PLACES):
                cursor.put(_NUMBER.pack(number), b"".join(places[at : at + _PLACES]), append=True)
                number += 1

    def first(self, txn: Reading, limit: int) -> Listed:
        """The first entries, whole ones, with up to `limit` places; at least one if there is one."""
        found = Listed([], [])
        with txn.cursor(db=self._database) as cursor:
            for key, value in cursor:
                if len(value) % _PLACE.size:
                    raise CorruptionError(f"{self._index.path}: damaged list of garbage; {REPAIR_ADVICE}")
                found.keys.append(key)
                found.packed.extend(value[at : at + _PLACE.size] for at in range(0, len(value), _PLACE.size))
                if len(found.packed) + _PLACES > limit:
                    break
        return found

    def forget(self, txn: Writing, keys: Sequence[bytes]) -> None:
        """Drop entries whose places were punched."""
        for key in keys:
            txn.delete(key, db=self._database)
