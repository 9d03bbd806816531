"""Front-end 1: pyfuse3. Translates requests into engine calls and back; holds no rules.

A request is first tried inline, in the event loop: a thread hop costs more than most requests (40-70 µs against 10).
When a disk would have to be waited for, the engine says `WouldBlock`, and the call is repeated in a thread.

The kernel caches entries, attributes and pages for as long as it likes, because this process is the only writer. With
the writeback cache it also owns size and times of regular files it knows, and it reads pages to complete them, also
through handles that were opened for writing only: handles carry no rights here, the kernel has checked them.
What changes behind its back (clones, applied changes) must be told: `forget_entry`, `forget_attributes`.
"""

from __future__ import annotations

import contextlib
import errno
import inspect
import os
import stat
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, ParamSpec, Self, TypeVar

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from blockfs.engine.fatal import Doing, Fatal
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.acl import ACCESS
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller, RenameFlags
from blockfs.engine.names.listing import Listing
from blockfs.errors import BlockfsError, FsError, MountError, NoSpaceError, WouldBlock
from blockfs.fuse.fairness import Fairness, Limit
from blockfs.fuse.handles import OpenFile, reads_for_a_user
from blockfs.fuse.writeback import take_pages
from blockfs.runtime.logs import Log
from blockfs.runtime.output import shown
from blockfs.service.counters import Counters
from blockfs.service.errnos import EXPECTED, errno_of
from blockfs.service.maintenance import paths_of
from blockfs.service.requests import ACTIVITY, KERNEL, Effect
from blockfs.tree.schema import Kind

CACHE_S: Final = 86400.0
"""How long the kernel trusts entries and attributes. This process is the only writer, and tells what it changes."""

BLOCKING_CALLS: Final = 16  # threads that may wait for disks
BLOCKING_WRITES: Final = 12  # their own, lest held-back writers stop reads
_LARGE_WRITE: Final = 128 << 10

_KINDS: Final = {kind.value: kind for kind in Kind}

log = Log()

P = ParamSpec("P")
R = TypeVar("R")


class Pyfuse3Frontend:
    """A mount through libfuse. One per process: pyfuse3 keeps its session in globals.

    Attributes:
        is_unmounted: The kernel has let go of it: nobody waits for an answer any more.
    """

    def __init__(self, filesystem: Filesystem, counters: Counters) -> None:
        self._filesystem = filesystem
        self._operations = Operations(filesystem, counters)
        self._token: trio.lowlevel.TrioToken | None = None
        self._mountpoint = b""
        self._is_terminated = False
        self.is_unmounted = False

    def mount(self, volume: bytes, mountpoint: bytes, *, flags: frozenset[str]) -> None:
        """Mount. Requests wait until `serve` runs.

        Args:
            volume: Shown as the mount's source.
            mountpoint: An existing directory.
            flags: Mount options of libfuse without a value, such as "ro", "allow_other", "noexec".

        Raises:
            MountError: Refused; libfuse has said why on stderr.
        """
        options: set[str] = {
            *flags,
            _Option(b"default_permissions"),
            _Option(b"subtype=blocksync"),
            _Option(b"fsname=" + volume.replace(b"\\", b"\\\\").replace(b",", b"\\,")),
        }
        self._mountpoint = mountpoint
        try:
            pyfuse3.init(self._operations, os.fsdecode(mountpoint), options)
        except RuntimeError as error:
            raise MountError(f"{shown(mountpoint)}: can't mount: {error}") from None

    async def serve(self) -> None:
        """Answer requests until the kernel has unmounted or `terminate` is called."""
        self._token = trio.lowlevel.current_trio_token()
        if not self._filesystem.fatal.has_struck:
            await pyfuse3.main()
            self.is_unmounted = not self._is_terminated

    async def keep_dirty_low(self, limit: Limit) -> None:
        """Lower the limit of dirty pages while fsyncs wait beside a stream; until cancelled."""
        await self._operations.fairness.keep(limit)

    def terminate(self) -> None:
        """Make `serve` return while the mount is still there. From any thread."""
        assert self._token is not None
        self._is_terminated = True
        trio.from_thread.run_sync(pyfuse3.terminate, trio_token=self._token)

    def abandon(self) -> None:
        """Make `serve` return, if it runs. From any thread, whatever it holds: nothing is waited for."""
        self._is_terminated = True
        if self._token is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(pyfuse3.terminate)

    def close(self) -> None:
        """Free the session. It is for the caller to have unmounted."""
        pyfuse3.close(unmount=False)

    def forget_entry(self, parent: int, name: bytes) -> None:
        """Tell the kernel that a directory entry has changed, and that its directory's times have.

        From a thread without the engine's lock: the kernel may write pages back through the loop before it answers.
        """
        _notify(pyfuse3.invalidate_entry, parent, name)
        self.forget_attributes(parent)

    def take_pages(self) -> None:
        """See `writeback`."""
        take_pages(self._filesystem, self._mountpoint)

    def forget_attributes(self, ino: int) -> None:
        """Tell the kernel that an inode's attributes have changed. From a thread without the engine's lock."""
        _notify(pyfuse3.invalidate_inode, ino, True)

    def forget_pages(self, ino: int) -> None:
        """Have the kernel drop its pages of a file. It writes those first that were changed: through this mount."""
        _notify(pyfuse3.invalidate_inode, ino, False)


def _notify(call: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    try:
        call(*args, **kwargs)
    except OSError as error:
        # The kernel does not know it (any more), or the mount is just ending: either way there is nothing to forget.
        if error.errno not in {errno.ENOENT, errno.ENOTCONN, errno.ENODEV, errno.EBADF}:
            raise


class _Option(str):
    """A mount option of any bytes. pyfuse3 encodes options as ASCII; a volume's path need not be."""

    __slots__ = ()

    def __new__(cls, text: bytes) -> Self:
        return super().__new__(cls, os.fsdecode(text))

    def encode(self, encoding: str = "", errors: str = "") -> bytes:
        """The bytes it was made of."""
        return os.fsencode(str(self))


class Operations(pyfuse3.Operations):
    """The request handlers. pyfuse3 calls them from one task per request, in one thread."""

    supports_dot_lookup = True
    enable_writeback_cache = True
    enable_acl = True  # the kernel then asks for them and enforces them
    # flush is left to the base class (ENOSYS): the kernel writes its pages back at close without it, and then saves
    # a round trip for each. access is never sent with default_permissions.

    def __init__(self, filesystem: Filesystem, counters: Counters) -> None:
        super().__init__()
        self._counters = counters
        for kind in _REQUESTS:
            setattr(self, kind, _counted(counters, filesystem.fatal, kind, getattr(self, kind)))
        self._filesystem = filesystem
        self._names = filesystem.namespace
        self._files = filesystem.files
        self._threads = trio.CapacityLimiter(BLOCKING_CALLS)
        self._write_threads = trio.CapacityLimiter(BLOCKING_WRITES)
        self._handles: dict[int, OpenFile] = {}
        self._listings: dict[int, tuple[int, Listing]] = {}
        self._next_handle = 1
        self.fairness = Fairness()

    # --- names ---

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find an entry; that there is none is remembered by the kernel too."""
        try:
            return self._entry(lambda: self._names.lookup(parent_inode, name))
        except FsError as error:
            if error.errno != errno.ENOENT:
                raise FUSEError(error.errno) from None
            missing = EntryAttributes()
            missing.st_ino = 0
            missing.entry_timeout = CACHE_S
            return missing

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """The kernel dropped inodes from its memory."""
        for ino, count in inode_list:
            with contextlib.suppress(FUSEError):  # nobody waits for an answer; what it is, is in the log
                _translated(self._names.forget, ino, count)

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        """Make a regular or special file."""
        kind = _KINDS[stat.S_IFMT(mode)]
        return await self._made(
            lambda: self._names.mknod(parent_inode, name, kind=kind, mode=mode, caller=_caller(ctx), rdev=rdev)
        )

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        """Make a directory."""
        return await self._made(lambda: self._names.mkdir(parent_inode, name, mode=mode, caller=_caller(ctx)))

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        """Make a symlink."""
        return await self._made(lambda: self._names.symlink(parent_inode, name, target=target, caller=_caller(ctx)))

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Give a file one more name."""
        return await self._made(lambda: self._names.link(inode, new_parent_inode, new_name))

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        """Make and open a regular file."""
        entry = await self._made(lambda: self._names.create(parent_inode, name, mode=mode, caller=_caller(ctx)))
        return self._opened(entry.st_ino, flags), entry

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove a name."""
        _translated(self._names.unlink, parent_inode, name)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an empty directory."""
        _translated(self._names.rmdir, parent_inode, name)

    async def rename(
        self,
        parent_inode_old: int,
        name_old: bytes,
        parent_inode_new: int,
        name_new: bytes,
        flags: int,
        ctx: RequestContext,
    ) -> None:
        """Move or exchange."""
        call = partial(self._names.rename, parent_inode_old, name_old, parent_inode_new, name_new)
        if flags & ~(RenameFlags.NOREPLACE | RenameFlags.EXCHANGE):
            raise FUSEError(errno.EINVAL)  # RENAME_WHITEOUT: overlayfs makes do without
        await self._patiently(partial(call, flags=RenameFlags(flags)))

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Target of a symlink."""
        target = _translated(self._names.readlink, inode)
        self._names.accessed(inode)
        return target

    # --- attributes ---

    async def getattr(self, inode: int, ctx: RequestContext | None = None) -> EntryAttributes:
        """What stat(2) shows."""
        return _attributes(_translated(self._names.getattr, inode))

    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        """chmod, chown, truncate, utimens, and the times the kernel kept for written files."""
        if fields.update_size:
            await self._patiently(partial(self._files.truncate, inode, attr.st_size))
        changes = AttributeChanges(
            mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
            ctime_ns=attr.st_ctime_ns if fields.update_ctime else None,
        )
        if changes.ctime_ns is not None:
            self._filesystem.clock.seen(changes.ctime_ns)
        if changes == AttributeChanges():
            return _attributes(_translated(self._names.getattr, inode))
        changed = _attributes(_translated(self._names.setattr, inode, changes))
        if not self._files.writers(inode):
            self._counters.activity.note()
        return changed

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Value of an extended attribute."""
        return _translated(self._names.getxattr, inode, name)

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        """Names of the extended attributes; the kernel leaves it to filesystems to hide those that are root's alone."""
        names = _translated(self._names.listxattr, inode)
        return names if ctx.uid == 0 else [name for name in names if not name.startswith(b"trusted.")]

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        """Set an extended attribute. XATTR_CREATE and XATTR_REPLACE are done by pyfuse3, with a getxattr before."""
        keeps_setgid = name != ACCESS or ctx.uid == 0 or _translated(self._names.getattr, inode).gid in _groups(ctx)
        await self._with_room(partial(self._names.setxattr, inode, name, value, keeps_setgid=keeps_setgid))

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an extended attribute."""
        _translated(self._names.removexattr, inode, name)

    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        """Room on the host."""
        numbers = _translated(self._names.statfs)
        data = StatvfsData()
        data.f_bsize = data.f_frsize = numbers.fragment_bytes
        data.f_blocks, data.f_bfree, data.f_bavail = numbers.blocks, numbers.blocks_free, numbers.blocks_available
        data.f_files, data.f_ffree, data.f_favail = numbers.files, numbers.files_free, numbers.files_free
        data.f_namemax = numbers.name_max
        return data

    # --- files ---

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open a file. O_TRUNC comes with it (FUSE_ATOMIC_O_TRUNC), O_APPEND is the kernel's business."""
        opened = self._opened(inode, flags)
        if flags & os.O_TRUNC:
            try:
                await self._patiently(partial(self._files.truncate, inode, 0))
                if ctx.uid != 0:
                    _translated(self._names.clear_set_id, inode)  # here the kernel does not, as it does for writes
            except FUSEError:
                await self.release(opened.fh)
                raise
        return opened

    async def read(self, fh: int, off: int, size: int) -> bytes:
        """Read; short only at the end of the file."""
        opened = self._handles[fh]
        data = await self._patiently(partial(self._files.read, opened.ino, off, size), ino=opened.ino)
        if opened.reading_is_access:
            self._names.accessed(opened.ino)
        return data

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        """Write all of it, or fail: of a page that it writes back, the kernel never asks how much was written.

        Inline is a fifth faster for a stream, but the host may hold a large write back while others wait for the loop.
        """
        ino = self._handles[fh].ino
        call = partial(self._write_all, ino, off, buf)
        if len(buf) >= _LARGE_WRITE:
            self.fairness.streams(ino)
            if self.fairness.is_on:
                return await self._in_thread(partial(call, may_block=True), self._write_threads, ino=ino)
        return await self._patiently(call, self._write_threads, ino=ino)

    def _write_all(self, ino: int, offset: int, data: bytes, *, may_block: bool) -> int:
        done = self._files.write(ino, offset, data, may_block=may_block, stamps=False)
        while done < len(data):  # the host became full on the way: now it says so
            done += self._files.write(ino, offset + done, memoryview(data)[done:], may_block=may_block, stamps=False)
        return done

    async def fsync(self, fh: int, datasync: bool) -> None:
        """Make a file durable; always waits for a disk."""
        opened = self._handles[fh]
        ino = opened.ino
        self.fairness.waits(ino)
        call = partial(self._files.fsync, ino, datasync=datasync, handle=opened.handle)
        with self._filesystem.priority.waiting():
            await self._in_thread(call, ino=ino)

    async def release(self, fh: int) -> None:
        """The last copy of a handle is closed."""
        opened = self._handles.pop(fh)
        self._counters.open_files = len(self._handles)
        _translated(self._files.release, opened.handle)
        if opened.is_writer:
            self._counters.activity.writers -= 1
            self._counters.activity.note()

    def _opened(self, ino: int, flags: int) -> FileInfo:
        handle = _translated(self._files.open, ino, flags & ~os.O_TRUNC)
        fh = self._take_handle()
        is_writer = flags & os.O_ACCMODE != os.O_RDONLY
        self._handles[fh] = OpenFile(ino, handle, reads_for_a_user(flags), is_writer)
        self._counters.activity.writers += is_writer
        self._counters.open_files = len(self._handles)
        return FileInfo(fh=fh, keep_cache=True)

    # --- directories ---

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Begin to read a directory."""
        listing = _translated(self._names.listing, inode)
        fh = self._take_handle()
        self._listings[fh] = (inode, listing)
        return fh

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """Fill a buffer with entries and their attributes; each one counts as a lookup."""
        ino, listing = self._listings[fh]
        while start_id and not self._reached(listing, start_id):
            await trio.lowlevel.checkpoint()  # somebody seeks far ahead: others go first
        with self._filesystem.lock:
            _translated(self._fill, listing, start_id, token)
            self._names.accessed(ino)

    def _reached(self, listing: Listing, position: int) -> bool:
        with self._filesystem.lock:
            return _translated(listing.reach, position)

    def _fill(self, listing: Listing, position: int, token: ReaddirToken) -> None:
        for entry in listing.read(position, dots=True):
            attributes = _attributes(entry.attributes)
            if not pyfuse3.readdir_reply(token, entry.name, attributes, entry.next_position):
                return
            if entry.name not in {b".", b".."}:
                self._names.remember(entry.attributes.ino)

    async def releasedir(self, fh: int) -> None:
        """A directory handle is closed."""
        del self._listings[fh]

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Make names durable."""
        with self._filesystem.priority.waiting():
            await self._in_thread(self._filesystem.commit)

    # --- calling the engine ---

    async def _patiently(
        self, call: Callable[..., R], threads: trio.CapacityLimiter | None = None, *, ino: int | None = None
    ) -> R:
        """Inline if nothing has to be waited for, else in a thread. `ino`: whose path a failure is logged with."""
        try:
            return call(may_block=False)
        except WouldBlock:
            return await self._in_thread(partial(call, may_block=True), threads, ino=ino)
        except EXPECTED as error:
            raise self._failure(error, ino) from None

    async def _in_thread(
        self, call: Callable[[], R], threads: trio.CapacityLimiter | None = None, *, ino: int | None = None
    ) -> R:
        try:
            return await trio.to_thread.run_sync(call, limiter=threads or self._threads)
        except EXPECTED as error:
            raise self._failure(error, ino) from None

    def _failure(self, error: BlockfsError | OSError, ino: int | None) -> FUSEError:
        """What the kernel is told; for damage, the log names the file as well."""
        if ino is None or errno_of(error) != errno.EIO:
            return _failure(error)
        path = None
        with self._filesystem.lock, contextlib.suppress(BlockfsError):  # the damage may be where the names are
            path = next(paths_of(self._filesystem.tree, ino), None)
        return _failure(error, path=path)

    def _entry(self, find: Callable[[], Attributes]) -> EntryAttributes:
        """Answer an entry. The kernel's reference begins under the same hold of the lock: it can't go in between."""
        with self._filesystem.lock:
            found = find()
            self._names.remember(found.ino)
        return _attributes(found)

    async def _made(self, make: Callable[[], Attributes]) -> EntryAttributes:
        return await self._with_room(partial(self._entry, make))

    async def _with_room(self, call: Callable[[], R]) -> R:
        """Inline. If there is no room, what was removed a moment ago gives its own back when that is committed."""
        try:
            return call()
        except NoSpaceError:
            await self._in_thread(self._filesystem.give_back)
            return _translated(call)
        except EXPECTED as error:
            raise _failure(error) from None

    def _take_handle(self) -> int:
        fh, self._next_handle = self._next_handle, self._next_handle + 1
        return fh


_REQUESTS: Final = [
    name
    for name, member in vars(Operations).items()
    if inspect.iscoroutinefunction(member) and not name.startswith("_")
]
"""The kinds of requests that are answered here."""


def _counted(
    counters: Counters, fatal: Fatal, kind: str, answer: Callable[P, Awaitable[R]]
) -> Callable[P, Awaitable[R]]:
    """A request handler that answers the same, is counted, and whose bugs have an owner."""
    requests, seconds, errors, now = counters.requests, counters.request_seconds, counters.errors, time.perf_counter
    note = counters.activity.note if kind in ACTIVITY else None
    what, looks = f"the request {kind}", KERNEL[kind] is Effect.LOOKS

    async def counted(*args: P.args, **kwargs: P.kwargs) -> R:
        began_s = now()
        doing = Doing(what, looks=looks)
        try:
            with doing:
                answered = await answer(*args, **kwargs)
            if note is not None:
                note()
            return answered
        except FUSEError as error:
            errors[error.errno] += 1
            raise
        except EXPECTED as error:  # a damaged page, met where no request expects one
            failure = _failure(error)
            errors[failure.errno] += 1
            raise failure from None
        except Exception as error:  # noqa: BLE001 - what it costs, and its trace in the log, are its owner's business
            fatal.met(error, doing)
            errors[errno.EIO] += 1
            raise FUSEError(errno.EIO) from None
        finally:
            requests[kind] += 1
            seconds[kind] += now() - began_s

    return counted


def _translated(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the engine; its errors become errno."""
    try:
        return call(*args, **kwargs)
    except EXPECTED as error:
        raise _failure(error) from None


def _failure(error: BlockfsError | OSError, **where: object) -> FUSEError:
    number = errno_of(error)
    if number == errno.EIO:
        # The caller learns "I/O error" only; what to do about it is in the log.
        log.error("request.failed", reason=str(error), **where)
    return FUSEError(number)


def _caller(ctx: RequestContext) -> Caller:
    return Caller(uid=ctx.uid, gid=ctx.gid)


def _groups(ctx: RequestContext) -> set[int]:
    """Groups of the calling process. One that has ended meanwhile has none."""
    try:
        return {ctx.gid, *pyfuse3.get_sup_groups(ctx.pid)}
    except (OSError, RuntimeError):
        return {ctx.gid}


def _attributes(found: Attributes) -> EntryAttributes:
    entry = EntryAttributes()
    entry.st_ino = found.ino
    entry.generation = 0  # inos are never reused
    entry.entry_timeout = entry.attr_timeout = CACHE_S
    entry.st_mode = found.st_mode
    entry.st_nlink = found.nlink
    entry.st_uid = found.uid
    entry.st_gid = found.gid
    entry.st_rdev = found.rdev
    entry.st_size = found.size_bytes
    entry.st_blksize = 4096  # the kernel's page: a larger one becomes i_blkbits, which its buffered writes trip over
    entry.st_blocks = found.allocated_bytes // 512
    entry.st_atime_ns = found.atime_ns
    entry.st_mtime_ns = found.mtime_ns
    entry.st_ctime_ns = found.ctime_ns
    return entry
