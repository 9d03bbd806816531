"""Garbage collection: what must go, what must stay, and what comes in between look and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.maintenance.gc import CollectionStopped
from syncer.server.catalogue import sweep
from syncer.server.catalogue.orders import (
    DeleteOrder,
    Place,
    PurgeOrder,
    ReadOrder,
    SettingsOrder,
    Transfer,
)
from syncer.server.errors import MissingBlocks
from syncer.server.store.store import Store
from tests.unit.syncer.server.stores import (
    HOUR_US,
    Clock,
    at,
    letter,
    letter_id,
    names,
    open_store,
    put,
    put_ids,
    read,
    stored,
    upload,
)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[Store]:
    with open_store(tmp_path / "store", clock) as opened:
        opened.create_container("alice", "c")
        yield opened


def rows(store: Store, table: str) -> int:
    with store._catalogue.reading() as view:
        return view.count(table)


def test_uploaded_blocks_stay_for_a_day_and_then_go(store: Store, clock: Clock) -> None:
    upload(store, "alice", letter("a"))
    clock.now_us += 23 * HOUR_US
    store.collect_garbage()
    assert stored(store) == {letter_id("a")}
    clock.now_us += 2 * HOUR_US
    assert store.collect_garbage().catalogue.possessions == 1
    assert stored(store) == set()
    with pytest.raises(MissingBlocks):
        put_ids(store, at("f"), [letter_id("a")])


def test_uploading_again_starts_the_day_again(store: Store, clock: Clock) -> None:
    upload(store, "alice", letter("a"))
    clock.now_us += 23 * HOUR_US
    upload(store, "alice", letter("a"))
    clock.now_us += 23 * HOUR_US
    store.collect_garbage()
    put_ids(store, at("f"), [letter_id("a")])
    assert read(store, at("f")) == letter("a")


def test_what_any_version_names_stays_for_ever(store: Store, clock: Clock) -> None:
    old = put(store, at("f"), letter("a"))
    put(store, at("f"), letter("b"))
    store.transfer(Transfer(source=at("f"), destination=at("g"), moves=True))
    store.delete(DeleteOrder(place=at("g")))
    clock.now_us += 1000 * HOUR_US
    store.collect_garbage()
    assert stored(store) == {letter_id("a"), letter_id("b")}
    assert read(store, at("f"), old.version) == letter("a")
    put_ids(store, at("h"), [letter_id("a"), letter_id("b")])  # and the account still possesses them


def test_a_deleted_container_takes_its_history_along(store: Store, clock: Clock) -> None:
    store.create_container("alice", "d")
    keep = put(store, at("f"), letter("k"))
    for number in range(3):
        put(store, at("x" * 900 + str(number), "d"), letter("g"))
        put(store, at("x" * 900 + str(number), "d"), letter("k") + letter("h"))
        store.delete(DeleteOrder(place=at("x" * 900 + str(number), "d")))
    store.delete_container("alice", "d")
    clock.now_us += 25 * HOUR_US
    result = store.collect_garbage()
    assert result.catalogue.versions == 9
    assert stored(store) == {letter_id("k")}
    assert (rows(store, "doomed"), rows(store, "versions"), rows(store, "names")) == (0, 1, 1)
    assert (rows(store, "leaves"), rows(store, "account_leaves"), rows(store, "possessions")) == (1, 1, 1)
    assert read(store, at("f"), keep.version) == letter("k")


def test_a_container_with_a_long_history_goes_in_several_steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "_BATCH", 3)
    for number in range(8):
        put(store, at("f"), b"%d" % number)
        put(store, at(f"g{number}"), b"%d" % number)
        store.delete(DeleteOrder(place=at(f"g{number}")))
    store.delete(DeleteOrder(place=at("f")))
    store.delete_container("alice", "c")
    store.collect_garbage()
    assert [rows(store, table) for table in ("doomed", "versions", "names")] == [0, 0, 0]


def test_large_objects_lose_only_the_leaves_that_nothing_names(store: Store, clock: Clock) -> None:
    store.create_container("alice", "d")
    ids = upload(store, "alice", *(letter(character) for character in "ab"))
    base = [ids[0]] * (3 * LEAF_IDS)
    put_ids(store, at("f"), base)
    put_ids(store, at("f", "d"), [*base[:-1], ids[1]])
    assert (rows(store, "leaves"), rows(store, "contents")) == (2, 2)
    store.delete(DeleteOrder(place=at("f", "d")))
    store.delete_container("alice", "d")
    clock.now_us += 25 * HOUR_US
    store.collect_garbage()
    assert (rows(store, "leaves"), rows(store, "contents")) == (1, 1)
    assert stored(store) == {ids[0]}
    assert read(store, at("f")) == letter("a") * (3 * LEAF_IDS)


@pytest.mark.parametrize("step", range(8))
def test_a_version_made_during_a_sweep_keeps_its_blocks(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """A put between any two transactions of the sweep names again what was dead when the sweep looked.

    Breaks when the sweep deletes by an old look: a durable version without its blocks.
    """
    store.create_container("alice", "d")
    monkeypatch.setattr(sweep, "_BATCH", 1)
    put(store, at("f", "d"), letter("a") + letter("b"))
    store.delete(DeleteOrder(place=at("f", "d")))
    store.delete_container("alice", "d")
    clock.now_us += 25 * HOUR_US
    turns = count()
    run = store._commits.run
    done: list[bool] = []

    def interrupted(act: object) -> object:
        if next(turns) == step:
            try:
                put_ids(store, at("f"), [letter_id("a"), letter_id("b")])
                done.append(True)
            except MissingBlocks:
                done.append(False)
        return run(act)  # type: ignore[arg-type]  # passes it on

    monkeypatch.setattr(store._commits, "run", interrupted)
    store.collect_garbage()
    monkeypatch.setattr(store._commits, "run", run)
    if done == [True]:
        assert read(store, at("f")) == letter("a") + letter("b")
        store.collect_garbage()
        assert read(store, at("f")) == letter("a") + letter("b")
    else:
        assert names(store) == []
        assert stored(store) == set()


def test_a_put_of_swept_blocks_during_the_collection_keeps_them(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the catalogue's sweep and the deletion of blocks an upload brings one of them back."""
    upload(store, "alice", letter("a"))
    clock.now_us += 25 * HOUR_US
    live_blocks = sweep.live_blocks

    def late(*arguments: object) -> Iterator[bytes]:
        roots = list(live_blocks(*arguments))  # type: ignore[arg-type]  # passes it on
        put(store, at("f"), letter("a"))
        return iter(roots)

    monkeypatch.setattr(sweep, "live_blocks", late)
    store.collect_garbage()
    assert read(store, at("f")) == letter("a")
    monkeypatch.setattr(sweep, "live_blocks", live_blocks)
    store.collect_garbage()
    assert read(store, at("f")) == letter("a")


def test_a_collection_can_be_stopped(store: Store, clock: Clock) -> None:
    upload(store, "alice", letter("a"))
    clock.now_us += 25 * HOUR_US
    with closing(store.receive()) as incoming:  # a holder that the collection waits for
        incoming.feed([letter("b")])
        with pytest.raises(CollectionStopped):
            store.collect_garbage(stop=lambda: True)
    store.collect_garbage()
    assert stored(store) == set()


def test_nothing_is_removed_from_a_store_that_needs_it_all(store: Store, clock: Clock) -> None:
    for character in "abc":
        put(store, at(character), letter(character))
    clock.now_us += 25 * HOUR_US
    assert store.collect_garbage().catalogue == sweep.SweepResult(versions=0, leaves=0, possessions=0)
    assert store.collect_garbage().blocks.blocks_removed == 0


def test_what_is_purged_or_not_kept_gives_its_blocks_back(store: Store, clock: Clock) -> None:
    """Breaks when a version is forgotten that another one still needs, or when forgotten blocks stay for ever."""
    put(store, at("f"), letter("a") + letter("b"))
    put(store, at("f"), letter("a") + letter("c"))
    put(store, at("gone"), letter("d"))
    store.delete(DeleteOrder(place=at("gone")))
    clock.now_us += 25 * HOUR_US
    store.collect_garbage()
    assert stored(store) == {letter_id(one) for one in "abcd"}
    store.purge(PurgeOrder(place=Place(account="alice", container="c", name=""), until_us=clock.now_us))
    store.collect_garbage()
    assert stored(store) == {letter_id(one) for one in "ac"}
    assert read(store, at("f")) == letter("a") + letter("c")
    store.set_container("alice", "c", SettingsOrder(keeps_history=False))
    put(store, at("f"), letter("e"))
    clock.now_us += 25 * HOUR_US
    store.collect_garbage()
    assert stored(store) == {letter_id("e")}
    assert read(store, at("f")) == letter("e")
    assert rows(store, "versions") == 2  # the object, and that "gone" was deleted


def test_what_was_read_of_others_stays_ones_own_for_a_day(store: Store, clock: Clock) -> None:
    """Breaks when possession by reading outlives its blocks, or ends before a hashmap can follow."""
    put(store, at("f"), letter("a"))
    store.create_container("bob", "c")
    store.shares.share(at("f"), ["bob"])
    opened = store.open_object(ReadOrder(place=at("f")))
    clock.now_us += 30 * HOUR_US
    store.shares.possess("bob", opened.state, store.leaf_keys(opened))
    store.delete(DeleteOrder(place=at("f")))
    store.delete_container("alice", "c")
    store.collect_garbage()
    assert stored(store) == {letter_id("a")}
    clock.now_us += 25 * HOUR_US
    store.collect_garbage()
    assert stored(store) == set()
    with pytest.raises(MissingBlocks):
        put_ids(store, at("mine", account="bob"), [letter_id("a")])


def test_a_copy_from_another_account_needs_nothing_of_it_later(store: Store, clock: Clock) -> None:
    data = b"".join(letter(one) for one in "abc")
    put(store, at("f"), data)
    store.create_container("bob", "c")
    store.shares.share(at("f"), ["bob"])
    store.transfer(Transfer(source=at("f"), destination=at("mine", account="bob"), moves=False))
    store.delete(DeleteOrder(place=at("f")))
    store.delete_container("alice", "c")
    clock.now_us += 25 * HOUR_US
    store.collect_garbage()
    assert read(store, at("mine", account="bob")) == data
    put_ids(store, at("again", account="bob"), [letter_id("b")])
    assert rows(store, "grants") == rows(store, "shared") == 0
