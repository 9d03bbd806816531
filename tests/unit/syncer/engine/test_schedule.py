from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from syncer.core.model import (
    ROOT,
    Action,
    Create,
    Kind,
    Meta,
    Mkdir,
    Move,
    Nid,
    RelPath,
    SetMeta,
    Side,
    Trash,
    Update,
)
from syncer.engine.schedule import dependencies, is_barrier, run_waves, runs, waves

NO_META = Meta()


def mkdir(nid: int, parent: int = 0) -> Mkdir:
    return Mkdir(side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"d"), parent=Nid(parent), name=b"d", meta=NO_META)


def create(nid: int, parent: int = 0) -> Create:
    return Create(
        side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"f"), parent=Nid(parent), name=b"f", kind=Kind.FILE, content=None,
        target=None, meta=NO_META,
    )  # fmt: skip


def update(nid: int, after: int | None = None) -> Update:
    return Update(
        side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"f"), kind=Kind.FILE, content=None, target=None, meta=NO_META,
        after=None if after is None else Nid(after),
    )  # fmt: skip


def move(nid: int) -> Move:
    return Move(side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"m"), parent=ROOT, name=b"m")


def trash(nid: int, kind: Kind = Kind.FILE) -> Trash:
    return Trash(side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"t"), kind=kind)


def set_meta(nid: int) -> SetMeta:
    return SetMeta(side=Side.LOCAL, nid=Nid(nid), path=RelPath(b"s"), meta=NO_META)


def kind_of(nid: Nid) -> Kind:
    """Even numbers are directories."""
    return Kind.DIRECTORY if nid % 2 == 0 else Kind.FILE


one_action = st.one_of(
    st.builds(mkdir, st.sampled_from([2, 4, 6]), st.sampled_from([0, 2, 4])),
    st.builds(create, st.sampled_from([1, 3, 5, 7]), st.sampled_from([0, 2, 4, 6])),
    st.builds(update, st.sampled_from([1, 3, 5]), st.sampled_from([None, 3, 7])),
    st.builds(move, st.integers(1, 7)),
    st.builds(trash, st.integers(1, 7), st.sampled_from([Kind.FILE, Kind.DIRECTORY])),
    st.builds(set_meta, st.integers(1, 7)),
)


@given(st.lists(one_action, max_size=20))
def test_runs_keep_all_actions_in_order(actions: list[Action]) -> None:
    cut = list(runs(actions, kind_of))
    assert [action for run in cut for action in run] == actions
    assert all(len(run) == 1 or not any(is_barrier(action, kind_of) for action in run) for run in cut)


def test_an_update_waits_for_its_conflict_copy() -> None:
    assert dependencies([create(3), create(5), update(1, after=3)]) == [[], [], [0]]


def test_an_error_ends_the_run_as_itself() -> None:
    async def perform(wave: Sequence[Action]) -> None:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        trio.run(run_waves, [create(1), create(3), create(5)], kind_of, perform)


@given(st.lists(one_action, max_size=20), st.lists(st.integers(0, 7), max_size=6), st.data())
def test_a_wave_needs_only_what_earlier_ones_did(others: list[Action], tree: list[int], data: st.DataObject) -> None:
    folders: list[Action] = []
    for number, above in enumerate(tree):
        parent = folders[above % len(folders)] if folders and above else None
        folders.append(mkdir(100 + 2 * number, ROOT if parent is None else parent.nid))
    files = [
        create(201 + 2 * number, data.draw(st.sampled_from([0, *(each.nid for each in folders)])))
        for number in range(data.draw(st.integers(0, 8)))
    ]
    actions = [*folders, *files, *others]
    order = {id(action): number for number, action in enumerate(actions)}
    ended: list[int] = []

    async def perform(wave: Sequence[Action]) -> None:
        for action in wave:
            for earlier in actions[: order[id(action)]]:
                parent = action.parent if isinstance(action, Create | Mkdir) else None
                copy = action.after if isinstance(action, Update) else None
                needed = earlier.nid in (action.nid, parent, copy)
                needed = needed or is_barrier(earlier, kind_of) or is_barrier(action, kind_of)
                assert not needed or order[id(earlier)] in ended
        ended.extend(order[id(action)] for action in wave)

    trio.run(run_waves, actions, kind_of, perform)
    assert sorted(ended) == list(range(len(actions)))


def test_files_are_not_spread_over_the_levels_of_their_directories() -> None:
    """A wave ends with its slowest action: files wait for all directories, and then for nothing."""
    top, file, below, deep = mkdir(2), create(1, 2), mkdir(4, 2), create(3, 4)
    assert list(waves([top, file, below, deep])) == [[top], [below], [file, deep]]


def test_a_new_file_waits_for_what_has_its_name() -> None:
    assert dependencies([replace(trash(1), path=RelPath(b"f")), create(3)]) == [[], [0]]


def test_what_is_absorbed_goes_after_what_stands_for_it() -> None:
    absorbed = replace(trash(1), absorbed_by=Nid(3))
    assert list(waves([create(3), absorbed])) == [[create(3)], [absorbed]]


def test_a_directory_waits_for_the_object_that_has_its_name() -> None:
    gone = replace(trash(1), path=RelPath(b"d"))
    assert list(waves([gone, mkdir(2), create(3, 2)])) == [[gone], [mkdir(2)], [create(3, 2)]]
