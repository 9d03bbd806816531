"""Damaged blocks of a volume are made of whatever blocks the share cuts its files into."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.local.volume.reblock import Pair
from syncer.local.volume.repair import BlockRepair
from tests import effort

SIZES = (4096, 8192, 16384)


def cut(data: bytes, size: int) -> tuple[BlockList, dict[BlockId, bytes]]:
    """A file's list in a grid, and its blocks."""
    blocks = [canonical(data[at : at + size]) for at in range(0, len(data), size)]
    names = [block_id(block) for block in blocks]
    return BlockList(block_size=size, size_bytes=len(data), ids=b"".join(names)), dict(zip(names, blocks, strict=True))


@settings(max_examples=effort.count("properties"))
@given(st.integers(0, 1 << 30), st.sampled_from(SIZES), st.sampled_from(SIZES), st.integers(1, 3))
def test_all_that_is_damaged_is_made_of_what_the_share_has(seed: int, near: int, far: int, files: int) -> None:
    chance = random.Random(seed)
    shared = chance.randbytes(20_000)
    pairs, ours, theirs = [], {}, {}
    for _ in range(files):
        holes = bytes(chance.choice([0, near, 3 * far]))
        data = shared[: chance.randrange(20_000)] + holes + chance.randbytes(chance.randrange(1, 50_000))
        (here, our), (there, their) = cut(data, near), cut(data, far)
        pairs.append(Pair(near=here, far=there))
        ours |= our
        theirs |= their
    lacking = chance.sample(sorted(ours), chance.randint(1, len(ours)))
    repair = BlockRepair(lacking, pairs if near != far else ())
    wanted = repair.wanted
    assert len(wanted) == len(set(wanted))
    chance.shuffle(wanted)
    made = [each for name in wanted if name in theirs for each in repair.came([(name, theirs[name])])]
    assert {name: canonical(data) for name, data in made} == {
        name: ours[name] for name in lacking if name != ZERO_BLOCK
    }


def test_what_is_in_no_file_is_wanted_by_its_own_name() -> None:
    data = b"short"
    name = block_id(data)
    repair = BlockRepair([name], [])
    assert repair.wanted == [name]
    assert repair.came([(name, data)]) == [(name, data)]


def test_nothing_is_made_while_a_part_is_missing() -> None:
    data = random.Random(1).randbytes(16384)
    (here, _), (there, their) = cut(data, 16384), cut(data, 4096)
    repair = BlockRepair([here[0]], [Pair(near=here, far=there)])
    for index in (3, 0, 1):
        assert repair.came([(there[index], their[there[index]])]) == []
    assert repair.came([(there[2], their[there[2]])]) == [(here[0], data)]
