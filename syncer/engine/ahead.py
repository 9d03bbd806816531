"""The first push of a folder sends blocks while it still hashes.

Else the server would wait for the end of the look, and what memory can't hold would be read twice.

Only where nothing is left to decide: both the base and the container are empty, and the cycle will do what it plans.
Then every file is to be pushed, nothing can be deleted, and no safety stop is possible. No object is made early: the
plan is made of a complete look, as ever. Blocks that no object comes to name are garbage to the server, which collects
them after a day.

Blocks that the server has travel in no direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import trio

from blockfs.blocks.ids import BlockId
from syncer.errors import SyncerError
from syncer.ports.localvalues import HeldBlock
from syncer.ports.orders import Writes

AHEAD_S: Final = 600.0
"""For how long a look waits for the network. Nobody sees a file before the look is complete, and if the network is so
slow, reading again costs nothing beside sending."""


class Ahead:
    """Sends blocks before there is a plan. Used for one look.

    Attributes:
        sent: Files of one block whose content is on the server.
    """

    def __init__(self, remote: Writes) -> None:
        self.sent: set[BlockId] = set()
        self._remote = remote
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
            await self._remote.send({name: block.data for name, block in blocks.items()})
        except SyncerError:
            self._is_first = False
            return False
        self.sent.update(name for name, block in blocks.items() if block.is_file)
        return True
