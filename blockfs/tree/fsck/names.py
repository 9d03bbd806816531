"""fsck of inodes and names: what is named exists, what exists has a name that hangs on the root, counts are right."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE
from blockfs.runtime.output import shown
from blockfs.tree.fsck.draft import Draft
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.frozen import freeze, keep_apart, originals_of
from blockfs.tree.fsck.rows import SIZE_LIMIT
from blockfs.tree.schema import (
    RANGE_BYTES,
    ROOT_INO,
    SNAPSHOTS_INO,
    TOP_INOS,
    Inode,
    Kind,
    Table,
    decode_inode,
    decode_u64,
    ino_key,
    parent_key,
    split_ino_key,
    split_parent_key,
    u64,
)


def all_inodes(draft: Draft) -> Iterator[Inode]:
    """All inodes, in order."""
    for key, row in draft.rows.scan(Table.INODES):
        ino = split_ino_key(key)[0]
        yield decode_inode(ino, row)


def check_inodes(draft: Draft) -> None:
    """Give back inodes that are gone but have content, names or a target; the root is one in any case."""
    root = draft.kind(ROOT_INO)
    if root is not Kind.DIRECTORY:
        detail = "there is no root directory" if root is None else "the root is no directory"
        draft.found(Problem.UNREACHABLE, ROOT_INO, detail, "made anew, its owner and mode are lost")
        draft.lost(ROOT_INO, "owner, mode, times and extended attributes of the root directory")
        draft.new_inode(ROOT_INO, Kind.DIRECTORY, mode=0o755)
    if draft.kind(SNAPSHOTS_INO) is not Kind.DIRECTORY:
        draft.found(Problem.UNREACHABLE, SNAPSHOTS_INO, "there is no directory of snapshots", "made anew")
        draft.new_inode(SNAPSHOTS_INO, Kind.DIRECTORY, mode=0o755)
    _check_sides(draft)
    for table in (Table.DENTRIES, Table.LEAF_MAP, Table.GENERATIONS, Table.SYMLINKS):
        last = None
        for key, _ in draft.rows.scan(table):
            ino = split_ino_key(key)[0]
            if ino != last and _is_misfit(draft, ino, table):
                _restore_inode(draft, ino, table)
            last = ino
    for inode in all_inodes(draft):
        if inode.kind is Kind.SYMLINK:
            _check_symlink(draft, inode)


def _check_sides(draft: Draft) -> None:
    """Keep the root live and the directory of snapshots frozen: what is below them is judged by them."""
    root, snapshots = draft.inode(ROOT_INO), draft.inode(SNAPSHOTS_INO)
    assert root is not None
    assert snapshots is not None
    if root.is_frozen:
        draft.found(Problem.SNAPSHOT, ROOT_INO, "the root was a copy in a snapshot", "live")
        draft.put_inode(replace(root, origin=0))
    if not snapshots.is_frozen:
        draft.found(Problem.SNAPSHOT, SNAPSHOTS_INO, "the directory of snapshots was live", "read-only")
        draft.freeze(snapshots, SNAPSHOTS_INO)


def _is_misfit(draft: Draft, ino: int, table: Table) -> bool:
    """Whether an inode that has rows in this table is gone, or has names in it and no content but is no directory."""
    kind = draft.kind(ino)
    if kind is None:
        return True
    return table is Table.DENTRIES and kind is not Kind.DIRECTORY and next(draft.leaf_keys(ino), None) is None


def _restore_inode(draft: Draft, ino: int, table: Table) -> None:
    """Make an inode again from what belongs to it, if two rows agree that there was one."""
    named = next(draft.places(ino), None) is not None
    if table is Table.DENTRIES:
        kind, known = Kind.DIRECTORY, any(_is_confirmed(draft, ino, name, child) for name, child in draft.entries(ino))
    elif table is Table.SYMLINKS:
        kind, known = Kind.SYMLINK, named
    else:
        kind, known = Kind.FILE, named or draft.rows.get(Table.ORPHANS, u64(ino)) is None
    if not known:
        return  # its rows go when their table is checked
    size = _size_from_content(draft, ino, kind)
    remedy = "made again, owned by root"
    draft.found(Problem.LOST_INODE, ino, f"there is no such {kind.name.lower()}, but what belongs to it", remedy)
    what = "mode, owner and times" + (f"; its size is taken to be {size} bytes" if kind is Kind.FILE else "")
    draft.lost(ino, what)
    draft.new_inode(ino, kind, mode=0o700 if kind is Kind.DIRECTORY else 0o600, size_bytes=size)


def _is_confirmed(draft: Draft, parent: int, name: bytes, child: int) -> bool:
    return draft.rows.get(Table.PARENTS, parent_key(child, parent, name)) is not None


def _size_from_content(draft: Draft, ino: int, kind: Kind) -> int:
    if kind is Kind.SYMLINK:
        return len(draft.symlink_target(ino) or b"")
    if kind is not Kind.FILE:
        return 0
    size = 0
    for index, key in draft.leaf_keys(ino):
        ids = draft.rows.get(Table.LEAVES, key) or bytes(LEAF_IDS * ID_SIZE)
        size = (index * LEAF_IDS + len(ids) // ID_SIZE) * draft.world.block_size
    for generation in draft.generations(ino):
        name = (generation.ino, generation.range_index, generation.generation)
        staged = (draft.world.staged or {}).get(name)
        end = generation.range_index * RANGE_BYTES + (0 if staged is None else staged.size_bytes)
        size = max(size, min(end, generation.valid_below))
    return min(size, SIZE_LIMIT)


def _check_symlink(draft: Draft, inode: Inode) -> None:
    target = draft.symlink_target(inode.ino)
    if target is None:
        draft.found(Problem.SYMLINK, inode.ino, "a symlink without a target", "removed")
        draft.lost(inode.ino, "a symlink: its target is gone", path=draft.path(inode.ino))
        for parent, name in list(draft.places(inode.ino)):
            draft.unlink(parent, name, inode.ino)
        draft.rows.delete(Table.INODES, u64(inode.ino))
    elif len(target) != inode.size_bytes:
        detail = f"target {shown(target)}, size {inode.size_bytes}"
        draft.found(Problem.SYMLINK, inode.ino, detail, f"size set to {len(target)}")
        draft.put_inode(replace(inode, size_bytes=len(target)))


# --- names ---


def check_names(draft: Draft) -> None:
    """Entries, reverse rows, directories with several names or none that leads to the root, inodes without a name."""
    _follow_reverse_rows(draft)
    _remove_dangling(draft)
    _add_reverse_rows(draft)
    keep_apart(draft)
    directories = _Directories(draft)
    directories.keep_one_name_each()
    _check_orphans(draft)
    directories.connect()


def _follow_reverse_rows(draft: Draft) -> None:
    """A reverse row is a second witness of a name: it gives back an entry that is gone or was altered."""
    for key, _ in draft.rows.scan(Table.PARENTS):
        child, parent, name = split_parent_key(key)
        entry = draft.lookup(parent, name)
        if entry == child:
            continue
        detail = f"entry {shown(name)} in {parent} is missing or leads to {entry}"
        is_possible = child not in TOP_INOS and draft.kind(parent) is Kind.DIRECTORY and draft.kind(child) is not None
        is_taken = entry is not None and draft.kind(entry) is not None and _is_confirmed(draft, parent, name, entry)
        if is_possible and not is_taken and not _has_confirmed_name(draft, child):
            draft.found(Problem.REVERSE, child, detail, "entry restored")
            draft.link(parent, name, child)
        else:
            draft.found(Problem.REVERSE, child, detail, "parents row removed")
            draft.rows.delete(Table.PARENTS, key)


def _has_confirmed_name(draft: Draft, ino: int) -> bool:
    """Whether this is a directory that has a name already: it can have but one."""
    if draft.kind(ino) is not Kind.DIRECTORY:
        return False
    return any(draft.lookup(parent, name) == ino for parent, name in draft.places(ino))


def _remove_dangling(draft: Draft) -> None:
    for key, row in draft.rows.scan(Table.DENTRIES):
        parent, name = split_ino_key(key)
        child = decode_u64(row)
        parent_kind, child_kind = draft.kind(parent), draft.kind(child)
        if child in TOP_INOS:
            draft.found(
                Problem.LINK_COUNT,
                child,
                f"a top directory has the name {shown(name)} in {parent}",
                "name removed",
            )
        elif parent_kind is not Kind.DIRECTORY or child_kind is None:
            detail = f"entry {shown(name)} in {parent} leads to inode {child}, but one of them does not exist as such"
            draft.found(Problem.DANGLING_NAME, child, detail, "entry removed")
            if child_kind is None and parent_kind is Kind.DIRECTORY:
                draft.lost(child, "what had this name: its inode is gone", path=draft.path_in(parent, name))
        else:
            continue
        draft.unlink(parent, name, child)


def _add_reverse_rows(draft: Draft) -> None:
    for key, row in draft.rows.scan(Table.DENTRIES):
        parent, name = split_ino_key(key)
        child = decode_u64(row)
        if _is_confirmed(draft, parent, name, child):
            continue
        detail = f"parents row missing for {shown(name)} in {parent}"
        if _has_confirmed_name(draft, child):
            draft.found(Problem.REVERSE, child, detail, "entry removed: the directory has another name")
            draft.unlink(parent, name, child)
        else:
            draft.found(Problem.REVERSE, child, detail, "row added")
            draft.link(parent, name, child)


def _check_orphans(draft: Draft) -> None:
    for key, _ in draft.rows.scan(Table.ORPHANS):
        ino = split_ino_key(key)[0]
        inode = draft.inode(ino)
        if inode is None:
            draft.found(Problem.ORPHAN, ino, "an orphan row without an inode", "row removed")
        elif inode.nlink or ino in TOP_INOS or next(draft.places(ino), None) is not None:
            # With a link count it may have lost its name by damage: it must not be removed at the next mount.
            draft.found(Problem.ORPHAN, ino, f"an orphan with nlink {inode.nlink}, or with a name", "row removed")
        else:
            continue
        draft.rows.delete(Table.ORPHANS, key)


_UNKNOWN: Final = 0
_ON_THE_WAY: Final = 1
_REACHED: Final = 2


class _Directories:
    """All directories and whether the root can be reached from them. Memory: 9 bytes each."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._inos = array("Q", (inode.ino for inode in all_inodes(draft) if inode.kind is Kind.DIRECTORY))
        self._states = bytearray(len(self._inos))

    def keep_one_name_each(self) -> None:
        """Of a directory's names, keep the first that leads to the root."""
        draft = self._draft
        for ino in self._inos:
            places = [place for _, place in zip(range(2), draft.places(ino), strict=False)]
            if len(places) < 2:
                continue
            kept = next((place for place in draft.places(ino) if self._leads_up(place[0], ino)), places[0])
            for place in list(draft.places(ino)):
                if place != kept:
                    detail = f"a directory with several names, {shown(place[1])} in {place[0]} is one of them"
                    draft.found(Problem.LINK_COUNT, ino, detail, f"kept as {shown(kept[1])} in {kept[0]}")
                    draft.unlink(*place, ino)

    def _leads_up(self, ino: int, start: int) -> bool:
        """Whether the first names from `ino` on lead to the root and not back to `start`."""
        seen = {start}
        while ino not in TOP_INOS:
            place = next(self._draft.places(ino), None)
            if ino in seen or place is None:
                return False
            seen.add(ino)
            ino = place[0]
        return True

    def connect(self) -> None:
        """Give every inode without a name one in lost+found, and every directory that the root does not lead to."""
        draft = self._draft
        for top in TOP_INOS:
            self._states[self._rank(top)] = _REACHED
        for ino in self._inos:
            self._climb(ino)
        nameless = [inode.ino for inode in all_inodes(draft) if self._is_lost(inode.ino)]
        originals = originals_of(draft, set(nameless))
        for ino in nameless:
            inode = draft.inode(ino)
            assert inode is not None
            if ino in originals and not inode.is_frozen:
                freeze(draft, inode, originals[ino])
            path = draft.reconnect(ino)
            draft.found(Problem.UNREACHABLE, ino, "no name, and not an orphan", f"reconnected as {path}")
            draft.lost(ino, "its name")

    def _is_lost(self, ino: int) -> bool:
        """Whether it has no name, and is not meant to have none."""
        if ino in TOP_INOS or next(self._draft.places(ino), None) is not None:
            return False
        return self._draft.rows.get(Table.ORPHANS, u64(ino)) is None

    def _climb(self, ino: int) -> None:
        """Follow the names upwards to a directory of which is known that it leads to the root; cut a cycle."""
        draft = self._draft
        way = []
        while (state := self._states[rank := self._rank(ino)]) == _UNKNOWN:
            self._states[rank] = _ON_THE_WAY
            way.append(rank)
            place = next(draft.places(ino), None)
            if place is None:
                break  # reconnected with all that has no name, or removed with it
            ino = place[0]
        if state == _ON_THE_WAY:
            for parent, name in list(draft.places(ino)):
                draft.unlink(parent, name, ino)
            path = draft.reconnect(ino)
            draft.found(Problem.UNREACHABLE, ino, "a directory in a cycle", f"reconnected as {path}")
            draft.lost(ino, "its name")
        for rank in way:
            self._states[rank] = _REACHED

    def _rank(self, ino: int) -> int:
        rank = bisect_left(self._inos, ino)
        assert self._inos[rank] == ino
        return rank


# --- counts ---


def check_link_counts(draft: Draft) -> None:
    """Compare nlink of every inode with its names and subdirectories."""
    for inode in all_inodes(draft):
        names = sum(1 for _ in draft.places(inode.ino))
        expected = names
        if inode.kind is Kind.DIRECTORY and (names or inode.ino in TOP_INOS):
            expected = 2 + sum(1 for _, child in draft.entries(inode.ino) if draft.kind(child) is Kind.DIRECTORY)
        if inode.nlink != expected:
            if inode.ino not in draft.renamed:
                detail = f"nlink {inode.nlink}, expected {expected}"
                draft.found(Problem.LINK_COUNT, inode.ino, detail, "corrected")
            draft.put_inode(replace(inode, nlink=expected))


def remove_rows_of_nobody(draft: Draft) -> None:
    """Symlink targets, xattrs and staging generations of what does not exist, or is something else."""
    for key, _ in draft.rows.scan(Table.SYMLINKS):
        ino = split_ino_key(key)[0]
        if draft.kind(ino) is not Kind.SYMLINK:
            draft.found(Problem.STRAY_ROW, ino, "a target of what is no symlink", "row removed")
            draft.rows.delete(Table.SYMLINKS, key)
    for key, _ in draft.rows.scan(Table.XATTRS):
        ino, name = split_ino_key(key)
        if draft.inode(ino) is None:
            draft.found(Problem.STRAY_ROW, ino, "an xattr of no inode", "row removed")
            draft.lost(ino, f"extended attribute {shown(name)} of an inode that is gone")
            draft.rows.delete(Table.XATTRS, ino_key(ino, name))
    for generation in draft.all_generations():
        if draft.kind(generation.ino) is not Kind.FILE:
            detail = f"staging generation {generation.generation} of what is no file"
            draft.found(Problem.STRAY_ROW, generation.ino, detail, "row removed")
            draft.drop_generation(generation)
