"""The table of the control socket's requests: who answers each, and what it does to the volume.

The mount's user and root may ask for all of them (`blockfs.control.server` checks that). Each is answered in its
connection's thread, which may wait for disks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from blockfs.control import protocol, snapshots, waiting
from blockfs.control.protocol import Reply
from blockfs.service.answers import applying, changed, copies, saving, state, upkeep
from blockfs.service.conversation import Conversation

Answer = Callable[[Conversation, Any], Reply]
"""Does what is asked."""


class Effect(Enum):
    """What a request does to the volume: whether a read-only mount answers it, and what an unexpected error costs."""

    LOOKS = "nothing: such an error costs the request alone, and its trace is in the log"
    KEEPS = "changes nothing that users see, and is answered by a read-only mount; stopped half-way it ends the mount"
    CHANGES = "stopped half-way it ends the mount, so that no half of it becomes durable (`blockfs.engine.fatal`)"


ANSWERS: Final[Mapping[type[protocol.Request], tuple[Answer, Effect]]] = MappingProxyType(
    {
        protocol.Status: (state.status, Effect.LOOKS),
        protocol.Stats: (state.stats, Effect.LOOKS),
        waiting.Wait: (state.wait, Effect.LOOKS),
        protocol.Changes: (changed.changes, Effect.LOOKS),
        protocol.Hashes: (changed.hashes, Effect.KEEPS),  # it remembers what it worked out
        protocol.BlockListPage: (changed.block_list_page, Effect.LOOKS),
        protocol.Fsck: (upkeep.fsck, Effect.LOOKS),
        protocol.Scrub: (upkeep.scrub, Effect.KEEPS),  # it quarantines blocks
        protocol.Gc: (upkeep.gc, Effect.CHANGES),
        protocol.Commit: (saving.commit, Effect.CHANGES),
        protocol.Flush: (saving.flush, Effect.CHANGES),
        protocol.Shutdown: (saving.shutdown, Effect.KEEPS),  # one that would seal is refused: see `MountSession`
        protocol.Clone: (copies.clone, Effect.CHANGES),
        snapshots.SnapshotCreate: (copies.create_snapshot, Effect.CHANGES),
        snapshots.SnapshotList: (copies.list_snapshots, Effect.LOOKS),
        snapshots.SnapshotDelete: (copies.delete_snapshot, Effect.CHANGES),
        snapshots.SnapshotRestore: (copies.restore_snapshot, Effect.CHANGES),
        protocol.PrepareFile: (applying.prepare_file, Effect.CHANGES),
        protocol.SetBlocks: (applying.set_blocks, Effect.CHANGES),
        protocol.AbandonFile: (applying.abandon_file, Effect.CHANGES),
        protocol.InstallFile: (applying.install_file, Effect.CHANGES),
        protocol.ApplyMkdir: (applying.mkdir, Effect.CHANGES),
        protocol.ApplySymlink: (applying.symlink, Effect.CHANGES),
        protocol.ApplyMove: (applying.move, Effect.CHANGES),
        protocol.ApplyRemove: (applying.remove, Effect.CHANGES),
        protocol.ApplySetMeta: (applying.set_meta, Effect.CHANGES),
    }
)
"""By type of the request; all that a session may get."""
