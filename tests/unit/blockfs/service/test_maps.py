"""Maps of files: what is counted, and what a sample of many blocks still tells."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS, leaf_key
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, LeafKey
from blockfs.engine.content.pagemap import block_runs
from blockfs.service.maps.blockmap import BlockMap, Cell, block_map
from blockfs.service.maps.sample import Leaf, Sample
from blockfs.service.maps.sharing import Sharing, sharing
from blockfs.service.maps.views import part_of
from blockfs.tree.schema import canonical_leaf
from tests import effort

HOLE = -1


class Files:
    """Files of made-up blocks: numbers, HOLE for a hole."""

    def __init__(self, files: dict[int, list[int]]) -> None:
        self.files = files
        self.leaves: dict[LeafKey, bytes] = {}

    def of(self, ino: int) -> list[Leaf]:
        """A file's leaves."""
        found = []
        blocks = self.files[ino]
        for index in range(-(-len(blocks) // LEAF_IDS)):
            ids = canonical_leaf(b"".join(map(block, blocks[index * LEAF_IDS : (index + 1) * LEAF_IDS])))
            if ids:
                key = leaf_key(ids)
                self.leaves[key] = ids
                found.append((ino, index, key))
        return found

    def all(self) -> list[Leaf]:
        """Those of all files."""
        return [leaf for ino in sorted(self.files) for leaf in self.of(ino)]

    def map(self, ino: int, cells: int, staged: Iterable[int] = (), most: int = 1 << 30) -> BlockMap:
        """The map of a file."""
        total = sum(map(len, self.files.values()))
        every = self.all()
        return block_map(
            self.of(ino), every, self.leaves.__getitem__, blocks=len(self.files[ino]), cells=cells,
            staged=block_runs(sorted(staged)),
            sample=Sample(total, most),
        )  # fmt: skip

    def sharing(self, kept: Iterable[Leaf] = (), most: int = 1 << 30) -> Sharing:
        """Which files share most."""
        total = sum(map(len, self.files.values()))
        every, keys = self.all(), [key for _, _, key in kept]
        return sharing(every, keys, self.leaves.__getitem__, sample=Sample(total, most), most=10)


def block(number: int) -> bytes:
    return ZERO_BLOCK if number == HOLE else hashlib.sha256(b"%d" % number).digest()


blocks = st.lists(st.integers(HOLE, 12), max_size=2 * LEAF_IDS + 20)


@settings(max_examples=effort.count("properties"), deadline=None)
@given(blocks, blocks, blocks, st.integers(1, 40), st.sets(st.integers(0, 600)))
def test_every_block_is_counted_as_what_it_is(
    mine: list[int], one: list[int], other: list[int], cells: int, staged: set[int]
) -> None:
    """Against a count block by block."""
    found = Files({2: one, 5: mine, 7: other}).map(5, cells, staged)
    count = min(cells, len(mine))
    assert len(found.cells) == count
    for number, cell in enumerate(found.cells):
        inside = [at for at in range(len(mine)) if at * count // len(mine) == number]
        pending = [at for at in inside if at in staged]
        rest = [mine[at] for at in inside if at not in staged]
        shared = [each for each in rest if each != HOLE and each in {*one, *other}]
        told = (cell.holes, cell.staged, cell.own, cell.shared)
        assert told == (rest.count(HOLE), len(pending), len(rest) - rest.count(HOLE) - len(shared), len(shared))
        assert (cell.other >= 0) == bool(shared)
        assert not shared or {*shared} & {*{2: one, 7: other}[found.others[cell.other][0]]}
    visible = {each for at, each in enumerate(mine) if at not in staged} - {HOLE}
    assert dict(found.others) == {
        ino: len(visible & {*each}) for ino, each in ((2, one), (7, other)) if visible & {*each}
    }
    assert found.is_whole


@settings(max_examples=effort.count("properties"), deadline=None)
@given(blocks, blocks, blocks)
def test_what_files_share_is_what_their_sets_of_blocks_say(one: list[int], two: list[int], three: list[int]) -> None:
    files = {1: one, 2: two, 3: three}
    found = Files(files).sharing()
    sets = {ino: {*each} - {HOLE} for ino, each in files.items()}
    others = {ino: set[int]().union(*(sets[each] for each in sets if each != ino)) for ino in sets}
    assert {each.ino: (each.blocks, each.shared) for each in found.files} == {
        ino: (len(sets[ino]), len(sets[ino] & others[ino])) for ino in sets if sets[ino] & others[ino]
    }
    assert [each.shared for each in found.files] == sorted((each.shared for each in found.files), reverse=True)
    assert all(sets[each.ino] & sets[each.other] for each in found.files)
    assert found.blocks == len(found.sampled) == len(set[int]().union(*sets.values()))


def test_blocks_that_only_a_snapshot_has_count_and_share_nothing() -> None:
    files = Files({1: [1, 2, 3], 2: [3, 4], 9: [3, 5, 6]})
    frozen = files.of(9)
    del files.files[9]
    found = files.sharing(kept=frozen)
    assert found.blocks == 6
    assert {each.ino: each.shared for each in found.files} == {1: 1, 2: 1}


def test_of_many_blocks_a_sample_tells_nearly_the_same() -> None:
    """200,000 blocks, of which 2,000 or so are looked at: holes are exact, a clone is shared to the last block."""
    mine = [HOLE if at % 5 == 0 else at for at in range(100_000)]
    half = mine[:50_000] + [1_000_000 + at for at in range(50_000)]
    files = Files({1: mine, 2: half})
    found = files.map(1, 64, most=2000)
    assert not found.is_whole
    assert sum(cell.holes for cell in found.cells) == 20_000
    assert all(cell.shared and not cell.own and found.others[cell.other][0] == 2 for cell in found.cells[:31])
    assert all(cell.own and not cell.shared and cell.other == -1 for cell in found.cells[33:])
    assert abs(found.others[0][1] - 40_000) < 8_000
    told = files.sharing(most=2000)
    assert 0 < len(told.sampled) < 4000
    assert abs(told.blocks - 130_000) < 20_000
    clone = Files({1: mine, 2: list(mine)})
    assert sum(cell.own for cell in clone.map(1, 64, most=100).cells) == 0


def test_few_blocks_among_many_are_not_forgotten() -> None:
    """A leaf of which no id is in the sample is told by one of its blocks."""
    lonely = [HOLE] * 1000 + [7] + [HOLE] * 1000
    (cell,) = Files({1: lonely, 2: list(range(100, 5000))}).map(1, 1, most=1).cells
    assert cell == Cell(holes=2000, staged=0, own=1, shared=0)


def test_a_sample_takes_equal_blocks_or_none_of_them() -> None:
    ids = b"".join(block(number) for number in range(LEAF_IDS))
    for most in (1, 10, 100, 1000):
        sample = Sample(1000, most)
        chosen = {each for _, each in sample.of(ids)}
        backwards = b"".join(ids[at : at + ID_SIZE] for at in range(len(ids) - ID_SIZE, -1, -ID_SIZE))
        assert chosen == {each for _, each in sample.of(backwards)}
        assert all(ids[place * ID_SIZE : (place + 1) * ID_SIZE] == each for place, each in sample.of(ids))
    assert len(Sample(1, 1).of(ids)) == LEAF_IDS


def test_an_empty_file_has_no_cells() -> None:
    found = Files({1: []}).map(1, 100)
    assert (found.cells, found.others) == ((), ())


@given(st.integers(0, 5000), st.integers(0, 6000), st.integers(0, 6000))
def test_a_part_begins_and_ends_with_a_leaf_and_has_what_was_asked_for(blocks: int, first: int, count: int) -> None:
    part = part_of(blocks, first, count)
    assert part.start % LEAF_IDS == 0
    assert part.stop == blocks or part.stop % LEAF_IDS == 0
    wanted = range(first, min(blocks, first + count) if count else blocks)
    assert not wanted or (part.start <= wanted.start and part.stop >= wanted.stop)
    assert len(part) <= len(wanted) + 2 * LEAF_IDS
    assert bool(part) == bool(blocks)
