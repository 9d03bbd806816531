"""The remote as a source of blocks: what is asked for at the same time shares requests.

Contents of one block go together, as many as are open; of longer files adjacent blocks. Nobody waits for company: a
free connection takes what there is. The board compares blocks with their ids; a wrong one is read again, alone.
What a client is asked for is its private half, `Reads`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.blocks.server import REMOTE
from syncer.core.model import RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError, CutObjectError, SyncerError
from syncer.ports.blocks import Board, Given, Place, Want
from syncer.protocol.extensions.bulk_read import MAX_CONTENT_BYTES, MAX_OBJECTS
from syncer.remote.parallel import for_each, one_error

_CONNECTIONS: Final = 16  # small files wait for round trips most of the time
_PART_BYTES: Final = 4 << 20  # of one file at a time: it is in memory until all of it is there

Deliver: TypeAlias = Callable[[int, BlockId, bytes], Awaitable[None]]
"""Takes one block: its index in the file, its id, its bytes. Awaited before more is fetched, so a slow receiver slows
the transfer down and memory stays bounded. May be called by several tasks at once, in any order."""


class Reads(Protocol):
    """What a client reads for its source."""

    async def read_small(self, versions: Sequence[tuple[RelPath, RemoteTag]]) -> list[bytes | None]:
        """Contents of at most one block each, by one request, if the server can that. Not compared with their ids.

        Args:
            versions: Objects, each as from the listing; at most `bulk_read.MAX_OBJECTS` of together at most
                `bulk_read.MAX_CONTENT_BYTES`.

        Returns:
            None for those that are to be asked for alone.
        """
        ...

    async def read_blocks(
        self,
        path: RelPath,
        tag: RemoteTag,
        blocks: BlockList,
        indexes: Sequence[int],
        deliver: Deliver,
        *,
        verify: bool = True,
    ) -> None:
        """Fetch blocks of one version, adjacent ones by one request, several requests at once.

        Args:
            path: The object.
            tag: The version, as from the listing.
            blocks: What `block_lists` returned for it.
            indexes: Which blocks, distinct, in any order. Holes are delivered without a request.
            deliver: Called once per index, with a canonical block.
            verify: False: the caller compares them with their ids. They are delivered as they came.

        Raises:
            ConflictOnRemoteError: That version is no longer readable.
            CorruptionError: The server keeps sending bytes that don't have the block's id.
            CutObjectError: And that is so because the object was cut. To find that out takes a write, perhaps.
        """
        ...


class RemoteSource:
    """`BlockSource` over what any client reads, for any number of boards."""

    name = REMOTE
    near = False

    def __init__(self, reads: Reads, called: Callable[[RelPath], RelPath] = RelPath) -> None:
        """Take who reads, and what it calls a path of a want."""
        self._reads = reads
        self._called = called

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        with one_error():
            async with trio.open_nursery() as nursery:
                await _Serving(self._reads, self._called, board, nursery).run()


class _Serving:
    """One board's."""

    def __init__(self, reads: Reads, called: Callable[[RelPath], RelPath], board: Board, nursery: trio.Nursery) -> None:
        self._reads = reads
        self._called = called
        self._board = board
        self._nursery = nursery
        self._free = trio.Semaphore(_CONNECTIONS)

    async def run(self) -> None:
        while True:
            await self._free.acquire()
            while not (wants := self._board.take(MAX_CONTENT_BYTES)):
                if not await self._board.more():
                    return
            placed = [want for want in wants if want.places]
            self._board.lack(want for want in wants if not want.places)
            jobs = list(_jobs([(want, want.places) for want in placed]))
            for at, job in enumerate(jobs):
                if at:
                    await self._free.acquire()
                self._nursery.start_soon(self._do, job)
            if not jobs:
                self._free.release()

    async def _do(self, job: Sequence[_Ask]) -> None:
        try:
            if len(job[0][1][0].blocks) == 1:
                rest = await self._small(job)
                await for_each(iter([[ask] for ask in rest]), self._part, max(1, min(len(rest), _CONNECTIONS)))
            else:
                await self._part(job)
        finally:
            self._free.release()

    async def _small(self, job: Sequence[_Ask]) -> list[_Ask]:
        """Contents of one block each, together; returns what is to be asked for alone."""
        try:
            versions = [(self._called(places[0].version.path), places[0].version.tag) for _, places in job]
            read = await self._reads.read_small(versions)
        except SyncerError as error:
            self._board.lack([want for want, _ in job], error)
            return []
        got = [(ask, data) for ask, data in zip(job, read, strict=True) if data is not None]
        wrong = await self._give(got)
        return [*(ask for ask, data in zip(job, read, strict=True) if data is None), *wrong]

    async def _part(self, job: Sequence[_Ask], *, verify: bool = False) -> None:
        """Blocks of one version. `verify`: with all that the client does about wrong ones."""
        asks = {places[0].index: (want, places) for want, places in job if self._board.is_open(want)}
        if not asks:
            self._board.lack(want for want, _ in job)
            return
        place = job[0][1][0]
        version, got = place.version, list[tuple[_Ask, bytes]]()

        async def keep(index: int, block: BlockId, data: bytes) -> None:  # noqa: ARG001 - the board compares
            got.append((asks[index], data))

        try:
            path, indexes = self._called(version.path), list(asks)
            await self._reads.read_blocks(path, version.tag, place.blocks, indexes, keep, verify=verify)
        except SyncerError as error:
            wrong = await self._give(got, hold=not verify)
            given = {id(want) for (want, _), _ in got}
            await self._elsewhere([ask for ask in job if id(ask[0]) not in given], error)
        else:
            wrong = await self._give(got, hold=not verify)
        for ask in wrong:
            await self._part([ask], verify=True)

    async def _give(self, got: Sequence[tuple[_Ask, bytes]], *, hold: bool = True) -> list[_Ask]:
        """Returns the wrong ones that are still claimed."""
        outcomes = await self._board.give([(want, data) for (want, _), data in got], hold=hold)
        return [ask for (ask, _), outcome in zip(got, outcomes, strict=True) if hold and outcome is Given.WRONG]

    async def _elsewhere(self, asks: Sequence[_Ask], error: SyncerError) -> None:
        """Where a version is gone, or cut, the block may be in another one."""
        if isinstance(error, CutObjectError):
            error = CutObjectError(asks[0][1][0].version.path, error.data)  # as whoever wants it calls the object
        others = [(want, places[1:]) for want, places in asks if len(places) > 1]
        if not isinstance(error, ConflictOnRemoteError | CutObjectError):
            others = []
        going = {id(want) for want, _ in others}
        self._board.lack([want for want, _ in asks if id(want) not in going], error)
        for job in _jobs(others):
            await self._part(job)


_Ask = tuple[Want, tuple[Place, ...]]
"""A want, and the places that were not tried yet."""


def _jobs(asks: Sequence[_Ask]) -> Iterator[list[_Ask]]:
    """What is read at once: contents of one block, and parts of one version each."""
    small: list[_Ask] = []
    parts: dict[int, list[_Ask]] = {}
    for ask in asks:
        place = ask[1][0]
        if len(place.blocks) == 1:
            small.append(ask)
        else:
            parts.setdefault(id(place.version), []).append(ask)
    for at in range(0, len(small), MAX_OBJECTS):
        yield small[at : at + MAX_OBJECTS]
    for part in parts.values():
        yield from _cut(sorted(part, key=lambda ask: ask[1][0].index))


def _cut(part: Sequence[_Ask]) -> Iterator[list[_Ask]]:
    found: list[_Ask] = []
    room = _PART_BYTES
    for ask in part:
        if found and ask[0].length > room:
            yield found
            found, room = [], _PART_BYTES
        found.append(ask)
        room -= ask[0].length
    yield found
