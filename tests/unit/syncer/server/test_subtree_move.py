"""A subtree that moves as one: the rows that moving one by one would leave, told as one change."""

from __future__ import annotations

import contextlib
import uuid as uuids
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.core.subtrees import Guard, guard_of
from syncer.protocol.extensions.changes import ChangesPage, decode_changes, encode_changes
from syncer.server.catalogue.orders import ChangesOrder, DeleteOrder, Place, Selection, SettingsOrder, TransferOrder
from syncer.server.catalogue.schema import ID
from syncer.server.errors import BadRequest, NotFound, PreconditionFailed
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import Clock, at, open_store, put

LONG = "l" * 490
NAMES = ["t", "t/a", "t/a/b", "t/a-", "t-", f"t/{LONG}", f"t/{LONG}x", "t/ü", "to", "to/a", "o"]
ROOTS = ["t", "to", "o", "t/a", "q"]


def current(store: Store, container: str = "c") -> dict[str, int]:
    _, rows = store.listing("alice", container, Selection())
    return {row.name: row.state.version for row in rows}  # type: ignore[union-attr]


def guard(store: Store, root: str) -> Guard:
    names = [name for name in current(store) if name == root or name.startswith(root + "/")]
    ranked = sorted(names, key=str.encode)
    return guard_of((name[len(root) :].encode(), current(store)[name]) for name in ranked)


def changes(store: Store, since: int, limit: int = 10_000, *, moves: bool = True) -> ChangesPage:
    order = ChangesOrder(since=since, modified_us=None, identity=None, limit=limit, moves=moves)
    return store.changes("alice", "c", order)[1]


def everything(store: Store) -> dict[str, object]:
    """All rows but what is random, and what only a move as one writes."""
    with store._catalogue.reading() as view:
        tables = ("names", "changes", "versions", "containers", "grants", "shared", "meta")
        found: dict[str, object] = {table: list(view.rows(table)) for table in tables}
    return found


steps = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "delete", "share"]), st.sampled_from(NAMES)), max_size=20
)


@settings(max_examples=effort.count("server's moves of trees"), deadline=None)
@given(steps=steps, keeps_history=st.booleans())
def test_it_leaves_what_moving_one_by_one_would(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]], *, keeps_history: bool
) -> None:
    results = []
    for way in ("whole", "single"):
        clock = Clock()
        with pytest.MonkeyPatch.context() as patch, open_store(tmp_path_factory.mktemp("s"), clock) as store:
            numbers = iter(range(1, 10_000))
            patch.setattr(uuids, "uuid4", lambda numbers=numbers: uuids.UUID(int=next(numbers)))
            store.create_container("alice", "c", SettingsOrder(keeps_history=keeps_history))
            for what, name in [("put", "t"), *steps]:
                if what == "put":
                    put(store, at(name), name.encode(), size="1")
                elif name in current(store) and what == "delete":
                    store.delete(DeleteOrder(place=at(name)))
                elif name in current(store):
                    store.shares.share(at(name), ["bob"])
            for name in list(current(store)):
                if name == "to" or name.startswith("to/"):
                    store.delete(DeleteOrder(place=at(name)))
            if "t" not in current(store):
                put(store, at("t"), b"t")
            clock.now_us += 5
            ranked = sorted((name for name in current(store) if name == "t" or name.startswith("t/")), key=str.encode)
            if way == "whole":
                store.move_subtree(at("t"), at("to"), guard(store, "t"))
            else:
                store._commits.run(
                    lambda change, ranked=ranked: [  # type: ignore[misc]
                        _move_one(change, name) for name in ranked
                    ]
                )
            results.append((everything(store), current(store)))
    assert results[0] == results[1]


def _move_one(change: object, name: str) -> None:
    from syncer.server.catalogue import objects  # noqa: PLC0415 - the plain way, for comparison

    objects.move(change, at(name), at("to" + name[1:]), TransferOrder())  # type: ignore[arg-type]


@settings(max_examples=effort.count("server's moves of trees"), deadline=None)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["put", "delete"]), st.sampled_from(NAMES), st.just("")),
            st.tuples(
                st.just("move"), st.sampled_from(["t", "to", "o", "t/a"]), st.sampled_from(["t", "to", "o", "q"])
            ),
        ),
        max_size=15,
    )
)
def test_moves_and_the_rest_on_top_of_an_earlier_state_are_the_present_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]]
) -> None:
    """As a client does: a move that does not fit what it knows makes it ask for all, one by one."""
    with open_store(tmp_path_factory.mktemp("s"), Clock()) as store:
        store.create_container("alice", "c")
        for name in NAMES[:6]:
            put(store, at(name), b"x")
        moments = [(store.container("alice", "c").record.version, current(store))]
        for what, name, other in steps:
            if what == "put":
                put(store, at(name), b"y")
            elif what == "delete" and name in current(store):
                store.delete(DeleteOrder(place=at(name)))
            elif what == "move" and name in current(store):
                with contextlib.suppress(BadRequest, PreconditionFailed):
                    store.move_subtree(at(name), at(other), guard(store, name))
            moments.append((store.container("alice", "c").record.version, current(store)))
        now = current(store)
        for since, then in moments:
            page = decode_changes(encode_changes(changes(store, since)), since)
            known = apply(dict(then), page)
            if known is None:
                known = apply(dict(then), changes(store, since, moves=False))
            assert known == now


def apply(known: dict[str, int], page: ChangesPage) -> dict[str, int] | None:
    for move in page.moves:
        inside = [name for name in known if name == move.source or name.startswith(move.source + "/")]
        ranked = sorted(inside, key=str.encode)
        found = guard_of((name[len(move.source) :].encode(), known[name]) for name in ranked)
        if found != move.guard:
            return None
        for rank, name in enumerate(ranked):
            del known[name]
            known[move.target + name[len(move.source) :]] = move.first + 2 * rank + 1
    for row in page.objects:
        known[row.name] = row.state.version
    for name in page.deleted:
        known.pop(name, None)
    return known


def test_a_page_that_ends_before_a_move_does_not_tell_it(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        put(store, at("t"), b"x")
        since = store.container("alice", "c").record.version
        for name in ("a", "b"):
            put(store, at(name), b"x")
        move = store.move_subtree(at("t"), at("to"), guard(store, "t")).move
        put(store, at("z"), b"x")
        first = changes(store, since, 1)
        assert ([row.name for row in first.objects], list(first.moves), first.more) == (["a"], [], True)
        second = changes(store, first.version, 1)
        assert ([row.name for row in second.objects], list(second.moves), second.more) == (["b"], [], True)
        third = changes(store, second.version, 1)
        assert ([row.name for row in third.objects], list(third.moves), third.more) == (["z"], [move], False)
        inside = changes(store, move.first)  # a cursor of a page that was asked for without moves
        assert (list(inside.moves), [row.name for row in inside.objects]) == ([], ["to", "z"])


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        store.create_container("alice", "d")
        put(store, at("t"), b"x")
        put(store, at("t/a"), b"x")
        seen = guard(store, "t")
        for target in (at("t"), at("t/b"), at("x", "d")):
            with pytest.raises(BadRequest):
                store.move_subtree(at("t"), target, seen)
        with pytest.raises(BadRequest):
            store.move_subtree(at("t/a"), at("t"), guard(store, "t/a"))
        with pytest.raises(PreconditionFailed):
            store.move_subtree(at("none"), at("x"), guard_of([]))
        with pytest.raises(NotFound):
            store.move_subtree(Place(account="alice", container="none", name="t"), at("x", "none"), seen)
        with pytest.raises(BadRequest):
            store.move_subtree(at("t"), at("x" * 1023), seen)
        assert current(store).keys() == {"t", "t/a"}


def test_nothing_of_moves_is_left_of_a_deleted_container(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        put(store, at("t"), b"x")
        store.move_subtree(at("t"), at("to"), guard(store, "t"))
        store.delete(DeleteOrder(place=at("to")))
        store.delete_container("alice", "c")
        store.collect_garbage()
        with store._catalogue.reading() as view:
            assert view.count("moves", "changes", "names") == 0
            assert view.account("alice") == ID.unpack(b"\0\0\0\1")[0]
