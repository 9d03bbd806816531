"""Names in order, of any length, in LMDB, whose keys end at 511 bytes.

Key: u64 node, then up to 480 bytes of the name. A longer name goes on under another node: the row `node, 480 bytes,
0xff` holds the u64 number of that node. That row is one byte longer than any row of a name, hence right behind the name
that is exactly these 480 bytes and before every other. So the rows of a root in key order, descending where a node is
named, are its names in byte order. A name of up to 480 bytes costs one row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Protocol

from syncer.server.catalogue.schema import SERIAL

CHUNK: Final = 480  # 8 + 480 + 1 bytes fit into LMDB's 511
_MARK: Final = b"\xff"
_NODE: Final = SERIAL.size
_DESCENT: Final = _NODE + CHUNK + len(_MARK)


class Cursor(Protocol):
    """What of an LMDB cursor is needed."""

    def set_range(self, key: bytes) -> bool:
        """Go to the first key that is not smaller."""

    def iternext(self) -> Iterator[tuple[bytes, bytes]]:
        """From here on."""


Get = Callable[[bytes], bytes | None]
Put = Callable[[bytes, bytes], None]


def find(get: Get, root: int, name: bytes) -> bytes | None:
    """Key of a name's row, whether there is one or not; None if it can't have one yet."""
    node = root
    while len(name) > CHUNK:
        row = get(_descent(node, name))
        if row is None:
            return None
        (node,) = SERIAL.unpack(row)
        name = name[CHUNK:]
    return SERIAL.pack(node) + name


def make(get: Get, put: Put, new_node: Callable[[], int], root: int, name: bytes) -> bytes:
    """Key of a name's row; makes the way there, not the row."""
    node = root
    while len(name) > CHUNK:
        key = _descent(node, name)
        row = get(key)
        if row is None:
            row = SERIAL.pack(new_node())
            put(key, row)
        (node,) = SERIAL.unpack(row)
        name = name[CHUNK:]
    return SERIAL.pack(node) + name


def walk(open_cursor: Callable[[], Cursor], root: int, start: bytes = b"") -> Iterator[tuple[bytes, bytes]]:
    """Names and rows in byte order.

    Args:
        open_cursor: A cursor on the sub-database, of a transaction that outlives the walk.
        root: Whose names.
        start: The first name that is wanted, if it exists.
    """
    prefix = SERIAL.pack(root)
    cursor = open_cursor()
    if not cursor.set_range(prefix + start[:CHUNK]):
        return
    for key, value in cursor.iternext():
        if key[:_NODE] != prefix:
            return
        chunk = key[_NODE : _NODE + CHUNK]
        if len(key) == _DESCENT:
            rest = start[CHUNK:] if chunk == start[:CHUNK] else b""
            below = walk(open_cursor, SERIAL.unpack(value)[0], rest)
            yield from ((chunk + name, row) for name, row in below)
        elif chunk >= start:  # a start longer than its chunk lies behind the name that is just the chunk
            yield chunk, value


def rows(open_cursor: Callable[[], Cursor], root: int) -> Iterator[tuple[bytes, bytes | None]]:
    """All keys below a root, ways included, children first; for ways the value is None. To delete them all."""
    prefix = SERIAL.pack(root)
    cursor = open_cursor()
    if not cursor.set_range(prefix):
        return
    for key, value in cursor.iternext():
        if key[:_NODE] != prefix:
            return
        if len(key) == _DESCENT:
            yield from rows(open_cursor, SERIAL.unpack(value)[0])
            yield key, None
        else:
            yield key, value


def _descent(node: int, name: bytes) -> bytes:
    """Key of the row that says where names with these first 480 bytes go on."""
    return SERIAL.pack(node) + name[:CHUNK] + _MARK
