"""A volume as its journal and the base rows describe it, looked at entry by entry. Pure.

What `survey.FolderPart` is for an ordinary directory, for a cycle that looks at a part of the tree
(`engine/partial/partial_look.py`): but the answers come from what the journal says of changed inodes and what the base
says of all others. That is sound for the same reason as laying the one over the other as a whole (`volume_tree`): the
cursor was stored when the base held everything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from blockfs.control.protocol import NodeRow
from syncer.core.ignore import IGNORE_FILE, IgnoreRules
from syncer.core.model import ROOT, BaseRow, Content, FileStat, Kind, LocalTag, Nid, RelPath
from syncer.core.partial.affected import UnboundedError
from syncer.core.parts import NO_PARTS, Parts
from syncer.core.paths import PARK_FOLDER, is_private, join, split
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError
from syncer.local.volume.tree import HIDDEN, ROOT_INO, stat_of
from syncer.ports.localvalues import Problem

_DIRECTORY: Final = "directory"


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """What changed since the base was complete.

    Attributes:
        rows: Changed inodes as they are now.
        gone: Inodes that are not there any more.
        roots: Inodes whose path is known: the root and the private folders.
        hidden: Directories that were ignored then.
        rules: Fingerprint of the ignore rules then.
    """

    rows: Mapping[int, NodeRow]
    gone: frozenset[int]
    roots: Mapping[int, RelPath]
    hidden: frozenset[int]
    rules: str


class VolumePart:
    """Answers for one cycle.

    Attributes:
        rules: What is ignored, as it was when everything was looked at the last time.
        holding: Directories in which something was met that is not synced.
        hidden: Directories that are ignored now, so far as they were told of; complete after `where`.
        problems: What is not synced, and why.
        folds: Never on a volume.
    """

    folds = False

    def __init__(self, base: BaseRows, journal: Journal, rules: IgnoreRules, parts: Parts = NO_PARTS) -> None:
        self.rules = rules
        self.holding: set[RelPath] = set()
        self.hidden = set(journal.hidden - journal.gone)
        self.problems: list[Problem] = []
        self._base = base
        self._parts = parts
        self._journal = journal
        self._paths: dict[int, RelPath] = {**journal.roots, **dict.fromkeys(self.hidden, HIDDEN)}
        self._stirred: set[Nid] = set()  # directories of the base below which something may be otherwise
        self._placed: dict[int, dict[bytes, NodeRow]] = {}
        for row in journal.rows.values():
            for parent, name in row.places:
                self._placed.setdefault(parent, {})[name] = row

    def where(self) -> tuple[Collection[RelPath], Collection[RelPath]]:
        """Every place that a changed inode has or had.

        Raises:
            UnboundedError: The journal does not fit the base, something is to be ignored otherwise than before, or
                something is parked: a crash left it.
        """
        if self._journal.rules != self.rules.fingerprint:
            raise UnboundedError
        names: dict[RelPath, None] = {}
        parked = False
        for ino in sorted(self._journal.gone | self._journal.rows.keys()):
            before = self._known(ino)
            for row in before:
                path = self._base.path(row)
                if path is None:
                    raise UnboundedError(row.nid)
                names[path] = None
                self._stir(row.node.parent)
            now = self._journal.rows.get(ino)
            if now is not None and ino not in self._journal.roots:
                for parent, _ in now.places:
                    self._stir(self._number(parent))
                for path in self._places(now):
                    if self._is_shown(now, path, is_known=bool(before)):
                        names[path] = None
                    parked |= path.startswith(PARK_FOLDER + b"/")
        if parked or any(split(path)[1] == IGNORE_FILE for path in names):
            raise UnboundedError
        return (), names

    def is_directory(self, path: RelPath) -> bool:
        """Whether there is one now."""
        return self._directory(path) is not None

    def is_free(self, path: RelPath) -> bool:
        """Whether nothing has this name now."""
        above, name = split(path)
        ino = self._directory(above)
        return ino is None or self._child(ino, name) is None

    def is_as_known(self, path: RelPath, nid: Nid) -> bool:  # noqa: ARG002 - see PartLook
        """Whether nothing below a directory of the base was told of: what moved along is not."""
        return nid not in self._stirred

    def listing(self, path: RelPath) -> list[FileStat]:
        """One directory in full."""
        ino = self._directory(path)
        if ino is None:
            raise UnboundedError(path)
        names = {row.node.name for row in self._children(ino)}
        return list(self._stats(ino, path, sorted(names | self._placed.get(ino, {}).keys())))

    def entries(self, path: RelPath, names: Iterable[bytes]) -> list[FileStat] | None:
        """Some entries of a directory: those that are there, of the names that are synced.

        Raises:
            LocalChangedError: There is no such directory.
        """
        ino = self._directory(path)
        if ino is None:
            raise LocalChangedError(path, "the directory is gone")
        return list(self._stats(ino, path, sorted(set(names))))

    def changed(self, stat: FileStat) -> NodeRow | None:
        """What the journal says of an entry."""
        return self._journal.rows.get(stat.tag.ino)

    # --- paths

    def _places(self, row: NodeRow) -> Iterator[RelPath]:
        for parent, name in row.places:
            yield join(self._path(parent), name)

    def _path(self, ino: int) -> RelPath:
        """Of a directory, now."""
        trail: dict[int, bytes] = {}  # not a call for each level: users nest folders deeper than Python's calls go
        while (found := self._paths.get(ino)) is None:
            if ino in trail:
                raise UnboundedError(ino)
            parent, trail[ino] = self._place(ino)
            ino = parent
        for below, name in reversed(trail.items()):
            found = self._paths[below] = join(found, name)
        return found

    def _stir(self, nid: Nid | None) -> None:
        """Something in a directory changed: so did all directories above, as the base has them."""
        while nid is not None and nid != ROOT and nid not in self._stirred:
            self._stirred.add(nid)
            row = self._base.row(nid)
            nid = None if row is None else row.node.parent

    def _place(self, ino: int) -> tuple[int, bytes]:
        """The directory that holds a directory, and its name there."""
        now = self._journal.rows.get(ino)
        if now is not None and now.places:
            return now.places[0]
        known = self._known(ino)
        if now is not None or not known or ino in self._journal.gone:
            raise UnboundedError(ino)
        node = known[0].node
        if node.parent == ROOT:
            return ROOT_INO, node.name
        above = self._base.row(node.parent)
        if above is None or above.local is None:
            raise UnboundedError(node.parent)
        return above.local.ino, node.name

    def _is_shown(self, row: NodeRow, path: RelPath, *, is_known: bool) -> bool:
        """Whether a place of a changed inode is synced. Ignored directories are remembered."""
        is_directory = row.kind == _DIRECTORY
        below_hidden = path.startswith(HIDDEN + b"/")
        if below_hidden or self.rules.hides(path, directory=is_directory):
            if is_directory and is_known:
                raise UnboundedError(path)  # whatever is below it is to be ignored, too
            if is_directory:
                self.hidden.add(row.ino)
                self._paths[row.ino] = HIDDEN
            return False
        if row.ino in self._journal.hidden:
            raise UnboundedError(path)  # nobody told what is in it
        return not is_private(path)

    # --- entries

    def _known(self, ino: int) -> Sequence[BaseRow]:
        return known_rows(self._base, ino)

    def _number(self, ino: int) -> Nid | None:
        """The base's number of a directory."""
        if ino == ROOT_INO:
            return ROOT
        known = self._known(ino)
        return known[0].nid if known else None

    def _children(self, ino: int) -> Iterator[BaseRow]:
        """What the base has in a directory and the journal does not contradict."""
        nid = self._number(ino)
        for row in self._base.children(nid) if nid is not None else ():
            if self._is_as_known(row):
                yield row

    def _is_as_known(self, row: BaseRow) -> bool:
        if row.local is None:
            raise UnboundedError(row.nid)
        return row.local.ino not in self._journal.rows and row.local.ino not in self._journal.gone

    def _child(self, ino: int, name: bytes) -> NodeRow | BaseRow | None:
        now = self._placed.get(ino, {}).get(name)
        if now is not None:
            return now
        nid = self._number(ino)
        found = self._base.at(nid, name) if nid is not None else ()
        if len(found) > 1:
            raise UnboundedError(name)
        return found[0] if found and self._is_as_known(found[0]) else None

    def _directory(self, path: RelPath) -> int | None:
        """The inode of a directory by its path now; None if there is none."""
        ino = ROOT_INO
        for name in path.split(b"/") if path else ():
            found = self._child(ino, name)
            if isinstance(found, BaseRow) and found.node.kind is Kind.DIRECTORY and found.local is not None:
                ino = found.local.ino
            elif isinstance(found, NodeRow) and found.kind == _DIRECTORY:
                ino = found.ino
            else:
                return None
        return ino

    def _stats(self, ino: int, path: RelPath, names: Iterable[bytes]) -> Iterator[FileStat]:
        for name in names:
            at, found = join(path, name), self._child(ino, name)
            if found is None or is_private(at):
                continue
            is_directory = found.node.kind is Kind.DIRECTORY if isinstance(found, BaseRow) else found.kind == _DIRECTORY
            if self.rules.matches(at, directory=is_directory):
                self.holding.add(path)
                continue
            stat = _as_known(found, at) if isinstance(found, BaseRow) else self._stat(found, at)
            if stat is not None:
                yield stat

    def _stat(self, row: NodeRow, path: RelPath) -> FileStat | None:
        """A changed entry; its content if only its metadata or its name changed."""
        stat = stat_of(row, path, self._parts)
        if stat is None:
            self.problems.append(Problem(path=path, reason=f"a {row.kind} is not synced", partly=False))
            self.holding.add(split(path)[0])
            return None
        return stat if stat.kind is not Kind.FILE else _with_content(stat, _known_content(self._base, row))


def known_rows(rows: BaseRows, ino: int) -> Sequence[BaseRow]:
    """The base rows of an inode of a volume."""
    return rows.with_inode(LocalTag(device=0, ino=ino, btime_ns=0, size_bytes=0, mtime_ns=0, ctime_ns=0))


def knows(rows: BaseRows, row: NodeRow) -> bool:
    """Whether the base has a file with this very content."""
    return _known_content(rows, row) is not None


def _known_content(rows: BaseRows, row: NodeRow) -> Content | None:
    for known in known_rows(rows, row.ino):
        if known.local is not None and known.local.version == row.content_version:
            return known.node.content
    return None


def _as_known(row: BaseRow, path: RelPath) -> FileStat:
    node = row.node
    assert row.local is not None
    return FileStat(path=path, kind=node.kind, meta=node.meta, content=node.content, target=node.target, tag=row.local)


def _with_content(stat: FileStat, content: Content | None) -> FileStat:
    return FileStat(path=stat.path, kind=stat.kind, meta=stat.meta, content=content, tag=stat.tag, nlink=stat.nlink)
