"""What the syncer reads: changes since a cursor, object hashes, block lists. Durable state only."""

from __future__ import annotations

from blockfs.control.protocol import BlockListPage, BlockListReply, ChangedReply, Changes, Hashes, HashesReply, Reply
from blockfs.errors import UsageError
from blockfs.service.changes import ChangeListing, FileFinder, block_ids, hash_contents, sealed_file
from blockfs.service.conversation import Conversation
from blockfs.service.snapshot_changes import SnapshotListing, frozen_file


def changes(session: Conversation, request: Changes) -> Reply:
    """A page of a listing; the first one begins it, the last one ends it."""
    if request.after == 0 or session.listing is None:
        if request.after:
            raise UsageError("a listing begins with after = 0")
        session.drop_listing()
        session.listing = _begin_listing(session, request)
    page = session.listing.page(request.after, request.limit, session.filesystem.files.writers)
    if not page.more:
        session.drop_listing()
    return page


def _begin_listing(session: Conversation, request: Changes) -> ChangeListing | SnapshotListing:
    view = session.filesystem.tree.open_view(session.pause)
    try:
        if request.snapshot is None:
            return ChangeListing(view, request.cursor, request.xattr_bytes)
        return SnapshotListing(view, request.cursor, request.snapshot, request.xattr_bytes)
    except BaseException:
        view.close()
        raise


def hashes(session: Conversation, request: Hashes) -> Reply:
    """Object hashes of contents; what was worked out for them is remembered."""
    filesystem = session.filesystem
    with filesystem.tree.committed(session.pause) as view:
        done = hash_contents(view, request.items, filesystem.volume.block_size, _finder(request.snapshot))
    if done.computed:
        with filesystem.lock:
            filesystem.tree.remember_leaf_roots(done.computed)
    return HashesReply(hashes=done.hashes)


def block_list_page(session: Conversation, request: BlockListPage) -> Reply:
    """A part of a content's block list."""
    filesystem = session.filesystem
    with filesystem.tree.committed() as view:
        inode = _finder(request.snapshot)(view, request.ino, request.content_version)
        if inode is None:
            return ChangedReply()
        ids = block_ids(view, inode, request.first, request.count, filesystem.volume.block_size)
    return BlockListReply(size_bytes=inode.size_bytes, ids=ids)


def _finder(snapshot: bytes | None) -> FileFinder:
    if snapshot is None:
        return sealed_file
    return lambda view, ino, content_version: frozen_file(view, snapshot, ino, content_version)
