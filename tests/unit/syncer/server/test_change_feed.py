"""`changes` in the store: complete for every version that a container ever had, whatever happened since."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.protocol.extensions.changes import ChangesPage
from syncer.server.catalogue import change_feed as history
from syncer.server.catalogue.catalogue import Change
from syncer.server.catalogue.orders import ChangesOrder, DeleteOrder, Selection, Transfer
from syncer.server.errors import Gone, NotFound
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import Clock, at, names, open_store, put

NAMES = ["a", "b", "b/c", "d" * 490, "d" * 490 + "e"]


def order(since: int, limit: int = 10_000, **fields: object) -> ChangesOrder:
    known = {"modified_us": None, "identity": None, **fields}
    return ChangesOrder(since=since, limit=limit, **known)  # type: ignore[arg-type]


def changes(store: Store, since: int, limit: int = 10_000) -> ChangesPage:
    return store.changes("alice", "c", order(since, limit))[1]


def state(store: Store) -> dict[str, int]:
    _, rows = store.listing("alice", "c", Selection())
    return {row.name: row.state.version for row in rows}  # type: ignore[union-attr]


steps = st.lists(
    st.tuples(st.sampled_from(["put", "delete", "move"]), st.sampled_from(NAMES), st.sampled_from(NAMES)), max_size=25
)


def step(store: Store, what: str, name: str, other: str) -> None:
    present = names(store)
    if what == "put":
        put(store, at(name), b"x")
    elif what == "delete" and name in present:
        store.delete(DeleteOrder(place=at(name)))
    elif what == "move" and name in present and other != name:
        store.transfer(Transfer(source=at(name), destination=at(other), moves=True))


@settings(max_examples=effort.count("server's changes"), deadline=None)
@given(steps=steps, limit=st.integers(1, 4))
def test_changes_on_top_of_any_earlier_state_are_the_present_one(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, str]], limit: int
) -> None:
    with open_store(tmp_path_factory.mktemp("s"), Clock()) as store:
        store.create_container("alice", "c")
        store.create_container("alice", "other")
        moments = [(0, state(store))]
        for one in steps:
            step(store, *one)
            put(store, at("noise", container="other"), b"y")
            moments.append((store.container("alice", "c").record.version, state(store)))
        now = state(store)
        for version, then in moments:
            known, since, more = dict(then), version, True
            while more:
                page = changes(store, since, limit)
                for row in page.objects:
                    known[row.name] = row.state.version
                for name in page.deleted:
                    known.pop(name, None)
                assert len(page.objects) + len(page.deleted) <= limit
                since, more = page.version, page.more
            assert known == now
            assert page.object_count == len(now)
            record = store.container("alice", "c").record
            assert (page.version, page.modified_us) == (record.version, record.modified_us)


def test_what_can_not_be_told_is_refused(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        first, second = put(store, at("a"), b"1"), put(store, at("a"), b"2")
        good = order(first.version, modified_us=first.modified_us)
        assert [row.name for row in store.changes("alice", "c", good)[1].objects] == ["a"]
        for wrong in (
            order(second.version + 1),
            order(first.version, modified_us=second.modified_us),
            order(second.version, modified_us=first.modified_us),
            order(first.version, identity="00000000-0000-4000-8000-00000000dead"),
            order((1 << 63) - 1),
        ):
            with pytest.raises(Gone):
                store.changes("alice", "c", wrong)
        store.delete(DeleteOrder(place=at("a")))
        store.delete_container("alice", "c")
        with pytest.raises(NotFound):
            store.changes("alice", "c", good)


def test_a_catalogue_of_format_1_is_upgraded(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        for name in NAMES:
            put(store, at(name), b"x")
        store.delete(DeleteOrder(place=at("a")))
        expected = changes(store, 0)

        def downgrade(change: Change) -> None:
            for key, _ in list(change.rows("changes")):
                change.delete("changes", key)
            raw = change.get("meta", b"format")
            assert raw is not None
            change.put("meta", b"format", b"\0\0\0\1" + raw[4:])

        store._commits.run(downgrade)
    with open_store(tmp_path / "s", Clock()) as store:
        assert changes(store, 0) == expected


def test_a_deleted_container_leaves_no_changes_behind(tmp_path: Path) -> None:
    clock = Clock()
    with open_store(tmp_path / "s", clock) as store:
        store.create_container("alice", "c")
        for name in NAMES:
            put(store, at(name), b"x")
        store.empty_container("alice", "c")
        store.delete_container("alice", "c")
        store.collect_garbage()
        with store._catalogue.reading() as view:
            assert view.count("changes", "names", "versions") == 0


def test_a_commit_rings_for_the_containers_that_it_changed(tmp_path: Path) -> None:
    with open_store(tmp_path / "s", Clock()) as store:
        store.create_container("alice", "c")
        store.create_container("alice", "other")
        rung: list[str] = []
        container_id, _ = store.changes("alice", "c", order(0))
        with store.notifier.listening(container_id, lambda: rung.append("c")):
            put(store, at("x", container="other"), b"1")
            assert rung == []
            put(store, at("x"), b"1")
            assert rung == ["c"]
            store.delete(DeleteOrder(place=at("x")))
            store.delete_container("alice", "c")
            assert rung == ["c"] * 3
            store.notifier.close()
            assert rung == ["c"] * 4
        assert not store.notifier._waiting


def test_an_answer_ends_early_where_its_rows_are_long(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_PAGE_BYTES", 2500)  # a row without metadata counts as 1 KiB
    with open_store(tmp_path_factory.mktemp("s"), Clock()) as store:
        store.create_container("alice", "c")
        for number in range(7):
            put(store, at(f"o{number}"), b"x")
        told: list[str] = []
        since, more = 0, True
        while more:
            page = changes(store, since)
            assert len(page.objects) <= 3
            told += [row.name for row in page.objects]
            since, more = page.version, page.more
        assert told == [f"o{number}" for number in range(7)]
        assert changes(store, since).objects == []
