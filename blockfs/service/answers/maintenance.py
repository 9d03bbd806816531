"""gc, fsck and scrub of a mounted volume."""

from __future__ import annotations

from blockfs.control.protocol import Fsck, Gc, Reply, Scrub
from blockfs.service import maintenance
from blockfs.service.conversation import Conversation


def gc(session: Conversation, _request: Gc) -> Reply:
    """Remove blocks that nothing refers to."""
    filesystem = session.filesystem
    done = maintenance.gc(
        filesystem.blocks, filesystem.tree, filesystem.ballast, commit=filesystem.give_back, stop=session.stop
    )
    session.mount.counters.collected(done)
    return done


def fsck(session: Conversation, _request: Fsck) -> Reply:
    """Check the committed state."""
    filesystem = session.filesystem
    return maintenance.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path, pause=session.pause)


def scrub(session: Conversation, _request: Scrub) -> Reply:
    """Read and hash every block; `status` tells how far it is."""

    def step(done: int, blocks: int) -> None:
        session.mount.scrubbed = (done, blocks)

    try:
        return maintenance.scrub(session.filesystem.blocks, session.filesystem.tree, stop=session.stop, step=step)
    finally:
        session.mount.scrubbed = (0, 0)
