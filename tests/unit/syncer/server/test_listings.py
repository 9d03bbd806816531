"""Listings by delimiter, against the plain definition; and what is done to a name with all below it."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.protocol.pithos.listing import SubdirectoryRow
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.listings import Heavy, weight
from syncer.server.catalogue.orders import DeleteOrder, ReadOrder, Selection, Transfer, TransferOrder
from syncer.server.errors import BadRequest, NotFound, PreconditionFailed, TooLarge
from syncer.server.store import delimiter_ops
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import MEMORY, Clock, at, names, open_store, put, read

NAMES = ["a", "a-b", "a/1", "a/2/x", "a/2/y", "b/é/z", "c", "long/" + "x" * 600, "long/" + "x" * 600 + "/y", "é/1"]
segments = st.sampled_from(["", "a", "a/", "a/2", "b", "b/", "c", "long/", "x", "é"])


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, open_store(Path(folder) / "s", Clock()) as made:
        made.create_container("alice", "c")
        made.create_container("alice", "d")
        for name in [*NAMES, "a/gone", "gone/1"]:
            put(made, at(name), name.encode())
        for name in ("a/gone", "gone/1"):
            made.delete(DeleteOrder(place=at(name)))
        yield made


def expected(wanted: Selection) -> list[tuple[str, bool]]:
    """Every name, grouped the obvious way."""
    rows: dict[str, bool] = {}
    for name in NAMES:
        if name.startswith(wanted.prefix) and name.encode() > wanted.marker.encode():
            rest = name[len(wanted.prefix) :]
            first, found, more = rest.partition(wanted.delimiter) if wanted.delimiter else (rest, "", "")
            if found and more:
                rows[wanted.prefix + first + found] = True
            else:
                rows[name] = False
    ordered = sorted(rows.items(), key=lambda row: row[0].encode())
    return [
        (name, grouped) for name, grouped in ordered if not (grouped and (wanted.hides_groups or name == wanted.marker))
    ][: wanted.limit]


@settings(max_examples=effort.count("server's listings"), deadline=None)
@given(
    st.builds(
        Selection,
        marker=st.sampled_from(["", "a", "a/", "a/1", "a/2/", "b", "long/", "z"]),
        prefix=segments,
        delimiter=st.sampled_from(["", "/", "/", "-", "é/"]),
        hides_groups=st.booleans(),
        limit=st.sampled_from([1, 2, 3, 100]),
    )
)
def test_a_listing_groups_names_at_the_first_delimiter(store: Store, wanted: Selection) -> None:
    _, rows = store.listing("alice", "c", wanted)
    assert [(row.name, isinstance(row, SubdirectoryRow)) for row in rows] == expected(wanted)


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "s", Clock()) as made:
        made.create_container("alice", "c")
        made.create_container("alice", "d")
        for name in ("t", "t/1", "t/2/x", "tt", "u"):
            put(made, at(name), name.encode(), k="v")
        yield made


def test_a_name_is_deleted_with_all_below_it_and_nothing_beside_it(tree: Store) -> None:
    tree.delete(DeleteOrder(place=at("t"), delimiter="/"))
    assert names(tree) == ["tt", "u"]
    with pytest.raises(NotFound):
        tree.delete(DeleteOrder(place=at("t"), delimiter="/"))
    assert tree.container("alice", "c").record.object_count == 2


def test_what_is_below_may_lack_its_head(tree: Store) -> None:
    tree.delete(DeleteOrder(place=at("t")))
    tree.transfer(Transfer(source=at("t"), destination=at("v"), moves=True, delimiter="/"))
    assert names(tree) == ["tt", "u", "v/1", "v/2/x"]
    tree.delete(DeleteOrder(place=at("v"), delimiter="/"))
    assert names(tree) == ["tt", "u"]


def test_a_tree_moves_and_copies_to_another_container(tree: Store) -> None:
    tree.transfer(
        Transfer(
            source=at("t"),
            destination=at("w", "d"),
            order=TransferOrder(meta={"new": "1"}),
            moves=False,
            delimiter="/",
        )
    )
    assert names(tree, "d") == ["w", "w/1", "w/2/x"]
    assert names(tree) == ["t", "t/1", "t/2/x", "tt", "u"]
    assert read(tree, at("w/2/x", "d")) == b"t/2/x"
    head = tree.open_object(ReadOrder(place=at("w", "d"))).state
    below = tree.open_object(ReadOrder(place=at("w/1", "d"))).state
    assert (head.meta, below.meta) == ({"k": "v", "new": "1"}, {"k": "v"})
    tree.transfer(Transfer(source=at("t"), destination=at("x", "d"), moves=True, delimiter="/"))
    assert names(tree) == ["tt", "u"]
    assert names(tree, "d") == ["w", "w/1", "w/2/x", "x", "x/1", "x/2/x"]


def test_a_refused_tree_leaves_everything_as_it_was(tree: Store) -> None:
    before = names(tree)
    with pytest.raises(BadRequest):
        tree.transfer(Transfer(source=at("t"), destination=at("t/1/y"), moves=True, delimiter="/"))
    with pytest.raises(BadRequest):
        tree.transfer(Transfer(source=at("t"), destination=at("x" * 1022), moves=False, delimiter="/"))
    with pytest.raises(PreconditionFailed):
        tree.delete(DeleteOrder(place=at("t"), conditions=Conditions(if_version=1_000), delimiter="/"))
    with pytest.raises(PreconditionFailed):
        tree.transfer(
            Transfer(
                source=at("t"),
                destination=at("v"),
                order=TransferOrder(destination=Conditions(if_version=7)),
                moves=True,
                delimiter="/",
            )
        )
    with pytest.raises(NotFound):
        tree.transfer(Transfer(source=at("none"), destination=at("v"), moves=False, delimiter="/"))
    assert names(tree) == before


def test_a_container_is_emptied_and_stays(tree: Store) -> None:
    tree.empty_container("alice", "c")
    assert names(tree) == []
    assert read(tree, at("u"), version=tree.history(at("u"))[0].version) == b"u"


def test_rows_that_need_more_memory_than_was_said_are_refused_before_they_are_all_there(store: Store) -> None:
    """Metadata may have tens of KiB a row: 10,000 of them were 500 MB that nobody had asked for."""
    _, rows = store.listing("alice", "c", Selection())
    needed = sum(weight(row.state) for row in rows if not isinstance(row, SubdirectoryRow))
    assert store.listing("alice", "c", Selection(), most_bytes=needed)[1] == rows
    with pytest.raises(Heavy):
        store.listing("alice", "c", Selection(), most_bytes=needed - 1)


def test_rows_that_are_listed_backwards_are_refused_as_early_and_only_those_that_are_told_count(store: Store) -> None:
    """Breaks when a listing that goes back holds all its rows before it looks how much they take."""
    looked: list[str] = []
    wanted = Selection(is_reverse=True, visible=lambda name: looked.append(name) is None)
    with pytest.raises(Heavy):
        store.listing("alice", "c", wanted, most_bytes=3 * 1024)
    assert len(looked) == 4
    _, rows = store.listing("alice", "c", Selection(is_reverse=True, limit=3), most_bytes=3 * 1024)
    assert [row.name for row in rows] == sorted(NAMES, key=str.encode)[:-4:-1]


def test_names_that_take_much_room_in_the_reply_count(store: Store) -> None:
    needed = len(NAMES) * 1024 + sum(map(len, NAMES))
    _, rows = store.listing("alice", "c", Selection(name_bytes=len), most_bytes=needed)
    assert len(rows) == len(NAMES)
    with pytest.raises(Heavy):
        store.listing("alice", "c", Selection(name_bytes=len), most_bytes=needed - 1)


def test_a_row_weighs_what_its_metadata_do(store: Store) -> None:
    put(store, at("light", container="d"), b"x")
    put(store, at("heavy", container="d"), b"x", **{f"key-{number}": "v" * 256 for number in range(32)})
    _, rows = store.listing("alice", "d", Selection())
    heavy, light = (weight(row.state) for row in rows if not isinstance(row, SubdirectoryRow))
    assert (light, heavy > 32 * 3 * 256) == (1024, True)


@pytest.mark.parametrize("moves", [False, True])
def test_a_tree_beyond_the_bound_is_neither_moved_nor_copied(
    tree: Store, monkeypatch: pytest.MonkeyPatch, *, moves: bool
) -> None:
    """Breaks when one account's tree of any size is one transaction: 32,768 objects held others up for 9.5 s."""
    order = Transfer(source=at("t"), destination=at("v"), moves=moves, delimiter="/")
    monkeypatch.setattr(delimiter_ops, "MAX_OBJECTS", 1)
    with pytest.raises(TooLarge, match="in parts"):
        tree.transfer(order)
    assert names(tree) == ["t", "t/1", "t/2/x", "tt", "u"]
    monkeypatch.setattr(delimiter_ops, "MAX_OBJECTS", 2)
    tree.transfer(order)
    assert [name for name in names(tree) if name.startswith("v")] == ["v", "v/1", "v/2/x"]
    tree.delete(DeleteOrder(place=at("v"), delimiter="/"))  # has no bound


@pytest.mark.parametrize("moves", [False, True])
def test_a_tree_is_not_in_memory_as_a_whole(tree: Store, *, moves: bool) -> None:
    """Breaks when what is at both places of every object is looked at before the first is moved: 50 KB each."""
    meta = {f"k{number:0127}": "v" * 256 for number in range(32)}
    for number in range(32):
        put(tree, at(f"0/{number}"), b"", **meta)
    for level in range(4):
        for half in "ab":
            tree.transfer(
                Transfer(source=at(str(level)), destination=at(f"{level + 1}/{half}"), moves=False, delimiter="/")
            )
    tracemalloc.start()
    try:
        tree.transfer(Transfer(source=at("4"), destination=at("v"), moves=moves, delimiter="/"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len([name for name in names(tree) if name.startswith("v/")]) == 512
    assert peak < 2 << 20
