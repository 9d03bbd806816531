"""What all parts of the engine work on: the stores, the clock, and the one lock.

The order of all locks of a mount: docs/design/concurrency.md.
"""

from __future__ import annotations

from _thread import RLock

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.engine.clock import Clock
from blockfs.engine.config import EngineConfig
from blockfs.engine.content.staging import StagingDirectory
from blockfs.engine.fatal import Fatal
from blockfs.engine.hot.places import KnownPlaces
from blockfs.engine.priority import Priority
from blockfs.tree.store import Tree


class Stores(msgspec.Struct, frozen=True, kw_only=True):
    """What all parts of the engine work on.

    Attributes:
        lock: Guards the tree's change sets and all file states. Never held across fdatasync, a cold read, hashing or an
            LMDB write.
        fatal: Whether the mount goes on.
        clock: For times of change.
        priority: Whether somebody waits for an fsync.
        places: Where blocks lie that hot files are compared with.
    """

    tree: Tree
    blocks: BlockDirectory
    staging: StagingDirectory
    lock: RLock
    config: EngineConfig
    fatal: Fatal
    clock: Clock = msgspec.field(default_factory=Clock)
    priority: Priority = msgspec.field(default_factory=Priority)
    places: KnownPlaces = msgspec.field(default_factory=KnownPlaces)

    @property
    def block_size(self) -> int:
        """Bytes of a block."""
        return self.blocks.block_size
