"""Contents of orders, read from who has them and cut into packs: two at a time, small ones by lists.

Source: docs/design/repository.md, section 13.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.errors import ONE_NODE
from syncer.ports.orders import Order, Reader, Store
from syncer.remote.parallel import for_each
from syncer.remote.repository.contents.packing import changed_ranges
from syncer.remote.repository.format.chunks import WINDOW_BYTES, Range
from syncer.remote.repository.format.entries import Bytes
from syncer.remote.repository.format.lists import blocks_of
from syncer.remote.repository.objects import ThreadNodes
from syncer.remote.repository.writing.orders import Sent, Work

MOST_AT_ONCE: Final = 256
"""Contents of a list of small ones."""

_SMALL_BYTES: Final = 8 << 20  # of them, in memory
_CONTENTS_AT_ONCE: Final = 2  # one is read while the other is cut


class Sender:
    """Sends what orders need. Safe for many tasks."""

    def __init__(self, nodes: ThreadNodes, grid: int) -> None:
        """Take where lists are, and how long a block is."""
        self._nodes = nodes
        self._grid = grid
        self._drafting = trio.Lock()  # a draft is for one thread at a time

    async def send(self, work: Work, orders: Sequence[Order], reader: Reader) -> dict[int, Sent | Exception]:
        """Bring contents into packs.

        Args:
            work: What they belong to.
            orders: Of which those are looked at that store a content.
            reader: Has the bytes.

        Returns:
            By place in the list, what was sent, or one of `ONE_NODE`.
        """
        files: dict[int, Sent | Exception] = {}
        stores = [(at, order) for at, order in enumerate(orders) if isinstance(order, Store) and order.content]

        async def send_large(one: tuple[int, Store]) -> None:
            try:
                files[one[0]] = await self._send_large(work, one[1], reader)
            except ONE_NODE as error:
                files[one[0]] = error

        async def send_small(part: list[tuple[int, Store]]) -> None:
            files.update(await self._send_small(work, part, reader))

        small = [(at, order) for at, order in stores if order.size_bytes <= self._grid]
        large = [(at, order) for at, order in stores if self._grid < order.size_bytes <= WINDOW_BYTES]
        # Several windows of one at once, and one after the other: each may be like the one before.
        largest = [(at, order) for at, order in stores if order.size_bytes > max(self._grid, WINDOW_BYTES)]
        await for_each(iter(large), send_large, _CONTENTS_AT_ONCE)
        await for_each(iter(largest), send_large, 1)
        await for_each(iter(_portions(small)), send_small, _CONTENTS_AT_ONCE)
        return files

    async def _send_large(self, work: Work, order: Store, reader: Reader) -> Sent:
        assert order.content is not None
        blocks = await reader.block_list(order)
        async with self._drafting:
            older = await trio.to_thread.run_sync(self._older, work, order)
        ranges = () if older is None else changed_ranges(older[1], blocks)
        step, size = self._grid, order.content.size_bytes

        async def ask(asked: Sequence[Range]) -> list[bytes]:
            inside = [range(first // step, (last - 1) // step + 1) for first, last in asked]
            wanted = [index for index in dict.fromkeys(chain(*inside)) if blocks[index] != ZERO_BLOCK]
            got = dict(zip(wanted, await reader.blocks(order, blocks, wanted), strict=True)) if wanted else {}
            found: list[bytes] = []
            for (first, last), indexes in zip(asked, inside, strict=True):
                data = b"".join(got.get(index, b"").ljust(min(step, size - index * step), b"\0") for index in indexes)
                found.append(data[first - indexes[0] * step : last - indexes[0] * step])
            return found

        before = None if older is None else (older[0], self._nodes, ranges)

        def read(asked: Sequence[Range]) -> list[bytes]:
            return trio.from_thread.run(ask, asked)

        cuts = await work.packer.cut(blocks, read, older=before)
        return Sent(blocks=blocks, cuts=cuts, older=older)

    async def _send_small(
        self, work: Work, stores: Sequence[tuple[int, Store]], reader: Reader
    ) -> dict[int, Sent | Exception]:
        read = await reader.contents([order for _, order in stores])
        made: dict[int, Sent | Exception] = {}
        there: dict[int, bytes] = {}
        for (at, _), data in zip(stores, read, strict=True):
            if isinstance(data, Exception):
                made[at] = data
            else:
                there[at] = data
        cuts = await work.packer.cut_small(list(there.values()))
        lists = await trio.to_thread.run_sync(_single_lists, list(there.values()), self._grid)
        made.update(
            (at, Sent(blocks=blocks, cuts=each, older=None))
            for at, each, blocks in zip(there, cuts, lists, strict=True)
        )
        return made

    def _older(self, work: Work, order: Store) -> tuple[Bytes, BlockList] | None:
        """The version that is replaced, if it is settled where its chunks are."""
        found = work.draft.lookup(order.path) if order.replaces is not None else None
        if found is None or found.entry.file is None or found.entry.object in work.contents:
            return None
        return found.entry.file, blocks_of(self._nodes, found.entry.file, self._grid)


def _single_lists(contents: Sequence[bytes], grid: int) -> list[BlockList]:
    """The block lists of contents of at most one block."""
    return [BlockList(block_size=grid, size_bytes=len(data), ids=block_id(data) if data else b"") for data in contents]


def _portions(stores: Sequence[tuple[int, Store]]) -> Iterable[list[tuple[int, Store]]]:
    part: list[tuple[int, Store]] = []
    room = _SMALL_BYTES
    for at, order in stores:
        if part and (len(part) == MOST_AT_ONCE or order.size_bytes > room):
            yield part
            part, room = [], _SMALL_BYTES
        part.append((at, order))
        room -= order.size_bytes
    if part:
        yield part
