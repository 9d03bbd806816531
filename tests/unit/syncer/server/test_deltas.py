"""Deltas in the store: the same objects as whole hashmaps make, the same refusals, less work."""

from __future__ import annotations

import itertools
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, ObjectHash
from syncer.protocol.extensions.hashmap_delta import Delta, apply_delta, delta_between
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.orders import Place, ReadOrder, Transfer, WriteOrder
from syncer.server.errors import BadRequest, MissingBlocks, PreconditionFailed, Unprocessable
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import BLOCK, HOUR_US, Clock, at, letter, letter_id, open_store, put_ids, upload

IDS = [ZERO_BLOCK, *(letter_id(character) for character in "abc")]


def put_delta(
    store: Store, place: Place, base: int, delta: Delta, conditions: Conditions = UNCONDITIONAL
) -> ObjectState:
    return store.put_block_list(
        WriteOrder(place=place, content_type="t/t", meta={"k": "v"}, conditions=conditions), delta, base
    )


def block_list(store: Store, place: Place, version: int | None = None) -> BlockList:
    opened = store.open_object(ReadOrder(place=place, version=version))
    return BlockList(block_size=BLOCK, size_bytes=opened.state.size_bytes, ids=b"".join(store.id_runs(opened)))


def since(store: Store, place: Place, version: int) -> Delta | None:
    opened = store.open_object(ReadOrder(place=place))
    found = store.splices(opened, place, version)
    return None if found is None else Delta(size_bytes=opened.state.size_bytes, splices=tuple(found))


@st.composite
def lists(draw: st.DrawFn) -> BlockList:
    ids = [IDS[1]] * draw(st.sampled_from([0, 1, 2, 255, 256, 257, 513]))
    for index in draw(st.lists(st.integers(0, 600), max_size=5)):
        if index < len(ids):
            ids[index] = draw(st.sampled_from(IDS))
    return BlockList(block_size=BLOCK, size_bytes=len(ids) * BLOCK, ids=b"".join(ids))


@settings(max_examples=effort.count("server's deltas"), deadline=None)
@given(versions=st.lists(lists(), min_size=2, max_size=5))
def test_deltas_and_whole_hashmaps_make_the_same_objects(
    tmp_path_factory: pytest.TempPathFactory, versions: list[BlockList]
) -> None:
    with open_store(tmp_path_factory.mktemp("s"), Clock()) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"), letter("b"), letter("c"))
        for name in ("whole", "delta"):
            put_ids(store, at(name), list(versions[0]))
        serial = store.open_object(ReadOrder(place=at("delta"))).state.version
        history = [(serial, versions[0])]
        for old, new in itertools.pairwise(versions):
            made = put_delta(store, at("delta"), history[-1][0], delta_between(old, new, new.object_hash))
            whole = put_ids(store, at("whole"), list(new))
            assert (made.object_hash, made.size_bytes) == (whole.object_hash, whole.size_bytes)
            assert block_list(store, at("delta")) == new
            history.append((made.version, new))
        for version, old in history:
            found = since(store, at("delta"), version)
            assert found is not None
            assert apply_delta(old, found) == versions[-1]
            assert len(found) == len(delta_between(old, versions[-1])) or len(old) < len(versions[-1])


def test_only_the_current_version_can_be_spliced(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"))
        first = put_ids(store, at("f"), [IDS[1]] * 3)
        second = put_ids(store, at("f"), [IDS[1]] * 2)
        other = put_ids(store, at("other"), [IDS[1]])
        nothing = Delta(size_bytes=BLOCK, splices=())
        for base in (first.version, second.version + 1, other.version, 0, (1 << 63) - 1):
            with pytest.raises(PreconditionFailed):
                put_delta(store, at("f"), base, nothing)
        with pytest.raises(PreconditionFailed):
            put_delta(store, at("f"), second.version, nothing, Conditions(if_version=first.version))
        with pytest.raises(PreconditionFailed):
            put_delta(store, at("nothing"), 0, nothing)
        assert put_delta(store, at("f"), second.version, nothing, Conditions(if_version=second.version)).meta == {
            "k": "v"
        }


def test_a_result_that_is_not_the_expected_one_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"), letter("b"))
        made = put_ids(store, at("f"), [IDS[1]] * 3)
        wrong = Delta(size_bytes=3 * BLOCK, splices=((1, IDS[2]),), object_hash=ObjectHash(b"x" * ID_SIZE))
        with pytest.raises(Unprocessable):
            put_delta(store, at("f"), made.version, wrong)
        assert store.open_object(ReadOrder(place=at("f"))).state.version == made.version


def test_splices_prove_possession_like_hashmaps(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        for account in ("alice", "bob"):
            store.create_container(account, "c")
            upload(store, account, letter("a"))
        secret = upload(store, "bob", letter("s"))[0]
        never: BlockId = block_id(b"never")
        made = put_ids(store, at("f"), [IDS[1]] * 300)
        for stolen in (secret, never):
            with pytest.raises(MissingBlocks) as missing:
                put_delta(store, at("f"), made.version, Delta(size_bytes=300 * BLOCK, splices=((299, stolen),)))
            assert missing.value.ids == [stolen]
        upload(store, "alice", letter("s"))
        put_delta(store, at("f"), made.version, Delta(size_bytes=300 * BLOCK, splices=((299, secret),)))


def test_a_size_that_cuts_the_last_block_short_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"))
        made = put_ids(store, at("f"), [IDS[1]] * 3)
        with pytest.raises(BadRequest):
            put_delta(store, at("f"), made.version, Delta(size_bytes=3 * BLOCK - 1, splices=()))
        with pytest.raises(BadRequest):
            put_delta(store, at("f"), made.version, Delta(size_bytes=BLOCK + 1, splices=()))
        put_delta(store, at("f"), made.version, Delta(size_bytes=BLOCK, splices=()))


def test_what_changed_is_told_across_moves_but_not_between_objects(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"), letter("b"))
        first = put_ids(store, at("f"), [IDS[1]] * 3)
        other = put_ids(store, at("other"), [IDS[1]] * 3)
        moved = store.transfer(Transfer(source=at("f"), destination=at("g"), moves=True))
        put_delta(store, at("g"), moved.version, Delta(size_bytes=3 * BLOCK, splices=((1, IDS[2]),)))
        assert since(store, at("g"), first.version) == Delta(size_bytes=3 * BLOCK, splices=((1, IDS[2]),))
        assert since(store, at("g"), other.version) is None
        assert since(store, at("g"), moved.version - 1) is None  # the deletion at the old name
        assert since(store, at("g"), 10**18) is None


def test_leaves_that_only_a_delta_kept_survive_the_collection(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock) as store:
        store.create_container("alice", "c")
        upload(store, "alice", letter("a"), letter("b"))
        made = put_ids(store, at("f"), [IDS[1]] * 600)
        put_delta(store, at("f"), made.version, Delta(size_bytes=600 * BLOCK, splices=((0, IDS[2]),)))
        clock.now_us += 48 * HOUR_US
        store.collect_garbage()
        expected = [IDS[2], *[IDS[1]] * 599]
        assert list(block_list(store, at("f"))) == expected
        assert list(block_list(store, at("f"), made.version)) == [IDS[1]] * 600


def test_a_few_bytes_about_very_many_leaves_let_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when 2^24 holes, told in no bytes, are looked at in one piece: 0.3 s of processor time."""
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    holes = Delta(size_bytes=BLOCK << 24, splices=())
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        order = WriteOrder(place=at("f"), content_type="t/t", meta={})
        base = store.put_block_list(order, holes, None)
        assert base.size_bytes == BLOCK << 24
        assert len(pauses) >= 64
        pauses.clear()
        grown = put_delta(store, at("f"), base.version, Delta(size_bytes=1, splices=()))
        assert not pauses
        assert put_delta(store, at("f"), grown.version, holes).object_hash == base.object_hash
        assert len(pauses) >= 64
