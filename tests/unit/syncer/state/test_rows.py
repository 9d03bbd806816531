"""The StateDB's rows say what the same rows in memory say, also of a base that a crash has torn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncer.core.model import BaseRow, Nid
from syncer.core.rows import BaseRows
from syncer.state.statedb import StateDB
from tests import effort
from tests.kit.rows import MemoryRows
from tests.unit.syncer.core.trees import file, folder, local_tag, remote_tag

COUNT = 9
MEMBERS = st.integers(0, COUNT)  # as a parent each of them is possible, also who is not there
NAMES = ("a", "b", "a-", "ab")
LOCALS = [local_tag(number) for number in (1, 2, 3)]
REMOTES = [remote_tag(number, version=version) for number in (1, 2, 3) for version in (1, 2)]


@st.composite
def bases(draw: st.DrawFn) -> dict[Nid, BaseRow]:
    """Two in one slot, of one inode or one object; below what is gone, below files, below themselves."""
    found: dict[Nid, BaseRow] = {}
    for number in draw(st.sets(st.integers(1, COUNT))):
        name, parent, nid = draw(st.sampled_from(NAMES)), draw(MEMBERS), Nid(number)
        node = folder(name, parent=parent) if draw(st.booleans()) else file(name, number, parent=parent)
        local, remote = draw(st.none() | st.sampled_from(LOCALS)), draw(st.none() | st.sampled_from(REMOTES))
        found[nid] = BaseRow(nid=nid, node=node, local=local, remote=remote)
    return found


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StateDB]:
    with StateDB.create(str(tmp_path_factory.mktemp("state") / "one"), map_size_bytes=1 << 24) as made:
        yield made


def told(rows: BaseRows, seen: AbstractSet[Nid]) -> list[object]:
    """All that a reader of rows can ask."""

    def nids(found: Sequence[BaseRow]) -> list[Nid]:
        assert all(row == rows.row(row.nid) for row in found)
        return sorted(row.nid for row in found)

    answers: list[object] = [len(rows), nids(list(rows.others(seen)))]
    answers += [nids(rows.with_inode(tag)) for tag in LOCALS]
    answers += [nids(rows.with_uuid(tag.uuid)) for tag in REMOTES]
    for nid in map(Nid, range(COUNT + 1)):
        row = rows.row(nid)
        answers += [row, None if row is None else rows.path(row), nids(rows.children(nid))]
        if row is not None:
            found = rows.subtree(nid)
            answers.append(sorted(zip(found.rests, found.nids, found.versions, strict=True)))
        for name in map(str.encode, NAMES):
            at = rows.at(nid, name)
            answers.append(nids(at))
            for tag in REMOTES:
                number = rows.agreeing(nid, name, tag)
                assert (number is None) == (tag not in [each.remote for each in at])
                assert number is None or rows.row(number).remote == tag  # type: ignore[union-attr] # it was told
    return answers


@settings(max_examples=effort.count("properties"))
@given(base=bases(), seen=st.sets(MEMBERS.map(Nid)))
def test_the_rows_of_a_state_are_those_of_a_dict(state: StateDB, base: dict[Nid, BaseRow], seen: set[Nid]) -> None:
    state.clear()
    state.record(list(base.values()))
    with state.rows() as rows:
        assert told(rows, seen) == told(MemoryRows(base), seen)


def test_rows_are_those_of_one_moment(state: StateDB) -> None:
    """What is recorded meanwhile is not among them."""
    state.clear()
    first, second = (BaseRow(nid=Nid(nid), node=file("a", nid), local=None, remote=REMOTES[nid]) for nid in (1, 2))
    state.record([first])
    with state.rows() as rows:
        state.record([second])
        assert told(rows, set()) == told(MemoryRows({first.nid: first}), set())
