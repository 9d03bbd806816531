"""Conditional changes for the syncer: made, made durable, told to the kernel; in this order, and only then answered."""

from __future__ import annotations

from collections.abc import Callable

from blockfs.control import protocol
from blockfs.control.protocol import ChangedReply, Done, Reply
from blockfs.engine.copies.conditions import Applied, Expectation, Place, RefusedError
from blockfs.engine.names.attributes import Caller
from blockfs.errors import UsageError
from blockfs.service.conversation import Conversation


def prepare_file(session: Conversation, request: protocol.PrepareFile) -> Reply:
    """A file without a name, known to this connection."""
    filesystem = session.filesystem
    try:
        handle = filesystem.with_room(
            lambda: filesystem.apply.prepare_file(
                size_bytes=request.size_bytes,
                mode=request.mode,
                caller=Caller(uid=request.uid, gid=request.gid),
                mtime_ns=request.mtime_ns,
                base=request.base,
            )
        )
    except RefusedError:
        return ChangedReply()
    session.prepared.add(handle)
    return protocol.Prepared(handle=handle)


def set_blocks(session: Conversation, request: protocol.SetBlocks) -> Reply:
    """Blocks of a prepared file; those that are not stored are the answer."""
    _check_own(session, request.handle)
    filesystem = session.filesystem
    missing = filesystem.with_room(lambda: filesystem.apply.set_blocks(request.handle, request.first, request.ids))
    return protocol.MissingBlocks(ids=[bytes(block_id) for block_id in missing]) if missing else Done()


def abandon_file(session: Conversation, request: protocol.AbandonFile) -> Reply:
    """Drop a prepared file."""
    _check_own(session, request.handle)
    session.prepared.discard(request.handle)
    session.filesystem.apply.abandon_file(request.handle)
    return Done()


def install_file(session: Conversation, request: protocol.InstallFile) -> Reply:
    """Give a prepared file its name; what was there goes to the trash."""
    _check_own(session, request.handle)
    place, trash = _place(request), _trash(request)

    def install() -> Applied:
        expect = _expectation(request.expect)
        done = session.filesystem.apply.install_file(request.handle, place, expect, trash=trash)
        session.prepared.discard(request.handle)
        return done

    return _changed(session, request, install, place, trash)


def mkdir(session: Conversation, request: protocol.ApplyMkdir) -> Reply:
    """Make a directory."""
    place, caller = _place(request), Caller(uid=request.uid, gid=request.gid)
    make = session.filesystem.apply.mkdir
    return _changed(session, request, lambda: make(place, mode=request.mode, caller=caller), place)


def symlink(session: Conversation, request: protocol.ApplySymlink) -> Reply:
    """Make a symlink."""
    place, caller = _place(request), Caller(uid=request.uid, gid=request.gid)
    make = session.filesystem.apply.symlink
    return _changed(session, request, lambda: make(place, target=request.target, caller=caller), place)


def move(session: Conversation, request: protocol.ApplyMove) -> Reply:
    """Give something another name."""
    place, to = _place(request), Place(parent=request.new_parent, name=request.new_name)
    change = session.filesystem.apply.move
    return _changed(session, request, lambda: change(place, to, _expectation(request.expect)), place, to)


def remove(session: Conversation, request: protocol.ApplyRemove) -> Reply:
    """Take a name away, to the trash if one is named."""
    place, trash = _place(request), _trash(request)
    change = session.filesystem.apply.remove
    return _changed(session, request, lambda: change(place, _expectation(request.expect), trash=trash), place, trash)


def set_meta(session: Conversation, request: protocol.ApplySetMeta) -> Reply:
    """Set mode, mtime and extended attributes."""
    filesystem, ino = session.filesystem, request.expect.ino
    # The kernel keeps its own mtime of a file it knows: it must forget the file, by all its names.
    with filesystem.lock:
        names = [] if ino is None else list(filesystem.tree.places(ino))
    return _changed(
        session,
        request,
        lambda: filesystem.apply.set_meta(
            _expectation(request.expect),
            mode=request.mode,
            keep_special=request.keep_special,
            mtime_ns=request.mtime_ns,
            xattrs=request.xattrs,
            xattr_bytes=request.xattr_bytes,
            seen=request.seen_xattrs,
        ),
        *(Place(parent=parent, name=name) for parent, name in names),
    )


def _changed(
    session: Conversation, request: protocol.Change, change: Callable[[], Applied], *places: Place | None
) -> Reply:
    try:
        done = session.filesystem.with_room(change)
    except RefusedError as refused:
        return protocol.Refused(reason=refused.reason.value)
    try:
        if request.commit:
            session.filesystem.commit()
    finally:
        # Also when the commit failed: it is tried again, and meanwhile the change is what everybody sees.
        _tell_kernel(session, done, places)
    return protocol.Applied(
        ino=done.ino, version=done.version, content_version=done.content_version, displaced=done.displaced
    )


def _tell_kernel(session: Conversation, done: Applied, places: tuple[Place | None, ...]) -> None:
    kernel = session.mount.kernel
    for place in places:
        if place is not None:
            kernel.forget_entry(place.parent, place.name)
    for ino in (done.ino, done.displaced):
        if ino is not None:
            kernel.forget_attributes(ino)


def _check_own(session: Conversation, handle: int) -> None:
    if handle not in session.prepared:
        raise UsageError(f"no file with the handle {handle} was prepared on this connection")


def _place(
    request: protocol.InstallFile
    | protocol.ApplyMkdir
    | protocol.ApplySymlink
    | protocol.ApplyMove
    | protocol.ApplyRemove,
) -> Place:
    return Place(parent=request.parent, name=request.name)


def _trash(request: protocol.InstallFile | protocol.ApplyRemove) -> Place | None:
    if request.trash_parent is None or request.trash_name is None:
        return None
    return Place(parent=request.trash_parent, name=request.trash_name)


def _expectation(expect: protocol.Expect) -> Expectation:
    return Expectation(ino=expect.ino, content_version=expect.content_version)
