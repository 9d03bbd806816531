"""What a user may do with the trash of a root: look, restore, empty, put something in. Blocking.

Folders and mounted volumes keep it in one form (see trash.py); a volume's entries are settled from the start, because
the mount refuses to displace a file that somebody writes to. Volumes of earlier releases have files named
`<UTC seconds>-<hex nanoseconds>-<name>` instead of folders: they can be restored, but not where they came from.

Everything here is what a user could do with `mv` and `rm`: it takes no lock, and a cycle that runs meanwhile finds a
vanished or a new entry, which it must cope with anyway. Only settled entries are deleted: a pending one may be a
version that nobody has seen, or the file of a cycle that is just replacing something.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final, Self

import msgspec

from blockfs.runtime.failures import said
from syncer.core.model import PERMISSION_BITS, SPECIAL_BITS, RelPath
from syncer.core.paths import PRIVATE
from syncer.errors import LocalChangedError, NotFoundError, UsageError
from syncer.local.folder.private import TRASH
from syncer.local.safe_open import DIRECTORY_FLAGS, open_directory, parent_directory
from syncer.local.syscalls import rename_noreplace, status
from syncer.local.verbs.retention import Retention
from syncer.local.verbs.trash import ITEM, ORIGIN, Why, decode_entry, ident_of, new_folder, origin_of

_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFLNK: "symlink", stat.S_IFDIR: "directory"}


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """One version in the trash.

    Attributes:
        ident: Names it to a person: the time it was displaced or deleted, to the nanosecond.
        name: Of its entry below `trash/`.
        made_s: When, in seconds since the epoch.
        origin: Where it was; None if that is not known.
        fallback: A name to restore it under if `origin` is None.
        kind: "file", "symlink", "directory" or "other".
        size_bytes: Size of a file.
        settled: It is trash for good, until its retention ends. A pending entry is looked at again by a cycle.
        folder: The entry is a folder; False for entries of earlier releases.
        why: What it is there for; None: not known, as for entries of earlier releases.
    """

    ident: str
    name: bytes
    made_s: int
    origin: RelPath | None
    fallback: bytes
    kind: str
    size_bytes: int
    settled: bool
    folder: bool = True
    why: Why | None = None


class TrashCan:
    """The trash of one root."""

    def __init__(self, path: bytes) -> None:
        """Open the root at `path`, which need not have a trash yet.

        Raises:
            NotFoundError: No such folder.
        """
        try:
            self._root = os.open(path, DIRECTORY_FLAGS)
        except OSError as error:
            raise NotFoundError(f"{os.fsdecode(path)}: {error.strerror}; is it mounted?") from None

    def close(self) -> None:
        """Let go of the root."""
        os.close(self._root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def entries(self, older_than_s: float = float("-inf")) -> list[Kept]:
        """What is kept for at least so many seconds, newest first."""
        try:
            trash = self._open()
        except LocalChangedError:
            return []
        try:
            limit = time.time() - older_than_s
            names = _names(trash, lambda made_s: made_s <= limit)
            found = [kept for name in names if (kept := _look(trash, name)) is not None]
        finally:
            os.close(trash)
        return sorted(found, key=lambda kept: kept.ident, reverse=True)

    def expire(self, retention: Retention) -> None:
        """Delete what was kept for long enough, and folders that a killed cycle left empty."""
        try:
            trash = self._open()
        except LocalChangedError:
            return
        try:
            is_over = retention.is_over(time.time())
            for name in _names(trash, is_over):
                kept = _look(trash, name)
                if kept is not None:
                    self.delete(kept)
                elif decode_entry(name) is not None:
                    with contextlib.suppress(OSError):  # something of somebody's is in it: left alone
                        _remove_folder(trash, name)
        finally:
            os.close(trash)

    def restore(self, kept: Kept, target: RelPath, *, special_modes: bool = False) -> None:
        """Move a version out of the trash to a free name; missing folders above it are made.

        Args:
            kept: Which.
            target: Where to.
            special_modes: Its setuid, setgid and sticky bits stay. Else a file loses them: an earlier release, or a
                cycle while the root took part in their sync, may have set what the share said.

        Raises:
            UsageError: The name is taken, or the place is no place for it. Nothing was changed.
            NotFoundError: The entry is gone.
        """
        trash = self._open()
        try:
            above = target.rpartition(b"/")[0]
            _make_folders(self._root, above)
            with parent_directory(self._root, target) as (directory, name), _item(trash, kept) as (folder, item):
                if not special_modes:
                    _drop_special(item, folder)
                rename_noreplace(item, folder, name, directory)
                os.fsync(directory)
                os.fsync(folder)
            _remove(trash, kept)
        except FileExistsError:
            raise UsageError(
                f"{os.fsdecode(target)} exists: restoring never overwrites; rename that, or restore with --to PATH"
            ) from None
        except FileNotFoundError:
            raise NotFoundError(f"the entry {kept.ident} is gone from the trash") from None
        except (LocalChangedError, NotADirectoryError) as error:
            raise UsageError(f"{os.fsdecode(target)}: something above it is no directory ({said(error)})") from None
        finally:
            os.close(trash)

    def delete(self, kept: Kept) -> bool:
        """Delete a settled version for good; False if it is left: pending, or a directory that somebody put there."""
        if not kept.settled or kept.kind == "directory":
            return False
        trash = self._open()
        try:
            with contextlib.suppress(FileNotFoundError):
                with _item(trash, kept) as (folder, item):
                    os.unlink(item, dir_fd=folder)
                _remove(trash, kept)
        except (IsADirectoryError, PermissionError):
            return False  # what unlink says of a directory that took its place meanwhile
        finally:
            os.close(trash)
        return True

    def put(self, path: RelPath, origin: RelPath | None = None) -> str:
        """Move something into the trash because the user gives it up (`Why.RESOLVED`). Kept whatever is in it by then.

        Args:
            path: Where it is.
            origin: Where it was before, if that is its place in a person's eyes.

        Returns:
            The `ident` of the entry.

        Raises:
            NotFoundError: There is nothing at `path`.
        """
        trash = self._open(make=True)
        try:
            entry, folder = new_folder(trash, path if origin is None else origin, Why.RESOLVED)
            try:
                with parent_directory(self._root, path) as (directory, name):
                    rename_noreplace(name, directory, ITEM, folder)
                    os.fsync(folder)
                    os.fsync(directory)
            except (FileNotFoundError, LocalChangedError):
                os.unlink(ORIGIN, dir_fd=folder)
                os.rmdir(entry, dir_fd=trash)
                raise NotFoundError(f"{os.fsdecode(path)} is gone") from None
            finally:
                os.close(folder)
            return _ident(entry)
        finally:
            os.close(trash)

    def _open(self, *, make: bool = False) -> int:
        path = RelPath(PRIVATE + b"/" + TRASH)
        if make:
            _make_folders(self._root, path, mode=0o700)
        return open_directory(self._root, path)


def kind_of(mode: int) -> str:
    """Word for a file type: file, symlink, directory, other."""
    return _KINDS.get(stat.S_IFMT(mode), "other")


def find_kept(entries: list[Kept], ident: str) -> Kept:
    """The entry that a user means by the beginning of its `ident`.

    Raises:
        NotFoundError: None, or several.
    """
    found = [kept for kept in entries if kept.ident.startswith(ident)]
    if not found:
        raise NotFoundError(f"there is no entry {ident} in the trash; `blocksync trash ls` lists them")
    if len(found) > 1:
        raise NotFoundError(f"{ident} may be {' or '.join(kept.ident for kept in found[:5])}: give more of it")
    return found[0]


def _drop_special(item: bytes, folder: int) -> None:
    """Take setuid, setgid and sticky from a file, durably, before it gets its name back."""
    mode = status(item, folder).mode
    if stat.S_ISREG(mode) and mode & SPECIAL_BITS:
        os.chmod(item, mode & PERMISSION_BITS, dir_fd=folder)


def _names(trash: int, is_old: Callable[[float], bool]) -> list[bytes]:
    """Names of entries of a certain age, by their names alone: looking at each costs several requests."""
    with os.scandir(trash) as listing:
        names = [os.fsencode(entry.name) for entry in listing]
    return [name for name in names if (made := name.partition(b"-")[0]).isdigit() and is_old(int(made))]


def _look(trash: int, name: bytes) -> Kept | None:
    """One entry; None if it is none of ours, empty, or our own file that a killed cycle left there."""
    try:
        found = status(name, trash)
        if not stat.S_ISDIR(found.mode):
            return _old_form(name, found.mode, found.size_bytes)
        entry = decode_entry(name)
        if entry is None:
            return None
        folder = os.open(name, DIRECTORY_FLAGS, dir_fd=trash)
    except FileNotFoundError:
        return None
    try:
        item = status(ITEM, folder)
        if entry.expect is not None and item.ino == entry.staged_ino:
            return None
        origin = origin_of(folder)
    except FileNotFoundError:
        return None
    finally:
        os.close(folder)
    return Kept(
        ident=_ident(name),
        name=name,
        made_s=entry.made_s,
        origin=origin,
        fallback=ITEM if origin is None else origin.rpartition(b"/")[2],
        kind=kind_of(item.mode),
        size_bytes=item.size_bytes if stat.S_ISREG(item.mode) else 0,
        settled=entry.expect is None,
        why=entry.why,
    )


def _old_form(name: bytes, mode: int, size_bytes: int) -> Kept | None:
    made, first, rest = name.partition(b"-")
    _, second, lost = rest.partition(b"-")
    if not (made.isdigit() and first and second and lost):
        return None
    return Kept(
        ident=_ident(name),
        name=name,
        made_s=int(made),
        origin=None,
        fallback=lost,
        kind=kind_of(mode),
        size_bytes=size_bytes if stat.S_ISREG(mode) else 0,
        settled=True,
        folder=False,
    )


def _ident(name: bytes) -> str:
    return ident_of(name).decode("utf-8", "backslashreplace")


@contextlib.contextmanager
def _item(trash: int, kept: Kept) -> Iterator[tuple[int, bytes]]:
    """The folder that holds the kept version, open, and its name there."""
    if not kept.folder:
        yield trash, kept.name
        return
    folder = os.open(kept.name, DIRECTORY_FLAGS, dir_fd=trash)
    try:
        yield folder, ITEM
    finally:
        os.close(folder)


def _remove(trash: int, kept: Kept) -> None:
    """Remove an entry whose item is gone; a cycle may have done it already."""
    if kept.folder:
        with contextlib.suppress(FileNotFoundError):
            _remove_folder(trash, kept.name)


def _remove_folder(trash: int, name: bytes) -> None:
    folder = os.open(name, DIRECTORY_FLAGS, dir_fd=trash)
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(ORIGIN, dir_fd=folder)
    finally:
        os.close(folder)
    os.rmdir(name, dir_fd=trash)


def _make_folders(root: int, path: bytes, mode: int = 0o777) -> None:
    """Make the directories of `path` that are missing, never through a symlink."""
    at = b""
    for segment in path.split(b"/") if path else ():
        directory = open_directory(root, RelPath(at))
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(segment, mode, dir_fd=directory)
        finally:
            os.close(directory)
        at = at + b"/" + segment if at else segment
