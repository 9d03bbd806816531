"""How a mount is: status, figures, maps, and whether anybody has changed something."""

from __future__ import annotations

import errno
import os
from typing import Final

from blockfs.build import release
from blockfs.control.maps import BlockMapOf, SharingOf, SharingReply
from blockfs.control.protocol import CursorMsg, Reply, Stats, StatsReply, Status, StatusReply
from blockfs.control.waiting import Wait, WaitReply
from blockfs.service.conversation import Conversation
from blockfs.service.figures import figures_of, totals
from blockfs.service.maintenance import stored_bytes
from blockfs.service.maps import views

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


def block_map(session: Conversation, request: BlockMapOf) -> Reply:
    """The map of a file."""
    filesystem = session.filesystem
    with filesystem.tree.committed(session.pause) as view:
        ino = views.file_at(view, request.path).ino
    staged = filesystem.files.staged(ino)  # of a hot file it takes as long as writing back does: with no view held
    with filesystem.tree.committed(session.pause) as view:
        inode = view.inode(ino) or views.file_at(view, request.path)
        subject = views.Subject(
            inode=inode,
            path=request.path,
            size_bytes=inode.size_bytes if staged.size_bytes is None else staged.size_bytes,
            staged=staged.blocks,
            is_behind=staged.is_behind,
        )
        block_size = filesystem.volume.block_size
        return views.map_of(view, subject, block_size, request.cells, first=request.first, count=request.count)


def sharing(session: Conversation, request: SharingOf) -> Reply:
    """What the files come to, and which share most: as `stats`, but bounded in memory."""
    filesystem = session.filesystem
    block_size = filesystem.volume.block_size
    with filesystem.tree.committed(session.pause) as view:
        files, logical_bytes, filled_bytes = totals(view, block_size)
        found = views.sharing_of(view, request.most)
        sharers = views.sharers(view, found)
    return SharingReply(
        block_size=block_size,
        files=files,
        logical_bytes=logical_bytes,
        filled_bytes=filled_bytes,
        unique_bytes=views.unique_bytes(filesystem.blocks, found),
        stored_bytes=stored_bytes(filesystem.volume.path),
        staged_bytes=filesystem.files.unsealed_bytes(),
        sharers=sharers,
        is_whole=found.is_whole,
    )


def wait(session: Conversation, request: Wait) -> Reply:
    """Answer when something was changed, or the time is up."""
    activity = session.mount.counters.activity
    found = activity.wait(request.seen, request.timeout_ms / 1000)
    return WaitReply(activity=found, writers=activity.writers)
