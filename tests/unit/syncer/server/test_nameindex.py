"""Names of any length stay in byte order, whatever LMDB's key limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from hypothesis import given
from hypothesis import strategies as st
from sortedcontainers import SortedDict

from syncer.server.catalogue import nameindex
from syncer.server.catalogue.nameindex import CHUNK

ROOT = 1
OTHER = 2

# Few letters and lengths around the chunk size: shared prefixes and border cases are what may go wrong.
names = st.builds(
    lambda base, tail: base + tail,
    st.sampled_from([b"", b"a" * (CHUNK - 1), b"a" * CHUNK, b"b" * CHUNK, b"a" * (2 * CHUNK), b"a" * (2 * CHUNK - 1)]),
    st.text("ab/\u00ff", max_size=4).map(str.encode),
).filter(bool)


class Cursor:
    def __init__(self, rows: SortedDict[bytes, bytes]) -> None:
        self._rows = rows
        self._from = b""

    def set_range(self, key: bytes) -> bool:
        self._from = key
        return next(iter(self._rows.irange(key)), None) is not None

    def iternext(self) -> Iterator[tuple[bytes, bytes]]:
        return ((key, self._rows[key]) for key in list(self._rows.irange(self._from)))


class Index:
    def __init__(self) -> None:
        self.rows: SortedDict[bytes, bytes] = SortedDict()
        self._nodes = count(10)

    def put(self, root: int, name: bytes, value: bytes) -> None:
        key = nameindex.make(self.rows.get, self.rows.__setitem__, lambda: next(self._nodes), root, name)
        assert len(key) <= 511
        self.rows[key] = value

    def cursor(self) -> Cursor:
        return Cursor(self.rows)


@given(st.dictionaries(names, st.binary(min_size=1, max_size=3), max_size=12), names, names)
def test_the_index_is_a_sorted_mapping(model: dict[bytes, bytes], start: bytes, absent: bytes) -> None:
    index = Index()
    index.put(OTHER, b"z", b"other")
    for name, value in model.items():
        index.put(ROOT, name, value)
    assert list(nameindex.walk(index.cursor, ROOT)) == sorted(model.items())
    assert list(nameindex.walk(index.cursor, ROOT, start)) == sorted(
        (name, value) for name, value in model.items() if name >= start
    )
    for name in [*model, absent]:
        key = nameindex.find(index.rows.get, ROOT, name)
        assert (None if key is None else index.rows.get(key)) == model.get(name)


@given(st.sets(names, max_size=12))
def test_all_rows_of_a_root_can_be_found_children_first(present: set[bytes]) -> None:
    """Breaks when a deleted container leaves rows behind, or loses the way to some before they are removed."""
    index = Index()
    index.put(OTHER, b"z" * 1000, b"other")
    others = len(index.rows)
    for name in present:
        index.put(ROOT, name, b"x")
    for key, value in list(nameindex.rows(index.cursor, ROOT)):
        if value is None:  # a way: nothing is below it any more
            node = int.from_bytes(index.rows[key], "big")
            assert not list(nameindex.walk(index.cursor, node))
        del index.rows[key]
    assert len(index.rows) == others
