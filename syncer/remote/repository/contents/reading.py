"""What a client of a repository reads for its source: blocks of files, from chunks of packs.

Source: docs/design/repository.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.blocks.server import REMOTE
from syncer.core.model import RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError, CorruptionError, DamagedObjectError, NotFoundError, SyncerError
from syncer.ports.blocks import Board
from syncer.remote.repository.contents.nearby import Nearby
from syncer.remote.repository.format.entries import Bytes
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import Located, block_ids_in, chunks_of
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.source import Deliver, RemoteSource

Files = Callable[[Sequence[tuple[RelPath, RemoteTag]]], Awaitable[list[Bytes | ConflictOnRemoteError]]]
"""Finds what versions of files hold; an error for what is no longer there."""

Check = Callable[[RelPath, RemoteTag], Awaitable[None]]
"""Looks again whether a version is still there; ConflictOnRemoteError: it is not."""


Replaced = Callable[[RelPath, RemoteTag], Bytes | None]
"""What a version replaces, as far as that is known: likely, the root has it."""


def _nothing(path: RelPath, tag: RemoteTag) -> Bytes | None:  # noqa: ARG001 - a Replaced
    return None


_AROUND: Final = 256 << 10  # so far a content may have moved, to be found in the version before
_WHOLE_BYTES: Final = 256 << 20  # of a shorter one all is looked at: 14,000 chunks


class ChunkSource:
    """`BlockSource`: what the root has already, in other blocks, is not fetched."""

    name = REMOTE
    near = False

    def __init__(self, objects: Objects, files: Files, check: Check, replaced: Replaced, grid: int) -> None:
        """See ChunkReads."""
        self._objects = objects
        self._files = files
        self._check = check
        self._replaced = replaced
        self._grid = grid

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        nearby = Nearby(board.own, self._objects.keys, self._grid)
        reads = ChunkReads(self._objects, self._files, self._check, self._grid, nearby, self._replaced)
        await RemoteSource(reads).run(board)


class ChunkReads:
    """`Reads` of a repository."""

    def __init__(
        self,
        objects: Objects,
        files: Files,
        check: Check,
        grid: int,
        nearby: Nearby | None = None,
        replaced: Replaced = _nothing,
    ) -> None:
        """Read what `files` finds.

        Args:
            objects: The repository's.
            files: Finds versions.
            check: Of what can't be read, says whether it is still there.
            grid: Bytes of a block.
            nearby: What the root has.
            replaced: Finds what versions replace.
        """
        self._check = check
        self._objects = objects
        self._files = files
        self._grid = grid
        self._nearby = Nearby(None, objects.keys, grid) if nearby is None else nearby
        self._replaced = replaced

    async def read_small(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[bytes | None]:
        """See Reads. Chunks that lie together in packs come together."""
        files = await self._files(versions)
        olds = [self._replaced(path, tag) for path, tag in versions]
        try:
            located = await trio.to_thread.run_sync(self._located, files, olds)
            chunks = await self._read(chunk for each in located for chunk in each)
        except CorruptionError:
            return [None for _ in versions]  # each alone, so that it concerns no other one
        self._objects.store.counters.blocks_received += len(files)
        return [
            None if isinstance(file, SyncerError) else bytes(_assembled(0, file.size_bytes, inside, chunks))
            for file, inside in zip(files, located, strict=True)
        ]

    async def read_blocks(
        self,
        path: RelPath,
        tag: RemoteTag,
        blocks: BlockList,
        indexes: Sequence[int],
        deliver: Deliver,
        *,
        verify: bool = True,  # noqa: ARG002 - chunks are verified, and who asks compares blocks in any case
    ) -> None:
        """See Reads."""
        (file,) = await self._files([(path, tag)])
        if isinstance(file, SyncerError):
            raise file
        wanted = sorted(index for index in indexes if blocks[index] != ZERO_BLOCK)
        for index in set(indexes).difference(wanted):
            await deliver(index, ZERO_BLOCK, b"")
        runs = [
            [index for _, index in run] for _, run in groupby(enumerate(wanted), key=lambda each: each[1] - each[0])
        ]
        step = blocks.block_size
        spans = [(run[0] * step, min((run[-1] + 1) * step, file.size_bytes)) for run in runs]
        try:
            located = await trio.to_thread.run_sync(self._in_ranges, file, self._replaced(path, tag), spans)
            chunks = await self._read(chunk for each in located for chunk in each)
        except CorruptionError:
            await self._check(path, tag)  # what nobody has any more may have been collected since we looked
            raise

        def cut() -> list[tuple[int, bytes]]:
            """Megabytes are copied: not where other requests are waited for."""
            made: list[tuple[int, bytes]] = []
            for run, (start, end), inside in zip(runs, spans, located, strict=True):
                self._nearby.learn(blocks.ids, 0, inside)
                data = memoryview(_assembled(start, end, inside, chunks))
                made += [(index, canonical(bytes(data[index * step - start :][:step]))) for index in run]
            return made

        for index, block in await trio.to_thread.run_sync(cut):
            self._objects.store.counters.blocks_received += 1
            await deliver(index, blocks[index], block)

    async def _read(self, located: Iterable[Located]) -> dict[ChunkId, bytes]:
        wanted = {chunk.id: chunk for chunk in located}
        maybe = [chunk for chunk in wanted if self._nearby.knows(chunk)]
        found = await trio.to_thread.run_sync(self._nearby.read, maybe) if maybe else {}
        lacking = [Found(each.pack, each.entry) for each in wanted.values() if each.id not in found]
        fetched = await self._objects.read(Content.FILES, lacking)
        self._nearby.keep(fetched)
        return found | fetched

    def _located(
        self, files: Sequence[Bytes | ConflictOnRemoteError], olds: Sequence[Bytes | None]
    ) -> list[list[Located]]:
        nodes = ThreadNodes(self._objects)
        for old in olds:
            if old is not None and old.size_bytes <= _WHOLE_BYTES:
                self._learn(nodes, old, 0, old.size_bytes)
        return [[] if isinstance(file, SyncerError) else list(chunks_of(nodes, file)) for file in files]

    def _in_ranges(self, file: Bytes, old: Bytes | None, spans: Sequence[tuple[int, int]]) -> list[list[Located]]:
        nodes = ThreadNodes(self._objects)
        located = [list(chunks_of(nodes, file, start, end)) for start, end in spans]
        if old is None:
            return located
        for start, end in spans:
            self._learn(nodes, old, start - _AROUND, end + _AROUND)
        is_lacking = any(not self._nearby.knows(chunk.id) for each in located for chunk in each)
        if is_lacking and old.size_bytes <= _WHOLE_BYTES and self._nearby.is_new(old.object_hash):
            self._learn(nodes, old, 0, old.size_bytes)
        return located

    def _learn(self, nodes: ThreadNodes, old: Bytes, start: int, end: int) -> None:
        """Take note of what lies in a range of an older version. What can't be read of it is no loss."""
        with suppress(NotFoundError, DamagedObjectError):
            first, last = max(0, start) // self._grid, -(-min(end, old.size_bytes) // self._grid)
            if first < last:
                ids = block_ids_in(nodes, old, self._grid, first, last)
                self._nearby.learn(ids, first, chunks_of(nodes, old, first * self._grid, last * self._grid))


def _assembled(start: int, end: int, located: Sequence[Located], chunks: Mapping[ChunkId, bytes]) -> bytearray:
    """The bytes of a range, zeros where no chunk is."""
    data = bytearray(end - start)
    for each in located:
        chunk = chunks[each.id]
        first, last = max(each.start, start), min(each.end, end)
        data[first - start : last - start] = memoryview(chunk)[first - each.start : last - each.start]
    return data
