from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks import blocklist
from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import LEAF_IDS, block_id, object_hash
from blockfs.blocks.ids import PADDING_ID, ZERO_BLOCK, BlockId

BLOCK = 4
IDS = [ZERO_BLOCK, *(block_id(b"%d" % number) for number in range(5))]


@st.composite
def block_lists(draw: st.DrawFn) -> BlockList:
    size_bytes = draw(st.integers(0, 40))
    count = -(-size_bytes // BLOCK)
    ids = draw(st.lists(st.sampled_from(IDS), min_size=count, max_size=count))
    return BlockList(block_size=BLOCK, size_bytes=size_bytes, ids=b"".join(ids))


@given(block_lists())
def test_a_block_list_is_the_sequence_of_its_ids(blocks: BlockList) -> None:
    ids = list(blocks)
    assert len(blocks) == len(ids)
    assert [blocks[index] for index in range(len(blocks))] == ids
    assert b"".join(ids) == blocks.ids == b"".join(blocks.leaves())
    assert blocks.unique_ids() == set(ids) - {ZERO_BLOCK}
    assert blocks.object_hash == object_hash(blocks.ids)


def test_the_hash_of_a_long_list_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(blocklist, "object_hash", lambda ids: made.append(ids) or object_hash(ids))
    blocks = BlockList(block_size=BLOCK, size_bytes=40, ids=b"".join(IDS[1:3] * 5))
    assert blocks.object_hash == blocks.object_hash == object_hash(blocks.ids)
    assert len(made) == 1


@given(block_lists(), st.data())
def test_splice_agrees_with_a_plain_list(blocks: BlockList, data: st.DataObject) -> None:
    size_bytes = data.draw(st.integers(0, 40))
    count = -(-size_bytes // BLOCK)
    changed = data.draw(st.dictionaries(st.integers(0, max(0, count - 1)), st.sampled_from(IDS))) if count else {}
    model = (list(blocks) + [ZERO_BLOCK] * count)[:count]
    for index, new in changed.items():
        model[index] = new
    spliced = blocks.splice(size_bytes, changed)
    assert list(spliced) == model
    assert spliced.size_bytes == size_bytes


@given(block_lists(), block_lists())
def test_changes_from_a_base_rebuild_the_list(blocks: BlockList, base: BlockList) -> None:
    assert base.splice(blocks.size_bytes, blocks.changed_from(base)) == blocks


def test_changes_are_found_in_any_leaf() -> None:
    count = 3 * LEAF_IDS + 7
    base = BlockList(block_size=BLOCK, size_bytes=count * BLOCK, ids=ZERO_BLOCK * count)
    changed = {0: IDS[1], LEAF_IDS: IDS[2], count - 1: IDS[3]}
    assert base.splice(base.size_bytes, changed).changed_from(base) == changed
    assert [len(leaf) // 32 for leaf in base.leaves()] == [256, 256, 256, 7]


@given(st.lists(st.tuples(st.sampled_from([1, 5, LEAF_IDS, 2 * LEAF_IDS + 3]), st.sampled_from(IDS[:3])), max_size=5))
def test_holes_and_what_is_filled_are_all_there_is(runs: list[tuple[int, BlockId]]) -> None:
    ids = b"".join(block * count for count, block in runs)
    blocks = BlockList(block_size=BLOCK, size_bytes=len(ids) // 32 * BLOCK, ids=ids)
    holes = list(blocks.holes())
    assert list(blocks.filled()) == [at for at, block in enumerate(blocks) if block != ZERO_BLOCK]
    assert [at for first, behind in holes for at in range(first, behind)] == [
        at for at, block in enumerate(blocks) if block == ZERO_BLOCK
    ]
    assert all(behind < first for (_, behind), (first, _) in pairwise(holes))
    assert all(first < behind for first, behind in holes)


@pytest.mark.parametrize(
    ("size_bytes", "ids"),
    [
        (0, ZERO_BLOCK),
        (4, b""),
        (5, ZERO_BLOCK),
        (4, ZERO_BLOCK[:31]),
        (-1, b""),
        (4, PADDING_ID),
        (8, IDS[1] + PADDING_ID),
    ],
)
def test_lists_that_do_not_fit_are_refused(size_bytes: int, ids: bytes) -> None:
    with pytest.raises(ValueError, match="block"):
        BlockList(block_size=BLOCK, size_bytes=size_bytes, ids=ids)


def test_null_bytes_across_two_ids_are_no_padding() -> None:
    ids = b"\1" + bytes(31) + bytes(31) + b"\1"
    assert len(BlockList(block_size=BLOCK, size_bytes=8, ids=ids)) == 2


def test_splice_beyond_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="beyond"):
        BlockList(block_size=BLOCK, size_bytes=4, ids=IDS[1]).splice(4, {1: BlockId(IDS[2])})


@pytest.mark.parametrize("index", [-1, 1])
def test_an_index_outside_the_list_is_an_error(index: int) -> None:
    with pytest.raises(IndexError):
        BlockList(block_size=BLOCK, size_bytes=4, ids=IDS[1])[index]
