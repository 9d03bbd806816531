"""What the kernel asks for: one synchronous call per request, and in them the rules that all front-ends share.

A call answers, or fails with one of `EXPECTED`, or raises `WouldBlock` instead of waiting for a disk. Then it has done
nothing (but `kill_privileges`), and is repeated: `blockfs.fuse.requests` says where. Front-ends translate types, and
nothing else: so no FUSE library and no trio is known here.

The kernel has checked permissions; with the writeback cache it also reads pages to complete them, through handles that
were opened for writing only: so handles carry no rights.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Final, TypeVar

import msgspec

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.acl import ACCESS
from blockfs.engine.names.attributes import (
    SUPERUSER,
    AttributeChanges,
    Attributes,
    Caller,
    FilesystemNumbers,
    RenameFlags,
    XattrFlags,
)
from blockfs.engine.names.listing import Listing
from blockfs.errors import EXPECTED, BlockfsError, FsError, NoSpaceError, WouldBlock
from blockfs.fuse.fairness import Fairness
from blockfs.runtime.linux import supplementary_groups
from blockfs.runtime.logs import Log
from blockfs.service.counters import Counters
from blockfs.service.errnos import errno_of
from blockfs.service.maintenance import paths_of
from blockfs.tree.schema import Kind

_COPY_BYTES: Final = 2 << 30  # a multiple of all block sizes
LARGE_WRITE: Final = 128 << 10  # bytes; a stream comes in requests of up to 1 MiB

_RENAME_FLAGS: Final = RenameFlags.NOREPLACE | RenameFlags.EXCHANGE | RenameFlags.WHITEOUT
_KEEP_SIZE: Final = 0x01  # linux/falloc.h
_PUNCH_HOLE: Final = 0x02
_ZERO_RANGE: Final = 0x10
_FALLOCATE_MODES: Final = frozenset({0, _KEEP_SIZE, _PUNCH_HOLE | _KEEP_SIZE, _ZERO_RANGE, _ZERO_RANGE | _KEEP_SIZE})

_FOR_ROOT: Final = b"trusted."

log = Log()

R = TypeVar("R")

AddEntry = Callable[[bytes, Attributes, int], bool]
"""(name, attributes, position of the next one) → whether it had room in the answer."""


class _OpenFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a file handle stands for.

    Attributes:
        ino: The inode.
        handle: The engine's.
        reading_is_access: Neither opened with O_NOATIME, nor for writing only: then the kernel reads to complete pages.
        is_writer: Opened for writing, so closing it may end a change.
    """

    ino: int
    handle: int
    reading_is_access: bool
    is_writer: bool


class Calls:
    """The requests that a mount answers. Thread-safe, but for what is inline: that belongs to the front-end's loop.

    Each inode that is answered as an entry begins to be referred to by the kernel in the same step, until `forget`.
    Where `may_block` can be given, the call raises WouldBlock unless it is set.

    Attributes:
        fairness: Of large writes and fsyncs; the front-end's loop owns it.
        forget_attributes: Has the kernel ask for an inode's attributes again, without waiting for anything. None: it
            knows of all that changes.
        take_pages: Has the kernel hand over what it keeps of an inode that is open for writing, and waits for it.
            Called in a thread, without any lock, before `lseek` looks: with a writeback cache the kernel asks for data
            and holes without having written its pages, and holds the inode's lock (fuse_lseek). So it must not wait for
            that lock, nor for who does; FsError: it can't. None: the kernel keeps no pages.
        stamps_writes: A write sets mtime and ctime. Not with a writeback cache: there the kernel does.
    """

    def __init__(self, filesystem: Filesystem, counters: Counters) -> None:
        self.fairness = Fairness()
        self.forget_attributes: Callable[[int], None] | None = None
        self.take_pages: Callable[[int], None] | None = None
        self.stamps_writes = False
        self._filesystem = filesystem
        self._names = filesystem.namespace
        self._files = filesystem.files
        self._lock = filesystem.lock
        self._counters = counters
        self._activity = counters.activity
        self._numbers = count(1)
        self._handles: dict[int, _OpenFile] = {}
        self._listings: dict[int, tuple[int, Listing]] = {}

    def failed(self, error: BlockfsError | OSError, fh: int | None = None) -> int:
        """What the kernel is told of a failure; `fh`: of the file whose content is concerned."""
        number = errno_of(error)
        if number == errno.EIO:
            # The caller learns "I/O error" only; what to do about it is in the log.
            log.error("request.failed", reason=str(error), **({} if fh is None else {"path": self._path(fh)}))
        return number

    def _path(self, fh: int) -> bytes | None:
        with self._lock, suppress(BlockfsError, KeyError):  # the damage may be where the names are
            return next(paths_of(self._filesystem.tree, self._handles[fh].ino), None)
        return None

    # --- names ---

    def lookup(self, parent: int, name: bytes) -> Attributes | None:
        """Find an entry. None: there is no such name, which the kernel may remember too."""
        try:
            with self._lock:
                found = self._names.lookup(parent, name)
                self._names.remember(found.ino)
        except FsError as error:
            if error.errno != errno.ENOENT:
                raise
            return None
        return found

    def forget(self, references: Iterable[tuple[int, int]]) -> None:
        """The kernel dropped inodes from its memory: (inode, references). Nobody waits for an answer."""
        for ino, times in references:
            try:
                self._names.forget(ino, times)
            except EXPECTED as error:
                self.failed(error)

    def mknod(
        self, parent: int, name: bytes, mode: int, rdev: int, caller: Caller, *, may_block: bool = False
    ) -> Attributes:
        """Make a regular or special file: `mode` has its type, as st_mode."""
        kind = Kind(stat.S_IFMT(mode))
        make = partial(self._names.mknod, parent, name, kind=kind, mode=mode, caller=caller, rdev=rdev)
        return self._made(make, may_block=may_block)

    def mkdir(self, parent: int, name: bytes, mode: int, caller: Caller, *, may_block: bool = False) -> Attributes:
        """Make a directory."""
        return self._made(partial(self._names.mkdir, parent, name, mode=mode, caller=caller), may_block=may_block)

    def symlink(
        self, parent: int, name: bytes, target: bytes, caller: Caller, *, may_block: bool = False
    ) -> Attributes:
        """Make a symlink."""
        make = partial(self._names.symlink, parent, name, target=target, caller=caller)
        return self._made(make, may_block=may_block)

    def link(self, ino: int, parent: int, name: bytes, *, may_block: bool = False) -> Attributes:
        """Give a file one more name."""
        return self._made(partial(self._names.link, ino, parent, name), may_block=may_block)

    def create(
        self, parent: int, name: bytes, mode: int, flags: int, caller: Caller, *, may_block: bool = False
    ) -> tuple[int, Attributes]:
        """Make and open a regular file; returns its handle, too."""
        make = partial(self._names.create, parent, name, mode=mode, caller=caller)
        made = self._made(make, may_block=may_block)
        return self._opened(made.ino, flags), made

    def tmpfile(
        self, parent: int, mode: int, flags: int, caller: Caller, *, may_block: bool = False
    ) -> tuple[int, Attributes]:
        """Make and open a regular file without a name (O_TMPFILE); returns its handle, too.

        `link` gives it one, unless it was opened with O_EXCL. Else it goes with the kernel's last reference, or with
        the mount, however that ends.
        """
        may_get_name = not flags & os.O_EXCL
        make = partial(self._names.tmpfile, parent, mode=mode, caller=caller, may_get_name=may_get_name)
        made = self._made(make, may_block=may_block)
        return self._opened(made.ino, flags), made

    def unlink(self, parent: int, name: bytes) -> None:
        """Remove a name."""
        self._names.unlink(parent, name)
        self._activity.note()

    def rmdir(self, parent: int, name: bytes) -> None:
        """Remove an empty directory."""
        self._names.rmdir(parent, name)
        self._activity.note()

    def rename(
        self,
        parent: int,
        name: bytes,
        new_parent: int,
        new_name: bytes,
        flags: int,
        caller: Caller = SUPERUSER,
        *,
        may_block: bool = False,
    ) -> None:
        """Move or exchange; with RENAME_WHITEOUT, `caller` gets the device that is left."""
        if flags & ~int(_RENAME_FLAGS):
            raise FsError(errno.EINVAL, f"rename with flags {flags}")
        move = partial(
            self._names.rename,
            parent,
            name,
            new_parent,
            new_name,
            flags=RenameFlags(flags),
            caller=caller,
            may_block=may_block,
        )
        if flags & RenameFlags.WHITEOUT:
            self._with_room(move, may_block=may_block)
        else:
            move()
        self._activity.note()

    def readlink(self, ino: int) -> bytes:
        """Target of a symlink."""
        target = self._names.readlink(ino)
        self._names.accessed(ino)
        return target

    # --- attributes ---

    def getattr(self, ino: int) -> Attributes:
        """What stat(2) shows."""
        return self._names.getattr(ino)

    def setattr(
        self,
        ino: int,
        size_bytes: int | None,
        changes: AttributeChanges,
        *,
        kill_privileges: bool = False,
        may_block: bool = False,
    ) -> Attributes:
        """chmod, chown, truncate, utimens, and the times the kernel kept for written files.

        `kill_privileges` (FATTR_KILL_SUIDGID): see `write`. With nothing else it is a time of change: chown(-1, -1).
        """
        if kill_privileges:
            self._kill_privileges(ino)
        if size_bytes is not None:
            self._files.truncate(ino, size_bytes, may_block=may_block)
        if changes.ctime_ns is not None:
            with self._lock:
                self._filesystem.clock.seen(changes.ctime_ns)
        if changes == AttributeChanges() and (size_bytes is not None or not kill_privileges):
            return self._names.getattr(ino)
        changed = self._names.setattr(ino, changes)
        # Else it counts when the writer closes: a running VM, whose times the kernel sends every now and then, must not
        # wake the syncer for ever.
        if not self._files.writers(ino):
            self._activity.note()
        return changed

    def getxattr(self, ino: int, name: bytes) -> bytes:
        """Value of an extended attribute."""
        return self._names.getxattr(ino, name)

    def listxattr(self, ino: int, caller: Caller) -> list[bytes]:
        """Names of the extended attributes; the kernel leaves it to filesystems to hide those that are root's alone."""
        names = self._names.listxattr(ino)
        return names if caller.uid == 0 else [name for name in names if not name.startswith(_FOR_ROOT)]

    def setxattr(
        self, ino: int, name: bytes, value: bytes, caller: Caller, pid: int, flags: int = 0, *, may_block: bool = False
    ) -> None:
        """Set an extended attribute. An access ACL clears setgid, unless by root or a member of the file's group.

        Args:
            ino: Of what.
            name: With its namespace.
            value: Any bytes.
            caller: Who asks.
            pid: Its process, or thread, which knows all of its groups.
            flags: XATTR_CREATE or XATTR_REPLACE: EEXIST, or ENODATA, where that can't be, so always with both.
            may_block: See the class.
        """
        keeps_setgid = name != ACCESS or caller.uid == 0 or self._names.getattr(ino).gid in _groups(caller, pid)
        if flags & ~int(XattrFlags.CREATE | XattrFlags.REPLACE):
            raise FsError(errno.EINVAL, f"setxattr with flags {flags}")
        put = partial(self._names.setxattr, ino, name, value, XattrFlags(flags), keeps_setgid=keeps_setgid)
        self._with_room(put, may_block=may_block)
        self._activity.note()

    def removexattr(self, ino: int, name: bytes) -> None:
        """Remove an extended attribute."""
        self._names.removexattr(ino, name)
        self._activity.note()

    def statfs(self) -> FilesystemNumbers:
        """Room on the host."""
        return self._names.statfs()

    # --- files ---

    def open(
        self, ino: int, flags: int, caller: Caller, *, kill_privileges: bool | None = None, may_block: bool = False
    ) -> int:
        """Open a file; returns its handle. O_TRUNC comes with it (FUSE_ATOMIC_O_TRUNC), O_APPEND is the kernel's.

        Args:
            ino: Which one.
            flags: Of open(2).
            caller: Who asks.
            kill_privileges: If it truncates: see `write` (FUSE_OPEN_KILL_SUIDGID). None: the kernel neither says it nor
                sends a chmod, as it does for writes: then whoever is not root does so.
            may_block: See the class.
        """
        fh = self._opened(ino, flags)
        if flags & os.O_TRUNC:
            try:
                if caller.uid != 0 if kill_privileges is None else kill_privileges:
                    self._kill_privileges(ino)
                self._files.truncate(ino, 0, may_block=may_block)
            except EXPECTED:
                self.release(fh)
                raise
        return fh

    def read(self, fh: int, offset: int, length: int, *, may_block: bool = False) -> bytes:
        """Read; short only at the end of the file."""
        opened = self._handles[fh]
        data = self._files.read(opened.ino, offset, length, may_block=may_block)
        if opened.reading_is_access:
            self._names.accessed(opened.ino)
        return data

    def read_into(self, fh: int, offset: int, view: memoryview) -> int:
        """As `read` inline, into a buffer; returns how many bytes are in it."""
        opened = self._handles[fh]
        count = self._files.read_into(opened.ino, offset, view)
        if opened.reading_is_access:
            self._names.accessed(opened.ino)
        return count

    def write(
        self,
        fh: int,
        offset: int,
        data: bytes | memoryview,
        *,
        kill_privileges: bool = False,
        may_block: bool = False,
    ) -> int:
        """Write all of it, or fail: of a page that it writes back, the kernel never asks how much was written.

        Inline is a fifth faster for a stream, but the host may hold a large write back while others wait for the loop.

        Args:
            fh: A handle.
            offset: First byte.
            data: What to write.
            kill_privileges: Setuid, setgid and capabilities of the file end with it (FUSE_WRITE_KILL_SUIDGID): never
                later than the data, also if these then find no room.
            may_block: See the class.
        """
        ino, length = self._handles[fh].ino, len(data)
        if length >= LARGE_WRITE and not may_block:
            self.fairness.streams(ino)
            if self.fairness.is_on:
                raise WouldBlock("somebody waits for an fsync of another file")
        if kill_privileges:
            self._kill_privileges(ino)
        write, stamps = self._files.write, self.stamps_writes
        done = write(ino, offset, data, may_block=may_block, stamps=stamps)
        while done < length:  # the host became full on the way: now it says so
            rest = memoryview(data)[done:]
            done += write(ino, offset + done, rest, may_block=may_block, stamps=stamps)
        return done

    def lseek(self, fh: int, offset: int, whence: int, *, may_block: bool = False) -> int:
        """Find data or a hole: SEEK_DATA and SEEK_HOLE. Other ways to seek are the kernel's.

        Raises:
            FsError: EINVAL: another `whence`, or the kernel keeps pages to itself. ENXIO: the offset is not in the
                file, or no data follow.
        """
        ino = self._handles[fh].ino
        if whence not in {os.SEEK_DATA, os.SEEK_HOLE}:
            raise FsError(errno.EINVAL, f"seek by {whence}")
        if self.take_pages is not None and self._files.writers(ino):
            if not may_block:
                raise WouldBlock("pages that only the kernel has")
            self.take_pages(ino)
        look = self._files.next_data if whence == os.SEEK_DATA else self._files.next_hole
        found = look(ino, offset, may_block=may_block) if offset >= 0 else None
        if found is None:
            raise FsError(errno.ENXIO, f"nothing at {offset} or after")
        return found

    def fallocate(
        self, fh: int, offset: int, length: int, mode: int, *, kill_privileges: bool = False, may_block: bool = False
    ) -> None:
        """Make a hole, or ask for room; always in a thread.

        Args:
            fh: A handle.
            offset: First byte.
            length: Bytes, at least 1.
            mode: PUNCH_HOLE with KEEP_SIZE, or ZERO_RANGE: a hole. 0: room, and the file grows. KEEP_SIZE: it does not.
            kill_privileges: See `write`; no flag of the protocol says it, but Linux does so for who is not privileged.
            may_block: See the class.

        Raises:
            FsError: EOPNOTSUPP: another mode; EINVAL, EFBIG: no such range; EROFS: in a snapshot.
            NoSpaceError: The host is nearly full, or would be.
        """
        if mode not in _FALLOCATE_MODES:
            raise FsError(errno.EOPNOTSUPP, f"fallocate with mode {mode}")
        ino = self._handles[fh].ino
        if not may_block:
            raise WouldBlock("a hole")
        if kill_privileges:
            self._kill_privileges(ino)
        change = self._files.zero if mode & (_PUNCH_HOLE | _ZERO_RANGE) else self._files.allocate
        before = self._names.getattr(ino).ctime_ns
        change(ino, offset, length, keeps_size=bool(mode & _KEEP_SIZE))
        if self.stamps_writes and self._names.getattr(ino).ctime_ns == before:  # also where there was nothing to do
            with self._lock:
                now_ns = self._filesystem.clock.now_ns()
            self._names.setattr(ino, AttributeChanges(mtime_ns=now_ns))

    def copy_file_range(
        self,
        fh_in: int,
        offset_in: int,
        fh_out: int,
        offset_out: int,
        length: int,
        flags: int,
        *,
        kill_privileges: bool = False,
        may_block: bool = False,
    ) -> int:
        """Copy the beginning of a range, or all of it; always in a thread. The kernel has handed over its pages.

        Whole pages only: it drops those that were copied to when this returns, and with them what somebody has stored
        in the rest of such a page through a mapping since (fuse_copy_file_range). What is refused it copies itself.

        Args:
            fh_in: A handle of the source.
            offset_in: First byte there.
            fh_out: A handle of the destination.
            offset_out: First byte there.
            length: Bytes.
            flags: None are known.
            kill_privileges: Of the destination; see `fallocate`.
            may_block: See the class.

        Returns:
            Bytes that were copied, below 2 GiB + 1 (the protocol has 32 bits for them); 0: the source has no more.

        Raises:
            FsError: EINVAL: flags, ranges that overlap; EFBIG; EROFS: in a snapshot; EOPNOTSUPP: not a whole page.
            NoSpaceError: The host is nearly full.
        """
        if flags:
            raise FsError(errno.EINVAL, f"copy_file_range with flags {flags}")
        source, ino = self._handles[fh_in], self._handles[fh_out].ino
        if not may_block:
            raise WouldBlock("a copy")
        if kill_privileges:
            self._kill_privileges(ino)
        length = min(length, _COPY_BYTES)
        done = self._filesystem.copy_range(source.ino, offset_in, ino, offset_out, length, by_pages=True)
        if source.reading_is_access:
            self._names.accessed(source.ino)
        return done

    def fsync(self, fh: int, datasync: bool, *, may_block: bool = False) -> None:
        """Make a file durable; always waits for a disk."""
        opened = self._handles[fh]
        if not may_block:
            self.fairness.waits(opened.ino)
            raise WouldBlock("an fsync")
        self._files.fsync(opened.ino, datasync=datasync, handle=opened.handle)

    def release(self, fh: int) -> None:
        """The last copy of a handle is closed. For a writer that is activity: each write would be too much of it."""
        with self._lock:
            opened = self._handles.pop(fh)
            self._counters.open_files = len(self._handles)
            self._files.release(opened.handle)
            self._activity.writers -= opened.is_writer
        if opened.is_writer:
            self._activity.note()

    def _opened(self, ino: int, flags: int) -> int:
        mode = flags & os.O_ACCMODE
        with self._lock:
            opened = _OpenFile(
                ino=ino,
                handle=self._files.open(ino, flags & ~os.O_TRUNC),
                reading_is_access=mode != os.O_WRONLY and not flags & os.O_NOATIME,
                is_writer=mode != os.O_RDONLY,
            )
            fh = next(self._numbers)
            self._handles[fh] = opened
            self._counters.open_files = len(self._handles)
            self._activity.writers += opened.is_writer
        return fh

    # --- directories ---

    def opendir(self, ino: int) -> int:
        """Begin to read a directory; returns its handle."""
        listing = self._names.listing(ino)
        fh = next(self._numbers)
        self._listings[fh] = (ino, listing)
        return fh

    def readdir(self, fh: int, position: int, add: AddEntry) -> None:
        """Give entries with their attributes, as many as have room; each one counts as a lookup, but for "." and "..".

        Raises:
            WouldBlock: Somebody seeks far ahead: others go first. Nothing was added.
        """
        ino, listing = self._listings[fh]
        with self._lock:
            if position and not listing.reach(position):
                raise WouldBlock("a position far ahead")
            for entry in listing.read(position, dots=True):
                if not add(entry.name, entry.attributes, entry.next_position):
                    break
                if entry.name not in {b".", b".."}:
                    self._names.remember(entry.attributes.ino)
            self._names.accessed(ino)

    def releasedir(self, fh: int) -> None:
        """A directory handle is closed."""
        del self._listings[fh]

    def fsyncdir(self, *, may_block: bool = False) -> None:
        """Make names durable; always waits for a disk."""
        if not may_block:
            raise WouldBlock("an fsync")
        self._filesystem.commit()

    def _kill_privileges(self, ino: int) -> None:
        # The kernel takes no mode from the answer to a write: it would run the new content with the old set-id bits.
        if self._names.kill_privileges(ino) and self.forget_attributes is not None:
            self.forget_attributes(ino)

    # --- room ---

    def _made(self, make: Callable[[], Attributes], *, may_block: bool) -> Attributes:
        """Answer a new entry. The kernel's reference begins under the same hold of the lock: it can't go in between."""

        def referred() -> Attributes:
            with self._lock:
                found = make()
                self._names.remember(found.ino)
            return found

        made = self._with_room(referred, may_block=may_block)
        self._activity.note()
        return made

    def _with_room(self, make: Callable[[], R], *, may_block: bool) -> R:
        """Make something new. If there is no room, what was removed a moment ago gives its own back on a commit."""
        if may_block:
            return self._filesystem.with_room(make)
        try:
            return make()
        except NoSpaceError:
            raise WouldBlock("the host is nearly full") from None


def _groups(caller: Caller, pid: int) -> set[int]:
    """Groups of the calling process. One that has ended meanwhile has none."""
    with suppress(OSError):
        return {caller.gid, *supplementary_groups(pid)}
    return {caller.gid}
