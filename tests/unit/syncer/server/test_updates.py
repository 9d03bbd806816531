"""Edits of objects: the plan of an edit against bytes, and edits in a store against a bytearray."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.hashing import block_id
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import ReadOrder
from syncer.server.errors import BadRequest, NotFound, PreconditionFailed, RangeNotSatisfiable
from syncer.server.store.store import Store
from syncer.server.store.updates import Edit, UpdateOrder
from tests import effort
from tests.unit.syncer.server.stores import BLOCK, Clock, at, open_store, put, read

SIZE = 4
orders = st.builds(
    UpdateOrder,
    offset=st.none() | st.integers(0, 20),
    length=st.none() | st.integers(1, 20),
    cut=st.none() | st.integers(0, 25),
)


def expected(old: bytes, new: bytes, edit: Edit) -> bytes:
    whole = old[: edit.offset] + new[: edit.length] + old[edit.offset + edit.length :]
    return whole if edit.cut is None else whole[: edit.cut]


@given(st.binary(max_size=20), st.binary(max_size=20), orders)
def test_the_parts_of_an_edit_are_the_edited_bytes(old: bytes, new: bytes, order: UpdateOrder) -> None:
    try:
        edit = order.edit(len(old), len(new), SIZE)
    except (RangeNotSatisfiable, BadRequest):
        return
    wanted = expected(old, new, edit)
    assert edit.size == len(wanted)
    blocks = [old[start : start + SIZE] for start in range(0, edit.blocks * SIZE, SIZE)]
    for index in edit.changed():
        parts = edit.parts(index)
        blocks[index] = b"".join((new if part.is_new else old)[part.start :][: part.length] for part in parts)
        whole = edit.whole_block(parts, len(new))
        if whole is not None:
            assert blocks[index] == new[whole * SIZE :][:SIZE]
    assert b"".join(blocks) == wanted


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_blocks_that_are_not_touched_stay(old: int, offset: int, length: int) -> None:
    offset = min(offset, old)
    edit = Edit(block_size=SIZE, old_size=old, offset=offset, length=length)
    assert list(edit.changed()) == list(range(offset // SIZE, -(-(offset + length) // SIZE)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path / "s", Clock())
    store.create_container("alice", "c")
    return store


def update(store: Store, name: str, data: bytes, order: UpdateOrder) -> None:
    with closing(store.receive()) as incoming:
        incoming.feed([data])
        store.update_content(at(name), order, incoming)


near_a_border = st.sampled_from([0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 2 * BLOCK + 7])


@settings(max_examples=effort.count("server's edits"), deadline=None)
@given(
    st.lists(
        st.tuples(st.none() | near_a_border, near_a_border, st.integers(0, 255), st.none() | near_a_border), max_size=5
    )
)
def test_a_store_edits_as_a_bytearray_does(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int | None, int, int, int | None]]
) -> None:
    with open_store(tmp_path_factory.mktemp("edits") / "s", Clock()) as store:
        store.create_container("alice", "c")
        model = b"begin" * 1000
        put(store, at("f"), model)
        for offset, length, fill, cut in steps:
            data = bytes([fill]) * length
            order = UpdateOrder(offset=offset, cut=cut)
            if offset is not None and offset > len(model):
                with pytest.raises(RangeNotSatisfiable):
                    update(store, "f", data, order)
                continue
            update(store, "f", data, order)
            model = expected(model, data, order.edit(len(model), len(data), BLOCK))
            assert read(store, at("f")) == model
        put(store, at("same"), model)
        states = [store.open_object(ReadOrder(place=at(name))).state for name in ("f", "same")]
        assert states[0].object_hash == states[1].object_hash
        assert states[0].size_bytes == states[1].size_bytes


def test_aligned_blocks_of_a_source_are_taken_by_their_ids(store: Store) -> None:
    """Breaks when a server composes what it has: a copy of a range would cost as much as its bytes."""
    put(store, at("f"), b"a" * BLOCK * 3)
    put(store, at("g"), b"b" * BLOCK + b"c" * BLOCK)
    before = store._blocks.statistics().blocks
    order = UpdateOrder(offset=BLOCK, length=2 * BLOCK)
    store.update_content(at("f"), order, ReadOrder(place=at("g")))
    assert read(store, at("f")) == b"a" * BLOCK + b"b" * BLOCK + b"c" * BLOCK
    assert store._blocks.statistics().blocks == before
    store.close()


def test_an_update_keeps_identity_type_and_metadata(store: Store) -> None:
    before = put(store, at("f"), b"abc", k="v")
    update(store, "f", b"X", UpdateOrder(offset=1, meta={"l": "w"}))
    after = store.open_object(ReadOrder(place=at("f"))).state
    assert (after.uuid, after.content_type, after.meta) == (before.uuid, "t/t", {"k": "v", "l": "w"})
    update(store, "f", b"X", UpdateOrder(offset=1, keeps_meta=False))
    assert store.open_object(ReadOrder(place=at("f"))).state.meta == {}
    assert read(store, at("f"), before.version) == b"abc"
    store.close()


def test_what_cannot_be_is_refused(store: Store) -> None:
    state = put(store, at("f"), b"abc")
    put(store, at("g"), b"ab")
    order = UpdateOrder(offset=0)
    with pytest.raises(NotFound):
        update(store, "none", b"x", order)
    with pytest.raises(RangeNotSatisfiable):
        update(store, "f", b"x", UpdateOrder(offset=4))
    with pytest.raises(RangeNotSatisfiable):
        update(store, "f", b"x", UpdateOrder(offset=0, total=4))
    with pytest.raises(RangeNotSatisfiable):
        update(store, "f", b"xx", UpdateOrder(offset=2, total=3))
    with pytest.raises(BadRequest):
        store.update_content(at("f"), UpdateOrder(offset=0, length=3), ReadOrder(place=at("g")))
    with pytest.raises(PreconditionFailed):
        update(store, "f", b"x", UpdateOrder(offset=0, conditions=Conditions(if_version=state.version + 9)))
    assert read(store, at("f")) == b"abc"
    store.close()


def test_an_update_that_was_overtaken_is_made_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a read-modify-write forgets what came in between: an append would be lost."""
    put(store, at("f"), b"begin ")
    composed = store._composed
    others = [b"other ", b"another "]

    def interrupted(*arguments: object) -> object:
        result = composed(*arguments)  # type: ignore[arg-type]
        if others:
            put(store, at("f"), read(store, at("f")) + others.pop())
        return result

    monkeypatch.setattr(store, "_composed", interrupted)
    update(store, "f", b"mine", UpdateOrder(offset=None))
    assert read(store, at("f")) == b"begin another other mine"
    store.close()


def test_blocks_of_a_part_belong_to_who_sent_them(store: Store) -> None:
    put(store, at("f"), b"a" * BLOCK)
    update(store, "f", b"b" * BLOCK, UpdateOrder(offset=None))
    with store._catalogue.reading() as view:
        account = view.account("alice")
        assert account is not None
        key = account.to_bytes(4, "big") + block_id(b"b" * BLOCK)
        assert view.get("possessions", key) is not None
    store.close()
