"""Answers control requests: wires the engine to the socket and tells the kernel what changed behind its back.

All methods run in the control server's threads, without the engine's lock.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import singledispatchmethod
from typing import Final, Protocol

from blockfs.control import protocol, waiting
from blockfs.control import snapshots as messages
from blockfs.control.protocol import ChangedReply, CursorMsg, Done, Reply
from blockfs.engine.content.staging import HostIoError
from blockfs.engine.copies.apply import Applied, Expectation, Place, RefusedError
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.fatal import Doing
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.engine.portions import pause_of
from blockfs.errors import (
    BlockfsError,
    ChangesLostError,
    DatabaseStoppedError,
    FsError,
    NotFoundError,
    ReadOnlyError,
    UsageError,
)
from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from blockfs.service import changes
from blockfs.service import maintenance as upkeep
from blockfs.service.counters import Counters
from blockfs.service.errnos import EXPECTED
from blockfs.service.figures import figures_of
from blockfs.service.requests import LOOKING
from blockfs.service.snapshot_changes import SnapshotListing, frozen_file
from blockfs.service.snapshots import errors_of_create, errors_of_lookup, errors_of_restore, snapshots_reply
from blockfs.tree.schema import SNAPSHOTS_INO

log = Log()

_READING: Final = (
    protocol.Status,
    protocol.Stats,
    protocol.Changes,
    waiting.Wait,
    protocol.Hashes,
    protocol.BlockListPage,
    protocol.Fsck,
    protocol.Scrub,
    protocol.Shutdown,
    messages.SnapshotList,
)
"""Requests that a read-only mount answers: there a scrub only looks, and an end that would seal is refused. Whatever is
not named here is taken for a change."""


class BugError(BlockfsError):
    """A request that changes nothing met an error that nobody expected: the mount goes on."""

    def __init__(self, doing: str, error: Exception) -> None:
        super().__init__(
            f"a bug ({type(error).__name__} in {doing}): nothing was changed, and the mount goes on; please report "
            "what mount.log in the volume says"
        )


class Kernel(Protocol):
    """What a front-end can tell the kernel."""

    def forget_entry(self, parent: int, name: bytes) -> None:
        """A directory entry has changed."""
        ...

    def forget_attributes(self, ino: int) -> None:
        """An inode's attributes have changed."""
        ...

    def take_pages(self) -> None:
        """Wait until all that programs had written before the call has come in; see `writeback`."""
        ...


class MountHandler:
    """The `Handler` of a mount.

    Attributes:
        ending: Set when the mount ends: long work lets go.
        scrubbed: How many blocks a scrub under way has checked, and of how many; zeros: there is none.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        kernel: Kernel,
        mountpoint: bytes,
        unmount: Callable[[], None],
        counters: Counters,
    ) -> None:
        self.filesystem = filesystem
        self.counters = counters
        self.kernel = kernel
        self.mountpoint = mountpoint
        self.unmount = unmount
        self.ending = threading.Event()
        self.scrubbed = (0, 0)
        filesystem.fatal.listen(self.ending.set)

    def session(self) -> MountSession:
        """Begin a conversation."""
        return MountSession(self)

    def crashed(self, error: BaseException, doing: str) -> None:
        """Without the server's threads the mount could not be ended in order: end it now."""
        self.filesystem.fatal.strike(error, doing)


class MountSession:
    """One connection's conversation with the mount."""

    def __init__(self, mount: MountHandler) -> None:
        self._mount = mount
        self._filesystem = mount.filesystem
        self._listing: changes.ChangeListing | SnapshotListing | None = None
        self._prepared: set[int] = set()
        self._pause = pause_of(mount.ending.is_set)

    def close(self) -> None:
        """Drop the snapshot and the prepared files; one that can't be dropped now goes with the next mount."""
        with self._filesystem.fatal.owning("the end of a conversation"):
            self._drop_listing()
            for handle in self._prepared:
                try:
                    self._filesystem.apply.abandon_file(handle)
                except EXPECTED as error:
                    log.warning("control.file_left", reason=str(error))

    def answer(self, request: protocol.Request) -> Reply:
        """Do what is asked.

        Raises:
            ReadOnlyError: It would change the volume, which is mounted read-only.
            AbandonedError: A bug was met, which may have left half a change.
            BugError: A bug was met, which changed nothing.
        """
        only_reads = isinstance(request, _READING) and not (isinstance(request, protocol.Shutdown) and request.seal)
        if self._filesystem.read_only and not only_reads:
            place = shown(self._mount.mountpoint)
            raise ReadOnlyError(f"{place} is mounted read-only; unmount it and mount it without `--read-only` first")
        doing = Doing(f"the request {type(request).__name__}", looks=type(request) in LOOKING)
        try:
            with doing:
                return self._answer(request)
        except EXPECTED:
            raise
        except Exception as error:
            self._filesystem.fatal.met(error, doing)
            self._filesystem.fatal.check()
            raise BugError(doing.what, error) from error

    @singledispatchmethod
    def _answer(self, request: object) -> Reply:
        raise AssertionError(f"no answer to {type(request).__name__}")

    @_answer.register
    def _(self, _request: protocol.Status) -> Reply:
        filesystem = self._filesystem
        done, blocks = self._mount.scrubbed
        with filesystem.tree.committed() as view:
            cursor = view.cursor
        return protocol.StatusReply(
            pid=os.getpid(),
            program_version=importlib.metadata.version("blocksync"),
            volume=filesystem.volume.path,
            uuid=filesystem.volume.uuid,
            mountpoint=self._mount.mountpoint,
            block_size=filesystem.volume.block_size,
            cursor=CursorMsg(mount_generation=cursor.mount_generation, sequence=cursor.sequence),
            staged_bytes=filesystem.staged_bytes,
            scrub_blocks_done=done,
            scrub_blocks=blocks,
        )

    @_answer.register
    def _(self, request: protocol.Shutdown) -> Reply:
        self._mount.kernel.take_pages()
        # An error is told here, while the mount can still be asked; the final commit has nobody to tell.
        try:
            self._save(seal=request.seal)
        except DatabaseStoppedError:
            self._mount.unmount()  # no repetition would help: only the next mount can commit again
            raise
        lost = self._filesystem.files.failure(is_new=True)
        self._mount.unmount()
        if lost is not None:
            raise ChangesLostError(f"the mount has ended; {lost}")
        return Done()

    def _save(self, *, seal: bool) -> None:
        """Make everything durable. What failed to be flushed is noted: no repetition saves it."""
        with suppress(FlushFailedError):
            if not seal:
                try:
                    self._filesystem.sync()
                except FlushFailedError:
                    raise
                except HostIoError:
                    pass  # of names, say: sealing needs none
                else:
                    return
            self._filesystem.files.flush(stop=self._mount.ending.is_set)

    @_answer.register
    def _(self, _request: protocol.Stats) -> Reply:
        filesystem, counters = self._filesystem, self._mount.counters
        with filesystem.tree.committed(self._pause) as view:
            figures = figures_of(view, filesystem.blocks, self._pause)
        return protocol.StatsReply(
            files=figures.files,
            logical_bytes=figures.logical_bytes,
            unique_bytes=figures.unique_bytes,
            stored_bytes=upkeep.stored_bytes(filesystem.volume.path),
            blocks=figures.blocks,
            staged_bytes=filesystem.staged_bytes,
            dedup_ratio=figures.dedup_ratio,
            program_version=importlib.metadata.version("blocksync"),
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
        )

    @_answer.register
    def _(self, _request: protocol.Flush) -> Reply:
        self._mount.kernel.take_pages()
        self._filesystem.files.flush(stop=self._mount.ending.is_set)
        return Done()

    @_answer.register
    def _(self, _request: protocol.Commit) -> Reply:
        self._filesystem.commit()
        return protocol.Done()

    @_answer.register
    def _(self, request: protocol.Clone) -> Reply:
        filesystem = self._filesystem
        directory, name = os.path.split(request.dst)
        try:
            self._mount.kernel.take_pages()
            source = filesystem.namespace.resolve(request.src).ino
            parent = filesystem.namespace.resolve(directory).ino
            filesystem.with_room(lambda: filesystem.clone(source, parent, name))
        except FsError as error:
            raise _clone_error(request, error) from error
        try:
            filesystem.commit()
        finally:
            # Also when the commit failed: it is tried again, and meanwhile the clone is what everybody sees.
            self._mount.kernel.forget_entry(parent, name)
            self._mount.counters.activity.note()
        return Done()

    # --- snapshots ---

    @_answer.register
    def _(self, request: messages.SnapshotCreate) -> Reply:
        filesystem = self._filesystem
        self._mount.kernel.take_pages()
        with errors_of_create(request.src, request.name):
            source = filesystem.namespace.resolve(request.src).ino
            stop = self._mount.ending.is_set
            made = filesystem.with_room(lambda: filesystem.snapshots.create(source, request.name, stop=stop))
        self._mount.kernel.forget_entry(SNAPSHOTS_INO, request.name)
        return snapshots_reply([made])

    @_answer.register
    def _(self, _request: messages.SnapshotList) -> Reply:
        return snapshots_reply(self._filesystem.snapshots.all())

    @_answer.register
    def _(self, request: messages.SnapshotDelete) -> Reply:
        snapshots = self._filesystem.snapshots
        with errors_of_lookup(request.name):
            ino = snapshots.take_away(request.name)
        kernel = self._mount.kernel
        # Before the inodes go: from here on the kernel asks for none of them by name.
        kernel.forget_entry(SNAPSHOTS_INO, request.name)
        for folder, name in snapshots.remove(ino, stop=self._mount.ending.is_set):
            # An open file keeps its entry, and its entry keeps the inode after it is closed.
            kernel.forget_entry(folder, name)
        return Done()

    @_answer.register
    def _(self, request: messages.SnapshotRestore) -> Reply:
        filesystem = self._filesystem
        directory, name = os.path.split(request.dst)
        with errors_of_restore(request):
            parent = filesystem.namespace.resolve(directory).ino
            stop = self._mount.ending.is_set
            restore = filesystem.snapshots.restore
            self._filesystem.with_room(lambda: restore(request.name, request.path, parent, name, stop=stop))
        self._mount.kernel.forget_entry(parent, name)
        self._mount.counters.activity.note()
        return Done()

    # --- maintenance ---

    @_answer.register
    def _(self, _request: protocol.Gc) -> Reply:
        filesystem = self._filesystem
        done = upkeep.gc(
            filesystem.blocks,
            filesystem.tree,
            filesystem.ballast,
            commit=filesystem.commit,
            stop=self._mount.ending.is_set,
        )
        self._mount.counters.collected(done)
        return done

    @_answer.register
    def _(self, _request: protocol.Fsck) -> Reply:
        filesystem = self._filesystem
        return upkeep.fsck(filesystem.blocks, filesystem.tree, filesystem.volume.staging_path, pause=self._pause)

    @_answer.register
    def _(self, _request: protocol.Scrub) -> Reply:
        def step(done: int, blocks: int) -> None:
            self._mount.scrubbed = (done, blocks)

        try:
            return upkeep.scrub(
                self._filesystem.blocks, self._filesystem.tree, stop=self._mount.ending.is_set, step=step
            )
        finally:
            self._mount.scrubbed = (0, 0)

    # --- changes ---

    @_answer.register
    def _(self, request: protocol.Changes) -> Reply:
        if request.after == 0 or self._listing is None:
            if request.after:
                raise UsageError("a listing begins with after = 0")
            self._drop_listing()
            self._listing = self._begin_listing(request)
        page = self._listing.page(request.after, request.limit, self._filesystem.files.writers)
        if not page.more:
            self._drop_listing()
        return page

    def _begin_listing(self, request: protocol.Changes) -> changes.ChangeListing | SnapshotListing:
        view = self._filesystem.tree.open_view(self._pause)
        try:
            if request.snapshot is None:
                return changes.ChangeListing(view, request.cursor, request.xattr_bytes)
            return SnapshotListing(view, request.cursor, request.snapshot, request.xattr_bytes)
        except BaseException:
            view.close()
            raise

    def _drop_listing(self) -> None:
        if self._listing is not None:
            self._listing.close()
            self._listing = None

    @_answer.register
    def _(self, request: waiting.Wait) -> Reply:
        activity = self._mount.counters.activity
        found = activity.wait(request.seen, request.timeout_ms / 1000)
        return waiting.WaitReply(activity=found, writers=activity.writers)

    @_answer.register
    def _(self, request: protocol.Hashes) -> Reply:
        filesystem = self._filesystem
        with filesystem.tree.committed(self._pause) as view:
            done = changes.hash_contents(view, request.items, filesystem.volume.block_size, _finder(request.snapshot))
        if done.computed:
            with filesystem.lock:
                filesystem.tree.remember_leaf_roots(done.computed)
        return protocol.HashesReply(hashes=done.hashes)

    @_answer.register
    def _(self, request: protocol.BlockListPage) -> Reply:
        filesystem = self._filesystem
        with filesystem.tree.committed() as view:
            inode = _finder(request.snapshot)(view, request.ino, request.content_version)
            if inode is None:
                return ChangedReply()
            ids = changes.block_ids(view, inode, request.first, request.count, filesystem.volume.block_size)
        return protocol.BlockListReply(size_bytes=inode.size_bytes, ids=ids)

    # --- conditional changes ---

    @_answer.register
    def _(self, request: protocol.PrepareFile) -> Reply:
        try:
            handle = self._filesystem.with_room(
                lambda: self._filesystem.apply.prepare_file(
                    size_bytes=request.size_bytes,
                    mode=request.mode,
                    caller=Caller(uid=request.uid, gid=request.gid),
                    mtime_ns=request.mtime_ns,
                    base=request.base,
                )
            )
        except RefusedError:
            return ChangedReply()
        self._prepared.add(handle)
        return protocol.Prepared(handle=handle)

    @_answer.register
    def _(self, request: protocol.SetBlocks) -> Reply:
        self._check_own(request.handle)
        set_blocks = self._filesystem.apply.set_blocks
        missing = self._filesystem.with_room(lambda: set_blocks(request.handle, request.first, request.ids))
        return protocol.MissingBlocks(ids=[bytes(block_id) for block_id in missing]) if missing else Done()

    @_answer.register
    def _(self, request: protocol.AbandonFile) -> Reply:
        self._check_own(request.handle)
        self._prepared.discard(request.handle)
        self._filesystem.apply.abandon_file(request.handle)
        return Done()

    @_answer.register
    def _(self, request: protocol.InstallFile) -> Reply:
        self._check_own(request.handle)
        place, trash = Place(parent=request.parent, name=request.name), _trash(request)

        def install() -> Applied:
            done = self._filesystem.apply.install_file(request.handle, place, _expectation(request.expect), trash=trash)
            self._prepared.discard(request.handle)
            return done

        return self._changed(request, install, place, trash)

    @_answer.register
    def _(self, request: protocol.ApplyMkdir) -> Reply:
        place = Place(parent=request.parent, name=request.name)
        caller = Caller(uid=request.uid, gid=request.gid)
        return self._changed(
            request, lambda: self._filesystem.apply.mkdir(place, mode=request.mode, caller=caller), place
        )

    @_answer.register
    def _(self, request: protocol.ApplySymlink) -> Reply:
        place = Place(parent=request.parent, name=request.name)
        caller = Caller(uid=request.uid, gid=request.gid)
        return self._changed(
            request, lambda: self._filesystem.apply.symlink(place, target=request.target, caller=caller), place
        )

    @_answer.register
    def _(self, request: protocol.ApplyMove) -> Reply:
        place = Place(parent=request.parent, name=request.name)
        to = Place(parent=request.new_parent, name=request.new_name)
        return self._changed(
            request, lambda: self._filesystem.apply.move(place, to, _expectation(request.expect)), place, to
        )

    @_answer.register
    def _(self, request: protocol.ApplyRemove) -> Reply:
        place, trash = Place(parent=request.parent, name=request.name), _trash(request)
        return self._changed(
            request,
            lambda: self._filesystem.apply.remove(place, _expectation(request.expect), trash=trash),
            place,
            trash,
        )

    @_answer.register
    def _(self, request: protocol.ApplySetMeta) -> Reply:
        filesystem = self._filesystem
        # The kernel keeps its own mtime of a file it knows: it must forget the file, by all its names.
        with filesystem.lock:
            ino = request.expect.ino
            places = (
                [] if ino is None else [Place(parent=parent, name=name) for parent, name in filesystem.tree.places(ino)]
            )
        return self._changed(
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
            *places,
        )

    def _changed(self, request: protocol.Change, change: Callable[[], Applied], *places: Place | None) -> Reply:
        """Make a change, make it durable (if asked for), tell the kernel; in this order, and only then the caller."""
        try:
            done = self._filesystem.with_room(change)
        except RefusedError as refused:
            return protocol.Refused(reason=refused.reason.value)
        try:
            if request.commit:
                self._filesystem.commit()
        finally:
            # Also when the commit failed: it is tried again, and meanwhile the change is what everybody sees.
            self._tell_kernel(done, places)
        return protocol.Applied(
            ino=done.ino, version=done.version, content_version=done.content_version, displaced=done.displaced
        )

    def _tell_kernel(self, done: Applied, places: tuple[Place | None, ...]) -> None:
        kernel = self._mount.kernel
        for place in places:
            if place is not None:
                kernel.forget_entry(place.parent, place.name)
        for ino in (done.ino, done.displaced):
            if ino is not None:
                kernel.forget_attributes(ino)

    def _check_own(self, handle: int) -> None:
        if handle not in self._prepared:
            raise UsageError(f"no file with the handle {handle} was prepared on this connection")


def _finder(snapshot: bytes | None) -> changes.FileFinder:
    if snapshot is None:
        return changes.sealed_file
    return lambda view, ino, content_version: frozen_file(view, snapshot, ino, content_version)


def _expectation(expect: protocol.Expect) -> Expectation:
    return Expectation(ino=expect.ino, content_version=expect.content_version)


def _trash(request: protocol.InstallFile | protocol.ApplyRemove) -> Place | None:
    if request.trash_parent is None or request.trash_name is None:
        return None
    return Place(parent=request.trash_parent, name=request.trash_name)


def _clone_error(request: protocol.Clone, error: FsError) -> BlockfsError:
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
