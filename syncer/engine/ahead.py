"""The first push of a folder sends blocks while it still hashes: else what memory can't hold would be read twice.

Only where nothing is left to decide: both the base and the container are empty, and the cycle will do what it plans.
Then every file is to be pushed, nothing can be deleted, and no safety stop is possible. No object is made early: the
plan is made of a complete look, as ever. Blocks that no object comes to name are garbage to the server, which collects
them after a day.

Blocks that the server has travel in no direction: it is asked first, by a block list that it can't accept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.core.model import NO_META, RelPath
from syncer.core.paths import PARK_FOLDER
from syncer.errors import SyncerError
from syncer.ports.localvalues import HeldBlock
from syncer.remote.client import CloudClient, MissingBlocks
from syncer.remote.parallel import for_each
from syncer.remote.pithos.upload import batches

AHEAD_S: Final = 600.0
"""For how long a look waits for the network. Nobody sees a file before the look is complete, and if the network is so
slow, reading again costs nothing beside sending."""

_BATCHES_AT_ONCE: Final = 4
_ASKING: Final = RelPath(PARK_FOLDER + b"/ahead")
"""Where a block list is put to ask what the server lacks. It names a block that nobody has, so nothing is made."""


class Ahead:
    """Sends blocks before there is a plan. Used for one look.

    Attributes:
        sent: Files of one block whose content is on the server.
    """

    def __init__(self, remote: CloudClient, block_size: int) -> None:
        self.sent: set[BlockId] = set()
        self._remote = remote
        self._block_size = block_size
        self._is_first = False
        self._decided = trio.Event()
        self._until_s: float | None = None

    def decide(self, *, is_first: bool) -> None:
        """Whether this is a first push. Until that is told, `spill` waits."""
        self._is_first = is_first
        self._decided.set()

    async def spill(self, blocks: Mapping[BlockId, HeldBlock]) -> bool:
        """See `syncer.local.folder.held.Spill`. A failure only ends it: the push meets it again, and says so."""
        await self._decided.wait()
        if self._until_s is None:
            self._until_s = trio.current_time() + AHEAD_S
        if not self._is_first or trio.current_time() > self._until_s:
            return False
        try:
            await self._send(blocks)
        except SyncerError:
            self._is_first = False
            return False
        self.sent.update(name for name, block in blocks.items() if block.is_file)
        return True

    async def _send(self, blocks: Mapping[BlockId, HeldBlock]) -> None:
        lacking = [blocks[name].data for name in await self._lacking(list(blocks)) if name in blocks]

        async def send(batch: Sequence[int]) -> None:
            await self._remote.put_blocks([lacking[at] for at in batch])

        await for_each(batches(range(len(lacking)), self._block_size), send, _BATCHES_AT_ONCE)

    async def _lacking(self, names: Sequence[BlockId]) -> Sequence[BlockId]:
        """Which of them the server lacks."""
        nobodys = block_id(os.urandom(32))
        size_bytes = (len(names) + 1) * self._block_size
        asked = BlockList(block_size=self._block_size, size_bytes=size_bytes, ids=b"".join([*names, nobodys]))
        answer = await self._remote.put_object(_ASKING, asked, NO_META, None)
        # A server that accepts that list accepts anything; whatever it says, the push asks again.
        return answer.ids if isinstance(answer, MissingBlocks) else names
