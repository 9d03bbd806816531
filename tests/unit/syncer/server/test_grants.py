"""Grants against a model: who may read what, after any sequence of sharing, moving and deleting."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.server.catalogue.orders import DeleteOrder, Transfer, WriteOrder
from syncer.server.errors import BadRequest, Forbidden, NotFound
from syncer.server.store.store import Store
from tests import effort
from tests.unit.syncer.server.stores import Clock, at, open_store

NAMES = ("d", "d/a", "d/e", "d/e/b", "f")
READERS = ("bob", "carol", "*")
DIRECTORY = "application/directory"

steps = st.one_of(
    st.tuples(st.just("put"), st.sampled_from(NAMES), st.booleans()),
    st.tuples(st.just("share"), st.sampled_from(NAMES), st.sets(st.sampled_from(READERS))),
    st.tuples(st.just("delete"), st.sampled_from(NAMES)),
    st.tuples(st.just("move"), st.sampled_from(NAMES), st.sampled_from(NAMES)),
)


def write(store: Store, name: str, content_type: str) -> None:
    with closing(store.receive()) as incoming:
        store.put_content(WriteOrder(place=at(name), content_type=content_type, meta={}), incoming)


def above(name: str) -> list[str]:
    return [other for other in NAMES if name.startswith(f"{other}/")]


def readable(store: Store, reader: str, name: str) -> bool:
    try:
        store.shares.require_readable(reader, at(name), None)
    except Forbidden:
        return False
    return True


@settings(max_examples=effort.count("server's grants"), deadline=None)
@given(st.lists(steps, max_size=14))
def test_a_grant_belongs_to_a_name_that_exists(
    tmp_path_factory: pytest.TempPathFactory, sequence: list[tuple[object, ...]]
) -> None:
    types: dict[str, str] = {}
    shared: dict[str, set[str]] = {}
    path: Path = tmp_path_factory.mktemp("grants") / "s"
    with open_store(path, Clock()) as store:
        store.create_container("alice", "c")
        for step in sequence:
            name = str(step[1])
            match step[0]:
                case "put":
                    types[name] = DIRECTORY if step[2] else "t/t"
                    write(store, name, types[name])
                case "share":
                    readers = step[2]
                    assert isinstance(readers, set)
                    if name in types:
                        store.shares.share(at(name), sorted(readers))
                        shared[name] = readers
                    else:
                        with pytest.raises(NotFound):
                            store.shares.share(at(name), sorted(readers))
                case "delete" if name in types:
                    store.delete(DeleteOrder(place=at(name)))
                    del types[name]
                    shared.pop(name, None)
                case "move" if name in types:
                    to = str(step[2])
                    if to == name:
                        with pytest.raises(BadRequest):
                            store.transfer(Transfer(source=at(name), destination=at(to), moves=True))
                        continue
                    store.transfer(Transfer(source=at(name), destination=at(to), moves=True))
                    types[to] = types.pop(name)
                    shared.pop(name, None)
        for name in types:
            directories = [one for one in above(name) if types.get(one) == DIRECTORY]
            holds = set().union(*(shared.get(one, set()) for one in (name, *directories)))
            for reader in ("bob", "carol"):
                assert readable(store, reader, name) == bool(holds & {reader, "*"}), (name, reader)
        with store._catalogue.reading() as view:
            assert view.count("grants") == sum(1 for readers in shared.values() if readers)
            assert view.count("shared") == sum(map(len, shared.values()))
