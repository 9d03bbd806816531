"""A tree as it will be when fsck has repaired it: findings are noted, and their remedies applied to a draft."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.ids import BlockId
from blockfs.tree.fsck.findings import Finding, Loss, Problem
from blockfs.tree.fsck.repaired import RepairedRows
from blockfs.tree.journal import RESERVE_STEP
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import (
    META_MOUNT,
    META_RESERVED,
    ROOT_INO,
    SNAPSHOTS_INO,
    SNAPSHOTS_NAME,
    Generation,
    Inode,
    Kind,
    MountRow,
    Reserved,
    Table,
    decode_mount,
    decode_reserved,
    encode_generation,
    encode_inode,
    encode_mount,
    encode_reserved,
    ino_key,
    parent_key,
    u64,
)

LOST_FOUND: Final = b"lost+found"  # the name that fsck of every Linux filesystem gives it

MissingBlocks = Callable[[Iterable[BlockId]], list[BlockId]]
"""`BlockDirectory.missing`: those of the ids that are not stored."""

StagingKey = tuple[int, int, int]
"""(ino, 1 TiB range, generation): names a staging file."""


class StagedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A staging file.

    Attributes:
        size_bytes: 0 if it has no data.
        identity: The same for two names of one file: a repair that gave it its second name was killed.
    """

    size_bytes: int
    identity: int


class World(msgspec.Struct, frozen=True, kw_only=True):
    """What the tree has to fit to.

    Attributes:
        block_size: The volume's.
        now_ns: Time of what repair makes.
        missing: If given, every id of every leaf is looked up in the block directory.
        staged: Staging files. If given, every generation must have one.
        hot: (ino, number) of the hot files that are there. If given, every row of one must have its file.
    """

    block_size: int
    now_ns: int = 0
    missing: MissingBlocks | None = None
    staged: Mapping[StagingKey, StagedFile] | None = None
    hot: Container[tuple[int, int]] | None = None


class Draft(TreeReader):
    """Reads the repaired state as far as it has come, and takes changes. Rows that don't decode must go first."""

    def __init__(self, rows: RepairedRows, world: World) -> None:
        super().__init__(rows)
        self.rows = rows
        self.world = world
        self.findings: list[Finding] = []
        self.losses: list[Loss] = []
        self.adopted: list[tuple[StagingKey, StagingKey]] = []
        """Staging files that have to get another name before the draft is written: (old, new)."""
        self.renamed: set[int] = set()
        """Inodes whose names, or names in them, were changed: that their link counts change is no finding."""
        self._staged_inos = {ino for ino, _, _ in world.staged or ()}
        self._numbers: _Numbers | None = None
        self._lost_found: int | None = None

    # --- what is said ---

    def found(self, problem: Problem, ino: int | None, detail: str, remedy: str = "") -> None:
        """Note a broken invariant."""
        self.findings.append(Finding(problem=problem, ino=ino, detail=detail, remedy=remedy))

    def lost(
        self, ino: int, what: str, start: int | None = None, end: int | None = None, path: bytes | None = None
    ) -> None:
        """Note a loss; it goes on where the last one of the same kind ended, if it does."""
        loss = Loss(ino=ino, what=what, start=start, end=end, path=path)
        if self.losses and start is not None:
            last = self.losses[-1]
            if replace(last, start=start, end=end) == loss and last.end == start:
                self.losses[-1] = replace(last, end=end)
                return
        self.losses.append(loss)

    # --- numbers ---

    def begin_numbers(self, mount: MountRow, reserved: Reserved) -> None:
        """Say which numbers may be in use. Once, before anything is put."""
        self._numbers = _Numbers(mount=mount, reserved=reserved)

    @property
    def reserved(self) -> Reserved:
        """Numbers up to here may be in use."""
        assert self._numbers is not None
        return self._numbers.reserved

    def new_ino(self) -> int:
        """An ino that was never used, also not by a staging file of whatever the damaged tree has forgotten."""
        assert self._numbers is not None
        while (ino := self._numbers.take_ino()) in self._staged_inos:
            pass
        return ino

    def finish(self) -> None:
        """Record the numbers that were used; void all cursors, so that whoever follows the journal compares all."""
        if self._numbers is not None and any(self.rows.changes):
            mount, reserved = self._numbers.end()
            self.rows.put(Table.META, META_MOUNT, encode_mount(mount))
            self.rows.put(Table.META, META_RESERVED, encode_reserved(reserved))

    # --- inodes and names ---

    def kind(self, ino: int) -> Kind | None:
        """What an inode is; None if it does not exist."""
        inode = self.inode(ino)
        return None if inode is None else inode.kind

    def put_inode(self, inode: Inode, *, content_changed: bool = False) -> None:
        """Store an inode row under a new version, with its journal row; one in a snapshot as it is, without."""
        if inode.is_frozen:
            self.rows.put(Table.INODES, u64(inode.ino), encode_inode(inode))
            return
        assert self._numbers is not None
        before = self.inode(inode.ino)
        if before is not None and self.rows.get(Table.JOURNAL, u64(before.version)) == u64(inode.ino):
            self.rows.delete(Table.JOURNAL, u64(before.version))
        version = self._numbers.take_sequence()
        content_version = version if content_changed or before is None else min(inode.content_version, version)
        stored = replace(inode, version=version, content_version=content_version)
        self.rows.put(Table.INODES, u64(inode.ino), encode_inode(stored))
        self.rows.put(Table.JOURNAL, u64(version), u64(inode.ino))

    def freeze(self, inode: Inode, origin: int) -> None:
        """Make a live inode the copy of another one, in a snapshot. It leaves the journal."""
        if self.rows.get(Table.JOURNAL, u64(inode.version)) == u64(inode.ino):
            self.rows.delete(Table.JOURNAL, u64(inode.version))
        self.rows.put(Table.INODES, u64(inode.ino), encode_inode(replace(inode, origin=origin)))

    def new_inode(self, ino: int, kind: Kind, *, mode: int, size_bytes: int = 0) -> None:
        """Make an inode that belongs to the superuser."""
        now = self.world.now_ns
        times = {"atime_ns": now, "mtime_ns": now, "ctime_ns": now, "btime_ns": now}
        nlink = 2 if kind is Kind.DIRECTORY else 1
        made = Inode(ino=ino, kind=kind, mode=mode, uid=0, gid=0, nlink=nlink, size_bytes=size_bytes, **times)
        if ino == SNAPSHOTS_INO:
            made = replace(made, origin=SNAPSHOTS_INO)
        self.put_inode(made, content_changed=True)

    def link(self, parent: int, name: bytes, ino: int) -> None:
        """Set a directory entry and its reverse row. Link counts are counted later."""
        self.rows.put(Table.DENTRIES, ino_key(parent, name), u64(ino))
        self.renamed |= {parent, ino}
        self.rows.put(Table.PARENTS, parent_key(ino, parent, name), b"")

    def unlink(self, parent: int, name: bytes, ino: int) -> None:
        """Remove a directory entry and its reverse row."""
        self.renamed |= {parent, ino}
        self.rows.delete(Table.DENTRIES, ino_key(parent, name))
        self.rows.delete(Table.PARENTS, parent_key(ino, parent, name))

    def put_generation(self, generation: Generation) -> None:
        """Name staged data."""
        self.rows.put(Table.GENERATIONS, *encode_generation(generation))

    def drop_generation(self, generation: Generation) -> None:
        """Forget staged data."""
        self.rows.delete(Table.GENERATIONS, encode_generation(generation)[0])

    def reconnect(self, ino: int, name: bytes = b"") -> str:
        """Give an inode a name in lost+found, by default "#INO"; returns the path, to be shown.

        What was in a snapshot never changes, so it can't be among the live files: it becomes a snapshot of its own.
        """
        wanted = name = name or b"#%d" % ino
        inode = self.inode(ino)
        directory = SNAPSHOTS_INO if inode is not None and inode.is_frozen else self._lost_found_directory()
        copy = 0
        while self.lookup(directory, name) is not None:
            copy += 1
            name = b"%s.%d" % (wanted, copy)
        self.link(directory, name, ino)
        return self.path_in(directory, name).decode()

    def _lost_found_directory(self) -> int:
        if self._lost_found is not None:
            return self._lost_found
        name, copy = LOST_FOUND, 0
        while (ino := self.lookup(ROOT_INO, name)) is not None and self.kind(ino) is not Kind.DIRECTORY:
            copy += 1
            name = b"%s.%d" % (LOST_FOUND, copy)
        if ino is None:
            ino = self.new_ino()
            self.new_inode(ino, Kind.DIRECTORY, mode=0o700)
            self.link(ROOT_INO, name, ino)
        self._lost_found = ino
        return ino

    def path(self, ino: int) -> bytes:
        """The first path of an inode; b"" for one without a name, and for the root."""
        names: list[bytes] = []
        seen = set()
        while ino != ROOT_INO and ino not in seen:
            seen.add(ino)
            place = next(self.places(ino), None)
            if place is None:
                names += [SNAPSHOTS_NAME] if ino == SNAPSHOTS_INO else []
                break
            ino = place[0]
            names.append(place[1])
        return b"/".join(reversed(names))

    def path_in(self, directory: int, name: bytes) -> bytes:
        """The path of a name in a directory."""
        above = self.path(directory)
        return above + b"/" + name if above else name


@dataclass(slots=True)
class _Numbers:
    """Numbers for a repair, none of which was ever used; see `blockfs/tree/journal.py`."""

    mount: MountRow
    reserved: Reserved
    sequence: int = field(init=False)
    next_ino: int = field(init=False)

    def __post_init__(self) -> None:
        mount, reserved = self.mount, self.reserved
        self.sequence = mount.sequence if mount.clean else reserved.sequence
        self.next_ino = mount.next_ino if mount.clean else reserved.ino

    def take_sequence(self) -> int:
        self.sequence += 1
        return self.sequence

    def take_ino(self) -> int:
        self.next_ino += 1
        return self.next_ino - 1

    def end(self) -> tuple[MountRow, Reserved]:
        """The mount stays clean or unclean: staged data of a killed mount are still to be distrusted."""
        mount = replace(
            self.mount, generation=self.mount.generation + 1, sequence=self.sequence, next_ino=self.next_ino
        )
        sequence, ino = self.sequence + RESERVE_STEP, self.next_ino + RESERVE_STEP
        return mount, Reserved(sequence=max(self.reserved.sequence, sequence), ino=max(self.reserved.ino, ino))


def numbers_of(rows: RepairedRows) -> tuple[MountRow | None, Reserved | None]:
    """The rows about numbers, as far as they are there."""
    mount, reserved = rows.get(Table.META, META_MOUNT), rows.get(Table.META, META_RESERVED)
    return None if mount is None else decode_mount(mount), None if reserved is None else decode_reserved(reserved)
