"""The difference of a listing is the same, whatever the pages and their order."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import Kind, Meta, Nid, RelPath, RemoteStat
from syncer.core.partial.affected import UnboundedError
from syncer.core.partial.listing_diff import Known, ListingDiff, Numbers
from tests.kit.rows import MemoryRows
from tests.unit.syncer.core.trees import deep_tree, wide_tree

ROWS = wide_tree(folders=4, files=3)
BASE = BaseIndex(ROWS.values())
PATHS = sorted(BASE.by_path)
STRANGE = [RelPath(b"d0/new"), RelPath(b"new/below"), RelPath(b"top"), RelPath(b"d1/f0/below a file")]


def known(path: RelPath) -> RemoteStat:
    row = ROWS[BASE.by_path[path][0]]
    assert row.remote is not None
    return RemoteStat(path=path, kind=row.node.kind, meta=None, tag=row.remote)


def strange(path: RelPath, version: int) -> RemoteStat:
    some = known(PATHS[0])
    tag = replace(some.tag, version=version, uuid="elsewhere")
    return RemoteStat(path=path, kind=Kind.FILE, meta=Meta(), tag=tag)


@given(
    st.sets(st.sampled_from(PATHS)),
    st.sets(st.sampled_from(PATHS)),
    st.sets(st.sampled_from(STRANGE)),
    st.randoms(use_true_random=False),
    st.integers(1, 9),
)
def test_what_differs_comes_through_and_what_is_gone_is_named(
    gone: set[RelPath], edited: set[RelPath], new: set[RelPath], rng: object, step: int
) -> None:
    listing = [known(path) for path in PATHS if path not in gone | edited]
    differing = [strange(path, 7) for path in (edited - gone) | new]
    both = listing + differing
    rng.shuffle(both)  # type: ignore[attr-defined] # a random.Random
    diff = ListingDiff(Known(rows=lambda: nullcontext(MemoryRows(ROWS))))
    found = [stat for at in range(0, len(both), step) for stat in diff.differing(both[at : at + step])]
    assert sorted(found, key=lambda stat: stat.path) == sorted(differing, key=lambda stat: stat.path)
    assert set(diff.missing()) == gone


def test_a_torn_base_has_no_difference() -> None:
    nid = BASE.by_path[RelPath(b"d0")][0]
    twin = replace(ROWS[nid], nid=Nid(5000))
    diff = ListingDiff(Known(rows=lambda: nullcontext(MemoryRows({**ROWS, twin.nid: twin}))))
    with pytest.raises(UnboundedError):
        diff.differing([known(RelPath(b"d0/f0"))])
    lost = replace(ROWS[nid], nid=Nid(5001), node=replace(ROWS[nid].node, parent=Nid(1)))
    with pytest.raises(UnboundedError):
        ListingDiff(Known(rows=lambda: nullcontext(MemoryRows({lost.nid: lost})))).missing()


def test_a_path_of_any_depth_is_told_apart() -> None:
    rows, path = deep_tree(1100)
    new = strange(RelPath(path + b"/new"), 7)
    row = rows[Nid(1100)]
    assert row.remote is not None
    last = RemoteStat(path=path, kind=Kind.DIRECTORY, meta=None, tag=row.remote)
    diff = ListingDiff(Known(rows=lambda: nullcontext(MemoryRows(rows))))
    assert diff.differing([new, last]) == [new]


@given(st.lists(st.integers(0, 5000)), st.sets(st.integers(0, 6000)))
def test_numbers_are_a_set(added: list[int], asked: set[int]) -> None:
    numbers = Numbers()
    for number in added:
        numbers.add(number)
    assert {number for number in asked if number in numbers} == asked & set(added)
