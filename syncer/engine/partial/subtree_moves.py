"""Which directories moved as a whole, on either side, so that what is below them needs no look (`partial.subtrees`).

Every doubt is an `UnboundedError` or a no: then things are looked at, and moved, one by one as ever.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from syncer.core.model import ROOT, BaseRow, FileStat, Kind, Nid, RelPath, RemoteTag
from syncer.core.partial.affected import Affected, UnboundedError, is_unchanged
from syncer.core.paths import is_private, rel_path, split
from syncer.core.rows import BaseRows
from syncer.core.subtrees import Retagged, Subtree, SubtreeMove, touches
from syncer.errors import UnsafeNameError
from syncer.ports.local import PartLook
from syncer.ports.remote import Changes
from syncer.protocol.extensions.subtree import disjoint
from syncer.protocol.pithos.names import path_from_name


class MovedSubtrees(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle goes on with.

    Attributes:
        subtrees: By directory that moved as a whole on a side: what is at and below it, with the versions that are
            there now.
        retagged: What is to be recorded of moves on the server before anything is done.
    """

    subtrees: Mapping[Nid, Subtree]
    retagged: tuple[Retagged, ...] = ()


class Arrivals:
    """Takes the moves on the server into what is affected.

    Attributes:
        subtrees: See `MovedSubtrees`.
        retagged: See `MovedSubtrees`.
        looked: Directories that are as the base says, by where they will be after the moves.
    """

    def __init__(self, rows: BaseRows, changes: Changes) -> None:
        """Look at the moves.

        Raises:
            UnboundedError: They overlap.
        """
        self._rows = rows
        self._moves = [(_path(move.source), _path(move.target), move) for move in changes.moves]
        self._changed = [*(each.path for each in changes.objects), *map(RelPath, changes.deleted)]
        self.subtrees: dict[Nid, Subtree] = {}
        self.retagged: list[Retagged] = []
        self.looked: list[RelPath] = []
        self._arriving: list[tuple[RelPath, RelPath]] = []
        if not disjoint([name for move in changes.moves for name in (move.source, move.target)]):
            raise UnboundedError

    def take_into(self, affected: Affected) -> None:
        """Compare each move with the base, and put its directory into what is affected.

        Raises:
            UnboundedError: The base is neither as it was before the move nor as it was after it.
        """
        for source, target, move in self._moves:
            before, after = affected.find(source), affected.find(target)
            affected.confirmed(move)
            if before is not None and after is None:
                self._arrived(affected, before, source, target, move)
            elif before is not None or after is None or not self._rows.subtree(after).is_after(move, root=True):
                raise UnboundedError(source)  # else it was our own, and what changed in it since is told by its paths

    def _arrived(self, affected: Affected, nid: Nid, source: RelPath, target: RelPath, move: SubtreeMove) -> None:
        roots = frozenset((source, target))
        if any(touches(path, roots) for path in self._changed):
            raise UnboundedError(target)  # by paths that the base does not know yet
        row, subtree = self._rows.row(nid), self._rows.subtree(nid)
        if row is None or row.node.kind is not Kind.DIRECTORY or row.remote is None or not row.remote.uuid:
            raise UnboundedError(target)
        if subtree.guard == move.guard:
            self.retagged.append(Retagged(nid=nid, first=move.first, count=move.guard.count))
        elif not subtree.is_after(move, root=False):  # else it was recorded before a crash
            raise UnboundedError(target)
        self.subtrees[nid] = subtree.after(move)
        self._arriving.append((source, target))
        self.looked.append(target)
        affected.moved(row, target, move.root_tag(row.remote))

    def without_echoes(
        self, look: PartLook, affected: Affected, dirt: Collection[RelPath], entries: Collection[RelPath]
    ) -> tuple[Collection[RelPath], Collection[RelPath]]:
        """Leave out what is told of an arriving directory, but is as the base says: what was done here before.

        Args:
            look: Looks at it.
            affected: Of which the directory is a part.
            dirt: Directories in which something may have changed.
            entries: Further paths that may have changed.

        Returns:
            The rest of them.

        Raises:
            UnboundedError: Something below it is not so.
        """
        for source, target in self._arriving:
            roots = frozenset((source,))
            told = {path for path in (*dirt, *(split(path)[0] for path in entries)) if touches(path, roots)}
            for path in told:
                nid = affected.find(path)
                if nid is None or not _is_as_known(look, self._rows, path, nid):
                    raise UnboundedError(path)
                self.looked.append(RelPath(target + path[len(source) :]))
            dirt = [path for path in dirt if path not in told]
            entries = [path for path in entries if split(path)[0] not in told]
        return dirt, entries

    def allows(self, source: RelPath) -> bool:
        """Whether no move but one of this very directory concerns it."""
        roots = frozenset((source,))
        return not any(
            path != source and (touches(path, roots) or touches(source, frozenset((path,))))
            for old, new, _ in self._moves
            for path in (old, new)
        )


class Calm:
    """Judges directories that were moved on the local side."""

    def __init__(
        self,
        look: PartLook,
        rows: BaseRows,
        changes: Changes,
        arrivals: Arrivals,
    ) -> None:
        self._look = look
        self._rows = rows
        self._changed: dict[RelPath, RemoteTag | None] = {each.path: each.tag for each in changes.objects}
        self._changed.update(dict.fromkeys(map(RelPath, changes.deleted)))
        self._able = changes.info.can.moves_trees > 0 and look.rules.is_empty
        self._arrivals = arrivals
        self.looked: list[RelPath] = []

    def __call__(self, row: BaseRow, stat: FileStat) -> bool:
        """See `core.partial.affected.Calm`."""
        old = self._rows.path(row) if self._able else None
        if old is None or not self._look.is_free(old):
            return False
        roots = frozenset((old, stat.path))
        changed = [path for path in self._changed if touches(path, roots)]
        if not self._arrivals.allows(old) or not all(map(self._is_echo, changed)):
            return False
        if not self._look.is_as_known(stat.path, row.nid):
            return False
        self.looked.append(stat.path)
        return True

    def _is_echo(self, path: RelPath) -> bool:
        """Whether the base has what the server tells of a path: what was written or deleted from here."""
        tag, rows = self._changed[path], _at(self._rows, path)
        return not rows if tag is None else [row.remote for row in rows] == [tag]


def subtrees_of(rows: BaseRows, whole: frozenset[Nid], arrived: Mapping[Nid, Subtree], most: int) -> dict[Nid, Subtree]:
    """The subtrees of all directories that moved as a whole.

    Raises:
        UnboundedError: One has more objects than the server moves at once (`most`).
    """
    found = {nid: arrived[nid] if nid in arrived else rows.subtree(nid) for nid in whole}
    if any(len(subtree) > most for subtree in found.values()):
        raise UnboundedError
    return found


def _is_as_known(look: PartLook, rows: BaseRows, path: RelPath, nid: Nid) -> bool:
    """Whether all entries of a directory, though not what is below them, are exactly as the base says."""
    if not look.is_directory(path):
        return False
    children = rows.children(nid)
    known = {row.node.name: row for row in children}
    stats = {split(stat.path)[1]: stat for stat in look.listing(path)}
    return len(children) == len(known) == len(stats) and all(
        name in known and is_unchanged(known[name], stat) for name, stat in stats.items()
    )


def _at(rows: BaseRows, path: RelPath) -> Sequence[BaseRow]:
    """The base rows at a path."""
    found: list[BaseRow] = []
    parents = [ROOT]
    for name in path.split(b"/"):
        found = [row for parent in parents for row in rows.at(parent, name)]
        parents = [row.nid for row in found]
    return found


def _path(name: str) -> RelPath:
    """A root of a move.

    Raises:
        UnboundedError: Nothing that is synced has such a name.
    """
    try:
        path = rel_path(path_from_name(name))
    except UnsafeNameError:
        raise UnboundedError(name) from None
    if is_private(path):
        raise UnboundedError(path)
    return path
