"""A volume's contents for a server with another block size: named, cut and put together in the server's blocks.

The volume's own block list tells which of its blocks changed; only the server's blocks that overlap those are put
together and hashed again (`core/grid.py`). For that both block lists of each content are kept in the root's state
folder. They are a cache: without them a file is hashed as a whole.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, ParamSpec, Protocol, TypeVar

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.errors import MissingBlockError
from syncer.core.grid import joined, over, pieces, stale
from syncer.core.model import Content
from syncer.local.blocklists import BlockIndex, BlockLists
from syncer.local.root import Wanted, content_of

P = ParamSpec("P")
T = TypeVar("T")

_BATCH_BYTES: Final = 32 << 20  # of server's blocks in memory at once, while they are cut into the volume's
_PAIRS: Final = 4  # kept in memory: a push asks for one block after the other


class Run(Protocol):
    """Runs blocking work in a thread."""

    def __call__(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        """Run it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One content in both grids: as the volume cuts it, and as the server does."""

    near: BlockList
    far: BlockList


class Regrid:
    """One volume's. Safe for many threads; blocking but for `assemble`.

    Attributes:
        bytes_read: Content bytes read from the block directory so far.
    """

    def __init__(self, blocks: BlockDirectory, folder: str, near_size: int, far_size: int) -> None:
        """Use a folder for the block lists.

        Args:
            blocks: The volume's blocks.
            folder: Made if need be, with another one beside it.
            near_size: The volume's block size.
            far_size: The server's.
        """
        self.bytes_read = 0
        self._blocks = blocks
        self._near_size = near_size
        self._far_size = far_size
        self._near = BlockLists(f"{folder}-near", near_size, named_by=far_size)
        self._far = BlockLists(folder, far_size)
        self._loaded: dict[Content, Pair] = {}
        self._index: BlockIndex | None = None
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
        self._far.save(content, pair.far)
        with self._lock:
            self._loaded.pop(content, None)
            self._loaded[content] = pair
            while len(self._loaded) > _PAIRS:
                self._loaded.pop(next(iter(self._loaded)))

    def drop(self, contents: Iterable[Content]) -> None:
        """Forget these."""
        gone = list(contents)
        self._near.drop(gone)
        self._far.drop(gone)
        self._index = None

    def keep_only(self, contents: Iterable[Content]) -> None:
        """Forget all others."""
        wanted = set(contents)
        self._near.keep_only(wanted)
        self._far.keep_only(wanted)
        self._index = None

    def pair(self, content: Content) -> Pair | None:
        """Both block lists of a content, if they are known."""
        with self._lock:
            found = self._loaded.get(content)
        if found is None:
            near, far = self._near.load(content), self._far.load(content)
            found = Pair(near=near, far=far) if near is not None and far is not None else None
            if found is not None:
                self.keep(content, found)
        return found

    def read(self, pair: Pair, index: int) -> bytes:
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
            self.bytes_read += len(data)
            self._recent = wanted, data
        return data

    # --- putting together, for a pull

    async def assemble(self, wanted: Wanted, hold: EpochHold, run: Run) -> BlockList:
        """Get everything that a file needs into the block directory, durably.

        Args:
            wanted: The file, as the server cuts it.
            hold: Keeps collectors away until the file refers to its blocks.
            run: For blocking work.

        Returns:
            Its block list as the volume cuts it.
        """
        old = await run(self._old_version, wanted)
        if old is None:
            near, again = _holes(wanted.blocks.size_bytes, self._near_size), _not_holes(wanted.blocks, self._near_size)
        else:
            near = old.near.splice(wanted.blocks.size_bytes, {})
            again = stale(wanted.blocks, old.far, old.near)
        # What stays as it was is claimed, so that no collection takes it before the new file refers to it.
        absent = set(await run(self._blocks.missing, near, hold))
        if absent:
            again = sorted({*again, *(index for index, each in enumerate(near) if each in absent)})
        done: dict[BlockId, int] = {}
        for batch in self._batches(again):
            near = await self._fill(wanted, old, near, batch, done, hold, run)
        await run(self.keep, wanted.content, Pair(near=near, far=wanted.blocks))
        return near

    async def _fill(
        self,
        wanted: Wanted,
        old: Pair | None,
        near: BlockList,
        batch: Sequence[int],
        done: dict[BlockId, int],
        hold: EpochHold,
        run: Run,
    ) -> BlockList:
        """Make some near blocks; returns the list with them."""
        far, size_bytes = wanted.blocks, wanted.blocks.size_bytes
        found: dict[BlockId, bytes] = {ZERO_BLOCK: b""}
        missing: list[int] = []
        needed = over(batch, self._near_size, self._far_size, size_bytes)
        for index in needed:
            name = far[index]
            if name not in found:
                data = await run(self._find, name, index, old, near, done)
                if data is None:
                    missing.append(index)
                found[name] = data or b""

        async def receive(got: Sequence[tuple[BlockId, bytes]]) -> None:
            found.update(got)

        if missing:
            await wanted.fetch(missing, receive)

        def store() -> dict[int, BlockId]:
            made: dict[int, BlockId] = {}
            by_index = {index: found[far[index]] for index in needed}
            for index in batch:
                parts = pieces(index, self._near_size, self._far_size, size_bytes)
                made[index] = self._blocks.put(joined(parts, by_index, self._far_size), hold)
            self._blocks.sync()
            return made

        near = near.splice(size_bytes, await run(store))
        done.update((far[index], index) for index in needed)
        return near

    def _old_version(self, wanted: Wanted) -> Pair | None:
        for origin in wanted.origins:
            found = self.pair(origin.content)
            if found is not None:
                return found
        return None

    def _find(
        self, name: BlockId, index: int, old: Pair | None, near: BlockList, done: dict[BlockId, int]
    ) -> bytes | None:
        """A far block from what is here: the old version, earlier in this file, the directory, any known content."""
        if name in done:
            return self._checked(name, near, done[name])
        if old is not None and index < len(old.far) and old.far[index] == name:
            data = self._checked(name, old.near, index)
            if data is not None:
                return data
        try:
            return self._blocks.get(name, verify=True)  # a short block has the same name in both grids
        except MissingBlockError:
            pass
        for content, place in self._everything().find(name):
            pair = self.pair(content)
            data = self._checked(name, pair.near, place) if pair is not None else None
            if data is not None:
                return data
        return None

    def _checked(self, name: BlockId, near: BlockList, index: int) -> bytes | None:
        try:
            data = self._far_block(near, index)
        except MissingBlockError:
            return None
        return data if block_id(data) == name else None

    def _everything(self) -> BlockIndex:
        with self._lock:
            index = self._index
        if index is None:
            index = BlockIndex(self._far, sorted(self._far.contents(), key=lambda each: each.object_hash))
            with self._lock:
                self._index = index
        return index

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


def _holes(size_bytes: int, block_size: int) -> BlockList:
    return BlockList(
        block_size=block_size, size_bytes=size_bytes, ids=bytes(ZERO_BLOCK) * block_count(size_bytes, block_size)
    )


def _not_holes(blocks: BlockList, other_size: int) -> list[int]:
    """Blocks of the other grid that are not known to be holes."""
    return over(
        (index for index, name in enumerate(blocks) if name != ZERO_BLOCK),
        blocks.block_size,
        other_size,
        blocks.size_bytes,
    )
