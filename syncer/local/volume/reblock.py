"""A volume's contents for a server with another block size: named, cut and put together in the server's blocks.

The volume's own block list tells which of its blocks changed; only the server's blocks that overlap those are put
together and hashed again (`core/reblock.py`). For that both block lists of each content are kept in the root's state
folder. They are a cache: without them a file is hashed as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, ParamSpec, Protocol, TypeVar

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.errors import BlockfsError
from syncer.blocks.wanting import fetch_files
from syncer.core.model import Content
from syncer.core.reblock import joined, over, pieces, stale
from syncer.local.blocklists import BlockIndex, BlockLists
from syncer.local.coming import Coming
from syncer.ports.blocks import Fetcher
from syncer.ports.localvalues import LocalCounters, StageOrder, content_of

P = ParamSpec("P")
T = TypeVar("T")

_BATCH_BYTES: Final = 32 << 20  # of server's blocks in memory at once, while they are cut into the volume's
_PAIRS: Final = 4  # kept in memory: a push asks for one block after the other


class Run(Protocol):
    """Runs blocking work in a thread."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run it."""
        ...


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """One content in both grids: as the volume cuts it, and as the server does."""

    near: BlockList
    far: BlockList


class Regrid:
    """One volume's. Safe for many threads; blocking but for `assemble`.

    Attributes:
        lists: Those of the server's blocks. The volume's own are beside them.
        counters: Of the root; of its own where nobody counts.
    """

    def __init__(
        self, blocks: BlockDirectory, folder: str, near_size: int, far_size: int, counters: LocalCounters | None = None
    ) -> None:
        """Use a folder for the block lists.

        Args:
            blocks: The volume's blocks.
            folder: Made if need be, with another one beside it.
            near_size: The volume's block size.
            far_size: The server's.
            counters: Of the root, if somebody counts.
        """
        self.counters = counters or LocalCounters()
        self._blocks = blocks
        self._near_size = near_size
        self._far_size = far_size
        self._near = BlockLists(f"{folder}-near", near_size, named_by=far_size)
        self.lists = BlockLists(folder, far_size)
        self._loaded: dict[Content, Pair] = {}
        self._index: BlockIndex | None = None
        self._coming = Coming()
        self._indexing = threading.Lock()
        self._recent: tuple[BlockId, bytes] = ZERO_BLOCK, b""  # where the server's blocks are smaller
        self._lock = threading.Lock()

    # --- naming and reading, for a push

    def name(self, near: BlockList, old: Content | None) -> Content:
        """What the server calls a content of the volume.

        Args:
            near: The volume's block list.
            old: A content that it may have come from: what is unchanged is not read again.

        Raises:
            MissingBlockError: It changed meanwhile, and lost its blocks to a collection.
        """
        known = self.pair(old) if old is not None else None
        if known is None:
            far, again = _holes(near.size_bytes, self._far_size), _not_holes(near, self._far_size)
        else:
            far = known.far.splice(near.size_bytes, {})
            again = stale(near, known.near, known.far)
        far = far.splice(near.size_bytes, {index: block_id(self._far_block(near, index)) for index in again})
        content = content_of(far)
        self.keep(content, Pair(near=near, far=far))
        return content

    def keep(self, content: Content, pair: Pair) -> None:
        """Remember both block lists of a content."""
        self._near.save(content, pair.near)
        self.lists.save(content, pair.far)
        with self._lock:
            self._loaded.pop(content, None)
            self._loaded[content] = pair
            while len(self._loaded) > _PAIRS:
                self._loaded.pop(next(iter(self._loaded)))

    def drop(self, contents: Iterable[Content]) -> None:
        """Forget these."""
        gone = list(contents)
        self._near.drop(gone)
        self.lists.drop(gone)
        with self._indexing:
            self._index = None

    def keep_only(self, contents: Iterable[Content]) -> None:
        """Forget all others."""
        wanted = set(contents)
        self._near.keep_only(wanted)
        self.lists.keep_only(wanted)
        with self._indexing:
            self._index = None

    def pair(self, content: Content) -> Pair | None:
        """Both block lists of a content, if they are known."""
        with self._lock:
            found = self._loaded.get(content)
        if found is None:
            near, far = self._near.load(content), self.lists.load(content)
            found = Pair(near=near, far=far) if near is not None and far is not None else None
            if found is not None:
                self.keep(content, found)
        return found

    def far_block(self, pair: Pair, index: int) -> bytes:
        """A block as the server cuts it, from the volume's blocks.

        Raises:
            MissingBlockError: A collection took one of them.
        """
        return self._far_block(pair.near, index)

    def _far_block(self, near: BlockList, index: int) -> bytes:
        parts = pieces(index, self._far_size, self._near_size, near.size_bytes)
        blocks = {part.index: self._get(near[part.index]) for part in parts}
        return joined(parts, blocks, self._near_size)

    def _get(self, wanted: BlockId) -> bytes:
        if wanted == ZERO_BLOCK:
            return b""
        recent, data = self._recent
        if recent != wanted:
            data = self._blocks.get(wanted)
            self.counters.bytes_read += len(data)
            self._recent = wanted, data
        return data

    # --- by their ids

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        """See NearBlocks."""
        found: set[BlockId] = set()
        with suppress(BlockfsError, OSError):
            found = set(ids).difference(self._blocks.missing(ids))  # a short block has the same name in both grids
        index = self._everything()
        return found.union(block for block in ids if block not in found and self._coming.may_have(index, block))

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        """See NearBlocks."""
        found: dict[BlockId, bytes] = {}
        for block in ids:
            for data in self._all_of(block):
                if not checked or block_id(data) == block:
                    found[block] = data
                    break
        return found

    def find(self, block: BlockId) -> bytes | None:
        """A block of the server's, canonical; None: it is not here."""
        data = self.read([block], checked=True).get(block)
        return None if data is None else canonical(data)

    def _all_of(self, block: BlockId) -> Iterator[bytes]:
        """What may be a block of the server's, from all places that are known."""
        with suppress(BlockfsError, OSError):
            yield self._get(block)
        for content, number in self._everything().find(block):
            yield from self._coming.held(content, number)
            pair = self.pair(content)
            data = None if pair is None else self.joined_of(pair.near, number)
            if data is not None:
                yield data

    def joined_of(self, near: BlockList, index: int) -> bytes | None:
        """A block as the server cuts it, not verified; None: a part of it is not here any more."""
        with suppress(BlockfsError, OSError):
            return self._far_block(near, index)
        return None

    def _everything(self) -> BlockIndex:
        """The index over all contents whose lists are kept, and those that come."""
        with self._indexing:
            if self._index is None:
                coming = self._coming.lists()  # first: what ends meanwhile has its lists
                self._index = BlockIndex(self.lists, sorted(self.lists.contents(), key=lambda each: each.object_hash))
                for content, blocks in coming:
                    self._index.add(content, blocks)
            return self._index

    def _begin(self, order: StageOrder, joining: _Joining) -> None:
        with self._indexing:
            self._coming.begin(order.content, order.blocks, joining)
            if self._index is not None:
                self._index.add(order.content, order.blocks)

    # --- putting together, for a pull

    def known(self, order: StageOrder, hold: EpochHold) -> BlockList | None:
        """The volume's block list of a file, if all its blocks are there; they are claimed. None: it is assembled."""
        if all(name == ZERO_BLOCK for name in order.blocks):
            return _holes(order.blocks.size_bytes, self._near_size)
        pair = self.pair(order.content)
        if pair is None or self._blocks.missing(pair.near, hold):
            return None
        self.counters.own_blocks += len(order.blocks)  # one
        return pair.near

    def cut(self, order: StageOrder, data: bytes, hold: EpochHold) -> BlockList:
        """Store a file of one of the server's blocks. Returns its block list as the volume cuts it; not synced."""
        size_bytes = order.blocks.size_bytes
        count = block_count(size_bytes, self._near_size)
        parts = (pieces(at, self._near_size, self._far_size, size_bytes) for at in range(count))
        ids = self._blocks.put_all([joined(part, {0: data}, self._far_size) for part in parts], hold)
        near = BlockList(block_size=self._near_size, size_bytes=size_bytes, ids=b"".join(ids))
        self.keep(order.content, Pair(near=near, far=order.blocks))
        with self._indexing:
            if self._index is not None:
                self._index.add(order.content, order.blocks)
        return near

    async def assemble(self, order: StageOrder, blocks: Fetcher, hold: EpochHold, run: Run) -> BlockList:
        """Get everything that a file needs into the block directory, durably.

        Args:
            order: The file, as the server cuts it.
            blocks: The cycle's.
            hold: Keeps collectors away until the file refers to its blocks.
            run: For blocking work.

        Returns:
            Its block list as the volume cuts it.
        """
        old = await run(self._old_version, order)
        if old is None:
            near, again = _holes(order.blocks.size_bytes, self._near_size), _not_holes(order.blocks, self._near_size)
        else:
            near = old.near.splice(order.blocks.size_bytes, {})
            again = stale(order.blocks, old.far, old.near)
        # What stays as it was is claimed, so that no collection takes it before the new file refers to it.
        absent = set(await run(self._blocks.missing, near, hold))
        if absent:
            again = sorted({*again, *(index for index, each in enumerate(near) if each in absent)})
        joining = _Joining(self, order.blocks, near)
        await run(self._begin, order, joining)
        came = False
        try:
            for batch in self._batches(again):
                await self._fill(order, blocks, old, batch, joining, hold, run)
            await run(self.keep, order.content, Pair(near=joining.near, far=order.blocks))
            came = True
        finally:
            self._coming.end(order.content, joining, came=came)
        return joining.near

    async def _fill(
        self,
        order: StageOrder,
        blocks: Fetcher,
        old: Pair | None,
        batch: Sequence[int],
        joining: _Joining,
        hold: EpochHold,
        run: Run,
    ) -> None:
        """Make some near blocks."""
        far, size_bytes = order.blocks, order.blocks.size_bytes
        needed = over(batch, self._near_size, self._far_size, size_bytes)
        found = await run(self._unchanged, far, old, needed)
        missing = {far[index]: index for index in reversed(needed) if far[index] not in found}
        joining.fetched = found

        async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
            found.update(got)

        if missing:
            lacking = {0: sorted(missing.values())}
            for error in (await fetch_files(blocks, [(order.version, far)], lacking, receive)).values():
                raise error

        def store() -> dict[int, BlockId]:
            by_index = {index: found[far[index]] for index in needed}
            made: dict[int, BlockId] = {}
            for index in batch:
                parts = pieces(index, self._near_size, self._far_size, size_bytes)
                made[index] = self._blocks.put(joined(parts, by_index, self._far_size), hold)
            self._blocks.sync()
            return made

        joining.near = joining.near.splice(size_bytes, await run(store))
        joining.done.update(needed)
        joining.fetched = {}  # last: until here they are found in memory

    def _unchanged(self, far: BlockList, old: Pair | None, needed: Sequence[int]) -> dict[BlockId, bytes]:
        """Those of some of the server's blocks that the old version has in the same place."""
        found: dict[BlockId, bytes] = {ZERO_BLOCK: b""}
        for index in needed:
            name = far[index]
            if old is not None and name not in found and index < len(old.far) and old.far[index] == name:
                data = self.joined_of(old.near, index)
                if data is not None and block_id(data) == name:
                    found[name] = data
        return found

    def _old_version(self, order: StageOrder) -> Pair | None:
        for origin in order.origins:
            found = self.pair(origin.content)
            if found is not None:
                self.counters.own_blocks += order.own_blocks(origin, found.far)
                return found
        return None

    def _batches(self, indexes: Sequence[int]) -> Iterator[list[int]]:
        """Near indexes in groups that need few far blocks; what lies in one far block is together."""
        most = max(1, _BATCH_BYTES // self._far_size)
        batch: list[int] = []
        units: set[int] = set()
        for index in indexes:
            unit = index * self._near_size // max(self._near_size, self._far_size)
            if unit not in units and len(units) >= most:
                yield batch
                batch, units = [], set()
            units.add(unit)
            batch.append(index)
        if batch:
            yield batch


class _Joining:
    """A file on its way, see `Arriving`.

    Attributes:
        near: Its block list in the volume's blocks so far.
        done: Those of the server's blocks that are in it.
        fetched: Some that are in memory.
    """

    def __init__(self, regrid: Regrid, far: BlockList, near: BlockList) -> None:
        self.near = near
        self.done: set[int] = set()
        self.fetched: Mapping[BlockId, bytes] = {}
        self._regrid = regrid
        self._far = far

    def has(self, index: int) -> bool:
        """See Arriving."""
        return index in self.done or self._far[index] in self.fetched

    def held(self, index: int) -> bytes | None:
        """See Arriving."""
        data = self.fetched.get(self._far[index])
        return self._regrid.joined_of(self.near, index) if data is None and index in self.done else data


def _holes(size_bytes: int, block_size: int) -> BlockList:
    return BlockList(
        block_size=block_size, size_bytes=size_bytes, ids=bytes(ZERO_BLOCK) * block_count(size_bytes, block_size)
    )


def _not_holes(blocks: BlockList, other_size: int) -> list[int]:
    """Blocks of the other grid that are not known to be holes."""
    return over(
        blocks.filled(),
        blocks.block_size,
        other_size,
        blocks.size_bytes,
    )
