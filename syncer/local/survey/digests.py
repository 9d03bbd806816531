"""Look through an ordinary directory for what may have changed, for one stat per entry and no memory.

A directory whose entries all are what the base says has a digest over their names and evidence. If the next survey
finds the same digest, nothing in it has changed, and not an object is made for its files. 1 M files take about 3 s of
one core, of which a second process does half (`survey_worker`); what is kept is 24 bytes per directory.

A digest is never a source of facts: it only says "as it was when the base was compared with it entry by entry". Losing
it costs that comparison. Entries whose evidence proves nothing (`root.settled`) never have one.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import stat
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack
from typing import Final, TypeAlias

import msgspec

from syncer.core.ignore import IGNORE_FILE, IgnoreRules
from syncer.core.model import PERMISSION_BITS, ROOT, SPECIAL_BITS, BaseRow, FileStat, Kind, Nid, RelPath
from syncer.core.partial.affected import UnboundedError
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.paths import PARK_FOLDER, PRIVATE, join, split
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError
from syncer.local.folder.scan import Scan, list_directory, look_at_entries
from syncer.local.folder.xattrs import read_entry, read_open
from syncer.local.safe_open import open_directory
from syncer.local.survey.worker import MIN_ENTRIES, Found, Worker, has_second_core, working
from syncer.local.syscalls import held_time, status
from syncer.ports.localvalues import Hints

_KEY_BYTES: Final = 8
_DIGEST_BYTES: Final = 16  # 128 bits: no two states of one directory will ever share one by chance
_RECORD_BYTES: Final = _KEY_BYTES + _DIGEST_BYTES
_PLAIN_MARSHAL: Final = 0  # the oldest format has no references, so equal values give equal bytes

_Entry: TypeAlias = tuple[str, int, int, int, int, int]  # name, mode, inode, and of files: size, mtime, ctime

_KINDS: Final = {stat.S_IFREG: Kind.FILE, stat.S_IFDIR: Kind.DIRECTORY, stat.S_IFLNK: Kind.SYMLINK}


class Digests:
    """Digests by the inode of their directory: sorted records, so that a million of them are 24 MB and not 200."""

    def __init__(self, raw: bytes = b"") -> None:
        """Take over what `raw` returned; anything else counts as nothing."""
        self.raw = raw if len(raw) % _RECORD_BYTES == 0 else b""

    def __len__(self) -> int:
        return len(self.raw) // _RECORD_BYTES

    def get(self, ino: int) -> bytes | None:
        """The digest of a directory."""
        key, low, high = ino.to_bytes(_KEY_BYTES, "big"), 0, len(self)
        while low < high:
            middle = (low + high) // 2
            at = middle * _RECORD_BYTES
            found = self.raw[at : at + _KEY_BYTES]
            if found == key:
                return self.raw[at + _KEY_BYTES : at + _RECORD_BYTES]
            low, high = (middle + 1, high) if found < key else (low, middle)
        return None

    def updated(self, changed: Mapping[int, bytes | None]) -> Digests:
        """With some replaced, or (None) removed."""
        records = {
            self.raw[at : at + _KEY_BYTES]: self.raw[at + _KEY_BYTES : at + _RECORD_BYTES]
            for at in range(0, len(self.raw), _RECORD_BYTES)
        }
        for ino, digest in changed.items():
            key = ino.to_bytes(_KEY_BYTES, "big")
            if digest is None:
                records.pop(key, None)
            else:
                records[key] = digest
        return Digests(b"".join(key + records[key] for key in sorted(records)))


class Survey(msgspec.Struct, frozen=True, kw_only=True):
    """What a survey found.

    Attributes:
        dirty: Directories to be looked at; what lies below them is not meant.
        entries: How many entries there are in all.
        parked: Something is in the park folder: a crash left it, and only a look at everything puts it right.
    """

    dirty: list[RelPath]
    entries: int
    parked: bool


class Surveyor:
    """Surveys one root. Blocking.

    Attributes:
        rules: What is ignored, as it was when everything was looked at the last time: such entries are not looked at.
        holding: Directories that were listed in full, and hold something that is not synced.
    """

    def __init__(
        self,
        root: int,
        rules: IgnoreRules | None = None,
        *,
        folds: bool = False,
        parts: Parts = NO_PARTS,
    ) -> None:
        """Take over the root's descriptor (not closed here).

        Args:
            root: The descriptor.
            rules: What is ignored.
            folds: The filesystem takes some names for one another.
            parts: What the root takes part in.
        """
        self._parts = parts
        self._mode_bits = PERMISSION_BITS | (SPECIAL_BITS if parts.special_modes else 0)
        self.rules = IgnoreRules() if rules is None else rules
        self.holding: set[RelPath] = set()
        self.folds = folds
        self._root = root
        # Of directories that seem to have moved: those below with the digest of before, and the directories in them.
        self._moved: dict[RelPath, list[RelPath]] = {}
        self._below_moved: set[RelPath] = set()  # to be judged yet
        self._home = status(b"", root).device

    def survey(self, known: Digests, *, share_from: int = MIN_ENTRIES) -> Survey:
        """Compare every directory with its digest.

        Args:
            known: The digests.
            share_from: After so many entries a second process takes its share, if there is a core for it.
        """
        dirty: dict[RelPath, None] = {}
        entries = 0
        pending = deque([RelPath(b"")])
        worker: Worker | None = None
        may_share = has_second_core()
        with ExitStack() as stack:
            while True:
                if may_share and entries >= share_from:
                    may_share, worker = False, stack.enter_context(working(self._root, known.raw, self.rules))
                found = [] if worker is None else worker.collect(pending)
                if worker is not None:
                    worker.give(pending)
                if pending:
                    path = pending.pop()
                    found.append((path, self.judge(path, known)))
                if not found:
                    return Survey(dirty=list(dirty), entries=entries, parked=self._parked())
                for path, (is_dirty, count, below) in found:
                    entries += count
                    pending.extend(below)
                    above = split(path)[0] if path else None
                    self._note_moved(path, below, is_dirty=is_dirty, above_is_dirty=above in dirty)
                    if is_dirty:
                        dirty[path] = None
                        if self._parts.xattrs and above is not None:
                            # Its own attributes are told by the directory above, whose digest does not know of them.
                            dirty[above] = None

    def _note_moved(self, path: RelPath, below: list[RelPath], *, is_dirty: bool, above_is_dirty: bool) -> None:
        """Keep what is below a directory that may have moved: a rename changes its ctime, and the one that it is in."""
        if path in self._below_moved or (is_dirty and above_is_dirty):
            self._below_moved.discard(path)
            self._below_moved.update(below)
            if not is_dirty:
                self._moved[path] = below

    def judge(self, path: RelPath, known: Digests) -> Found:
        """Compare one directory with its digest."""
        try:
            ino, changed_ns, found = self._entries(path)
        except (OSError, LocalChangedError):
            return True, 0, []
        return known.get(ino) != _digest(changed_ns, found), len(found), _directories(path, found)

    def is_free(self, path: RelPath) -> bool:
        """Whether nothing has this name now. False if that can't be told."""
        above, name = split(path)
        try:
            descriptor = open_directory(self._root, above)
        except LocalChangedError:
            return True
        except OSError:
            return False
        try:
            status(name, descriptor)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return False

    def matches(self, rows: BaseRows, path: RelPath, nid: Nid, known: Digests) -> bool:
        """Whether a directory, wherever it is now, and all below it is exactly as the base says.

        Args:
            rows: The base.
            path: Where the directory is.
            nid: Which one of the base it is.
            known: Digests: who has the same one needs no look at its entries.
        """
        pending = [(path, nid)]
        while pending:
            at, number = pending.pop()
            below = self._moved.get(at)  # the survey has looked at it just now
            if below is None:
                try:
                    ino, changed_ns, entries = self._entries(at)
                except (OSError, LocalChangedError):
                    return False
                if known.get(ino) != _digest(changed_ns, entries):
                    children = {os.fsdecode(row.node.name): row for row in rows.children(number)}
                    if not _all_agree(children, entries, self._mode_bits):
                        return False
                    if self._parts.xattrs and not self._xattrs_agree(at, rows.row(number), children):
                        return False
                below = _directories(at, entries)
            for each in below:
                found = rows.at(number, split(each)[1])
                if len(found) != 1:
                    return False
                pending.append((each, found[0].nid))
        return True

    def is_directory(self, path: RelPath) -> bool:
        """Whether there is one now.

        Raises:
            UnboundedError: That can't be told.
        """
        try:
            os.close(open_directory(self._root, path))
        except LocalChangedError:
            return False
        except OSError:
            raise UnboundedError(path) from None
        return True

    def listing(self, path: RelPath) -> list[FileStat]:
        """One directory in full.

        Raises:
            UnboundedError: Something in it can't be told, or its rules are others: look at everything.
        """
        found, rules = Scan(parts=self._parts), self.rules.text(path)
        try:
            list_directory(self._root, path, self._home, self.rules, found)
        except (OSError, LocalChangedError):
            raise UnboundedError(path) from None
        self.holding |= found.holding
        if found.unknown or any(problem.partly for problem in found.problems) or self.rules.text(path) != rules:
            raise UnboundedError(path)
        return found.stats

    def entries(self, path: RelPath, names: Iterable[bytes]) -> list[FileStat] | None:
        """Some entries of a directory: those that are there, of the names that are synced.

        Returns:
            None if that says too little, and the directory must be listed: the other names of a hard link, entries
            that rules are for now, the name that an entry really has where several lead to it.

        Raises:
            LocalChangedError: There is no such directory.
            UnboundedError: Something can't be told.
        """
        wanted = sorted(set(names))
        if self.folds or IGNORE_FILE in wanted:
            return None
        found = Scan(parts=self._parts)
        try:
            look_at_entries(self._root, path, wanted, self._home, self.rules, found)
        except OSError:
            raise UnboundedError(path) from None
        self.holding |= found.holding
        if found.unknown or any(problem.partly for problem in found.problems):
            raise UnboundedError(path)
        return None if any(each.nlink > 1 for each in found.stats) else found.stats

    def settled(self, rows: BaseRows, paths: Iterable[RelPath] | None, clock_ns: int) -> dict[int, bytes | None]:
        """Find directories in which everything is exactly as the base says.

        Args:
            rows: The base, after everything that was done is in it.
            paths: Which to look at; None: all that there are.
            clock_ns: The filesystem's own time, before this call. A directory that changed since may change again
                within the same tick, unseen.

        Returns:
            Their digests, and None for those which are not so.
        """
        found: dict[int, bytes | None] = {}
        pending = [(path, self._number(rows, path)) for path in ([RelPath(b"")] if paths is None else paths)]
        while pending:
            path, nid = pending.pop()
            try:
                ino, changed_ns, entries = self._entries(path)
            except (OSError, LocalChangedError):
                continue
            children = {} if nid is None else {os.fsdecode(row.node.name): row for row in rows.children(nid)}
            same = _all_agree(children, entries, self._mode_bits)
            if same and self._parts.xattrs:
                same = self._xattrs_agree(path, None if nid in (None, ROOT) else rows.row(nid), children)
            newest_ns = max([changed_ns, *(entry[5] for entry in entries)]) if self._parts.xattrs else changed_ns
            found[ino] = _digest(changed_ns, entries) if same and newest_ns < clock_ns else None
            if paths is None:
                for entry in entries:
                    row = children.get(entry[0])
                    if stat.S_ISDIR(entry[1]) and row is not None:
                        pending.append((join(path, row.node.name), row.nid))
        return found

    def _xattrs_agree(self, path: RelPath, own: BaseRow | None, children: Mapping[str, BaseRow]) -> bool:
        """Whether a directory and what is in it have the attributes that the base says.

        Looked at after the times that go into the digest: whatever is set later makes them other times.
        """
        try:
            descriptor = open_directory(self._root, path)
        except (OSError, LocalChangedError):
            return False
        try:
            looks = [] if own is None else [(own, read_open(descriptor))]
            for name, row in children.items():
                if row.node.kind is not Kind.SYMLINK:
                    looks.append((row, read_entry(descriptor, os.fsencode(name))))
        except OSError:
            return False
        finally:
            os.close(descriptor)
        return all(found is None or found == (row.node.meta.xattrs or ()) for row, found in looks)

    def _number(self, rows: BaseRows, path: RelPath) -> Nid | None:
        nid = ROOT
        for name in path.split(b"/") if path else ():
            found = rows.at(nid, name)
            if len(found) != 1:
                return None
            nid = found[0].nid
        return nid

    def _entries(self, path: RelPath) -> tuple[int, int, list[_Entry]]:
        """A directory's inode, its ctime, and entries by name, without our private folder."""
        descriptor = open_directory(self._root, path)
        try:
            own = os.fstat(descriptor)
            with os.scandir(descriptor) as entries:
                found = sorted(self._described(entries))
        finally:
            os.close(descriptor)
        if not path:
            found = [entry for entry in found if os.fsencode(entry[0]) != PRIVATE]
        if not self.rules.is_empty:
            found = [entry for entry in found if not self._ignores(path, entry)]
        return own.st_ino, own.st_ctime_ns, found

    def _ignores(self, folder: RelPath, entry: _Entry) -> bool:
        return self.rules.matches(join(folder, os.fsencode(entry[0])), directory=stat.S_ISDIR(entry[1]))

    def _described(self, entries: Iterable[os.DirEntry[str]]) -> Iterator[_Entry]:
        home = self._home
        for entry in entries:
            try:
                seen = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            mode = seen.st_mode
            if seen.st_dev != home:
                raise OSError(f"{entry.name} lies on another filesystem")
            if stat.S_ISDIR(mode):  # its size and times change with every child, which is seen there
                yield entry.name, mode, seen.st_ino, 0, 0, 0
            else:
                yield entry.name, mode, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns

    def _parked(self) -> bool:
        try:
            descriptor = open_directory(self._root, RelPath(PARK_FOLDER))
        except (OSError, LocalChangedError):
            return False
        try:
            return bool(os.listdir(descriptor))
        finally:
            os.close(descriptor)


class FolderPart(Surveyor):
    """See `PartLook`: looks where hints say, else where a survey does."""

    def __init__(
        self,
        root: int,
        rules: IgnoreRules,
        rows: BaseRows,
        hints: Hints,
        known: Callable[[], Digests],
        *,
        folds: bool,
        parts: Parts,
    ) -> None:
        """Take the root's descriptor (not closed here), what is ignored, the base, and what reads the digests."""
        super().__init__(root, rules, folds=folds, parts=parts)
        self._rows = rows
        self._hints = hints
        self._known = known

    def where(self) -> tuple[Collection[RelPath], Collection[RelPath]]:
        """See PartLook. Who watches is not told of what was parked."""
        if self._hints.directories is not None:
            return self._hints.directories, self._hints.entries
        found = self.survey(self._known())
        if found.parked:
            raise UnboundedError
        return found.dirty, ()

    def is_as_known(self, path: RelPath, nid: Nid) -> bool:
        """See PartLook."""
        return self.matches(self._rows, path, nid, self._known())


def _digest(changed_ns: int, entries: list[_Entry]) -> bytes:
    """Digest of a state that will never come again.

    Without the directory's ctime it could: a file that was made, synced and removed again leaves the entries of before,
    and its removal would not be seen.
    """
    return hashlib.blake2b(marshal.dumps((changed_ns, entries), _PLAIN_MARSHAL), digest_size=_DIGEST_BYTES).digest()


def _directories(path: RelPath, entries: list[_Entry]) -> list[RelPath]:
    """Those among the entries of a directory."""
    return [join(path, os.fsencode(entry[0])) for entry in entries if stat.S_ISDIR(entry[1])]


def _all_agree(children: Mapping[str, BaseRow], entries: list[_Entry], mode_bits: int) -> bool:
    """Whether a directory's entries are what the base says, no more and no less."""
    if len(children) != len(entries):
        return False
    return all(_agrees(children.get(entry[0]), entry, mode_bits) for entry in entries)


def _agrees(row: BaseRow | None, entry: _Entry, mode_bits: int) -> bool:
    """Whether an entry is what the base says, as to these bits of a directory's mode.

    The birth time needs no look: an inode made anew has a new ctime.
    """
    if row is None or row.local is None:
        return False
    _, mode, ino, size_bytes, mtime_ns, ctime_ns = entry
    tag, kind = row.local, row.node.kind
    if _KINDS.get(stat.S_IFMT(mode)) is not kind or tag.ino != ino:
        return False
    if kind is Kind.DIRECTORY:
        known = row.node.meta.full_mode
        return known is not None and (known ^ mode) & mode_bits == 0
    if (tag.size_bytes, tag.ctime_ns) != (size_bytes, ctime_ns):
        return False
    return tag.mtime_ns == mtime_ns or tag.mtime_ns == held_time(mtime_ns)
