"""The scheduler of blocks: one board of wants per cycle, and a handle on it for each source.

Files meet here: a block that two of them want is one want with two callers, which is fetched once, hashed once and
delivered to both. Source: docs/design/board.md.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.entries import Caller
from syncer.blocks.handles import Handle, Table
from syncer.blocks.near import OwnBlocks
from syncer.blocks.policy import ServerPolicy
from syncer.blocks.pools import Draw
from syncer.blocks.server import REMOTE, ServerHandle
from syncer.blocks.wanting import MAX_WANTS
from syncer.errors import SyncerError
from syncer.ports.blocks import BlockSource, Priority, Receive, SourceStats, Want

BUDGET_BYTES: Final = 64 << 20


class Blocks:
    """The board of one cycle. From the trio thread only."""

    def __init__(
        self, sources: Sequence[BlockSource], *, budget_bytes: int = BUDGET_BYTES, draw: Draw = random.randrange
    ) -> None:
        """Nothing is served before `run`.

        Args:
            sources: In the order in which they are asked, near ones first. Each has another name.
            budget_bytes: Most bytes that are claimed and not delivered; one block is always allowed. No source has
                more than half of it.
            draw: Chance.
        """
        near = sum(1 for source in sources if source.near)
        assert all(source.near for source in sources[:near]), "near sources come first"
        policy = ServerPolicy() if len(sources) - near > 1 else None
        self._table = Table(len(sources), near, budget_bytes, policy)
        self._table.own = next((source.blocks for source in sources if isinstance(source, OwnBlocks)), None)
        for index, source in enumerate(sources):
            if policy is not None and source.name == REMOTE:
                self._table.handles.append(ServerHandle(self._table, source, index, policy, draw))
            else:
                self._table.handles.append(Handle(self._table, source, index))

    @property
    def stats(self) -> Mapping[str, SourceStats]:
        """What each source did so far, by name."""
        return {handle.source.name: _stats(handle) for handle in self._table.handles}

    @property
    def claimed_bytes(self) -> int:
        """What is claimed, or delivered and not taken yet."""
        return self._table.claimed_bytes

    async def run(self) -> None:
        """Let the sources serve until they end. Cancel it, or call `end`, when nobody fetches any more."""
        async with trio.open_nursery() as nursery:
            for handle in self._table.handles:
                nursery.start_soon(self._serve, handle)

    def end(self) -> None:
        """Tell the sources that no want will come any more."""
        self._table.ended = True
        for handle in self._table.handles:
            handle.has_news()

    async def fetch(
        self, wants: Sequence[Want], receive: Receive, *, priority: Priority
    ) -> Mapping[BlockId, SyncerError]:
        """Have blocks delivered.

        Args:
            wants: At most 65,536; of those with one id the first counts.
            receive: Is given each block once, in this task; see Receive.
            priority: Of all of them.

        Returns:
            What can't be had and why, when everything else is delivered.
        """
        assert len(wants) <= MAX_WANTS, len(wants)
        caller, table = Caller(), self._table
        try:
            for want in wants:
                if want.id not in caller.left and want.id not in caller.failed:
                    table.put(caller, want, priority)
            await trio.lowlevel.checkpoint()
            while caller.left:
                if caller.inbox:
                    batch, caller.inbox = caller.inbox, []
                    await receive(batch)
                    for block, _ in batch:
                        table.taken(caller, block)
                else:
                    await caller.wake.wait()
                    caller.wake = trio.Event()
            return caller.failed
        finally:
            for block in list(caller.left):
                table.withdraw(caller, block)

    async def _serve(self, handle: Handle) -> None:
        why: SyncerError | None = None
        try:
            await handle.source.run(handle)
        except SyncerError as error:
            why = error
        self._table.retire(handle, why)


def _stats(handle: Handle) -> SourceStats:
    return SourceStats(
        blocks=handle.blocks,
        bytes=handle.bytes,
        late=handle.late,
        wrong=handle.wrong,
        lacked=handle.lacked,
        held_s=handle.held_s,
        seconds=handle.meter.seconds(trio.current_time()),
    )
