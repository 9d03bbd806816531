"""Block lists that are taken piece by piece: the same result as of those that are taken as a whole."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS, object_hash
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.orders import ReadOrder, Selection, WriteOrder
from syncer.server.errors import MissingBlocks, PreconditionFailed
from syncer.server.store import writing
from syncer.server.store.incoming import Incoming
from syncer.server.store.spool import IdSpool
from syncer.server.store.store import Store
from syncer.server.store.updates import UpdateOrder
from tests.unit.syncer.server.stores import BLOCK, HOUR_US, Clock, at, open_store, put, upload


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_store(tmp_path / "s", clock) as opened:
        opened.create_container("alice", "c")
        yield opened


def put_long(store: Store, ids: list[BlockId], name: str = "f", conditions: Conditions = UNCONDITIONAL) -> str:
    with store.long_list("alice") as long:
        for start in range(0, len(ids), 1000):
            long.feed(b"".join(ids[start : start + 1000]))
        state = store.put_long(
            WriteOrder(place=at(name), content_type="t/t", meta={}, conditions=conditions), long, len(ids) * BLOCK
        )
    return state.etag


@pytest.mark.parametrize("count", [0, 1, 2, LEAF_IDS, LEAF_IDS + 1, 20 * LEAF_IDS + 7])
def test_a_long_list_makes_the_object_that_a_short_one_makes(store: Store, count: int) -> None:
    own = upload(store, "alice", *(b"%d" % number for number in range(100)))
    ids = [own[index % 100] if index % 7 else ZERO_BLOCK for index in range(count)]
    if ids:
        ids[-1] = own[3]
    assert put_long(store, ids) == object_hash(b"".join(ids)).hex()
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.id_runs(opened)) == b"".join(ids)
    assert put_long(store, ids) == opened.state.etag  # again, with known leaves


def test_what_is_missing_is_told_once_for_a_stretch_and_nothing_is_written(store: Store) -> None:
    own = upload(store, "alice", b"a")
    unknown = [BlockId(bytes([number]) * ID_SIZE) for number in range(1, 200)]
    theirs = upload(store, "bob", b"b")
    with pytest.raises(MissingBlocks) as refused:
        put_long(store, [*own * 5000, *unknown, *theirs, *unknown])
    assert list(dict.fromkeys(refused.value.ids)) == [*unknown, *theirs]
    assert isinstance(refused.value.ids, IdSpool)
    refused.value.ids.close()
    assert store.listing("alice", "c", Selection())[1] == []


def test_leaves_that_are_swept_before_the_version_are_stored_again(store: Store, clock: Clock) -> None:
    """The list is gone through once more; blocks that went with the leaves count as missing then."""
    own = upload(store, "alice", *(b"%d" % number for number in range(10)))
    ids = own * 2000
    with store.long_list("alice") as long:
        long.feed(b"".join(ids))
        store.collect_garbage()  # takes the leaves, which no version names yet
        store.put_long(WriteOrder(place=at("f"), content_type="t/t", meta={}), long, len(ids) * BLOCK)
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.content(opened, 5 * BLOCK, 1)) == b"5"
    with store.long_list("alice") as long:
        more = upload(store, "alice", b"more")
        long.feed(b"".join(more * 5000))
        clock.now_us += 25 * HOUR_US
        store.collect_garbage()
        with pytest.raises(MissingBlocks) as refused:
            store.put_long(WriteOrder(place=at("g"), content_type="t/t", meta={}), long, 5000 * BLOCK)
    assert set(refused.value.ids) == set(more)
    assert isinstance(refused.value.ids, IdSpool)
    refused.value.ids.close()


def test_conditions_hold_for_long_lists(store: Store) -> None:
    put(store, at("f"), b"x")
    own = upload(store, "alice", b"a")
    with pytest.raises(PreconditionFailed):
        put_long(store, own * 10, conditions=Conditions(if_version=0))


def test_a_body_of_many_blocks_is_an_object_of_many_blocks(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LONG_IDS", 10)
    monkeypatch.setattr(writing, "_RECORD_IDS", 7)
    holes = bytes(20 * BLOCK)  # more than are noted at once
    data = b"".join((b"%d" % (number % 50)).ljust(BLOCK, b"\0") for number in range(300)) + holes + b"end"
    put(store, at("f"), data)
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.content(opened, 0, len(data))) == data
    with closing(store.receive()) as incoming:  # and behind it as many again
        incoming.feed([data])
        state = store.update_content(at("f"), UpdateOrder(offset=None), incoming)
    assert state.size_bytes == 2 * len(data)
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.content(opened, 0, 2 * len(data))) == data + data
    store.update_content(at("f"), UpdateOrder(offset=3 * BLOCK, length=5 * BLOCK), ReadOrder(place=at("f")))
    opened = store.open_object(ReadOrder(place=at("f")))
    assert b"".join(store.content(opened, 3 * BLOCK, 5 * BLOCK)) == data[: 5 * BLOCK]


@given(st.lists(st.binary(max_size=5), max_size=30), st.integers(0, 200), st.integers(0, 200))
def test_a_spool_gives_what_was_appended(parts: list[bytes], first: int, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder, IdSpool(folder) as spool:
        every = b""
        for part in parts:
            ids = b"".join(bytes([byte]) * ID_SIZE for byte in part)
            spool.append(ids)
            every += ids
        assert len(spool) == len(every) // ID_SIZE
        assert spool.ids(first, count) == every[first * ID_SIZE : (first + count) * ID_SIZE]
        assert b"".join(spool.runs(2 * ID_SIZE)) == b"".join(spool) == every
        assert Path(folder).exists()


def test_a_spool_beyond_its_memory_is_a_file_without_a_name(tmp_path: Path) -> None:
    with IdSpool(str(tmp_path)) as spool:
        for number in range(100):
            spool.append(bytes([number]) * (1 << 16))
        assert spool.ids(99 * 2048, 1) == bytes([99]) * ID_SIZE
        assert list(tmp_path.iterdir()) == []


def test_incoming_content_closes_its_spool(store: Store) -> None:
    incoming: Incoming = store.receive()
    incoming.feed([bytes(BLOCK)])
    incoming.close()
