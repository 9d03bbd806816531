"""Contents on their way into packs: whatever an edit does, the chunk list is a full pass's, and holes cost nothing."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio

from syncer.remote.repository.contents.packing import Packer, changed_ranges
from syncer.remote.repository.format.entries import Bytes
from syncer.remote.repository.format.lists import chunks_of
from syncer.remote.repository.objects import Objects
from syncer.remote.stores.memory import MemoryStore
from tests.unit.syncer.remote.repository.cutting import CHUNKER, GRID, WINDOW, Read, blocks_of, plainly
from tests.unit.syncer.remote.repository.nodes import KEYS, MemoryNodes

DATA = bytes(range(1, 251)) * (WINDOW // 250 + 1)
HOLE = bytes(WINDOW)
VERSIONS = [
    HOLE * 3,
    HOLE + DATA[:WINDOW] + HOLE,
    HOLE + DATA[:WINDOW] + HOLE * 3,  # longer by a hole
    HOLE + DATA[:WINDOW] + HOLE * 3 + DATA[:GRID] + HOLE[:7],  # and by what stands behind one
    HOLE * 5 + DATA[:GRID] + HOLE[:7],  # what was there is a hole
    HOLE * 2,
    HOLE[:GRID] + b"x",
    b"",
    HOLE * 4 + b"x",
]


def test_the_list_of_each_version_is_that_of_a_full_pass_wherever_it_has_holes() -> None:
    async def scenario() -> None:
        nodes, objects = MemoryNodes(), Objects(MemoryStore(), KEYS)
        file: Bytes | None = None
        for old, new in pairwise([b"", *VERSIONS, *reversed(VERSIONS)]):
            blocks, packer = blocks_of(new), Packer(objects, CHUNKER)
            older = (file, nodes, changed_ranges(blocks_of(old), blocks)) if file is not None else None
            cuts = await packer.cut(blocks, Read(new), older=older)
            await packer.close()
            await packer.flush()
            await objects.put_index([], packer.packs, lambda: None)
            listed = cuts.listed(nodes, packer)
            file = Bytes(size_bytes=len(new), object_hash=blocks.object_hash, blocks=b"", chunks=listed)
            assert [(each.start, each.length, each.id) for each in chunks_of(nodes, file)] == plainly(new)

    trio.run(scenario)


def test_a_long_hole_is_not_looked_at_window_by_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when a disk of 1 TiB with little in it takes minutes."""
    seen: list[int] = []
    plain = Packer._window
    monkeypatch.setattr(Packer, "_window", lambda self, content, at: seen.append(at) or plain(self, content, at))

    async def scenario() -> None:
        data = HOLE * 50 + b"x" + HOLE * 50
        read = Read(data)
        await Packer(Objects(MemoryStore(), KEYS), CHUNKER).cut(blocks_of(data), read)
        assert seen == [50 * WINDOW]
        assert read.read_bytes == GRID

    trio.run(scenario)
