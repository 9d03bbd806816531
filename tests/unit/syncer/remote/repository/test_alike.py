"""Files that are like one another: of the next one only what differs is read, and the chunks are a full pass's."""

from __future__ import annotations

from random import Random

import pytest
import trio

from syncer.remote.repository.contents.packing import Packer
from syncer.remote.repository.format.keys import ChunkId
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests import effort
from tests.unit.syncer.remote.repository.cutting import CHUNKER, GRID, WINDOW, Read, blocks_of, plainly
from tests.unit.syncer.remote.repository.nodes import KEYS


async def cut(packer: Packer, data: bytes) -> tuple[list[tuple[int, int, ChunkId]], int]:
    read = Read(data)
    cuts = await packer.cut(blocks_of(data), read)
    found = [(each.start, each.length, each.id) for _, window in sorted(cuts._open.items()) for each in window]
    return found, read.read_bytes


def like(rng: Random, data: bytes) -> bytes:
    """Another file: some bytes are others, some blocks are holes, it is longer or shorter."""
    made = bytearray(data)
    for _ in range(rng.choice((0, 1, 3, 20))):
        at, length = rng.randrange(len(made)), rng.choice((1, 100, GRID, 3 * GRID))
        made[at : at + length] = bytes(length) if rng.random() < 0.3 else rng.randbytes(length)
    at = rng.randrange(len(made)) // GRID * GRID
    made[at : at + GRID] = bytes(GRID) if rng.random() < 0.3 else made[at : at + GRID]
    end = rng.choice((len(made), len(made), rng.randrange(1, len(made)), len(made) + rng.randrange(2 * GRID)))
    return bytes(made[:end]) + (rng.randbytes if rng.random() < 0.5 else bytes)(max(0, end - len(made)))


@pytest.mark.parametrize("seed", range(effort.count("files like others")))
def test_what_is_reused_of_a_file_before_is_what_a_full_pass_makes(seed: int) -> None:
    """Breaks when a file gets chunks of one that it is only nearly like."""

    async def scenario() -> None:
        rng = Random(seed)
        packer = Packer(Objects(MemoryStore(), KEYS), CHUNKER)
        data = rng.randbytes(rng.randrange(2 * WINDOW, 4 * WINDOW))
        for _ in range(6):
            found, _ = await cut(packer, data)
            assert found == plainly(data)
            data = like(rng, data)

    trio.run(scenario)


def test_of_a_copy_nothing_is_read_and_of_one_that_differs_little() -> None:
    async def scenario() -> None:
        rng = Random(1)
        packer = Packer(Objects(MemoryStore(), KEYS), CHUNKER)
        data = rng.randbytes(4 * WINDOW)
        assert (await cut(packer, data))[1] == len(data)
        assert (await cut(packer, data))[1] == 0
        other = bytearray(data)
        other[WINDOW + 7] ^= 1
        assert (await cut(packer, bytes(other)))[1] <= 4 * GRID

    trio.run(scenario)


def test_after_a_failure_nothing_is_reused_that_may_be_nowhere() -> None:
    async def scenario() -> None:
        data = Random(2).randbytes(2 * WINDOW)
        packer = Packer(Objects(MemoryStore(), KEYS), CHUNKER)
        await cut(packer, data)
        packer.forget_unsent()
        assert (await cut(packer, data))[1] == len(data)

    trio.run(scenario)
