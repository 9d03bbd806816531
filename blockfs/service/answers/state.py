"""How a mount is: status, figures, and whether anybody has changed something."""

from __future__ import annotations

import errno
import os
from typing import Final

from blockfs.build import release
from blockfs.control.protocol import CursorMsg, Reply, Stats, StatsReply, Status, StatusReply
from blockfs.control.waiting import Wait, WaitReply
from blockfs.service.conversation import Conversation
from blockfs.service.figures import figures_of
from blockfs.service.maintenance import stored_bytes

_NATIVE: Final = "the kernel reads and writes files of the host itself"
_WRITEBACK: Final = "writes go through the mount process into staging: "


def status(session: Conversation, _request: Status) -> Reply:
    """Who serves which volume where, and how far its journal is."""
    filesystem, mount = session.filesystem, session.mount
    done, blocks = mount.scrubbed
    with filesystem.tree.committed() as view:
        cursor = view.cursor
    return StatusReply(
        pid=os.getpid(),
        program_version=release(),
        volume=filesystem.volume.path,
        uuid=filesystem.volume.uuid,
        mountpoint=mount.mountpoint,
        block_size=filesystem.volume.block_size,
        cursor=CursorMsg(mount_generation=cursor.mount_generation, sequence=cursor.sequence),
        staged_bytes=filesystem.staged_bytes,
        scrub_blocks_done=done,
        scrub_blocks=blocks,
    )


def stats(session: Conversation, _request: Stats) -> Reply:
    """What the files come to, and what the mount has done."""
    filesystem, counters = session.filesystem, session.mount.counters
    with filesystem.tree.committed(session.pause) as view:
        figures = figures_of(view, filesystem.blocks, session.pause)
    return StatsReply(
        files=figures.files,
        logical_bytes=figures.logical_bytes,
        unique_bytes=figures.unique_bytes,
        stored_bytes=stored_bytes(filesystem.volume.path),
        blocks=figures.blocks,
        staged_bytes=filesystem.files.unsealed_bytes(),
        dedup_ratio=figures.dedup_ratio,
        program_version=release(),
        read_only=filesystem.read_only,
        uptime_seconds=counters.uptime_s,
        open_files=counters.open_files,
        requests=dict(counters.requests),
        request_seconds=dict(counters.request_seconds),
        errors={errno.errorcode.get(number, str(number)): count for number, count in dict(counters.errors).items()},
        commits=filesystem.commits,
        sealed_files=filesystem.sealed_files,
        gc_runs=counters.gc_runs,
        gc_removed_blocks=counters.gc_removed_blocks,
        gc_freed_bytes=counters.gc_freed_bytes,
        frontend=session.mount.kernel.name,
        mode="native" if session.mount.why_not_native is None else "writeback",
        mode_reason=_NATIVE if session.mount.why_not_native is None else _WRITEBACK + session.mount.why_not_native,
    )


def wait(session: Conversation, request: Wait) -> Reply:
    """Answer when something was changed, or the time is up."""
    activity = session.mount.counters.activity
    found = activity.wait(request.seen, request.timeout_ms / 1000)
    return WaitReply(activity=found, writers=activity.writers)
