"""Contents on their way into packs: cut, named, left out if the repository has them, and sent when a pack is full.

Where a chunk is can be told once its pack is finished; until then a window's cuts are kept one by one, afterwards as
bytes of its chunk list. Of a long push an index is written now and then: what it names is looked up there from then on,
so what a push keeps in memory beside the indexes is bounded, but for 55 bytes of list for each chunk. A push that dies
leaves packs that the next one finds.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec
import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ID_SIZE
from syncer.remote.parallel import for_each
from syncer.remote.repository.contents.alike import Alike
from syncer.remote.repository.format.chunks import Chunk, Chunker, Old, Range, Read, cut_window, windows_to_cut
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.entries import Bytes, Listed
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import ChunkId, Content
from syncer.remote.repository.format.lists import (
    ChunkList,
    Located,
    chunks_of,
    chunks_shape,
    fetch_chunks_of,
    window_parts,
)
from syncer.remote.repository.format.packs import Pack, PackBuilder
from syncer.remote.repository.format.prolly import Nodes
from syncer.remote.repository.objects import Objects, fresh_salt

CUTTERS: Final = max(2, min(4, os.cpu_count() or 1))
"""Windows at once. Each takes some three times its 4 MiB: what is read, joined, and compressed."""
_WINDOWS: Final = 256  # a GiB; of their older version's chunk list 2.4 MB are read at once
INDEXED_CHUNKS: Final = 100_000
"""After so many new chunks an index is written: 5 MB of it, some 2 GB of contents, 40 MB of memory."""


class Cut(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a new content.

    Attributes:
        start: Where it begins.
        length: How long it is.
        id: Which.
        found: Where it is, if it was there already.
    """

    start: int
    length: int
    id: ChunkId
    found: Found | None


class Cuts:
    """The chunks of a new content, by window; what did not change is as in the older version's list."""

    __slots__ = ("_lock", "_older", "_open", "_parts", "_size")  # one for each small file of a commit

    def __init__(self, older: Bytes | None, size: int) -> None:
        """Of a content of this length, which replaces another one."""
        self._older = older
        self._size = size
        self._open: dict[int, list[Cut]] = {}
        self._parts: dict[bytes, bytes | None] = {}
        self._lock = threading.Lock()

    def put(self, window: int, cuts: list[Cut]) -> None:
        """What a window has now."""
        with self._lock:
            self._open[window] = cuts

    def settle(self, packer: Packer) -> None:
        """Make bytes of the windows whose chunks all have a place. For a thread."""
        with self._lock:
            for window, cuts in sorted(self._open.items()):
                there: list[Located] = []
                for cut in reversed(cuts):  # what was put last is in the pack that ends last
                    located = packer.located(cut)
                    if located is None:
                        break
                    there.append(located)
                if len(there) == len(cuts):
                    del self._open[window]
                    parts = window_parts(window, packer.chunker.window_bytes, reversed(there))
                    if self._older is None:  # there is nothing to remove
                        parts = {key: part for key, part in parts.items() if part is not None}
                    self._parts.update(parts)

    def listed(self, nodes: Nodes, packer: Packer) -> Listed:
        """Write the list, after `Packer.close`. For a thread."""
        self.settle(packer)
        assert not self._open, "a pack is not finished"
        chunks = ChunkList(nodes, chunks_shape(packer.objects.keys.split), self._older)
        chunks.parts(self._parts)
        return chunks.finish(self._size)


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """A content that is cut.

    Attributes:
        blocks: Its block list.
        zeros: Ranges that are known to be zeros, ascending.
        read: Its bytes.
        file: The version that it replaces.
        nodes: Where that one's lists are.
        changed: Which ranges may differ from it, ascending.
    """

    blocks: BlockList
    zeros: Sequence[Range]
    read: Read
    file: Bytes | None
    nodes: Nodes | None
    changed: Sequence[Range]

    def is_hole(self, start: int, end: int) -> bool:
        """Whether all that a range has of the content is known to be zeros: there are no chunks in it."""
        around = _within(self.zeros, start, end)
        return len(around) == 1 and around[0][0] <= start and around[0][1] >= min(end, self.blocks.size_bytes)

    def ids_in(self, start: int, end: int) -> bytes:
        """Of the blocks of a range; none if its ends are no blocks' ends."""
        step = self.blocks.block_size
        return b"" if end % step or start % step else self.blocks.ids[start // step * ID_SIZE : end // step * ID_SIZE]


class Packer:
    """Fills packs for one commit. Safe for many threads; packs are sent as they are full.

    Attributes:
        objects: Where they go.
        chunker: Where contents are cut.
        check: The last word before an index names packs of ours: they may have lain there for too long.
    """

    def __init__(self, objects: Objects, chunker: Chunker) -> None:
        """Begin with no pack."""
        self.objects: Final = objects
        self.chunker: Final = chunker
        self.check: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._indexing = trio.Lock()
        self._codec = Codec()  # under the lock: a builder goes from thread to thread
        self._cutters = trio.CapacityLimiter(CUTTERS)
        self._alike = Alike()
        self._builder: PackBuilder | None = None
        self._new: dict[ChunkId, Found | None] = {}
        self._packs: list[Pack] = []
        self._full: deque[tuple[Pack, bytes]] = deque()

    @property
    def packs(self) -> Sequence[Pack]:
        """Those that were sent, and are in no index yet."""
        return self._packs

    async def cut(
        self,
        blocks: BlockList,
        read: Read,
        *,
        older: tuple[Bytes, Nodes, Sequence[Range]] | None = None,
    ) -> Cuts:
        """Cut a content, and send what is new of it.

        Args:
            blocks: Its block list.
            read: Its bytes; called in a thread.
            older: The version that it replaces, where its lists are, and which ranges may differ from it, ascending.
        """
        await self.flush()  # what could not be sent so far goes first: memory stays bounded
        file, nodes, changed = older if older is not None else (None, None, ())
        size, old_size = blocks.size_bytes, 0 if file is None else file.size_bytes
        content = _Content(blocks=blocks, zeros=hole_ranges(blocks), read=read, file=file, nodes=nodes, changed=changed)
        cuts = Cuts(file, size)

        async def work(window: int) -> None:
            made = await trio.to_thread.run_sync(self._window, content, window, limiter=self._cutters)
            cuts.put(window, made)
            await self.flush()
            await trio.to_thread.run_sync(cuts.settle, self, limiter=self._cutters)

        windows = (
            window
            for window in windows_to_cut(self.chunker, size, old_size, changed)
            if window < old_size or not content.is_hole(window, window + self.chunker.window_bytes)
        )
        while some := list(islice(windows, _WINDOWS)):
            if file is not None and nodes is not None:
                ranges = [(window, window + self.chunker.window_bytes) for window in some]
                await trio.to_thread.run_sync(fetch_chunks_of, nodes, file, ranges)
            await for_each(iter(some), work, CUTTERS + 1)  # one sends a pack
        return cuts

    async def cut_small(self, contents: Sequence[bytes]) -> list[Cuts]:
        """Cut contents of at most a window each, all in one thread, and send what is new of them."""
        made = await trio.to_thread.run_sync(self._small, contents, limiter=self._cutters)
        await self.flush()
        return made

    async def flush(self) -> None:
        """Send packs that are full, each by who finds it: so others cut meanwhile, until they have filled one, too.

        One that can't be sent stays here: contents of before have chunks in it.
        """
        while self._full:
            pack, raw = self._full.popleft()
            try:
                await self.objects.put_pack(Content.FILES, pack, raw)
            except BaseException:
                self._full.append((pack, raw))
                raise
            self._packs.append(pack)
        if self._is_index_due():
            async with self._indexing:
                if self._is_index_due():
                    await self._index()

    def _is_index_due(self) -> bool:
        return sum(len(pack.entries) for pack in self._packs) >= INDEXED_CHUNKS

    async def _index(self) -> None:
        """Write an index of what was sent; nobody needs to remember it here any more."""
        packs = list(self._packs)
        await self.objects.put_index([], packs, self.check)
        del self._packs[: len(packs)]
        with self._lock:
            for pack in packs:
                for entry in pack.entries:
                    self._new.pop(entry.id, None)

    def forget_unsent(self) -> None:
        """Begin anew with what was sent: what could not be sent, for want of room perhaps, is cut again if need be."""
        with self._lock:
            unsent = {pack.ref for pack, _ in self._full}
            self._full.clear()
            self._alike.clear()
            self._builder = None
            self._new = {
                name: found for name, found in self._new.items() if found is not None and found.pack not in unsent
            }

    async def close(self) -> None:
        """End the last pack: afterwards each chunk has a place. `flush` sends what is left."""
        await trio.to_thread.run_sync(self._close)

    def located(self, cut: Cut) -> Located | None:
        """Where a chunk is; None: its pack is not finished."""
        with self._lock:
            is_new = cut.id in self._new
            found = cut.found or self._new.get(cut.id)
        if found is None and not is_new:
            found = self.objects.find_to_keep(Content.FILES, cut.id)  # an index has it since
            assert found is not None
        if found is None:
            return None
        entry = found.entry
        return Located(cut.start, cut.length, cut.id, found.pack, entry.offset, entry.length)

    def _window(self, content: _Content, window: int) -> list[Cut]:
        size, end = content.blocks.size_bytes, window + self.chunker.window_bytes
        old, same = self._before(content, window)
        zeros = _within(content.zeros, window, end)
        chunks = list(cut_window(self.chunker, window, size, content.read, zeros=zeros, old=old))
        cuts = self._cuts(chunks, same)
        self._alike.put(window, size, content.ids_in(window, end), [(cut.start, cut.length, cut.id) for cut in cuts])
        return cuts

    def _before(self, content: _Content, window: int) -> tuple[Old | None, Mapping[int, Cut]]:
        """What a window was like: in the version that is replaced, or in another file that is like it; its chunks."""
        end = window + self.chunker.window_bytes
        if content.file is not None and content.nodes is not None:
            same: dict[int, Cut] = {}
            for each in chunks_of(content.nodes, content.file, window, end):
                place = self.objects.settled(Content.FILES, Found(each.pack, each.entry))
                same[each.start] = Cut(each.start, each.length, each.id, place)
            old_size, changed = content.file.size_bytes, _within(content.changed, window, end)
        else:
            found = self._alike.find(window, content.ids_in(window, end), content.blocks.block_size)
            if found is None:
                return None, {}
            old_size, changed = found[0].size_bytes, found[1]
            same = {at: Cut(at, length, each, None) for at, (length, each) in found[0].chunks(window).items()}
            if not all(self._is_somewhere(cut.id) for cut in same.values()):
                return None, {}
        ranges = [(cut.start, cut.length) for cut in same.values()]
        return Old(size_bytes=old_size, chunks=ranges, changed=changed), same

    def _is_somewhere(self, chunk: ChunkId) -> bool:
        return chunk in self._new or self.objects.find_to_keep(Content.FILES, chunk) is not None

    def _small(self, contents: Sequence[bytes]) -> list[Cuts]:
        """All of them together: a call for each would cost more than the cutting."""
        inside = [list(cut_window(self.chunker, 0, len(data), partial(_sliced, data))) for data in contents]
        cuts = iter(self._cuts([chunk for each in inside for chunk in each], {}))
        made: list[Cuts] = []
        for data, chunks in zip(contents, inside, strict=True):
            made.append(Cuts(None, len(data)))
            if chunks:
                made[-1].put(0, list(islice(cuts, len(chunks))))
        return made

    def _cuts(self, chunks: Sequence[Chunk], same: Mapping[int, Cut]) -> list[Cut]:
        """Name chunks, and put those into packs that are new."""
        keys = self.objects.keys
        cuts: list[Cut] = []
        named: dict[ChunkId, memoryview] = {}
        for chunk in chunks:
            if chunk.data is None:
                cuts.append(same[chunk.offset])
                continue
            name = keys.chunk_id(Content.FILES, chunk.data)
            named[name] = chunk.data
            cuts.append(Cut(chunk.offset, chunk.length, name, None))
        found = self._put(named)
        return [
            msgspec.structs.replace(cut, found=there) if (there := found.get(cut.id)) is not None else cut
            for cut in cuts
        ]

    def _put(self, named: Mapping[ChunkId, memoryview]) -> dict[ChunkId, Found]:
        """Put what is new into packs; where the rest is, as far as it is known."""
        known: dict[ChunkId, Found] = {}
        new: dict[ChunkId, memoryview] = {}
        with self._lock:
            for name, data in named.items():
                if name in self._new:
                    continue  # also one that another thread compresses right now: `close` comes after all
                found = self.objects.find_to_keep(Content.FILES, name)
                if found is None:
                    self._new[name] = None
                    new[name] = data
                else:
                    known[name] = found
        codec = self.objects.codec
        # Most of the time of a first push goes by here: outside of the lock, so that as many threads compress as cut.
        try:
            encoded = [(name, codec.encode(data), len(data)) for name, data in new.items()]
        except BaseException:
            with self._lock:  # they are nowhere; who relies on them meanwhile finds no place of theirs
                for name in new:
                    del self._new[name]
            raise
        with self._lock:
            for name, message, plain in encoded:
                if self._builder is None:
                    self._builder = PackBuilder(self.objects.keys, Content.FILES, fresh_salt(), self._codec)
                self._builder.add_encoded(name, message, plain)
                if self._builder.is_full:
                    self._end_pack(self._builder)
            self.objects.store.counters.blocks_sent += len(encoded)
        return known

    def _close(self) -> None:
        with self._lock:
            if self._builder is not None:
                self._end_pack(self._builder)

    def _end_pack(self, builder: PackBuilder) -> None:
        pack, raw = builder.finish()
        self._full.append((pack, raw))
        self._new.update((entry.id, Found(pack.ref, entry)) for entry in pack.entries)
        self._builder = None


def packed(objects: Objects, nodes: Iterable[tuple[ChunkId, bytes]]) -> Iterator[tuple[Pack, bytes]]:
    """Packs of nodes of trees. For a thread."""
    builder, codec = None, Codec()
    for name, data in nodes:
        builder = builder or PackBuilder(objects.keys, Content.TREES, fresh_salt(), codec)
        builder.add(name, data)
        if builder.is_full:
            yield builder.finish()
            builder = None
    if builder is not None:
        yield builder.finish()


def _sliced(data: bytes, ranges: Sequence[Range]) -> list[bytes]:
    return [data[first:last] for first, last in ranges]


def changed_ranges(old: BlockList, new: BlockList) -> list[Range]:
    """Ranges of bytes in which two versions may differ."""
    step, ranges = new.block_size, list[Range]()
    for at in new.places_unlike(old):
        if ranges and ranges[-1][1] == at * step:
            ranges[-1] = ranges[-1][0], (at + 1) * step
        else:
            ranges.append((at * step, (at + 1) * step))
    return ranges


def hole_ranges(blocks: BlockList) -> list[Range]:
    """Ranges of bytes that are zeros, as far as whole blocks tell."""
    return [(first * blocks.block_size, behind * blocks.block_size) for first, behind in blocks.holes()]


def _within(ranges: Sequence[tuple[int, int]], start: int, end: int) -> Sequence[tuple[int, int]]:
    """Those of some ranges, ascending and apart, that reach into another one."""
    first = bisect_right(ranges, start, key=lambda each: each[1])
    return ranges[first : bisect_left(ranges, end, key=lambda each: each[0])]
