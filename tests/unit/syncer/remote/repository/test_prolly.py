"""Maps as trees of nodes: a dictionary says what must come out, and equal dictionaries are equal trees."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.prolly import Root, Shape, diff, get, items, reachable, update
from tests import effort
from tests.unit.syncer.remote.repository.nodes import KEYS, MemoryNodes

SMALL = Shape(split=KEYS.split, entries=3)
KEY = st.integers(0, 400).map(lambda number: b"%03d" % number)
MAP = st.dictionaries(KEY, st.binary(max_size=3), max_size=150)
EDITS = st.dictionaries(KEY, st.none() | st.binary(max_size=3), max_size=40)


def made(nodes: MemoryNodes, entries: dict[bytes, bytes], shape: Shape = SMALL) -> Root | None:
    return update(nodes, shape, None, dict(entries))


def edited(entries: dict[bytes, bytes], edits: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in (dict[bytes, bytes | None](entries) | edits).items() if value is not None}


@given(entries=MAP, steps=st.lists(EDITS, max_size=4))
@settings(max_examples=effort.count("repository trees"))
def test_a_map_is_the_same_tree_whatever_was_done_to_get_there(
    entries: dict[bytes, bytes], steps: list[dict[bytes, bytes | None]]
) -> None:
    nodes = MemoryNodes()
    root = made(nodes, entries)
    for edits in steps:
        root = update(nodes, SMALL, root, edits)
        entries = edited(entries, edits)
    assert list(items(nodes, root)) == sorted(entries.items())
    assert root == made(MemoryNodes(), entries)


@given(entries=MAP, edits=EDITS)
@settings(max_examples=effort.count("repository trees"))
def test_the_difference_is_what_was_edited(entries: dict[bytes, bytes], edits: dict[bytes, bytes | None]) -> None:
    nodes = MemoryNodes()
    one = made(nodes, entries)
    other = update(nodes, SMALL, one, edits)
    after = edited(entries, edits)
    wanted = [
        (key, entries.get(key), after.get(key))
        for key in sorted(entries.keys() | after.keys())
        if entries.get(key) != after.get(key)
    ]
    assert list(diff(nodes, one, other)) == wanted
    assert list(diff(nodes, other, one)) == [(key, now, was) for key, was, now in wanted]


@given(one=MAP, other=MAP)
@settings(max_examples=effort.count("repository trees"))
def test_two_maps_that_have_nothing_to_do_with_each_other_are_compared(
    one: dict[bytes, bytes], other: dict[bytes, bytes]
) -> None:
    nodes = MemoryNodes()
    told = {key: (was, now) for key, was, now in diff(nodes, made(nodes, one), made(nodes, other))}
    assert told == {
        key: (one.get(key), other.get(key)) for key in one.keys() | other.keys() if one.get(key) != other.get(key)
    }


@given(entries=MAP, asked=st.lists(KEY, max_size=20))
@settings(max_examples=effort.count("repository trees"))
def test_keys_are_found(entries: dict[bytes, bytes], asked: list[bytes]) -> None:
    nodes = MemoryNodes()
    root = made(nodes, entries)
    assert get(nodes, root, asked) == {key: entries[key] for key in asked if key in entries}


@given(entries=MAP, first=KEY, end=st.none() | KEY)
@settings(max_examples=effort.count("repository trees"))
def test_entries_are_read_between_keys(entries: dict[bytes, bytes], first: bytes, end: bytes | None) -> None:
    nodes = MemoryNodes()
    between = {key: value for key, value in entries.items() if key >= first and (end is None or key < end)}
    assert list(items(nodes, made(nodes, entries), first, end)) == sorted(between.items())


def test_a_few_entries_of_a_large_map_are_few_nodes() -> None:
    nodes, shape = MemoryNodes(), Shape(split=KEYS.split, entries=8)
    root = made(nodes, {b"%06d" % number: b"" for number in range(20_000)}, shape)
    assert root is not None
    nodes.forget()
    assert len(list(items(nodes, root, b"010000", b"010003"))) == 3
    assert len(nodes.read_ids) <= 2 * (root.level + 1)


@given(entries=MAP)
@settings(max_examples=effort.count("repository trees"))
def test_all_nodes_of_a_map_are_reached_once(entries: dict[bytes, bytes]) -> None:
    nodes = MemoryNodes()
    root = made(nodes, entries)
    kept = [node for node, _ in reachable(nodes, root, set())]
    fresh = MemoryNodes()
    fresh.kept = {node: nodes.kept[node] for node in kept}
    assert list(items(fresh, root)) == sorted(entries.items())
    assert len(kept) == len(set(kept)) <= len(nodes.kept)


def test_an_edit_of_a_large_map_reads_and_writes_a_path() -> None:
    nodes, shape = MemoryNodes(), Shape(split=KEYS.split, entries=32)
    root = made(nodes, {b"%06d" % number: b"value" for number in range(30_000)}, shape)
    assert root is not None
    nodes.forget()
    other = update(nodes, shape, root, {b"012345": b"another"})
    assert len(set(nodes.read_ids)) <= root.level + 2
    assert len(nodes.written) <= root.level + 2
    nodes.forget()
    assert list(diff(nodes, root, other)) == [(b"012345", b"value", b"another")]
    assert nodes.reads <= root.level + 2
    assert len(nodes.read_ids) <= 2 * (root.level + 1)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode((0, [], [])),
        msgspec.msgpack.encode((0, [b"b", b"a"], [b"", b""])),
        msgspec.msgpack.encode((0, [b"a", b"a"], [b"", b""])),
        msgspec.msgpack.encode((0, [b"a"], [b"", b""])),
        msgspec.msgpack.encode((1, [b"a"], [bytes(32)])),
        msgspec.msgpack.encode((0, [b"a"], [b""], 1)),
    ],
)
def test_a_node_that_is_none_is_named(raw: bytes) -> None:
    nodes = MemoryNodes()
    node = nodes.write(raw)
    with pytest.raises(DamagedObjectError, match=f"tree node {node.hex()[:16]}"):
        list(items(nodes, Root(level=0, node=node)))


def test_an_inner_node_has_ids_of_children() -> None:
    nodes = MemoryNodes()
    node = nodes.write(msgspec.msgpack.encode((1, [b"a"], [b"short"])))
    with pytest.raises(DamagedObjectError, match="no ids"):
        list(items(nodes, Root(level=1, node=node)))


def test_where_nodes_end_depends_on_the_key_of_the_repository() -> None:
    entries = {b"%04d" % number: b"" for number in range(500)}
    other = Shape(split=bytes(32), entries=3)
    assert made(MemoryNodes(), entries) != made(MemoryNodes(), entries, other)
    assert KEYS.chunk_id(Content.TREES, b"") != KEYS.chunk_id(Content.FILES, b"")
