"""Clones and snapshots. What is new is known to the kernel when its maker hears of it."""

from __future__ import annotations

import errno
import os

from blockfs.control.protocol import Clone, Done, Reply
from blockfs.control.snapshots import SnapshotCreate, SnapshotDelete, SnapshotList, SnapshotRestore
from blockfs.errors import BlockfsError, FsError, NotFoundError, UsageError
from blockfs.runtime.output import shown
from blockfs.service.conversation import Conversation
from blockfs.service.snapshots import errors_of_create, errors_of_lookup, errors_of_restore, snapshots_reply
from blockfs.tree.schema import SNAPSHOTS_INO


def clone(session: Conversation, request: Clone) -> Reply:
    """A file that shares all blocks of another one."""
    filesystem, kernel = session.filesystem, session.mount.kernel
    directory, name = os.path.split(request.dst)
    try:
        kernel.take_pages()
        source = filesystem.namespace.resolve(request.src).ino
        parent = filesystem.namespace.resolve(directory).ino
        filesystem.with_room(lambda: filesystem.clone(source, parent, name))
    except FsError as error:
        raise _clone_error(request, error) from error
    try:
        filesystem.commit()
    finally:
        # Also when the commit failed: it is tried again, and meanwhile the clone is what everybody sees.
        kernel.forget_entry(parent, name)
        session.mount.counters.activity.note()
    return Done()


def create_snapshot(session: Conversation, request: SnapshotCreate) -> Reply:
    """A read-only copy of a subtree, at one instant."""
    filesystem, kernel = session.filesystem, session.mount.kernel
    kernel.take_pages()
    with errors_of_create(request.src, request.name):
        source = filesystem.namespace.resolve(request.src).ino
        made = filesystem.with_room(lambda: filesystem.snapshots.create(source, request.name, stop=session.stop))
    kernel.forget_entry(SNAPSHOTS_INO, request.name)
    return snapshots_reply([made])


def list_snapshots(session: Conversation, _request: SnapshotList) -> Reply:
    """All snapshots."""
    return snapshots_reply(session.filesystem.snapshots.all())


def delete_snapshot(session: Conversation, request: SnapshotDelete) -> Reply:
    """Take a snapshot away."""
    snapshots, kernel = session.filesystem.snapshots, session.mount.kernel
    with errors_of_lookup(request.name):
        ino = snapshots.take_away(request.name)
    # Before the inodes go: from here on the kernel asks for none of them by name.
    kernel.forget_entry(SNAPSHOTS_INO, request.name)
    for folder, name in snapshots.remove(ino, stop=session.stop):
        # An open file keeps its entry, and its entry keeps the inode after it is closed.
        kernel.forget_entry(folder, name)
    return Done()


def restore_snapshot(session: Conversation, request: SnapshotRestore) -> Reply:
    """A writable copy of something in a snapshot."""
    filesystem = session.filesystem
    directory, name = os.path.split(request.dst)
    restore = filesystem.snapshots.restore
    with errors_of_restore(request):
        parent = filesystem.namespace.resolve(directory).ino
        filesystem.with_room(lambda: restore(request.name, request.path, parent, name, stop=session.stop))
    session.mount.kernel.forget_entry(parent, name)
    session.mount.counters.activity.note()
    return Done()


def _clone_error(request: Clone, error: FsError) -> BlockfsError:
    """What a person must know about a clone that can't be."""
    src, dst = shown(request.src), shown(request.dst)
    match error.errno:
        case errno.EEXIST:
            return UsageError(f"{dst} exists; clone makes a new file only")
        case errno.EISDIR | errno.EINVAL:
            return UsageError(f"{src} is not a regular file; only files can be cloned")
        case errno.ENOENT | errno.ENOTDIR:
            return NotFoundError(f"{src} does not exist, or {dst} has no directory")
        case _:
            return UsageError(f"can't clone {src} to {dst}: {os.strerror(error.errno)}")
