"""The trash of an ordinary directory: what was deleted or displaced, kept restorable.

One folder per entry, below `.blocksync/trash/`:
```
<UTC seconds>-<hex nanoseconds>.<WHY>-<EVIDENCE>/    pending: may still turn out to be no trash
<UTC seconds>-<hex nanoseconds>.<WHY>/               settled: looked at again after a quiet time and unchanged
    origin      symlink whose text is the path it came from; where there are no symlinks (FAT), a file that holds it
    item        the file, directory or symlink
```
EVIDENCE is what we expected to find: inode, birth time, size, mtime, and the inode of our own staged file, in hex.
It is in the *name* because a journalling filesystem keeps the order of renames and mkdirs without a single fsync, which
it does not for a file's data. So whatever instant the machine stops at, the entry says what to do with the item:

- it is our own staged file: the exchange did not happen; drop it (its content is on the other side);
- it is as expected: it is trash;
- it is anything else: a version nobody has seen. It goes back to its origin, or beside it as a conflict copy.

In a copy of a root every inode and birth time is another one. So what is pending in a folder that was not this root
until now is judged by size and mtime alone when it is linked, and settled (`adopt`).

WHY is a word of `Why`. It is in the name, too: so it needs no fsync, costs a mount no request, and goes with the entry,
also where the release before removes it, which takes it for a part of the nanoseconds. Entries of earlier releases have
none. Anybody may have made an entry: another word says nothing, and what becomes of an item never depends on it.

A writer may hold a displaced file open and still write to it, so a pending entry is looked at again at the end of the
cycle and in the next cycles until it was quiet for `QUIET_S`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator
from enum import StrEnum
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.model import Content, LocalTag, RelPath
from syncer.core.paths import join, rel_path, split
from syncer.errors import LocalChangedError, UnsafeNameError
from syncer.local.folder.filehash import hash_file
from syncer.local.safe_open import DIRECTORY_FLAGS, FILE_FLAGS, parent_directory, same_but_ctime, tag_of
from syncer.local.syscalls import rename_noreplace, status
from syncer.local.verbs.retention import Retention
from syncer.ports.localvalues import CopyName, Remove, content_of

QUIET_S: Final = 60.0  # a program that wrote nothing for so long after its file was displaced has most likely let go
ITEM: Final = b"item"
ORIGIN: Final = b"origin"
_NO_INODE: Final = 0
_NO_SYMLINKS: Final = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
_NOT_EMPTY: Final = {errno.ENOTEMPTY, errno.EEXIST}
_PATH_BYTES: Final = 4096  # PATH_MAX


class Why(StrEnum):
    """What an item is in the trash for."""

    DELETED = "deleted"  # it was deleted on the other side
    REPLACED = "replaced"  # another version took its place
    RESOLVED = "resolved"  # a user settled a conflict and took the other version
    DOUBLED = "doubled"  # an equal file, or a conflict copy of it, stands for it


_WORDS: Final = {each.value.encode(): each for each in Why}


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A folder of the trash.

    Attributes:
        name: Its name below `trash/`.
        made_s: Seconds since the epoch.
        expect: What the item should be: inode, birth time, size, mtime count. None: settled.
        staged_ino: Our own file that was to be exchanged with it, 0 for none.
        why: What it is there for; None: its name does not say.
    """

    name: bytes
    made_s: int
    expect: LocalTag | None
    staged_ino: int
    why: Why | None


class Trash:
    """The trash folder of one root. Blocking; used from worker threads, one entry by one thread at a time."""

    def __init__(self, root: int, trash: int, block_size: int, copy_name: CopyName, retention: Retention) -> None:
        """Take over descriptors (not closed here); settled entries are kept as `retention` says."""
        self._root = root
        self._trash = trash
        self._block_size = block_size
        self._copy_name = copy_name
        self._retention = retention

    def begin(self, origin: RelPath, expect: LocalTag, why: Why, staged_ino: int = _NO_INODE) -> tuple[Entry, int]:
        """Make an empty pending entry.

        Returns:
            The entry and its folder's descriptor, to be closed by the caller.
        """
        made_s, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        while True:
            name = _encode(made_s, nanoseconds, why, expect, staged_ino)
            entry = Entry(name=name, made_s=made_s, expect=expect, staged_ino=staged_ino, why=why)
            try:
                os.mkdir(entry.name, 0o700, dir_fd=self._trash)
                break
            except FileExistsError:
                nanoseconds += 1
        folder = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=self._trash)
        write_origin(folder, origin)
        return entry, folder

    def judge(self, entry: Entry, *, copied: bool = False) -> RelPath | None:
        """Look at a pending entry's item and act on the rules above.

        Args:
            entry: Which.
            copied: The folder may be a copy: its inodes and birth times say nothing.

        Returns:
            Where the item went if it was no trash.
        """
        folder = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=self._trash)
        try:
            try:
                found = status(ITEM, folder)
            except FileNotFoundError:
                self._remove(entry, folder)
                return None
            if found.ino == entry.staged_ino and not copied:
                os.unlink(ITEM, dir_fd=folder)
                self._remove(entry, folder)
                return None
            seen = tag_of(found)
            if copied and entry.expect is not None:
                seen = replace(seen, ino=entry.expect.ino, btime_ns=entry.expect.btime_ns)
            if entry.expect is None or same_but_ctime(seen, entry.expect):
                return None
            kept = self._give_back(folder, origin_of(folder) or RelPath(ITEM), found.mode)
            self._remove(entry, folder)
            return kept
        finally:
            os.close(folder)

    def review(self, *, expire: bool = True) -> list[RelPath]:
        """Judge every pending entry, settle the quiet ones, delete settled ones past their retention if `expire`.

        Returns:
            Where items went that were no trash.
        """
        now = time.time()
        is_over = self._retention.is_over(now)
        kept: list[RelPath] = []
        for entry in self.entries():
            if entry.expect is None:
                if expire and is_over(entry.made_s):
                    self._delete(entry)
                continue
            back = self.judge(entry)
            if back is not None:
                kept.append(back)
            elif now - entry.made_s > QUIET_S:
                self._settle(entry)
        return kept

    def adopt(self) -> list[RelPath]:
        """Judge and settle what is pending in a folder that was not this root until now: it may be a copy of one.

        Returns:
            Where items went that were no trash.
        """
        kept: list[RelPath] = []
        for entry in self.entries():
            back = None if entry.expect is None else self.judge(entry, copied=True)
            if back is not None:
                kept.append(back)
            elif entry.expect is not None:
                self._settle(entry)
        return kept

    def entries(self) -> Iterator[Entry]:
        """All entries, oldest first. What is not ours by its name is left alone."""
        with os.scandir(self._trash) as listing:
            names = sorted(os.fsencode(entry.name) for entry in listing)
        for name in names:
            entry = decode_entry(name)
            if entry is not None:
                yield entry

    def _give_back(self, folder: int, origin: RelPath, mode: int) -> RelPath:
        """Move the item to its origin, or beside it under a conflict name, or to the top if its folder can't."""
        for place in self._refuges(folder, origin, mode):
            try:
                with parent_directory(self._root, place) as (directory, name):
                    rename_noreplace(ITEM, folder, name, directory)
                    os.fsync(directory)
                    return place
            except (FileExistsError, LocalChangedError):
                continue
            except PermissionError:
                if not split(place)[0]:
                    raise
        raise AssertionError("refuges are endless")

    def _refuges(self, folder: int, origin: RelPath, mode: int) -> Iterator[RelPath]:
        yield origin
        above, _, name = origin.rpartition(b"/")
        content = None
        if stat.S_ISREG(mode):
            with contextlib.suppress(PermissionError):  # its name then says nothing of what is in it
                content = self._content(folder)
        taken: set[bytes] = set()
        while True:
            copy = self._copy_name(name, content, taken)
            yield join(RelPath(above), copy)
            yield RelPath(copy)
            taken.add(copy)

    def _content(self, folder: int) -> Content:
        descriptor = os.open(ITEM, FILE_FLAGS, dir_fd=folder)
        try:
            return content_of(hash_file(descriptor, os.fstat(descriptor).st_size, self._block_size)[0])
        finally:
            os.close(descriptor)

    def _settle(self, entry: Entry) -> None:
        settled = entry.name.rpartition(b"-")[0]
        try:
            rename_noreplace(entry.name, self._trash, settled, self._trash)
        except FileExistsError:
            return  # two entries of one nanosecond: it is judged again next time, harmless
        except FileNotFoundError:
            return  # it was empty, and is gone

    def _delete(self, entry: Entry) -> None:
        folder = os.open(entry.name, DIRECTORY_FLAGS, dir_fd=self._trash)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(ITEM, dir_fd=folder)
            self._remove(entry, folder)
        except IsADirectoryError:
            return  # directories come here only when a user swapped one in; a person may look at it
        finally:
            os.close(folder)

    def _remove(self, entry: Entry, folder: int) -> None:
        """Remove an entry whose item is gone; what somebody else put into it stays, and the entry with it."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ORIGIN, dir_fd=folder)
        try:
            os.rmdir(entry.name, dir_fd=self._trash)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise


def new_folder(trash: int, origin: RelPath, why: Why) -> tuple[bytes, int]:
    """Make an empty settled entry, for what is trash without any doubt.

    Returns:
        Its name and its folder's descriptor, to be closed by the caller.
    """
    made_s, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    while True:
        name = _settled(made_s, nanoseconds, why)
        try:
            os.mkdir(name, 0o700, dir_fd=trash)
            break
        except FileExistsError:
            nanoseconds += 1
    folder = os.open(name, DIRECTORY_FLAGS, dir_fd=trash)
    write_origin(folder, origin)
    return name, folder


def write_origin(folder: int, origin: RelPath) -> None:
    """Note in an entry's folder where its item comes from."""
    try:
        os.symlink(origin, ORIGIN, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_SYMLINKS:
            raise
        descriptor = os.open(ORIGIN, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            os.write(descriptor, origin)
            os.fsync(descriptor)  # before the item comes: unlike a symlink, a file may lose its text
        finally:
            os.close(descriptor)


def read_origin(folder: int) -> bytes:
    """Where an entry's item comes from.

    Raises:
        OSError: Nobody has noted it.
    """
    try:
        return os.readlink(ORIGIN, dir_fd=folder)
    except OSError as error:
        if error.errno != errno.EINVAL:  # no symlink
            raise
    descriptor = os.open(ORIGIN, FILE_FLAGS, dir_fd=folder)
    try:
        return os.read(descriptor, _PATH_BYTES)
    finally:
        os.close(descriptor)


def origin_of(folder: int) -> RelPath | None:
    """Where an entry's item comes from, if that is noted and lies in the root: anybody may have made the entry."""
    try:
        return rel_path(read_origin(folder)) or None
    except (OSError, UnsafeNameError):
        return None


def why_removed(change: Remove) -> Why:
    """What an entry is to say of what a cycle takes away."""
    return Why.DOUBLED if change.is_double else Why.DELETED


def ident_of(name: bytes) -> bytes:
    """The part of an entry's name that is its time, to the nanosecond: it stays when the entry is settled."""
    ident = b"-".join(name.split(b"-")[:2])
    return ident if _why_of(ident) is None else ident.rpartition(b".")[0]


def _settled(made_s: int, nanoseconds: int, why: Why) -> bytes:
    return f"{made_s}-{nanoseconds:08x}.{why}".encode()


def _encode(made_s: int, nanoseconds: int, why: Why, expect: LocalTag, staged_ino: int) -> bytes:
    evidence = (expect.ino, expect.btime_ns, expect.size_bytes, expect.mtime_ns, staged_ino)
    # Times before 1970 are negative; as unsigned 64-bit numbers they have no sign that could be taken for a separator.
    fields = ".".join(f"{value & 0xFFFFFFFFFFFFFFFF:x}" for value in evidence)
    return _settled(made_s, nanoseconds, why) + f"-{fields}".encode()


def decode_entry(name: bytes) -> Entry | None:
    """What the name of an entry says; None if it is none of ours."""
    parts = name.split(b"-")
    if len(parts) not in {2, 3} or not parts[0].isdigit():
        return None
    made_s, why = int(parts[0]), _why_of(parts[1])
    if len(parts) == 2:
        return Entry(name=name, made_s=made_s, expect=None, staged_ino=_NO_INODE, why=why)
    try:
        ino, btime, size, mtime, staged = (int(field, 16) for field in parts[2].split(b"."))
    except ValueError:
        return None
    expect = LocalTag(device=0, ino=ino, btime_ns=_signed(btime), size_bytes=size, mtime_ns=_signed(mtime),
                      ctime_ns=0)  # fmt: skip
    return Entry(name=name, made_s=made_s, expect=expect, staged_ino=staged, why=why)


def _why_of(part: bytes) -> Why | None:
    return _WORDS.get(part.partition(b".")[2])


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
