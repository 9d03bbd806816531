"""The control socket's handler: the table of requests, and the way of each to its answer.

The mount's user and root may ask for all of them (`blockfs.control.server` checks that). Each is answered in its
connection's thread, which may wait for disks, without the engine's lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from blockfs.control import maps, protocol, snapshots, waiting
from blockfs.control.protocol import Reply
from blockfs.engine.fatal import Doing
from blockfs.errors import EXPECTED, BlockfsError, ReadOnlyError
from blockfs.runtime.output import shown
from blockfs.service.answers import applying, changed, copies, maintenance, making, saving, state
from blockfs.service.conversation import Conversation, Mount

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
        maps.BlockMapOf: (state.block_map, Effect.LOOKS),
        maps.SharingOf: (state.sharing, Effect.LOOKS),
        waiting.Wait: (state.wait, Effect.LOOKS),
        protocol.Changes: (changed.changes, Effect.LOOKS),
        protocol.Hashes: (changed.hashes, Effect.KEEPS),  # it remembers what it worked out
        protocol.BlockListPage: (changed.block_list_page, Effect.LOOKS),
        protocol.Fsck: (maintenance.fsck, Effect.LOOKS),
        protocol.Scrub: (maintenance.scrub, Effect.KEEPS),  # it quarantines blocks
        protocol.Gc: (maintenance.gc, Effect.CHANGES),
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
        protocol.MakeFiles: (making.make_files, Effect.CHANGES),
        protocol.ApplyMkdir: (applying.mkdir, Effect.CHANGES),
        protocol.ApplySymlink: (applying.symlink, Effect.CHANGES),
        protocol.ApplyMove: (applying.move, Effect.CHANGES),
        protocol.ApplyRemove: (applying.remove, Effect.CHANGES),
        protocol.ApplySetMeta: (applying.set_meta, Effect.CHANGES),
    }
)
"""By type of the request; all that a session may get."""


class BugError(BlockfsError):
    """A request that changes nothing met an error that nobody expected: the mount goes on."""

    def __init__(self, doing: str, error: Exception) -> None:
        super().__init__(
            f"a bug ({type(error).__name__} in {doing}): nothing was changed, and the mount goes on; please report "
            "what mount.log in the volume says"
        )


class MountHandler(Mount):
    """The `Handler` of a mount."""

    def session(self) -> MountSession:
        """Begin a conversation."""
        return MountSession(self)

    def crashed(self, error: BaseException, doing: str) -> None:
        """Without the server's threads the mount could not be ended in order: end it now."""
        self.filesystem.fatal.strike(error, doing)


class MountSession(Conversation):
    """One connection's conversation with the mount."""

    def answer(self, request: protocol.Request) -> Reply:
        """Do what is asked.

        Raises:
            ReadOnlyError: It would change the volume, which is mounted read-only.
            AbandonedError: A bug was met, which may have left half a change.
            BugError: A bug was met, which changed nothing.
        """
        answer, effect = ANSWERS[type(request)]
        changes = effect is Effect.CHANGES or (isinstance(request, protocol.Shutdown) and request.seal)
        if self.filesystem.read_only and changes:
            place = shown(self.mount.mountpoint)
            raise ReadOnlyError(f"{place} is mounted read-only; unmount it and mount it without `--read-only` first")
        doing = Doing(f"the request {type(request).__name__}", looks=effect is Effect.LOOKS)
        try:
            with doing:
                return answer(self, request)
        except EXPECTED:
            raise
        except Exception as error:
            self.filesystem.fatal.met(error, doing)
            self.filesystem.fatal.check()
            raise BugError(doing.what, error) from error
