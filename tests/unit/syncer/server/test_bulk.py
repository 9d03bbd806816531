"""Bulk requests in the store: each operation as if it had come alone, and all in one transaction."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.protocol.extensions.bulk import Delete, Move, Operation, Put
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import DeleteOrder, ReadOrder, Transfer, TransferOrder
from syncer.server.errors import NotFound, Refusal
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import HOUR_US, Clock, at, names, open_store, put, read

NAMES = ["a", "b", "b/c", "d" * 490]


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    name, version = draw(st.sampled_from(NAMES)), draw(st.sampled_from([None, 0, 1, 2, 3]))
    match draw(st.sampled_from(["put", "put", "delete", "move"])):
        case "put":
            return Put(name=name, data=draw(st.sampled_from([b"", b"x", b"yy", bytes(9)])), meta={}, if_version=version)
        case "delete":
            return Delete(name=name, if_version=version)
        case _:
            return Move(name=name, to=draw(st.sampled_from(NAMES)), if_version=version, if_to_version=draw(st.none()))


def one_by_one(store: Store, operation: Operation) -> int:
    """The status of the same change as a request of its own."""
    conditions = Conditions(if_version=operation.if_version)
    try:
        match operation:
            case Put():
                put(store, at(operation.name), operation.data, conditions)
                return 201
            case Delete():
                store.delete(DeleteOrder(place=at(operation.name), conditions=conditions))
                return 204
            case Move():
                store.transfer(
                    Transfer(
                        source=at(operation.name),
                        destination=at(operation.to),
                        order=TransferOrder(source=conditions),
                        moves=True,
                    )
                )
                return 201
    except Refusal as refusal:
        return refusal.status


@settings(max_examples=effort.count("server's batches"), deadline=None)
@given(batches=st.lists(st.lists(operations(), min_size=1, max_size=6), max_size=4))
def test_a_batch_does_what_single_requests_do(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Operation]]
) -> None:
    with (
        open_store(tmp_path_factory.mktemp("bulk"), Clock()) as bulk,
        open_store(tmp_path_factory.mktemp("single"), Clock()) as single,
    ):
        for store in (bulk, single):
            store.create_container("alice", "c")
        for batch in batches:
            results = bulk.bulk(at("c"), batch)
            assert [result.status for result in results] == [one_by_one(single, one) for one in batch]
            assert all(bool(result.message) == (result.status >= 300) for result in results)
        assert names(bulk) == names(single)
        for name in names(bulk):
            assert read(bulk, at(name)) == read(single, at(name))
            ours, theirs = (store.open_object(ReadOrder(place=at(name))).state for store in (bulk, single))
            assert (ours.version, ours.object_hash) == (theirs.version, theirs.object_hash)
        ours, theirs = (store.container("alice", "c").record for store in (bulk, single))
        assert (ours.object_count, ours.bytes_used, ours.version) == (
            theirs.object_count,
            theirs.bytes_used,
            theirs.version,
        )


def test_results_name_the_versions_that_were_made(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        first, refused, moved = store.bulk(
            at(""),
            [
                Put(name="a", data=b"1", meta={"mode": "644"}, content_type="t/t", if_version=0),
                Put(name="a", data=b"2", meta={}, if_version=0),
                Move(name="a", to="b", if_version=1, if_to_version=0),
            ],
        )
        state = store.open_object(ReadOrder(place=at("b"))).state
        assert (first.status, refused.status, moved.status) == (201, 412, 201)
        assert (moved.version, moved.uuid, moved.object_hash) == (state.version, state.uuid, state.etag)
        assert first.uuid == moved.uuid
        assert (state.content_type, dict(state.meta or {})) == ("t/t", {"mode": "644"})


def test_no_container_no_batch(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store, pytest.raises(NotFound):
        store.bulk(at(""), [Put(name="a", data=b"1", meta={})])


def test_contents_of_a_batch_survive_the_collection(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock) as store:
        store.create_container("alice", "c")
        contents = {f"f{number}": b"%d" % number for number in range(300)}
        store.bulk(at(""), [Put(name=name, data=data, meta={}) for name, data in contents.items()])
        clock.now_us += 48 * HOUR_US
        store.collect_garbage()
        assert {name: read(store, at(name)) for name in names(store)} == contents
        assert put(store, at("again"), b"7").size_bytes == 1
