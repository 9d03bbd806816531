"""Observations → a tree: decide which node each observed path is. Pure.

In this order, each base node at most once:
1. same path and kind: the same node. A new inode or uuid there is an *edit*, because editors replace files.
   Unless another node was moved here and nothing but its identity tells that (`_by_moved_over`).
2. same identity elsewhere (device, inode and birth time; remote uuid) and kind: the node was moved.
3. same name and kind in the same directory, which itself was moved; or a name that is the same to the filesystem.
4. the unique equal content of a vanished node: moved by something that keeps no identity.
5. else new.
Only complete observations are identified: what could not be read is `unknown`, never absent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, Generic, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.folding import Fold
from syncer.core.model import (
    NO_META,
    PARK,
    ROOT,
    Ages,
    BaseRow,
    Content,
    FileStat,
    Identified,
    Kind,
    LocalTag,
    Meta,
    Nid,
    Node,
    Note,
    NoteKind,
    RelPath,
    RemoteStat,
    Tag,
)
from syncer.core.paths import PARK_FOLDER, ancestors, is_private, parse_park_name, shown, split

Fresh = Callable[[], Nid]
"""Gives numbers that were never used: `StateDB.allocator()`, or a counter in tests."""

UNREADABLE: Final = "it can't be read"
MAY_BE_HIDDEN: Final = "it is not where it was, and may be in a directory that can't be read"
UNSTABLE: Final = "its content is not known yet: it changes while it is read, or could not be read"

_Stat = TypeVar("_Stat", FileStat, RemoteStat)
_Seen_contra = TypeVar("_Seen_contra", contravariant=True)


class Blind(msgspec.Struct, frozen=True, kw_only=True):
    """What an observation of the local side does not show.

    Attributes:
        unknown: Paths that could not be read: a directory's listing, or an entry that could not even be looked at.
        sealed: Those of them that nothing can have been moved into: other filesystems, and what is no directory.
        holding: Directories with something in them that is not synced, and so not among the observations.
    """

    unknown: AbstractSet[RelPath] = frozenset()
    sealed: AbstractSet[RelPath] = frozenset()
    holding: AbstractSet[RelPath] = frozenset()


def identify_local(
    observations: Iterable[FileStat],
    blind: AbstractSet[RelPath] | Blind,
    base: BaseIndex,
    fresh: Fresh,
    fold: Fold | None = None,
) -> Identified:
    """Name what was seen in the local root.

    Args:
        observations: Everything that could be seen, in any order, with the entries of the park folder.
        blind: What could not be seen; a set alone is its `unknown`.
        base: What both sides last agreed on.
        fresh: Source of new numbers; called in path order, so the result is deterministic.
        fold: Key of names that are one name to the filesystem.

    Returns:
        The tree. Base nodes at or below unknown paths are in it as the base knows them, frozen.
    """
    dark = blind if isinstance(blind, Blind) else Blind(unknown=blind)
    run = _Identify[FileStat](observations, base, fresh, _LOCAL, fold)
    found = run.run(dark.unknown, dark.sealed)
    if not dark.holding:
        return found
    nids = (run.number_of(path) for path in dark.holding)
    return replace(found, holding=frozenset(nid for nid in nids if nid is not None and nid in found.tree))


def identify_remote(observations: Iterable[RemoteStat], base: BaseIndex, fresh: Fresh, ages: Ages) -> Identified:
    """Name what was listed on the server: a complete listing, or nothing at all.

    Directories that no marker object stands for, but below which something lies, are added (`implicit`).
    """
    return _Identify[RemoteStat](observations, base, fresh, _RemoteSide(ages)).run(frozenset())


def evidence(kind: Kind, tag: Tag) -> Tag:
    """What of a tag counts: a local directory's size and times change with every child, so only its identity."""
    if kind is Kind.DIRECTORY and isinstance(tag, LocalTag):
        return LocalTag(
            device=tag.device, ino=tag.ino, btime_ns=tag.btime_ns, size_bytes=0, mtime_ns=0, ctime_ns=0, version=None
        )
    return tag


def synced_meta(kind: Kind, meta: Meta) -> Meta:
    """What of the metadata is synced for this kind: files all, directories no mtime, symlinks nothing."""
    if kind is Kind.FILE or (kind is Kind.DIRECTORY and meta.mtime_ns is None):
        return meta
    return NO_META if kind is Kind.SYMLINK else Meta(mode=meta.mode, special=meta.special, xattrs=meta.xattrs)


class _Reader(Protocol[_Seen_contra]):
    """How one side's observations are matched and read.

    Attributes:
        is_store: Paths are keys of an object store: what has one may have others below it, whatever it is.
    """

    is_store: bool

    def identity(self, stat: _Seen_contra) -> object:
        """What survives a move."""

    def identity_of_row(self, row: BaseRow) -> object:
        """The same of a base row; None if it has none on this side."""

    def is_later(self, row: BaseRow, than: BaseRow) -> bool:
        """Of two rows with one identity: whether the first is of a later version."""

    def by_identity(self, base: BaseIndex, stat: _Seen_contra) -> tuple[Nid, ...]:
        """Base rows with the identity of `stat`."""

    def read(self, stat: _Seen_contra, row: BaseRow | None) -> tuple[Meta, Content | None, bytes | None]:
        """Metadata, content and link target, completed from the node's base row where that is sound."""


class _LocalSide:
    """Local: the inode."""

    is_store = False

    def identity(self, stat: FileStat) -> object:
        return stat.tag.inode

    def identity_of_row(self, row: BaseRow) -> object:
        return row.local.inode if row.local is not None else None

    def is_later(self, row: BaseRow, than: BaseRow) -> bool:
        return row.local is not None and row.local.ctime_ns > (0 if than.local is None else than.local.ctime_ns)

    def by_identity(self, base: BaseIndex, stat: FileStat) -> tuple[Nid, ...]:
        return base.by_inode.get(stat.tag.inode, ())

    def read(self, stat: FileStat, row: BaseRow | None) -> tuple[Meta, Content | None, bytes | None]:
        return _with_agreed_bits(_of_none(stat.meta, row), row), stat.content, stat.target


class _RemoteSide:
    """Remote: the uuid. What a listing leaves out is the base's while the tag is the base's."""

    is_store = True

    def __init__(self, ages: Ages) -> None:
        self._ages = ages

    def identity(self, stat: RemoteStat) -> object:
        return stat.tag.uuid

    def identity_of_row(self, row: BaseRow) -> object:
        return row.remote.uuid if row.remote is not None else None

    def is_later(self, row: BaseRow, than: BaseRow) -> bool:
        return row.remote is not None and (than.remote is None or self._ages.is_later(row.remote, than.remote))

    def by_identity(self, base: BaseIndex, stat: RemoteStat) -> tuple[Nid, ...]:
        return base.by_uuid.get(stat.tag.uuid, ())

    def read(self, stat: RemoteStat, row: BaseRow | None) -> tuple[Meta, Content | None, bytes | None]:
        meta, target = stat.meta, stat.target
        if row is not None and row.remote == stat.tag:
            meta = row.node.meta if meta is None else meta
            target = row.node.target if target is None else target
        return NO_META if meta is None else meta, stat.content, target  # that some were removed is told on, as it is


def _of_none(meta: Meta, row: BaseRow | None) -> Meta:
    """An empty set where the base knows of no attribute either says nothing: it never had any, or has none any more.

    Saying so to the server would cost every object an item of metadata.
    """
    if meta.xattrs == () and (row is None or not row.node.meta.xattrs):
        return replace(meta, xattrs=None)
    return meta


def _with_agreed_bits(meta: Meta, row: BaseRow | None) -> Meta:
    """Without an opinion on the special bits of the mode they are as agreed; mostly all is, and the object is one."""
    if meta.special is not None or meta.mode is None or row is None:
        return meta
    known = row.node.meta
    if (meta.mode, meta.mtime_ns, meta.xattrs) == (known.mode, known.mtime_ns, known.xattrs):
        return known
    return replace(meta, special=known.special)


_LOCAL: Final[_Reader[FileStat]] = _LocalSide()


class _Identify(Generic[_Stat]):
    """One run of the passes above."""

    def __init__(
        self,
        observations: Iterable[_Stat],
        base: BaseIndex,
        fresh: Fresh,
        side: _Reader[_Stat],
        fold: Fold | None = None,
    ) -> None:
        self.base = base
        self.fold = fold
        self.fresh = fresh
        self.side: _Reader[_Stat] = side
        self.seen: dict[RelPath, _Stat | None] = {}  # in path order, so parents first; None: implicit directory
        self.doubled: set[RelPath] = set()  # names of an object and of a directory; the directory's key ends in a slash
        self.nids: dict[RelPath, Nid] = {}
        self.taken: set[Nid] = set()
        self.frozen: dict[Nid, str] = {}
        self.opaque: set[Nid] = set()
        self.notes: list[Note] = []
        self._admit(observations)

    def run(self, unknown: AbstractSet[RelPath], sealed: AbstractSet[RelPath] = frozenset()) -> Identified:
        """All passes, then the tree."""
        self._by_path()
        self._by_moved_over()
        if len(self.nids) < len(self.seen):
            self._by_identity()
            self._by_slot()
            if self.fold is not None:
                self._by_folded_name(self.fold)
            if not unknown:  # with blind spots nothing is known to have vanished
                self._by_content()
            for path in self.seen:
                if path not in self.nids:
                    self.nids[path] = self.fresh()
        tree, tags = self._tree()
        self._keep_unknown(unknown, tree)
        if unknown - sealed:
            # A deletion needs positive evidence: somebody may have moved it to where we can't look.
            for nid in sorted(self.base.rows.keys() - self.taken):
                self.frozen.setdefault(nid, MAY_BE_HIDDEN)
        implicit = frozenset(self.nids[path] for path, stat in self.seen.items() if stat is None)
        return Identified(
            tree=tree,
            tags=tags,
            frozen=self.frozen,
            opaque=frozenset(self.opaque),
            implicit=implicit,
            notes=tuple(self.notes),
        )

    def _admit(self, observations: Iterable[_Stat]) -> None:
        """Sort, add implicit directories; refuse what lies below a non-directory, where there can be no such thing."""
        stats: dict[RelPath, _Stat] = {}
        for stat in observations:
            if stat.path and (not is_private(stat.path) or stat.path.startswith(PARK_FOLDER + b"/")):
                stats[stat.path] = stat
        implicit: set[RelPath] = set()
        paths = sorted(stats)
        for path in paths:
            blocked = self._obstacle(path, stats, implicit) if b"/" in path else None
            if blocked is not None:
                self._refuse(path, stats.pop(path), blocked)
        if implicit or len(stats) < len(paths):
            paths = sorted(stats.keys() | implicit)
        self.seen = {path: stats.get(path) for path in paths}

    def _obstacle(self, path: RelPath, stats: Mapping[RelPath, _Stat], implicit: set[RelPath]) -> RelPath | None:
        """The non-directory above `path`, if there is one; else notes the directories above that nobody observed.

        In an object store both are there: somebody put an object in the place of a directory while somebody else put
        one below it. The directory is implicit, in the slot of that object; `merge` gives one of them another name.
        """
        missing: list[RelPath] = []
        for above in ancestors(path):
            if above in implicit or above == PARK_FOLDER:
                break
            stat = stats.get(above)
            if stat is None:
                missing.append(above)
            elif stat.kind is Kind.DIRECTORY:
                break
            elif self.side.is_store:
                self.doubled.add(above)
                missing.append(RelPath(above + b"/"))
                break
            else:
                return above
        implicit.update(missing)
        return None

    def _refuse(self, path: RelPath, stat: _Stat, obstacle: RelPath) -> None:
        text = f"it lies below {shown(obstacle)}, which is no directory: it is left alone"
        self.notes.append(Note(kind=NoteKind.UNHOLDABLE, path=path, text=text))
        # It is there, though no tree can show it: whatever it may be is not deleted, and left alone.
        for nid in (*self.base.by_path.get(path, ()), *self.side.by_identity(self.base, stat)):
            self.frozen[nid] = text
            self.taken.add(nid)

    def _take(self, path: RelPath, nid: Nid) -> None:
        self.nids[path] = nid
        self.taken.add(nid)

    def _candidates(self, nids: Iterable[Nid], kind: Kind) -> list[Nid]:
        rows = self.base.rows
        return [nid for nid in nids if nid not in self.taken and rows[nid].node.kind is kind]

    def _by_path(self) -> None:
        by_path = self.base.by_path
        for path, stat in self.seen.items():
            if stat is None or path not in by_path:
                continue
            nids = self._candidates(by_path[path], stat.kind)
            if len(nids) > 1:  # a crash left two rows in one slot: the identity tells which one is there
                side, rows = self.side, self.base.rows
                same = [nid for nid in nids if side.identity_of_row(rows[nid]) == side.identity(stat)]
                nids = same or nids
            if nids:
                self._take(path, nids[0])

    def _by_moved_over(self) -> None:
        """Undo matches by path where a vanished node was moved over another one, and nothing else tells that.

        By its path alone such a file is unchanged. If its row's node was deleted on the other side, it is deleted here,
        and the vanished node there: both versions. So here the identity counts
        - if all contents are equal;
        - if both rows have that identity, and the vanished node's is the later one: it had been moved over the other's
          path and is moved back, and a crash lost the record of the other's removal in between.
        """
        vanished: dict[object, Nid] = {}
        for nid in self.base.rows.keys() - self.taken:
            identity = self.side.identity_of_row(self.base.rows[nid])
            if identity:
                known = vanished.setdefault(identity, nid)
                vanished[identity] = self._later(known, nid)
        if not vanished:
            return
        for path, nid in self.nids.items():
            stat = self.seen[path]
            moved = None if stat is None else vanished.get(self.side.identity(stat))
            if stat is not None and moved is not None and self._is_over(stat, moved, nid):
                self.taken.discard(nid)
                self._take(path, moved)

    def _later(self, one: Nid, other: Nid) -> Nid:
        """Which row is the later one; of equally old ones, which number."""
        first, second = self.base.rows[one], self.base.rows[other]
        if self.side.is_later(first, second):
            return one
        return other if self.side.is_later(second, first) else max(one, other)

    def _is_over(self, stat: _Stat, moved: Nid, nid: Nid) -> bool:
        row, over = self.base.rows[moved], self.base.rows[nid]
        if row.node.kind is not stat.kind:
            return False
        if self.side.identity_of_row(over) == self.side.identity(stat):
            return self.side.is_later(row, over)
        return stat.content is not None and row.node.content == stat.content == over.node.content

    def _unmatched(self) -> Iterator[tuple[RelPath, _Stat]]:
        for path, stat in self.seen.items():
            if path not in self.nids and stat is not None:
                yield path, stat

    def _by_identity(self) -> None:
        for path, stat in self.seen.items():
            if path in self.nids:
                continue
            kind = stat.kind if stat is not None else Kind.DIRECTORY
            nids = self._candidates(self.side.by_identity(self.base, stat), kind) if stat is not None else []
            if not nids and path.startswith(PARK_FOLDER + b"/"):
                nids = self._parked_number(path, kind)
            if nids:
                self._take(path, nids[0])

    def _parked_number(self, path: RelPath, kind: Kind) -> list[Nid]:
        parent, name = self._slot(path)
        number, _ = parse_park_name(name)
        known = parent == PARK_FOLDER and number is not None and number in self.base.rows
        return self._candidates([number], kind) if known and number is not None else []

    def _by_slot(self) -> None:
        by_slot = self.base.by_slot
        for path, stat in self.seen.items():  # top down: a match decides where its children look
            if path in self.nids:
                continue
            parent, name = self._slot(path)
            parent_nid = self._number_of_parent(parent)
            nid = by_slot.get((parent_nid, name)) if parent_nid is not None else None
            kind = stat.kind if stat is not None else Kind.DIRECTORY
            if nid is not None and self._candidates([nid], kind):
                self._take(path, nid)

    def _by_folded_name(self, fold: Fold) -> None:
        """A file that was made anew under a name that the filesystem takes for the old one: an edit and a rename."""
        folded: dict[tuple[Nid, bytes], list[Nid]] = {}
        for nid, row in self.base.rows.items():
            folded.setdefault((row.node.parent, fold(row.node.name)), []).append(nid)
        for path, stat in self.seen.items():
            if path in self.nids or stat is None:
                continue
            above, name = split(path)
            parent = self._number_of_parent(above)
            nids = folded.get((parent, fold(name)), []) if parent is not None else []
            candidates = self._candidates(nids, stat.kind)
            if candidates:
                self._take(path, candidates[0])

    def number_of(self, path: RelPath) -> Nid | None:
        """The number that an observed path was given."""
        return self.nids.get(path)

    def _number_of_parent(self, parent: RelPath) -> Nid | None:
        if parent == b"":
            return ROOT
        if parent in self.doubled:
            return self.nids.get(RelPath(parent + b"/"))
        return PARK if parent == PARK_FOLDER else self.nids.get(parent)

    @staticmethod
    def _slot(path: RelPath) -> tuple[RelPath, bytes]:
        """Directory and name of what was seen; see `doubled`."""
        return split(RelPath(path[:-1]) if path.endswith(b"/") else path)

    def _by_content(self) -> None:
        """Files only, not empty, and only if exactly one vanished node and one new file have that content."""
        vanished: dict[Content, list[Nid]] = {}
        rows = self.base.rows
        new: dict[Content, list[RelPath]] = {}
        for path, stat in self._unmatched():
            if stat.content is not None and stat.content.size_bytes > 0 and stat.kind is Kind.FILE:
                new.setdefault(stat.content, []).append(path)
        if not new:
            return
        for nid, row in rows.items():
            if nid not in self.taken and row.node.content in new and row.node.content is not None:
                vanished.setdefault(row.node.content, []).append(nid)
        for content, paths in new.items():
            nids = vanished.get(content, [])
            if len(paths) == len(nids) == 1:
                self._take(paths[0], nids[0])

    def _tree(self) -> tuple[dict[Nid, Node], dict[Nid, Tag]]:
        tree: dict[Nid, Node] = {}
        tags: dict[Nid, Tag] = {}
        for path, stat in self.seen.items():
            nid = self.nids[path]
            above, name = self._slot(path)
            parent = self._number_of_parent(above)
            assert parent is not None
            if stat is None:
                tree[nid] = Node(parent=parent, name=name, kind=Kind.DIRECTORY)
            else:
                tree[nid] = self._node(nid, stat, parent, name)
                tags[nid] = evidence(stat.kind, stat.tag)
        return tree, tags

    def _node(self, nid: Nid, stat: _Stat, parent: Nid, name: bytes) -> Node:
        row = self.base.rows.get(nid)
        meta, content, target = self.side.read(stat, row)
        if (stat.kind is Kind.FILE and content is None) or (stat.kind is Kind.SYMLINK and target is None):
            self.frozen[nid] = UNSTABLE
            if row is not None:
                content, target, meta = row.node.content, row.node.target, row.node.meta
        meta = synced_meta(stat.kind, meta)
        if row is not None:
            node = row.node  # most nodes are as they were: one object for both is less memory, and compares at once
            same = node.kind is stat.kind and node.slot == (parent, name)
            if same and node.content == content and node.target == target:
                return node if node.meta == meta else replace(node, meta=meta)
        return Node(parent=parent, name=name, kind=stat.kind, content=content, target=target, meta=meta)

    def _keep_unknown(self, unknown: AbstractSet[RelPath], tree: dict[Nid, Node]) -> None:
        """Keep what the base knows at and below unreadable paths; stand in for what nobody knows."""
        for path in sorted(unknown):
            tops = [self.nids[path]] if path in self.nids else list(self.base.by_path.get(path, ()))
            if path == b"":
                tops = [ROOT]
            elif not tops:
                tops = self._placeholder(path, tree)
            stack = tops
            while stack:
                nid = stack.pop()
                if nid in self.base.rows and nid not in self.taken:
                    self.taken.add(nid)
                    tree[nid] = self.base.rows[nid].node
                self.frozen.setdefault(nid, UNREADABLE)
                self.opaque.add(nid)
                stack += [below for below in self.base.children.get(nid, ()) if below not in self.taken]
        if unknown:
            self._connect(tree)
            for nid in sorted(self.base.rows.keys() - self.taken - self.base.paths.keys()):  # it may be anywhere
                self.frozen.setdefault(nid, UNREADABLE)

    def _placeholder(self, path: RelPath, tree: dict[Nid, Node]) -> list[Nid]:
        above, name = split(path)
        parent = self._number_of_parent(above)
        if parent is None:
            return []  # above it is unknown too, and nothing is put there
        nid = self.fresh()
        tree[nid] = Node(parent=parent, name=name, kind=Kind.FILE)
        return [nid]

    def _connect(self, tree: dict[Nid, Node]) -> None:
        """A kept node whose place is gone or taken (its directory moved, another node came) has no place."""
        observed = set(self.nids.values())
        slots = {tree[nid].slot for nid in observed}
        for nid in [nid for nid in self.frozen if nid in tree and nid not in observed]:  # parents come first
            node = tree[nid]
            if node.slot in slots or (node.parent not in tree and node.parent not in (ROOT, PARK)):
                del tree[nid]
            slots.add(node.slot)


def relabel(side: Identified, names: Mapping[Nid, Nid]) -> Identified:
    """The same side with some nodes renumbered."""
    if not names:
        return side
    tree = {
        names.get(nid, nid): node.placed(names[node.parent], node.name) if node.parent in names else node
        for nid, node in side.tree.items()
    }
    return replace(
        side,
        tree=tree,
        tags={names.get(nid, nid): tag for nid, tag in side.tags.items()},
        frozen={names.get(nid, nid): reason for nid, reason in side.frozen.items()},
        opaque=frozenset(names.get(nid, nid) for nid in side.opaque),
        implicit=frozenset(names.get(nid, nid) for nid in side.implicit),
        holding=frozenset(names.get(nid, nid) for nid in side.holding),
    )
