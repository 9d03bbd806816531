"""What a client of a repository reads for its source: blocks of files, from chunks of packs.

Source: docs/design/repository.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import groupby

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.core.model import RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError, CorruptionError, SyncerError
from syncer.remote.repository.format.entries import Bytes
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import Located, chunks_of
from syncer.remote.repository.objects import Objects, ThreadNodes
from syncer.remote.source import Deliver

Files = Callable[[Sequence[tuple[RelPath, RemoteTag]]], Awaitable[list[Bytes | ConflictOnRemoteError]]]
"""Finds what versions of files hold; an error for what is no longer there."""

Check = Callable[[RelPath, RemoteTag], Awaitable[None]]
"""Looks again whether a version is still there; ConflictOnRemoteError: it is not."""


class ChunkReads:
    """`Reads` of a repository."""

    def __init__(self, objects: Objects, files: Files, check: Check) -> None:
        """Read what `files` finds. Of what can't be read, `check` says whether it is still there."""
        self._check = check
        self._objects = objects
        self._files = files

    async def read_small(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[bytes | None]:
        """See Reads. Chunks that lie together in packs come together."""
        files = await self._files(versions)
        try:
            located = await trio.to_thread.run_sync(self._located, files)
            chunks = await self._objects.read(Content.FILES, _founds(chunk for each in located for chunk in each))
        except CorruptionError:
            return [None for _ in versions]  # each alone, so that it concerns no other one
        self._objects.store.counters.blocks_received += len(files)
        return [
            None if isinstance(file, SyncerError) else _assembled(0, file.size_bytes, inside, chunks)
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
            located = await trio.to_thread.run_sync(self._in_ranges, file, spans)
            chunks = await self._objects.read(Content.FILES, _founds(chunk for each in located for chunk in each))
        except CorruptionError:
            await self._check(path, tag)  # what nobody has any more may have been collected since we looked
            raise
        for run, (start, end), inside in zip(runs, spans, located, strict=True):
            data = memoryview(_assembled(start, end, inside, chunks))
            for index in run:
                self._objects.store.counters.blocks_received += 1
                await deliver(index, blocks[index], canonical(bytes(data[index * step - start :][:step])))

    def _located(self, files: Sequence[Bytes | ConflictOnRemoteError]) -> list[list[Located]]:
        nodes = ThreadNodes(self._objects)
        return [[] if isinstance(file, SyncerError) else list(chunks_of(nodes, file)) for file in files]

    def _in_ranges(self, file: Bytes, spans: Sequence[tuple[int, int]]) -> list[list[Located]]:
        return [list(chunks_of(ThreadNodes(self._objects), file, start, end)) for start, end in spans]


def _founds(located: Iterable[Located]) -> list[Found]:
    return [Found(each.pack, each.entry) for each in located]


def _assembled(start: int, end: int, located: Sequence[Located], chunks: Mapping[ChunkId, bytes]) -> bytes:
    """The bytes of a range, zeros where no chunk is."""
    data = bytearray(end - start)
    for each in located:
        chunk = chunks[each.id]
        first, last = max(each.start, start), min(each.end, end)
        data[first - start : last - start] = chunk[first - each.start : last - each.start]
    return bytes(data)
