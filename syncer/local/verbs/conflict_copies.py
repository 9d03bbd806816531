"""Conflict copies in a root: find them, compare them with what has their name, settle them. Blocking.

A conflict copy is an ordinary file; only its name says what it is. Settling one is what a user could do with `mv`:
names change, nothing is overwritten, and what is given up goes to the trash. The next cycle syncs it like any edit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from syncer.core.base import BaseIndex
from syncer.core.conflict import ConflictName, Written, host_label, parse_conflict_name, plain_name
from syncer.core.model import BaseRow, Content, LocalTag, Nid, RelPath
from syncer.core.paths import PRIVATE, join, split
from syncer.errors import LocalChangedError, NotFoundError, UsageError
from syncer.local.safe_open import DIRECTORY_FLAGS, open_directory, open_file, parent_directory
from syncer.local.syscalls import Status, rename_exchange, rename_noreplace, status
from syncer.local.verbs.compare import Comparison, compare
from syncer.local.verbs.trashcan import TrashCan, kind_of

_PIECE: Final = 1 << 20  # bytes compared at once
_NOBODY: Final[Mapping[Nid, Written]] = {}


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two files.

    Attributes:
        path: Where it is.
        kind: "file", "symlink", "directory" or "other".
        size_bytes: Its size.
        modified_ns: Last change of its content, since the epoch.
    """

    path: RelPath
    kind: str
    size_bytes: int
    modified_ns: int


class ConflictCopy(msgspec.Struct, frozen=True, kw_only=True):
    """A conflict copy and what has its name now.

    Attributes:
        copy: The copy.
        name: What its name says.
        original: What has the name that it lost; None if nothing has it any more, or several may be meant.
        differs: They have different contents; None without an original.
        writer: The device whose version the original is; None if nobody knows.
    """

    copy: Version
    name: ConflictName
    original: Version | None
    differs: bool | None
    writer: str | None = None


def walk(root: bytes) -> Iterator[RelPath]:
    """Paths of all that is called like a conflict copy, below a root, by names alone. Unreadable folders have none."""
    for folder, folders, files in os.walk(root):
        if folder == root and PRIVATE in folders:
            folders.remove(PRIVATE)
        above = RelPath(folder[len(root.rstrip(b"/")) + 1 :])
        yield from (join(above, name) for name in (*folders, *files) if parse_conflict_name(name) is not None)


def _evidence(found: Status) -> tuple[int, int, int]:
    return found.ino, found.size_bytes, found.mtime_ns


class Desk:
    """Where the conflicts of one root are looked at and settled."""

    def __init__(self, path: bytes, base: BaseIndex, writers: Mapping[Nid, Written] = _NOBODY, host: str = "") -> None:
        """Open the root at `path`.

        Args:
            path: Where it is.
            base: Knows contents of files that have not changed since.
            writers: Of which devices versions are.
            host: This device: whatever was written since is of it.

        Raises:
            NotFoundError: No such folder.
        """
        self._path = path
        self._base = base
        self._writers = writers
        self._host = host_label(host) if host else None
        try:
            self._root = os.open(path, DIRECTORY_FLAGS)
        except OSError as error:
            raise NotFoundError(f"{os.fsdecode(path)}: {error.strerror}; is it mounted?") from None

    def close(self) -> None:
        """Let go of the root."""
        os.close(self._root)

    def copies(self, paths: Iterable[RelPath]) -> list[ConflictCopy]:
        """Those of `paths` that are conflict copies and are still there, by path."""
        return [found for path in sorted(set(paths)) if (found := self.look(path)) is not None]

    def look(self, path: RelPath) -> ConflictCopy | None:
        """The conflict copy at a path; None if there is none."""
        above, last = split(path)
        name, copy = parse_conflict_name(last), self._version(path)
        if name is None or copy is None:
            return None
        original = self._original(above, name)
        differs = None if original is None else not self._equal(copy, original)
        writer = None if original is None else self._writer(original)
        return ConflictCopy(copy=copy, name=name, original=original, differs=differs, writer=writer)

    def compare(self, found: ConflictCopy) -> Comparison:
        """How a copy and what has its name differ.

        Raises:
            UsageError: They are not two files.
        """
        if found.original is None or {found.copy.kind, found.original.kind} != {"file"}:
            raise UsageError(f"{os.fsdecode(found.copy.path)}: there are no two files to compare")
        one = open_file(self._root, found.copy.path)
        try:
            other = open_file(self._root, found.original.path)
            try:
                return compare(one, other)
            finally:
                os.close(other)
        finally:
            os.close(one)

    def copies_of(self, path: RelPath) -> list[RelPath]:
        """Paths of the conflict copies that lost the name at `path`."""
        above, last = split(path)
        try:
            directory = open_directory(self._root, above)
        except LocalChangedError:
            return []
        try:
            names = sorted(os.fsencode(name) for name in os.listdir(directory))
        finally:
            os.close(directory)
        return [join(above, name) for name in names if (is_of := parse_conflict_name(name)) and is_of.may_be_of(last)]

    def take_remote(self, found: ConflictCopy) -> str:
        """Give the copy up. Returns what was done."""
        if found.original is None:
            raise UsageError(
                f"nothing is called {os.fsdecode(found.name.original)} any more: the copy is the only version left; "
                "keep it with --take local, or delete it yourself"
            )
        self._refuse_folder(found.copy)
        ident = self._put(found.copy.path)
        return f"the version of {found.name.host} is in the trash as {ident}"

    def take_local(self, found: ConflictCopy) -> str:
        """Give the copy the name that it lost; what has that name goes to the trash. Returns what was done."""
        above, last = split(found.copy.path)
        if found.original is None:
            wanted = join(above, found.name.original)
            self._rename(found.copy.path, wanted)
            return f"renamed to {os.fsdecode(wanted)}"
        self._refuse_folder(found.copy)
        self._refuse_folder(found.original)
        # Swapped first: at no time is the name free, so no program finds its file missing. Stopped in between, the
        # other version is the conflict copy, to be settled again.
        with parent_directory(self._root, found.copy.path) as (directory, _):
            rename_exchange(last, directory, split(found.original.path)[1], directory)
            os.fsync(directory)
        ident = self._put(found.copy.path, found.original.path)
        return f"the version of {found.name.host} has the name; the other one is in the trash as {ident}"

    def take_both(self, found: ConflictCopy) -> str:
        """Make the copy an ordinary file for good, by giving it another name. Returns what was done."""
        above, _ = split(found.copy.path)
        number = 1
        while True:
            wanted = join(above, plain_name(found.name, number))
            try:
                self._rename(found.copy.path, wanted)
            except UsageError:
                number += 1
            else:
                return f"both are kept, the version of {found.name.host} as {os.fsdecode(wanted)}"

    def _put(self, path: RelPath, origin: RelPath | None = None) -> str:
        with TrashCan(self._path) as can:
            return can.put(path, origin)

    def _rename(self, path: RelPath, wanted: RelPath) -> None:
        try:
            with parent_directory(self._root, path) as (directory, name):
                rename_noreplace(name, directory, split(wanted)[1], directory)
                os.fsync(directory)
        except FileExistsError:
            raise UsageError(f"{os.fsdecode(wanted)} exists") from None
        except (FileNotFoundError, LocalChangedError):
            raise NotFoundError(f"{os.fsdecode(path)} is gone") from None

    @staticmethod
    def _refuse_folder(version: Version) -> None:
        if version.kind == "directory":
            raise UsageError(
                f"{os.fsdecode(version.path)} is a folder: move what you want out of it and delete it, "
                "or keep both with --take both"
            )

    def _version(self, path: RelPath) -> Version | None:
        found = self._status(path)
        if found is None:
            return None
        kind = kind_of(found.mode)
        return Version(path=path, kind=kind, size_bytes=found.size_bytes, modified_ns=found.mtime_ns)

    def _status(self, path: RelPath) -> Status | None:
        try:
            with parent_directory(self._root, path) as (directory, name):
                return status(name, directory)
        except (FileNotFoundError, LocalChangedError):
            return None

    def _original(self, above: RelPath, name: ConflictName) -> Version | None:
        found = self._version(join(above, name.original))
        if found is not None or not name.cut:
            return found
        # The name was too long for the mark: whatever begins and ends like it, if that is one thing only.
        directory = open_directory(self._root, above)
        try:
            names = [os.fsencode(other) for other in os.listdir(directory)]
        finally:
            os.close(directory)
        likely = [other for other in names if name.may_be_of(other) and parse_conflict_name(other) is None]
        return self._version(join(above, likely[0])) if len(likely) == 1 else None

    def _equal(self, one: Version, other: Version) -> bool:
        if (one.kind, one.size_bytes) != (other.kind, other.size_bytes) or one.kind not in {"file", "symlink"}:
            return False
        if one.kind == "symlink":
            return self._target(one.path) == self._target(other.path)
        contents = [self._known(version.path) for version in (one, other)]
        if None not in contents:
            return contents[0] == contents[1]
        return self._same_bytes(one.path, other.path)

    def _known(self, path: RelPath) -> Content | None:
        """What the base says of a file that looks as it did then: images need not be read to see that they differ."""
        found = self._status(path)
        for row, tag in self._trusted(path):
            if found is not None and (tag.ino, tag.size_bytes, tag.mtime_ns) == _evidence(found):
                return row.node.content
        return None

    def _trusted(self, path: RelPath) -> Iterator[tuple[BaseRow, LocalTag]]:
        """What the base says of a file, if it tells changes of it."""
        for nid in self._base.by_path.get(path, ()):
            row = self._base.rows[nid]
            if row.local is not None and (row.local.ctime_ns != 0 or row.local.version is not None):
                yield row, row.local

    def _writer(self, version: Version) -> str | None:
        """Of which device a version is: of this one, if it was written after the last cycle; else as it was noted."""
        found = self._status(version.path)
        for row, tag in self._trusted(version.path):
            if found is None or version.kind != "file":
                continue
            if (tag.size_bytes, tag.mtime_ns) != (found.size_bytes, found.mtime_ns):
                return self._host
            written = self._writers.get(row.nid)
            if written is not None and written.content == row.node.content:
                return written.device
        return None

    def _target(self, path: RelPath) -> bytes:
        with parent_directory(self._root, path) as (directory, name):
            return os.readlink(name, dir_fd=directory)

    def _same_bytes(self, one: RelPath, other: RelPath) -> bool:
        first = open_file(self._root, one)
        try:
            second = open_file(self._root, other)
            try:
                at = 0
                while True:
                    left, right = os.pread(first, _PIECE, at), os.pread(second, _PIECE, at)
                    if left != right or not left:
                        return left == right
                    at += len(left)
            finally:
                os.close(second)
        finally:
            os.close(first)
