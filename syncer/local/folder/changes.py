"""Changes of names and contents in an ordinary directory, each conditional, each destroying nothing unseen. Blocking.

Order of every change, each step a fault point of the crash tests (`step`): the temp file is written, verified and
fsynced (assembly.py) → rename or exchange → look at what was displaced → later, for a group of changes, fsync of the
directories (`sync`) → the engine's StateDB commit.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from stat import S_IMODE, S_IRUSR, S_ISDIR, S_ISREG
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from syncer.core.model import SPECIAL_BITS, LocalTag, Meta, RelPath
from syncer.core.paths import PRIVATE, target_objection
from syncer.errors import LocalChangedError, SyncerError, UnholdableError
from syncer.local.folder.private import TRASH, PrivateFolder
from syncer.local.folder.xattrs import keep, write
from syncer.local.safe_open import (
    DIRECTORY_FLAGS,
    FILE_FLAGS,
    look,
    open_directory,
    parent_directory,
    same_but_ctime,
    same_inode,
    tag_of,
)
from syncer.local.syscalls import rename_exchange, rename_noreplace, status
from syncer.local.verbs.trash import ITEM, Trash, Why
from syncer.ports.localvalues import Applied

_OPEN_DIRECTORIES: Final = 256  # descriptors kept for the next barrier
TRASH_FOLDER: Final = PRIVATE + b"/" + TRASH
_DEFAULT_MODE: Final = 0o755  # of directories whose remote object carries no mode


def no_step(name: str) -> None:
    """Production's fault points do nothing."""


class NewName(msgspec.Struct, frozen=True, kw_only=True):
    """A temp file that is to get a free name.

    Attributes:
        path: The name.
        temp: Name of the temp file.
        tag: Its evidence.
    """

    path: RelPath
    temp: bytes
    tag: LocalTag


class Changes:
    """Makes changes below one root. Several threads may, on different paths.

    Attributes:
        step: Called after each step that a crash could come after.
    """

    def __init__(self, root: int, private: PrivateFolder, trash: Trash, step: Callable[[str], None] = no_step) -> None:
        """Take over descriptors (not closed here)."""
        self.step: Callable[[str], None] = step
        self._root = root
        self._private = private
        self._trash = trash
        self._unsynced: dict[int, int] = {}
        self._remembering = threading.Lock()

    def sync(self) -> None:
        """Fsync every directory whose entries were changed before this call.

        Raises:
            OSError: One can't be; it and the others that were not are tried again by the next call.
        """
        with self._remembering:
            waiting, self._unsynced = self._unsynced, {}
        try:
            while waiting:
                ino, descriptor = next(iter(waiting.items()))
                os.fsync(descriptor)
                del waiting[ino]
                os.close(descriptor)
        finally:
            with self._remembering:
                for ino, descriptor in waiting.items():
                    if self._unsynced.setdefault(ino, descriptor) != descriptor:
                        os.close(descriptor)  # changed again meanwhile

    def close(self) -> None:
        """Close descriptors without waiting for a disk."""
        while self._unsynced:
            os.close(self._unsynced.popitem()[1])

    def create(self, path: RelPath, temp: bytes, tag: LocalTag) -> Applied:
        """Rename a temp file to a free name."""
        with parent_directory(self._root, path) as (directory, _):
            applied = self._create_in(directory, NewName(path=path, temp=temp, tag=tag))
            self._remember(directory)
            return applied

    def create_all(self, names: Sequence[NewName]) -> list[Applied | Exception]:
        """Rename several temp files to free names, each with its own outcome. A directory is opened once."""
        done: dict[bytes, Applied | Exception] = {}
        folders: dict[RelPath, list[NewName]] = {}
        for new in names:
            folders.setdefault(RelPath(new.path.rpartition(b"/")[0]), []).append(new)
        for folder, group in folders.items():
            try:
                self._create_group(folder, group, done)
            except (SyncerError, OSError) as error:  # nobody knows how durable these are: none of them is booked
                done.update((new.temp, error) for new in group)
        return [done[new.temp] for new in names]

    def _create_group(self, folder: RelPath, group: Sequence[NewName], done: dict[bytes, Applied | Exception]) -> None:
        directory = open_directory(self._root, folder)
        try:
            for new in group:
                try:
                    done[new.temp] = self._create_in(directory, new)
                except (SyncerError, OSError) as error:
                    done[new.temp] = error
            self._remember(directory)
        finally:
            os.close(directory)

    def _create_in(self, directory: int, new: NewName) -> Applied:
        name = new.path.rpartition(b"/")[2]
        self._rename(new.temp, self._private.tmp, name, directory, new.path)
        self.step("created")
        return Applied(tag=self._own_tag(directory, name, new.path, new.tag))

    def replace(
        self,
        path: RelPath,
        temp: bytes,
        tag: LocalTag,
        expect: LocalTag,
        *,
        xattrs_set: bool = False,
        displacing: Callable[[RelPath], None] | None = None,
    ) -> Applied:
        """Exchange a temp file with what it replaces, then look at that.

        Args:
            path: Where.
            temp: The temp file.
            tag: Its evidence.
            expect: That of what it replaces.
            xattrs_set: It has its extended attributes already; else it gets those of what it replaces.
            displacing: Told where what it replaces will be, before it is there.
        """
        with parent_directory(self._root, path) as (directory, name):
            self._require_entry(directory, name, path, expect)
            entry, folder = self._trash.begin(path, expect, Why.REPLACED, tag.ino)
            try:
                self.step("trash entry made")
                self._keep_owner(temp, name, directory)
                self._keep_xattrs(temp, name, directory, synced=xattrs_set)
                # The staged file goes into the entry before the exchange: whenever we stop, the entry's name tells
                # whether its item is ours, the expected version, or one that nobody has seen.
                os.rename(temp, ITEM, src_dir_fd=self._private.tmp, dst_dir_fd=folder)
                self.step("moved to trash entry")
                if displacing is not None:
                    displacing(RelPath(b"/".join((TRASH_FOLDER, entry.name, ITEM))))
                try:
                    rename_exchange(ITEM, folder, name, directory)
                except FileNotFoundError:
                    self._trash.judge(entry)
                    raise LocalChangedError(path, "it is gone") from None
                self.step("exchanged")
                self._remember(directory)
                self._remember(folder)
            finally:
                os.close(folder)
            return Applied(tag=self._own_tag(directory, name, path, tag), copied_to=self._trash.judge(entry))

    def _keep_owner(self, temp: bytes, name: bytes, directory: int) -> None:
        """Give a staged file the owner of what it replaces, where we may: a sync as root must not take files over."""
        old = os.stat(name, dir_fd=directory, follow_symlinks=False)
        new = os.stat(temp, dir_fd=self._private.tmp, follow_symlinks=False)
        if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
            with suppress(PermissionError):
                os.chown(temp, old.st_uid, old.st_gid, dir_fd=self._private.tmp, follow_symlinks=False)
                if S_ISREG(new.st_mode) and new.st_mode & SPECIAL_BITS:  # chown takes setuid and setgid away
                    os.chmod(temp, S_IMODE(new.st_mode), dir_fd=self._private.tmp)

    def _keep_xattrs(self, temp: bytes, name: bytes, directory: int, *, synced: bool) -> None:
        try:
            old = os.open(name, FILE_FLAGS, dir_fd=directory)
        except OSError:
            return  # a symlink, or not ours to read; what is gone is found out by the exchange
        try:
            new = os.open(temp, FILE_FLAGS, dir_fd=self._private.tmp)
        except PermissionError:
            os.close(old)
            return
        try:
            if keep(old, new, synced=synced):
                os.fsync(new)
        finally:
            os.close(old)
            os.close(new)

    def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make a directory with its mode."""
        with parent_directory(self._root, path) as (directory, name):
            try:
                os.mkdir(name, 0o700, dir_fd=directory)
            except FileExistsError:
                raise LocalChangedError(path, "the name is taken") from None
            self.step("directory made")
            made = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
            try:
                lacking = None
                if meta.xattrs is not None:
                    try:
                        write(made, path, meta.xattrs)
                    except UnholdableError as error:
                        lacking = error.reason
                full = replace(meta, mode=_DEFAULT_MODE if meta.mode is None else meta.mode)
                _change_mode(made, full)
                self._remember(directory)
                achieved = replace(full, xattrs=meta.xattrs if lacking is None else ())
                return Applied(tag=tag_of(status(b"", made)), meta=achieved, lacking=lacking)
            finally:
                os.close(made)

    def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make a symlink under a temp name, then treat it like a staged file."""
        objection = target_objection(target)
        if objection is not None:
            raise UnholdableError(path, f"no symlink can have its target: {objection}")
        temp = b"link." + block_id(path + b"\0" + target).hex().encode()
        unlink_if_there(temp, self._private.tmp)
        os.symlink(target, temp, dir_fd=self._private.tmp)
        try:
            tag = tag_of(status(temp, self._private.tmp))
            if expect is None:
                return self.create(path, temp, tag)
            return self.replace(path, temp, tag, expect)
        finally:
            unlink_if_there(temp, self._private.tmp)

    def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename to a free name; if it was another inode after all, rename back."""
        with parent_directory(self._root, source) as (old, name), parent_directory(self._root, target) as (new, wanted):
            seen = look(old, name, source)
            if not same_inode(seen, expect):
                raise LocalChangedError(source, "another file took its place")
            self._rename(name, old, wanted, new, target)
            self.step("moved")
            self._remember(old)
            self._remember(new)
            found = look(new, wanted, target)
            if not same_inode(found, expect):
                self._rename(wanted, new, name, old, source)
                raise LocalChangedError(source, "another file took its place")
            # ctime, which the rename changes, told of a write that put the time back: only before it.
            is_known = seen == expect and same_but_ctime(found, expect)
            return Applied(tag=found if is_known else replace(expect, ctime_ns=0))

    def remove_directory(self, path: RelPath, expect: LocalTag) -> Applied:
        """Remove a directory if it is empty."""
        with parent_directory(self._root, path) as (directory, name):
            if not same_inode(look(directory, name, path), expect):
                raise LocalChangedError(path, "another directory took its place")
            try:
                os.rmdir(name, dir_fd=directory)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR, errno.ENOENT}:
                    raise LocalChangedError(path, "it holds something that is not synced, or that is new") from None
                raise
            self.step("directory removed")
            self._remember(directory)
            return Applied(tag=None)

    def to_trash(self, path: RelPath, expect: LocalTag, why: Why, origin: RelPath | None = None) -> Applied:
        """Rename into the trash, as what was at `origin` (else at `path`), then look at it."""
        with parent_directory(self._root, path) as (directory, name):
            self._require_entry(directory, name, path, expect)
            entry, folder = self._trash.begin(origin or path, expect, why)
            try:
                self.step("trash entry made")
                try:
                    rename_noreplace(name, directory, ITEM, folder)
                except FileNotFoundError:
                    self._trash.judge(entry)
                    raise LocalChangedError(path, "it is gone") from None
                self.step("trashed")
                self._remember(directory)
                self._remember(folder)
            finally:
                os.close(folder)
            kept = self._trash.judge(entry)
            if kept is not None:
                raise LocalChangedError(path, f"it was written to at the last moment; kept as {os.fsdecode(kept)}")
            return Applied(tag=None)

    def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag, seen: Meta | None = None) -> Applied:
        """Set metadata through a descriptor of the very inode that was expected."""
        descriptor, meta, expect = self._open_for_meta(path, meta, expect)
        try:
            before = status(b"", descriptor)
            found = tag_of(before)
            # A directory's size and times change with every child: only its identity counts.
            self._require_tag(found, found if S_ISDIR(before.mode) and same_inode(found, expect) else expect, path)
            if meta.xattrs is not None:
                write(descriptor, path, meta.xattrs, None if seen is None else seen.xattrs)
            if meta.mode is not None:
                _change_mode(descriptor, meta)
            if meta.mtime_ns is not None:
                os.utime(descriptor, ns=(meta.mtime_ns, meta.mtime_ns))
            self.step("meta set")
            os.fsync(descriptor)
            tag = tag_of(status(b"", descriptor))
            # A write between the look and the utime would be hidden by our own mtime: make the next cycle hash it.
            return Applied(tag=tag if meta.mtime_ns is None else replace(tag, ctime_ns=0))
        finally:
            os.close(descriptor)

    def _open_for_meta(self, path: RelPath, meta: Meta, expect: LocalTag) -> tuple[int, Meta, LocalTag]:
        """Open a node whose metadata are to be set; a file that its owner may not read is made readable for it.

        Returns:
            Its descriptor, the caller's to close; what to set, with the mode that takes that back; what to expect.
        """
        with parent_directory(self._root, path) as (directory, name):
            try:
                return os.open(name, FILE_FLAGS, dir_fd=directory), meta, expect
            except PermissionError:
                place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            found = status(b"", place)
            self._require_tag(tag_of(found), expect, path)
            itself = b"/proc/self/fd/%d" % place
            mode = S_IMODE(found.mode)
            os.chmod(itself, mode | S_IRUSR)
            full = meta if meta.mode is not None else replace(meta, mode=mode & ~SPECIAL_BITS)
            return os.open(itself, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), full, replace(expect, ctime_ns=0)
        finally:
            os.close(place)

    # --- parts

    def _remember(self, directory: int) -> None:
        """Keep a descriptor for the next barrier: a path could lead elsewhere by then."""
        ino = os.fstat(directory).st_ino
        with self._remembering:
            if ino in self._unsynced:
                return
            if len(self._unsynced) < _OPEN_DIRECTORIES:
                self._unsynced[ino] = os.dup(directory)
                return
        os.fsync(directory)  # too many to remember: do it now

    def _rename(self, name: bytes, old: int, wanted: bytes, new: int, path: RelPath) -> None:
        try:
            rename_noreplace(name, old, wanted, new)
        except FileExistsError:
            raise LocalChangedError(path, "the name is taken") from None
        except FileNotFoundError:
            raise LocalChangedError(path, "it is gone") from None

    def _require_entry(self, directory: int, name: bytes, path: RelPath, expect: LocalTag) -> None:
        self._require_tag(look(directory, name, path), expect, path)

    def _require_tag(self, found: LocalTag, expect: LocalTag, path: RelPath) -> None:
        # ctime 0: evidence that must not be trusted for content, after a change of ours; the inode's other facts count.
        if not (same_but_ctime(found, expect) if expect.ctime_ns == 0 else found == expect):
            raise LocalChangedError(path, "it was written to")

    def _own_tag(self, directory: int, name: bytes, path: RelPath, staged: LocalTag) -> LocalTag:
        """Evidence of what we just installed: the true one only if nobody touched it since."""
        try:
            found = look(directory, name, path)
        except LocalChangedError:
            return replace(staged, ctime_ns=0)
        return found if same_but_ctime(found, staged) else replace(staged, ctime_ns=0)


def unlink_if_there(name: bytes, directory: int) -> None:
    """Delete an entry; one that is gone already is fine."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=directory)


def _change_mode(descriptor: int, meta: Meta) -> None:
    """Set the mode of a file or directory; special bits on which there is no opinion stay as they are."""
    assert meta.mode is not None
    own = os.fstat(descriptor).st_mode & SPECIAL_BITS if meta.special is None else meta.special
    os.fchmod(descriptor, meta.mode | own)
