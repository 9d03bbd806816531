"""Which part of the tree a cycle has to think about, if what changed on both sides is known. Pure.

The planner is given the restriction of base and observations to the *affected part*: every node that changed on a side,
whoever could be the same node or want the same name, and the directories above. Outside of it both sides are as the
base says, so nothing there needs an action, and no action inside depends on it:

- all children of a directory in which something changed are in it: names that are taken, conflict copies, folded names
  (only the changed entries themselves, where their names are told by who watches: nobody else can want a name that
  somebody has here, unless something changes on the server, and that is told with the whole directory);
- so are the base nodes with the inode or the uuid of something that is new in its place: it may have moved from there;
- and everything below a directory that is new, gone or another one on a side.

The exception is a directory that *moved as a whole*: all below it is known to be as it was. Then only the directory is
in the part, and whoever moves it on the other side moves it as a whole, too (`partial.subtrees`). If anything below it
got into the part all the same, the whole tree is planned.

Memory and time follow the changes and the directories that they are in, not the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias

import msgspec

from syncer.core import xattrs
from syncer.core.base import BaseIndex
from syncer.core.model import (
    ROOT,
    Ages,
    BaseRow,
    FileStat,
    Kind,
    LocalTag,
    Nid,
    Position,
    RelPath,
    RemoteStat,
    RemoteTag,
)
from syncer.core.paths import join, split
from syncer.core.planner.identify import evidence
from syncer.core.rows import BaseRows
from syncer.core.subtrees import SubtreeMove

Calm: TypeAlias = Callable[[BaseRow, FileStat], bool]
"""Whether a directory of the base, seen in another place, is as it was with all below it, and its old place empty."""


class UnboundedError(Exception):
    """No part of the base stands for itself (it was torn by a crash, or lacks evidence): plan the whole tree."""


class AffectedPart(msgspec.Struct, frozen=True, kw_only=True):
    """What the planner gets instead of everything.

    Attributes:
        base: The rows in the part.
        local: What is in the part on the local side: seen there, or unchanged by what the base says.
        remote: The same of the remote side.
        beside: Base rows that are not in the part. Both sides have all of them.
        moved: Directories in the part of which nothing below is, though they moved.
    """

    base: BaseIndex
    local: list[FileStat]
    remote: list[RemoteStat]
    beside: int
    moved: frozenset[Nid] = frozenset()


class Affected:
    """Grows with each report of a change; `finish` closes it. Used once."""

    def __init__(self, rows: BaseRows, ages: Ages, calm: Calm | None = None, *, folds: bool = True) -> None:
        """Begin with nothing.

        Args:
            rows: The base.
            ages: Of the server that it was agreed on with.
            calm: Given the number of a directory and where it is now: is all below it as it was, and nothing in its
                old place? None: nothing moves as a whole.
            folds: Some names may be taken for one another.
        """
        self._folds = folds
        self._all = rows
        self._ages = ages
        self._calm = calm
        self._left: list[BaseRow] = []  # not in the listing of their directory: gone, or seen elsewhere
        self._moved_here: set[Nid] = set()  # as a whole, on the local side
        self._moved_there: set[Nid] = set()  # on the remote side
        self._rows: dict[Nid, BaseRow] = {}
        self._found: dict[RelPath, Nid | None] = {RelPath(b""): ROOT}
        self._complete: dict[Nid, Sequence[BaseRow]] = {}  # all children of these are in the part
        self._listed: set[Nid] = set()  # their entries were seen: who is not among them is not there
        self._opened: set[Nid] = set()  # what was below them is not there any more: it was seen elsewhere, or is gone
        self._seen: dict[RelPath, FileStat] = {}
        self._changed: dict[RelPath, RemoteStat] = {}
        self._uuids: set[str] = set()
        self._deleted: set[RelPath] = set()
        self._told: set[RemoteTag] = set()
        self._moves: list[SubtreeMove] = []
        self._since: Position | None = None

    # --- the local side

    def listed(self, path: RelPath, entries: Iterable[FileStat], *, whole: bool = False) -> list[RelPath]:
        """Take the complete listing of a local directory in which something may have changed.

        Args:
            path: The directory.
            entries: What is in it.
            whole: It is itself new or another one, so all directories in it must be listed, too.

        Returns:
            Directories in it that must be listed as `whole`.
        """
        nid = self.find(path)
        known = {} if nid is None else {row.node.name: row for row in self._children(nid)}
        if nid is not None:
            self._listed.add(nid)
        return self._compare(entries, known, whole=whole)

    def looked_at(self, path: RelPath, names: Iterable[bytes], entries: Iterable[FileStat]) -> list[RelPath]:
        """Take some entries of a local directory that the base knows; all others in it are as the base says.

        Only for names that are never taken for one another: else a name says nothing of the entry that it leads to.

        Args:
            path: The directory.
            names: What was looked for.
            entries: Those that are there.

        Returns:
            See `listed`.
        """
        known: dict[bytes, BaseRow] = {}
        for name in names:
            nid = self.find(join(path, name))
            row = self._all.row(nid) if nid else None
            if row is not None:
                self._add(row)
                known[name] = row
        above = self.find(path)
        row = self._all.row(above) if above else None
        if row is not None:
            self._add(row)
        return self._compare(entries, known)

    def _compare(
        self, entries: Iterable[FileStat], known: dict[bytes, BaseRow], *, whole: bool = False
    ) -> list[RelPath]:
        """What is there with what should be there; the rest of `known` is not."""
        below: list[RelPath] = []
        for stat in entries:
            self._seen[stat.path] = stat
            row = known.pop(split(stat.path)[1], None)
            same = row is not None and _is_same(row, stat)
            if row is None and self._moved_whole(stat):
                continue
            if not same:
                self._arrived(stat)
                if row is not None:
                    self._open(row)
            if stat.kind is Kind.DIRECTORY and (whole or not same):
                below.append(stat.path)
        self._left += known.values()
        return below

    def _moved_whole(self, stat: FileStat) -> bool:
        """Whether a new entry is a directory of the base, all of it."""
        if self._calm is None or stat.kind is not Kind.DIRECTORY:
            return False
        rows = self._all.with_inode(stat.tag)
        if len(rows) != 1 or rows[0].node.kind is not Kind.DIRECTORY or rows[0].nid in self._opened:
            return False
        (row,) = rows
        if not self._calm(row, stat):
            return False
        self._moved_here.add(row.nid)
        self._add(row)
        return True

    def _arrived(self, stat: FileStat) -> None:
        """Somebody new is there: it may have come from anywhere."""
        for row in self._all.with_inode(stat.tag):
            self._add(row)
            if row.node.kind is Kind.DIRECTORY and stat.kind is Kind.DIRECTORY:
                self._open(row)

    def _open(self, row: BaseRow) -> None:
        """It is not there any more, or is another one: nor is anything that was below it."""
        self._opened.add(row.nid)
        self._subtree(row)

    # --- the remote side

    def changed(
        self, objects: Iterable[RemoteStat], deleted: Iterable[RelPath], *, since: Position | None = None
    ) -> None:
        """Take what was written on the server, and the names that are gone.

        Args:
            objects: What exists and was written.
            deleted: Names that don't exist any more.
            since: Every version later than this moment that exists is among `objects`, or of a move (`confirmed`).
                None: that is not known.
        """
        self._since = since
        written: list[Nid] = []
        left = {row.nid for row in self._left}
        for stat in objects:
            self._told.add(stat.tag)
            nid = self.find(stat.path)
            row = self._all.row(nid) if nid else None
            if row is not None and row.remote == stat.tag:
                if stat.kind is Kind.DIRECTORY:
                    written.append(row.nid)
                continue  # an echo of our own write
            self._changed[stat.path] = stat
            self._uuids.add(stat.tag.uuid)
            if row is None:
                self._around(stat.path)
            elif row.nid not in left and self._is_only_written(row, stat):
                self._add(row)  # its name is its own as before: the rest of a large directory need not be read
            else:
                self._disturbed(row)
            written += self._known_as(stat.tag.uuid, nid, since)
        unfound = False
        for path in deleted:
            nid = self.find(path)
            row = self._all.row(nid) if nid else None
            if row is None:
                unfound = True
            else:
                self._deleted.add(path)
                self._disturbed(row)
        if unfound and since is not None:
            self._require_places(written, since)

    def _known_as(self, uuid: str, nid: Nid | None, since: Position | None) -> list[Nid]:
        """Take the base nodes of an object; returns directories that we wrote since, and somebody after us."""
        written: list[Nid] = []
        for other in self._all.with_uuid(uuid) if uuid else ():
            if other.nid != nid:
                self._disturbed(other)
            if self._is_directory_since(other, since):
                written.append(other.nid)
        return written

    def _is_directory_since(self, row: BaseRow, since: Position | None) -> bool:
        if row.node.kind is not Kind.DIRECTORY or row.remote is None:
            return False
        return since is None or self._ages.is_later(row.remote, since)

    def _require_places(self, written: Iterable[Nid], since: Position) -> None:
        """What an unknown deleted name was must not be below a directory that we have made anew in another place.

        A directory that was deleted there and moved here is made again, and its row has the new place at once; or it
        was moved there, and what is below it could not be. If then the cycle breaks off, and something below it is
        deleted or was, that is told by a name of before, which no row leads to.
        """
        for nid in written:
            for row in self._all.children(nid):
                if row.remote is None:
                    continue
                if row.remote not in self._told or not self._ages.is_later(row.remote, since):
                    raise UnboundedError(row.node.name)

    def moved(self, row: BaseRow, target: RelPath, tag: RemoteTag) -> None:
        """Take a directory that was moved on the server with all that is below it, and is as the base says otherwise.

        Args:
            row: The directory.
            target: Where it is now; the base has nothing there.
            tag: Its version there.
        """
        node = row.node
        self._moved_there.add(row.nid)
        self._changed[target] = RemoteStat(path=target, kind=node.kind, meta=node.meta, tag=tag)
        self._uuids.add(tag.uuid)
        self._add(row)
        self._children(node.parent)
        self._around(target)

    def confirmed(self, move: SubtreeMove) -> None:
        """Take a move that the server told: what has one of its versions by the base is there."""
        self._moves.append(move)

    def _is_only_written(self, row: BaseRow, stat: RemoteStat) -> bool:
        """Whether a file of the base has a new version there, and its place is not told of here."""
        same = stat.kind is row.node.kind is Kind.FILE and row.remote is not None and row.remote.uuid == stat.tag.uuid
        return same and stat.path not in self._seen

    def _disturbed(self, row: BaseRow) -> None:
        self._add(row)
        self._children(row.node.parent)
        if row.node.kind is Kind.DIRECTORY:
            self._subtree(row)

    def _around(self, path: RelPath) -> None:
        """What could want the same name, or the name of a directory above that has none in the base yet."""
        alone = not self._folds
        while path:
            alone = alone and path not in self._seen
            path, _ = split(path)
            nid = self.find(path)
            if nid is None:
                continue
            row = self._all.row(nid)
            if row is not None and row.node.kind is not Kind.DIRECTORY:
                alone = False  # one of that name and what is below it gets another one, which must be free
                self._add(row)
                continue
            if not alone:
                self._children(nid)
            elif row is not None:
                self._add(row)
            return

    # --- both

    def find(self, path: RelPath) -> Nid | None:
        """The base node at a path; None if there is none."""
        trail: list[RelPath] = []
        at = path
        while at not in self._found:
            trail.append(at)
            at, _ = split(at)
        nid = self._found[at]
        for each in reversed(trail):
            rows = self._all.at(nid, split(each)[1]) if nid is not None else ()
            if len(rows) > 1:
                raise UnboundedError(each)
            nid = self._found[each] = rows[0].nid if rows else None
        return nid

    def finish(self) -> AffectedPart:
        """The affected part as it is now.

        Raises:
            UnboundedError: There is none.
        """
        for row in self._left:
            if row.nid not in self._moved_here:
                self._open(row)
        moved = self._moved_here | self._moved_there
        if any(row.node.parent in moved for row in self._rows.values()):
            raise UnboundedError
        # What came out of a directory that moved as well goes along with it first, which gives it another version on
        # the server: it is not what was seen then. All below the upper one is in the part, so this one is empty.
        moved -= self._complete.keys()
        base = BaseIndex(self._rows.values())
        if len(base.paths) != len(base):
            raise UnboundedError
        gone: dict[Nid, bool] = {ROOT: False}
        local, remote = list(self._seen.values()), list(self._changed.values())
        for nid, row in self._rows.items():
            path = base.paths[nid]
            if row.local is None or row.remote is None:
                raise UnboundedError(path)
            elsewhere = nid in self._moved_here
            if elsewhere and path in self._seen:
                raise UnboundedError(path)  # somebody made another one in the meantime
            known = path not in self._seen and row.node.parent not in self._listed and not elsewhere
            if known and not self._is_gone(nid, gone):
                local.append(_as_known(row, path, row.local))
            replaced = path in self._changed or path in self._deleted or row.remote.uuid in self._uuids
            if not replaced and not self._is_outdated(row.remote):
                node = row.node
                remote.append(
                    RemoteStat(
                        path=path,
                        kind=node.kind,
                        meta=node.meta,
                        content=node.content,
                        target=node.target,
                        tag=row.remote,
                    )
                )
        return AffectedPart(
            base=base, local=local, remote=remote, beside=len(self._all) - len(self._rows), moved=frozenset(moved)
        )

    def _is_outdated(self, tag: RemoteTag) -> bool:
        """A version that would have been told of if it still existed.

        Its name may not tell: the row of a directory that was moved on the server lags behind while its move can't be
        done here. Then what is below it has another path there than in the base, and that one is never told as deleted.
        """
        if self._since is None or tag in self._told or not self._ages.is_later(tag, self._since):
            return False
        return not any(move.gave(tag) for move in self._moves)

    def _is_gone(self, nid: Nid, known: dict[Nid, bool]) -> bool:
        trail: list[Nid] = []
        while nid not in known:
            trail.append(nid)
            if nid in self._opened:
                break
            nid = self._rows[nid].node.parent
        answer = known.get(nid, True)
        known.update(dict.fromkeys(trail, answer))
        return answer

    def _add(self, row: BaseRow) -> None:
        """A row and the directories above it."""
        at: BaseRow | None = row
        while at is not None and at.nid not in self._rows:
            self._rows[at.nid] = at
            if at.node.parent == ROOT:
                return
            parent = at.node.parent
            at = self._rows.get(parent) or self._all.row(parent)
            if at is None:
                raise UnboundedError(parent)

    def _children(self, nid: Nid) -> Sequence[BaseRow]:
        """All of a directory's rows, which are in the part from now on. Read once: whole folders change together."""
        rows = self._complete.get(nid)
        if rows is None:
            rows = self._complete[nid] = self._all.children(nid)
            if nid != ROOT:
                row = self._rows.get(nid) or self._all.row(nid)
                if row is None:
                    raise UnboundedError(nid)
                self._add(row)
            for row in rows:
                self._add(row)
        return rows

    def _subtree(self, row: BaseRow) -> None:
        self._add(row)
        stack = [row] if row.node.kind is Kind.DIRECTORY else []
        while stack:
            below = self._children(stack.pop().nid)
            stack += [child for child in below if child.node.kind is Kind.DIRECTORY]


def is_unchanged(row: BaseRow, stat: FileStat) -> bool:
    """Whether an entry is exactly what the base row says of it: its evidence, and the metadata of a directory."""
    if row.local != evidence(stat.kind, stat.tag) or row.node.kind is not stat.kind:
        return False
    if stat.meta.xattrs is not None and not xattrs.same(stat.meta.xattrs, row.node.meta.xattrs or ()):
        return False
    if stat.kind is not Kind.DIRECTORY:
        return True
    ours, known = stat.meta, row.node.meta
    return ours.mode == known.mode and ours.special in (None, known.special)


def _is_same(row: BaseRow, stat: FileStat) -> bool:
    return row.node.kind is stat.kind and row.local is not None and row.local.inode == stat.tag.inode


def _as_known(row: BaseRow, path: RelPath, tag: LocalTag) -> FileStat:
    node = row.node
    return FileStat(path=path, kind=node.kind, meta=node.meta, content=node.content, target=node.target, tag=tag)
