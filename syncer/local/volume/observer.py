"""What a mounted volume holds, as an observation: from its journal, without reading or hashing a file. Blocking."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

import msgspec
from msgspec.structs import replace

from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ObjectHash
from blockfs.control.client import ControlClient, RequestError
from blockfs.control.protocol import CursorMsg, NodeRow
from blockfs.exitcodes import ExitCode
from blockfs.runtime.linux import syncfs
from blockfs.runtime.units import counted
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, RelPath
from syncer.core.parts import Parts
from syncer.core.paths import PARK_FOLDER, PRIVATE, split
from syncer.core.xattrs import MAX_BYTES, too_large
from syncer.local.folder.xattrs import reason_left_out
from syncer.local.options import RootOptions
from syncer.local.safe_open import DIRECTORY_FLAGS, parent_directory
from syncer.local.volume.mount import check_history
from syncer.local.volume.part import Journal, VolumePart
from syncer.local.volume.tree import (
    HIDDEN,
    ROOT_INO,
    UnresolvedError,
    VolumeNode,
    came_out,
    from_base,
    overlaid,
    paths_by_inode,
    stat_of,
)
from syncer.local.volume.view import VolumeView
from syncer.ports.localvalues import MAX_BLOCKS, Observation, Problem

P = ParamSpec("P")
T = TypeVar("T")

TRASH_FOLDER: Final = PRIVATE + b"/trash"

OPEN: Final = "it is open for writing: synced once it is closed"

_FOLDERS: Final = (PRIVATE, TRASH_FOLDER, PARK_FOLDER)
_RELEASE_TRIES: Final = 4
_RELEASE_PAUSE_S: Final = 0.05  # together 0.2 s: what a cycle costs more while a changed file is held open
_HASHES_AT_ONCE: Final = 1024  # per request: 32 KiB of reply
_LOST: Final = "could not be written to the disk below the volume and are lost; write them again, or restore the file"
_CHANGES: Final = "it changes while it is looked at; left alone until it is quiet"


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """A checkpoint. Kept as JSON.

    Attributes:
        cursor: Where the journal goes on.
        rules: Fingerprint of the ignore rules that the base was made with; other rules need a full listing.
        hidden: Directories that were ignored: no base row tells of them, and the journal names parents by inode.
    """

    cursor: CursorMsg
    rules: str
    hidden: list[int]


class Connection:
    """A control client that several threads share: one request at a time."""

    def __init__(self, client: ControlClient) -> None:
        self.client = client
        self._talking = threading.Lock()

    def ask(self, method: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call one of the client's methods."""
        with self._talking:
            return method(*args, **kwargs)


Name = Callable[[NodeRow, Content | None], Content | None]
"""The content of a file that is not open, from what it may have been before; None if it changed meanwhile."""


class VolumeObserver:
    """Observes one mounted volume.

    Attributes:
        snapshot: The one that is looked at; None: what is live, also if none can be taken.
        folders: Inodes of the private folders, by path; known after the first observation.
        checkpoint: Where the next observation may start once all of the last one is in the rows; None: nowhere.
    """

    def __init__(
        self,
        path: bytes,
        root: int,
        connection: Connection,
        block_size: int,
        options: RootOptions,
        snapshot: bytes | None = None,
        name: Name | None = None,
    ) -> None:
        """Take over the mount point's path and descriptor (not closed here).

        Args:
            path: The mount point.
            root: Its descriptor.
            connection: To the mount.
            block_size: The volume's.
            options: The root's.
            snapshot: Observe from a snapshot of this name, which is made anew each time. Whoever observes removes it.
            name: Names contents where the volume's own names don't count.
        """
        self.checkpoint: bytes | None = None
        self._parts = options.parts
        self._patterns = options.patterns
        self._name = name
        self.snapshot = snapshot
        self.folders: dict[bytes, int] = {}
        self._reached: CursorMsg | None = None
        self._path = path
        self._root = root
        self._connection = connection
        self._block_size = block_size

    def observe(self, base: BaseIndex, checkpoint: bytes | None) -> Observation:
        """Journal since the checkpoint over the base, or everything."""
        return self._observe(base, _mark(checkpoint))

    def journal(self, checkpoint: bytes | None, is_known: Callable[[NodeRow], bool]) -> Journal | None:
        """What changed since the checkpoint; None if only a full listing tells. `observe_part` goes on from here.

        Args:
            checkpoint: See `observe`.
            is_known: Whether the base has this content of a file.
        """
        mark = _mark(checkpoint)
        if mark is None:
            return None
        full, rows, gone, reached = self._collect(mark.cursor, is_known)
        if full:
            return None
        self._reached = reached
        return Journal(
            rows={row.ino: row for row in rows},
            gone=frozenset(gone),
            roots=self._roots(),
            hidden=frozenset(mark.hidden),
            rules=mark.rules,
        )

    def observe_part(self, part: VolumePart, stats: list[FileStat], base: BaseIndex) -> Observation:
        """Complete what was looked at by its contents."""
        problems = list(part.problems)
        found: list[FileStat] = []
        unnamed: dict[int, tuple[NodeRow, list[RelPath]]] = {}
        for stat in stats:
            row = part.changed(stat)
            if stat.kind is Kind.FILE and stat.content is None and row is not None:
                unnamed.setdefault(row.ino, (row, []))[1].append(stat.path)
            else:
                found.append(stat)
        before = {ino: content for (ino, _), content in _known_contents(base).items()}
        for stat in found:
            reason = None if part.changed(stat) is None else reason_left_out(stat.meta.xattrs)
            if reason is not None:
                problems.append(Problem(path=stat.path, reason=reason))
        complete = self._name_contents(list(unnamed.values()), before, found, problems)
        complete &= not any(too_large(stat.meta.xattrs) for stat in found)  # to be told again in every cycle
        assert self._reached is not None
        mark = _Mark(cursor=self._reached, rules=part.rules.fingerprint, hidden=sorted(part.hidden))
        self.checkpoint = msgspec.json.encode(mark) if complete else None
        return Observation(
            stats=found, unknown=[], problems=problems, rules=part.rules, holding=frozenset(part.holding)
        )

    def _collect(
        self, cursor: CursorMsg | None, is_known: Callable[[NodeRow], bool]
    ) -> tuple[bool, list[NodeRow], list[int], CursorMsg]:
        """Ask the journal: full, rows, gone, where it goes on."""
        self._make_folders()
        # The kernel holds pages and times that the mount has not seen, the mount holds what it has not committed, and
        # the journal speaks of commits only: so in this order.
        syncfs(self._path)
        if self.snapshot is None:
            self._flush()
        else:
            self.drop_snapshot()
            self._take_snapshot()
        found = self._changes(cursor)
        if cursor is not None:
            check_history(f"the mount point {os.fsdecode(self._path)}", cursor, found[3])
        for _ in range(_RELEASE_TRIES):
            if not any(row.writers and not is_known(row) for row in found[1]):
                break
            # The kernel tells the mount of a close a little later than the program that closed: a file that was just
            # written and closed must not wait for the next cycle.
            time.sleep(_RELEASE_PAUSE_S)
            found = self._changes(cursor)
        return found

    def _flush(self) -> None:
        """Have all sealed. What can't be, because a part of it is lost or damaged, has no hash: it is named later."""
        try:
            self._connection.ask(self._connection.client.flush)
        except RequestError as error:
            if error.exit_code != ExitCode.CORRUPTION:
                raise

    def _take_snapshot(self) -> None:
        """Fix the instant. A file of which a part is lost can't be in a snapshot: then what is live is looked at."""
        assert self.snapshot is not None
        try:
            self._connection.ask(self._connection.client.create_snapshot, b"", self.snapshot)
        except RequestError as error:
            if error.exit_code != ExitCode.CORRUPTION:
                raise
            self.snapshot = None
            self._flush()

    def _observe(self, base: BaseIndex, mark: _Mark | None) -> Observation:
        cursor = mark.cursor if mark is not None else None
        known = _known_contents(base)
        full, rows, gone, reached = self._collect(cursor, lambda row: (row.ino, row.content_version) in known)
        hidden = frozenset[int]() if full or mark is None else frozenset(mark.hidden).difference(gone)
        roots = {**self._roots(), **dict.fromkeys(hidden, HIDDEN)}
        try:
            nodes = overlaid({} if full else from_base(base), rows, gone)
            paths = paths_by_inode(nodes, roots)
        except UnresolvedError:
            if full:
                raise AssertionError("a full listing has an inode whose directory it does not have") from None
            return self._observe(base, None)
        view = VolumeView(self._root, IgnoreRules(self._patterns()), paths)
        if not full and mark is not None:
            stale = view.rules.fingerprint != mark.rules or came_out(hidden, nodes, paths, roots, view.rules)
            if stale:
                return self._observe(base, None)
        hidden = hidden.union(view.hidden_directories(nodes))
        return self._observation(nodes, view, known, (reached, hidden))

    def _changes(self, cursor: CursorMsg | None) -> tuple[bool, list[NodeRow], list[int], CursorMsg]:
        xattr_bytes = MAX_BYTES if self._parts.xattrs else None
        return self._connection.ask(self._connection.client.changes, cursor, self.snapshot, xattr_bytes)

    def _observation(
        self,
        nodes: dict[int, VolumeNode],
        view: VolumeView,
        known: Mapping[tuple[int, int | None], Content],
        reached: tuple[CursorMsg, frozenset[int]],
    ) -> Observation:
        stats: list[FileStat] = []
        problems: list[Problem] = list(view.problems)
        unnamed: list[tuple[NodeRow, list[RelPath]]] = []
        for ino, node in nodes.items():
            seen = view.shown(ino, node)
            if not seen:
                continue
            if node.row is None:
                assert node.stat is not None
                stats += [replace(node.stat, path=path) for path in seen]
            elif node.row.kind == "file" and (ino, node.row.content_version) not in known:
                unnamed.append((node.row, seen))
            else:
                content = known.get((ino, node.row.content_version))
                _report(node.row, seen, content, stats, problems, self._parts)
            if node.row is not None and node.row.kind not in ("file", "directory", "symlink"):
                view.holding.update(split(path)[0] for path in seen)
        before = {ino: content for (ino, _), content in known.items()}
        complete = self._name_contents(unnamed, before, stats, problems) and not view.unknown
        complete &= not any(too_large(stat.meta.xattrs) for stat in stats)  # to be told again in every cycle
        cursor, hidden = reached
        mark = _Mark(cursor=cursor, rules=view.rules.fingerprint, hidden=sorted(hidden))
        self.checkpoint = msgspec.json.encode(mark) if complete else None
        return Observation(
            stats=stats,
            unknown=view.unknown,
            problems=problems,
            rules=view.rules,
            holding=frozenset(view.holding),
        )

    def _name_contents(
        self,
        files: list[tuple[NodeRow, list[RelPath]]],
        before: Mapping[int, Content],
        stats: list[FileStat],
        problems: list[Problem],
    ) -> bool:
        """Ask for the object hashes of changed files; False if one must be looked at again in the next cycle."""
        complete = True
        wanted: list[tuple[NodeRow, list[RelPath]]] = []
        for row, paths in files:
            reason = None
            if block_count(row.size_bytes, self._block_size) > MAX_BLOCKS:
                reason = f"it has more than {MAX_BLOCKS} blocks of {self._block_size} bytes: too large to be synced"
            elif row.lost_bytes:
                complete = False
                reason = f"{counted(row.lost_bytes, 'byte', 'bytes')} of it {_LOST}"
            elif row.writers:
                complete = False
                problems += [Problem(path=path, reason=OPEN, partly=False) for path in paths]
            else:
                wanted.append((row, paths))
                continue
            if reason is not None:
                problems += [Problem(path=path, reason=reason) for path in paths]
            _report(row, paths, None, stats, problems, self._parts)
        for at in range(0, len(wanted), _HASHES_AT_ONCE):
            batch = wanted[at : at + _HASHES_AT_ONCE]
            for (row, paths), content in zip(batch, self._contents([row for row, _ in batch], before), strict=True):
                if content is None:
                    complete = False
                    problems += [Problem(path=path, reason=_CHANGES) for path in paths]
                _report(row, paths, content, stats, problems, self._parts)
        return complete

    def _contents(self, rows: list[NodeRow], before: Mapping[int, Content]) -> list[Content | None]:
        """What closed files contain; None for those that changed meanwhile."""
        if self._name is not None:
            return [self._name(row, before.get(row.ino)) for row in rows]
        items = [(row.ino, row.content_version) for row in rows]
        hashes = self._connection.ask(self._connection.client.hashes, items, self.snapshot)
        return [
            None if found is None else Content(size_bytes=row.size_bytes, object_hash=ObjectHash(found))
            for row, found in zip(rows, hashes, strict=True)
        ]

    def drop_snapshot(self) -> None:
        """Remove the snapshot: ours, or one that a killed cycle has left."""
        assert self.snapshot is not None
        try:
            self._connection.ask(self._connection.client.delete_snapshot, self.snapshot)
        except RequestError as error:
            if error.exit_code != ExitCode.NOT_FOUND:
                raise

    def _make_folders(self) -> None:
        """Make the private folder, through the kernel like any user, and learn its inodes."""
        for folder in _FOLDERS:
            with parent_directory(self._root, RelPath(folder)) as (directory, name):
                with suppress(FileExistsError):
                    os.mkdir(name, 0o700, dir_fd=directory)
                descriptor = os.open(name, DIRECTORY_FLAGS, dir_fd=directory)
                self.folders[folder] = os.fstat(descriptor).st_ino
                os.close(descriptor)

    def _roots(self) -> dict[int, RelPath]:
        return {ROOT_INO: RelPath(b""), **{ino: RelPath(folder) for folder, ino in self.folders.items()}}


def _mark(checkpoint: bytes | None) -> _Mark | None:
    """A stored checkpoint; one of an older version counts as none, and costs a full listing."""
    try:
        return None if checkpoint is None else msgspec.json.decode(checkpoint, type=_Mark)
    except msgspec.DecodeError:
        return None


def _known_contents(base: BaseIndex) -> dict[tuple[int, int | None], Content]:
    """Contents by inode and content version."""
    return {
        (row.local.ino, row.local.version): row.node.content
        for row in base.rows.values()
        if row.local is not None and row.node.content is not None
    }


def _report(
    row: NodeRow,
    paths: list[RelPath],
    content: Content | None,
    stats: list[FileStat],
    problems: list[Problem],
    parts: Parts,
) -> None:
    """Every name of an inode as an observation."""
    for path in paths:
        stat = stat_of(row, path, parts)
        if stat is None:
            problems.append(Problem(path=path, reason=f"a {row.kind} is not synced", partly=False))
        else:
            stats.append(replace(stat, content=content))
            reason = reason_left_out(stat.meta.xattrs)
            if reason is not None:
                problems.append(Problem(path=path, reason=reason))
