"""Front-end 1: pyfuse3. Translates requests into calls and back; holds no rules.

The kernel caches entries, attributes and pages for as long as it likes, because this process is the only writer. With
the writeback cache it also owns size and times of regular files it knows.
What changes behind its back (clones, applied changes) must be told: `forget_entry`, `forget_attributes`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Sequence
from typing import Final, ParamSpec, Self

import pyfuse3
import trio
from pyfuse3 import EntryAttributes, FileInfo, FUSEError, ReaddirToken, RequestContext, SetattrFields, StatvfsData

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import AttributeChanges, Attributes, Caller
from blockfs.errors import MountError
from blockfs.fuse.answering import Answering, Limit, keep_dirty_low
from blockfs.fuse.calls import Calls
from blockfs.fuse.requests import REQUESTS
from blockfs.fuse.writeback import take_pages
from blockfs.runtime.output import shown
from blockfs.service.counters import Counters

CACHE_S: Final = 86400.0

INEXPRESSIBLE: Final = frozenset({"tmpfile", "lseek", "fallocate", "copy_file_range"})
"""Requests for which pyfuse3 has no handler: the kernel is told that they are not supported."""
"""How long the kernel trusts entries and attributes. This process is the only writer, and tells what it changes."""

P = ParamSpec("P")


class Pyfuse3Frontend:
    """A mount through libfuse. One per process: pyfuse3 keeps its session in globals.

    Attributes:
        is_unmounted: The kernel has let go of it: nobody waits for an answer any more.
        why_not_native: Why the kernel reads and writes no files of the host itself.
    """

    name: Final = "pyfuse3"
    why_not_native: Final = "the front-end pyfuse3 can't have the kernel read and write files itself"

    def __init__(self, filesystem: Filesystem, counters: Counters) -> None:
        self._filesystem = filesystem
        self._calls = Calls(filesystem, counters)
        self._operations = Operations(filesystem, self._calls, counters)
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
        await keep_dirty_low(self._calls.fairness, limit)

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

    def __init__(self, filesystem: Filesystem, calls: Calls, counters: Counters) -> None:
        super().__init__()
        self._calls = calls
        answering = Answering(filesystem, calls, counters, FUSEError)
        self._patiently = answering.patiently
        for kind in REQUESTS.keys() - INEXPRESSIBLE:
            setattr(self, kind, answering.owned(kind, getattr(self, kind)))

    # --- names ---

    async def lookup(self, parent_inode: int, name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Find an entry; that there is none is remembered by the kernel too."""
        found = self._calls.lookup(parent_inode, name)
        if found is not None:
            return _attributes(found)
        missing = EntryAttributes()
        missing.st_ino = 0
        missing.entry_timeout = CACHE_S
        return missing

    async def forget(self, inode_list: Sequence[tuple[int, int]]) -> None:
        """The kernel dropped inodes from its memory."""
        self._calls.forget(inode_list)

    async def mknod(self, parent_inode: int, name: bytes, mode: int, rdev: int, ctx: RequestContext) -> EntryAttributes:
        """Make a regular or special file."""
        return _attributes(await self._patiently(self._calls.mknod, parent_inode, name, mode, rdev, _caller(ctx)))

    async def mkdir(self, parent_inode: int, name: bytes, mode: int, ctx: RequestContext) -> EntryAttributes:
        """Make a directory."""
        return _attributes(await self._patiently(self._calls.mkdir, parent_inode, name, mode, _caller(ctx)))

    async def symlink(self, parent_inode: int, name: bytes, target: bytes, ctx: RequestContext) -> EntryAttributes:
        """Make a symlink."""
        return _attributes(await self._patiently(self._calls.symlink, parent_inode, name, target, _caller(ctx)))

    async def link(self, inode: int, new_parent_inode: int, new_name: bytes, ctx: RequestContext) -> EntryAttributes:
        """Give a file one more name."""
        return _attributes(await self._patiently(self._calls.link, inode, new_parent_inode, new_name))

    async def create(
        self, parent_inode: int, name: bytes, mode: int, flags: int, ctx: RequestContext
    ) -> tuple[FileInfo, EntryAttributes]:
        """Make and open a regular file."""
        fh, made = await self._patiently(self._calls.create, parent_inode, name, mode, flags, _caller(ctx))
        return FileInfo(fh=fh, keep_cache=True), _attributes(made)

    async def unlink(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove a name."""
        self._calls.unlink(parent_inode, name)

    async def rmdir(self, parent_inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an empty directory."""
        self._calls.rmdir(parent_inode, name)

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
        paths = parent_inode_old, name_old, parent_inode_new, name_new
        await self._patiently(self._calls.rename, *paths, flags, _caller(ctx))

    async def readlink(self, inode: int, ctx: RequestContext) -> bytes:
        """Target of a symlink."""
        return self._calls.readlink(inode)

    # --- attributes ---

    async def getattr(self, inode: int, ctx: RequestContext | None = None) -> EntryAttributes:
        """What stat(2) shows."""
        return _attributes(self._calls.getattr(inode))

    async def setattr(
        self,
        inode: int,
        attr: EntryAttributes,
        fields: SetattrFields,
        fh: int | None,
        ctx: RequestContext,
    ) -> EntryAttributes:
        """chmod, chown, truncate, utimens, and the times the kernel kept for written files."""
        changes = AttributeChanges(
            mode=stat.S_IMODE(attr.st_mode) if fields.update_mode else None,
            uid=attr.st_uid if fields.update_uid else None,
            gid=attr.st_gid if fields.update_gid else None,
            atime_ns=attr.st_atime_ns if fields.update_atime else None,
            mtime_ns=attr.st_mtime_ns if fields.update_mtime else None,
            ctime_ns=attr.st_ctime_ns if fields.update_ctime else None,
        )
        size = attr.st_size if fields.update_size else None
        return _attributes(await self._patiently(self._calls.setattr, inode, size, changes))

    async def getxattr(self, inode: int, name: bytes, ctx: RequestContext) -> bytes:
        """Value of an extended attribute."""
        return self._calls.getxattr(inode, name)

    async def listxattr(self, inode: int, ctx: RequestContext) -> Sequence[bytes]:
        """Names of the extended attributes."""
        return self._calls.listxattr(inode, _caller(ctx))

    async def setxattr(self, inode: int, name: bytes, value: bytes, ctx: RequestContext) -> None:
        """Set an extended attribute. XATTR_CREATE and XATTR_REPLACE are done by pyfuse3, with a getxattr before."""
        await self._patiently(self._calls.setxattr, inode, name, value, _caller(ctx), ctx.pid)

    async def removexattr(self, inode: int, name: bytes, ctx: RequestContext) -> None:
        """Remove an extended attribute."""
        self._calls.removexattr(inode, name)

    async def statfs(self, ctx: RequestContext) -> StatvfsData:
        """Room on the host."""
        numbers = self._calls.statfs()
        data = StatvfsData()
        data.f_bsize = data.f_frsize = numbers.fragment_bytes
        data.f_blocks, data.f_bfree, data.f_bavail = numbers.blocks, numbers.blocks_free, numbers.blocks_available
        data.f_files, data.f_ffree, data.f_favail = numbers.files, numbers.files_free, numbers.files_free
        data.f_namemax = numbers.name_max
        return data

    # --- files ---

    async def open(self, inode: int, flags: int, ctx: RequestContext) -> FileInfo:
        """Open a file."""
        return FileInfo(fh=await self._patiently(self._calls.open, inode, flags, _caller(ctx)), keep_cache=True)

    async def read(self, fh: int, off: int, size: int) -> bytes:
        """Read; short only at the end of the file."""
        return await self._patiently(self._calls.read, fh, off, size)

    async def write(self, fh: int, off: int, buf: bytes) -> int:
        """Write all of it, or fail."""
        return await self._patiently(self._calls.write, fh, off, buf)

    async def fsync(self, fh: int, datasync: bool) -> None:
        """Make a file durable."""
        await self._patiently(self._calls.fsync, fh, datasync)

    async def release(self, fh: int) -> None:
        """The last copy of a handle is closed."""
        self._calls.release(fh)

    # --- directories ---

    async def opendir(self, inode: int, ctx: RequestContext) -> int:
        """Begin to read a directory."""
        return self._calls.opendir(inode)

    async def readdir(self, fh: int, start_id: int, token: ReaddirToken) -> None:
        """Fill a buffer with entries and their attributes."""

        def add(name: bytes, found: Attributes, next_position: int) -> bool:
            return pyfuse3.readdir_reply(token, name, _attributes(found), next_position)

        await self._patiently(self._calls.readdir, fh, start_id, add)

    async def releasedir(self, fh: int) -> None:
        """A directory handle is closed."""
        self._calls.releasedir(fh)

    async def fsyncdir(self, fh: int, datasync: bool) -> None:
        """Make names durable."""
        await self._patiently(self._calls.fsyncdir)


def _caller(ctx: RequestContext) -> Caller:
    return Caller(uid=ctx.uid, gid=ctx.gid)


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
