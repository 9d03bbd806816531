"""The index of a share's blocks: what it answers is what the base's rows name, whatever happened before."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import lmdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.core.model import BaseRow, Content, Kind, Nid, Node
from syncer.core.planner.outcome import Forgotten
from syncer.errors import FormatTooNewError, NotFoundError
from syncer.state.schema import encode_row
from syncer.state.shareindex import IdIndex, follow
from syncer.state.sharewriter import RUN_IDS
from syncer.state.statedb import StateDB
from tests import effort
from tests.unit.syncer.core.trees import local_tag, remote_tag

BLOCK = 4096
GOLDEN = Path(__file__).parents[3] / "golden" / "share-index-1.tar.xz"
Lists = dict[Content, BlockList]


def identity(number: int) -> BlockId:
    return BlockId(hashlib.sha256(b"%d" % number).digest())


def blocks_of(numbers: Sequence[int]) -> BlockList:
    """A list of full blocks; 0 is a hole."""
    ids = b"".join(ZERO_BLOCK if number == 0 else identity(number) for number in numbers)
    return BlockList(block_size=BLOCK, size_bytes=len(numbers) * BLOCK, ids=ids)


class Share:
    """A state, its index, and the block lists of its contents."""

    def __init__(self, folder: Path) -> None:
        self.lists: Lists = {}
        self.asked: list[Nid] = []
        self.state = StateDB.create(str(folder / "state"), map_size_bytes=1 << 24)
        self.folder = str(folder / "state" / "share-index")
        self.index = IdIndex.make(self.folder)

    def close(self) -> None:
        self.index.close()
        self.state.close()

    def row(self, nid: int, numbers: Sequence[int], *, pushed: bool = True) -> BaseRow:
        blocks = blocks_of(numbers)
        content = Content(size_bytes=blocks.size_bytes, object_hash=blocks.object_hash)
        self.lists[content] = blocks
        node = Node(parent=Nid(0), name=b"%d" % nid, kind=Kind.FILE, content=content)
        return BaseRow(nid=Nid(nid), node=node, local=local_tag(nid), remote=remote_tag(nid) if pushed else None)

    def list_of(self, nid: Nid, content: Content) -> BlockList | None:
        self.asked.append(nid)
        return self.lists.get(content)

    def follow(self, changed: Sequence[int] | None = None, steps: int | None = None) -> None:
        """All of it, or so many steps."""
        nids = None if changed is None else [Nid(nid) for nid in changed]
        work = follow(self.index, self.state.rows, self.list_of, BLOCK, nids)
        for number, _ in enumerate(work, 1):
            if number == steps:
                break
        work.close()  # type: ignore[attr-defined] # a generator

    def record(self, *changes: BaseRow | Forgotten) -> None:
        self.state.record(changes)

    def has(self, *numbers: int) -> list[bool]:
        with self.state.rows() as rows:
            told = self.index.match([identity(number)[:8] for number in numbers], rows)
            found = [bool(self.index.spots(identity(number), rows)) for number in numbers]
        assert told == found
        return told

    def where(self, number: int) -> set[tuple[int, int]]:
        with self.state.rows() as rows:
            return {(spot.nid, spot.index) for spot in self.index.spots(identity(number), rows)}


@pytest.fixture
def share(tmp_path: Path) -> Iterator[Share]:
    made = Share(tmp_path)
    yield made
    made.close()


def test_it_has_the_blocks_that_rows_name_and_no_others(share: Share) -> None:
    share.record(share.row(1, [1, 2, 0, 3]), share.row(2, [3, 4]))
    share.follow()
    assert share.has(1, 2, 3, 4, 5) == [True] * 4 + [False]
    assert share.where(3) == {(1, 3), (2, 0)}
    with share.state.rows() as rows:
        assert share.index.match([ZERO_BLOCK[:8]], rows) == [False]
        assert share.index.is_current(rows)


def test_a_file_of_one_block_needs_no_list(share: Share) -> None:
    row = share.row(1, [7])
    share.lists.clear()
    share.record(row)
    share.follow([1])
    assert share.has(7) == [True]
    assert share.asked == []


def test_a_file_that_was_not_pushed_is_not_in_it(share: Share) -> None:
    share.record(share.row(1, [1, 2], pushed=False), share.row(2, [3]))
    share.follow()
    assert share.has(1, 2, 3) == [False, False, True]


def test_a_file_whose_list_is_not_known_has_no_blocks_until_it_is(share: Share) -> None:
    row = share.row(1, [1, 2])
    kept = dict(share.lists)
    share.lists.clear()
    share.record(row)
    share.follow([1])
    assert share.has(1) == [False]
    share.lists.update(kept)
    share.follow()
    assert share.has(1) == [True]


def test_what_a_row_no_longer_names_is_not_answered_even_before_the_index_follows(share: Share) -> None:
    share.record(share.row(1, [1, 2]), share.row(2, [3, 4]))
    share.follow()
    share.record(share.row(1, [1, 5]), Forgotten(nid=Nid(2)))
    assert share.has(1, 2, 3, 4, 5) == [False] * 5  # file 1 is another content by now: what it shares follows below
    share.follow([1, 2])
    assert share.has(1, 2, 3, 4, 5) == [True, False, False, False, True]


def test_another_file_answers_while_the_first_one_is_out_of_date(share: Share) -> None:
    share.record(share.row(1, [1, 2]), share.row(2, [1, 4]))
    share.follow()
    share.record(share.row(1, [5, 6]))
    assert share.has(1, 2, 4) == [True, False, True]
    assert share.where(1) == {(2, 0)}


def test_a_move_of_a_file_takes_nothing_out(share: Share) -> None:
    row = share.row(1, [1, 2])
    share.record(row)
    share.follow()
    moved = replace(row, node=row.node.placed(Nid(0), b"elsewhere"))
    share.record(moved)
    assert share.has(1, 2) == [True, True]
    share.follow([1])
    assert share.asked == [1]


def test_a_longer_file_gets_shorter(share: Share) -> None:
    long = list(range(1, 3 * RUN_IDS))
    share.record(share.row(1, long))
    share.follow()
    assert share.has(1, len(long)) == [True, True]
    share.record(share.row(1, [1, 2]))
    share.follow([1])
    assert share.has(1, 2, 3, RUN_IDS + 1, len(long)) == [True, True, False, False, False]


def test_holes_take_no_room_and_come_and_go(share: Share) -> None:
    hole = [0] * RUN_IDS
    for numbers, lists in (
        ([*hole, *hole, 1, *hole], 1),  # it begins a run, and most of that is a hole
        ([2, *hole, *hole, 1], 2),
        ([*hole, *hole, *hole, 1], 1),
        ([*hole, *hole], 0),
        ([3], 1),
    ):
        share.record(share.row(1, numbers))
        share.follow([1])
        assert share.has(1, 2, 3) == [number in numbers for number in (1, 2, 3)]
        index = share.index
        with index._environment.begin() as txn:
            assert txn.stat(index._lists)["entries"] == lists


def test_a_write_of_an_older_program_is_noticed(share: Share) -> None:
    """It knows no stamp: rows that it changed must not be answered by entries of before."""
    share.record(share.row(1, [1, 2]), share.row(2, [3]))
    share.follow()
    old = share.row(1, [8, 9])
    environment = share.state._environment  # as a program that opens only the tables it knows
    with environment.begin(write=True) as txn:
        txn.put((1).to_bytes(8, "big"), encode_row(old), db=environment.open_db(b"base", txn=txn))
    with share.state.rows() as rows:
        assert rows.stamp is None
    assert share.has(1, 2, 3, 8) == [False, False, True, False]
    share.state.meta_set({"key": b"value"})  # the next write by today's program
    with share.state.rows() as rows:
        assert rows.stamp is not None
        assert not share.index.is_current(rows)
    share.follow()
    assert share.has(1, 2, 3, 8, 9) == [False, False, True, True, True]


def test_an_older_release_finds_the_tables_and_the_format_that_it_knows(share: Share) -> None:
    """The index is a folder beside, and the stamp a value that it does not ask for."""
    share.record(share.row(1, [1, 2]))
    share.follow()
    share.state.close()
    with lmdb.open(os.path.join(share.state.path, "db"), max_dbs=16, readonly=True) as environment:
        with environment.begin() as txn:
            tables = {bytes(name) for name in txn.cursor().iternext(values=False)}
            meta = environment.open_db(b"meta", txn=txn, create=False)
            values = dict(txn.cursor(db=meta).iternext())
        assert tables == {
            b"base",
            b"by-inode",
            b"by-path",
            b"by-uuid",
            b"contents",
            b"meta",
            b"orders",
            b"overwrites",
            b"problems",
            b"writers",  # it opens none that it does not know
        }
        assert values[b"format"] == b"1"
    share.state = StateDB.open(share.state.path, map_size_bytes=1 << 24)


def test_values_beside_the_rows_leave_it_current(share: Share) -> None:
    share.record(share.row(1, [1]))
    share.follow()
    share.state.meta_set({"key": b"value"})
    share.state.set_problems([])
    with share.state.rows() as rows:
        assert share.index.is_current(rows)


def test_relinking_empties_it(share: Share) -> None:
    share.record(share.row(1, [1]))
    share.follow()
    share.state.clear()
    assert share.has(1) == [False]
    share.follow()
    assert share.index.files_from(Nid(0), 10) == ([], None)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_run_that_was_stopped_leaves_nothing_that_is_not_named(share: Share, steps: int) -> None:
    share.record(*(share.row(nid, [nid, 1000 + nid]) for nid in range(1, 10)))
    share.follow()
    share.record(*(share.row(nid, [nid, 2000 + nid]) for nid in range(1, 10)))
    share.follow(list(range(1, 10)), steps=steps)
    assert not any(share.has(*range(1001, 1010)))
    share.follow()
    assert all(share.has(*range(1, 10), *range(2001, 2010)))


def test_a_file_that_a_crash_left_half_written_is_written_again(share: Share) -> None:
    row = share.row(1, list(range(1, 2 * RUN_IDS)))
    share.record(row)
    assert row.node.content is not None
    writer = share.index.writing()
    writer._mark(Nid(1), row.node.content, complete=False)  # what `put` had committed when it was killed
    writer._set_run(Nid(1), 0, identity(500))
    writer.commit()
    assert share.has(1, 500) == [False, False]
    share.follow()
    assert share.has(1, RUN_IDS + 1, 500) == [True, True, False]


def test_an_index_that_was_thrown_away_is_made_anew(share: Share) -> None:
    share.record(share.row(1, [1, 2]))
    share.follow()
    IdIndex.remove(share.folder)
    assert share.index.replaced
    share.index.close()
    with pytest.raises(NotFoundError):
        IdIndex.open(share.folder)
    share.index = IdIndex.make(share.folder)
    assert share.has(1) == [False]
    share.follow()
    assert share.has(1, 2) == [True, True]


def test_a_damaged_index_is_made_anew(share: Share) -> None:
    share.index.close()
    data = Path(share.folder, "data.mdb")
    data.write_bytes(os.urandom(data.stat().st_size))
    share.index = IdIndex.make(share.folder)
    assert share.has(1) == [False]


def test_an_index_of_a_newer_program_is_refused_and_kept(share: Share) -> None:
    share.index.close()
    with lmdb.open(share.folder, max_dbs=4) as environment, environment.begin(write=True) as txn:
        txn.put(b"format", b"2", db=environment.open_db(b"meta", txn=txn))
    for attempt in (IdIndex.open, IdIndex.make):
        with pytest.raises(FormatTooNewError) as caught:
            attempt(share.folder)
        assert caught.value.exit_code == 14


def test_it_stays_after_a_start(share: Share) -> None:
    share.record(share.row(1, [1, 2]))
    share.follow()
    share.index.close()
    share.index = IdIndex.make(share.folder)
    with share.state.rows() as rows:
        assert share.index.is_current(rows)
    assert share.has(1, 2) == [True, True]


def test_a_block_that_begins_as_another_one_is_not_taken_for_it(share: Share) -> None:
    share.record(share.row(1, [1]))
    share.follow()
    crafted = BlockId(identity(1)[:8] + bytes(24))
    with share.state.rows() as rows:
        assert share.index.spots(crafted, rows) == []


CONTENTS = st.lists(st.integers(0, 12), min_size=0, max_size=6)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("row"), st.integers(1, 4), CONTENTS),
        st.tuples(st.just("gone"), st.integers(1, 4), st.just([])),
        st.tuples(st.just("follow"), st.integers(0, 3), st.just([])),
        st.tuples(st.just("all"), st.integers(0, 3), st.just([])),
        st.tuples(st.just("anew"), st.just(0), st.just([])),
    ),
    max_size=12,
)


@settings(max_examples=effort.count("share index"))
@given(STEPS)
def test_never_more_than_is_named_and_all_of_it_once_it_has_followed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, list[int]]]
) -> None:
    share = Share(tmp_path_factory.mktemp("share"))
    named: dict[int, list[int]] = {}
    changed: set[int] = set()
    current = True
    for what, number, numbers in steps:
        if what == "row":
            share.record(share.row(number, numbers))
            named[number] = numbers
            changed.add(number)
        elif what == "gone":
            share.record(Forgotten(nid=Nid(number)))
            named.pop(number, None)
            changed.add(number)
        elif what == "anew":
            share.index.close()
            IdIndex.remove(share.folder)
            share.index = IdIndex.make(share.folder)
            current = False
        else:
            share.follow(sorted(changed) if what == "follow" and current else None, steps=number or None)
            current = current and not number
            if not number:
                changed, current = set(), True
        truth = {each for content in named.values() for each in content if each}
        told = {each for each in range(1, 13) if share.has(each)[0]}
        assert told <= truth
        if current and not changed:
            assert told == truth
    share.close()


def test_the_golden_index_stays_readable(tmp_path: Path) -> None:
    """A state and an index of format 1, as the first version wrote them; see tests/golden/README.md."""
    with tarfile.open(GOLDEN) as archive:
        archive.extractall(tmp_path, filter="data")
    with (
        StateDB.open(str(tmp_path / "state")) as state,
        IdIndex.open(str(tmp_path / "state/share-index")) as index,
        state.rows() as rows,
    ):
        assert index.is_current(rows)
        wanted = [identity(number)[:8] for number in (1, 2, 3, 10, 209, 4, 210)]
        assert index.match(wanted, rows) == [True] * 5 + [False] * 2
        assert {(spot.nid, spot.index) for spot in index.spots(identity(3), rows)} == {(1, 3), (2, 0)}
        assert [spot.index for spot in index.spots(identity(209), rows)] == [199]
