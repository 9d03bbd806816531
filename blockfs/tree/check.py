"""fsck of the tree: which metadata invariants one committed state breaks.

Reads a `CommittedView` only, so it may run beside a mount. Memory is about 200 bytes per inode, name and leaf.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_key, leaf_root
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK, BlockId, LeafKey
from blockfs.tree.committed import CommittedView
from blockfs.tree.schema import ROOT_INO, Inode, Kind, Table

_BATCH_IDS: Final = 16384  # ids asked for at once: 512 KiB


class Problem(Enum):
    """What can be wrong. The value is the name in fsck's output."""

    DANGLING_NAME = "dangling-name"
    """A directory entry leads to no inode, or is in no directory."""
    REVERSE = "reverse-row"
    """dentries and parents disagree."""
    LINK_COUNT = "link-count"
    """nlink is not the number of names, or not 2 + subdirectories."""
    UNREACHABLE = "unreachable"
    """An inode that no path from the root leads to and that is no orphan."""
    ORPHAN = "orphan"
    """An orphan row without an inode, or of one that has names."""
    LEAF_MISSING = "leaf-missing"
    """A leaf_map row names a leaf that is not there."""
    LEAF_CONTENT = "leaf-content"
    """A leaf's ids are not those its key was made from, or are not canonical."""
    LEAF_COUNT = "leaf-count"
    """A leaf's reference or block count is wrong, or it has no references."""
    LEAF_ROOT = "leaf-root"
    """A remembered Merkle root is wrong or of no leaf."""
    BEYOND_SIZE = "beyond-size"
    """A file has leaves past its end, or something that is no file has leaves."""
    ALLOCATION = "allocation"
    """A file's count of blocks that are no holes is wrong."""
    MISSING_BLOCK = "missing-block"
    """A leaf names a block that the block directory lacks."""
    STRAY_ROW = "stray-row"
    """A symlink target, xattr or staging generation of no inode, or of the wrong kind of inode."""
    SYMLINK = "symlink"
    """A symlink without a target, or whose size is not the target's length."""
    JOURNAL = "journal"
    """The journal does not have exactly one row per inode at its version, or goes past the reserved numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One broken invariant.

    Attributes:
        problem: Which.
        ino: Of which inode; None if of none.
        detail: What was found and what was expected.
    """

    problem: Problem
    ino: int | None
    detail: str


MissingBlocks = Callable[[Iterable[BlockId]], list[BlockId]]
"""`BlockDirectory.missing`: those of the ids that are not stored."""


def check(view: CommittedView, block_size: int, missing: MissingBlocks | None = None) -> list[Finding]:
    """Check all invariants.

    Args:
        view: A committed state.
        block_size: The volume's.
        missing: If given, every id of every leaf is looked up in the block directory.

    Returns:
        What is wrong, empty if nothing is.
    """
    inodes = {inode.ino: inode for inode in view.inodes()}
    findings: list[Finding] = []
    findings += _names(view, inodes)
    findings += _orphans(view, inodes)
    findings += _leaf_maps(view, inodes, block_size)
    findings += _leaves(view)
    findings += _attachments(view, inodes)
    findings += _journal(view, inodes)
    if missing is not None:
        findings += _blocks(view, missing)
    return findings


def _names(view: CommittedView, inodes: dict[int, Inode]) -> Iterator[Finding]:
    """Entries, reverse rows, link counts, reachability."""
    names: Counter[int] = Counter()
    subdirectories: Counter[int] = Counter()
    children: dict[int, list[int]] = {}
    forward: set[tuple[int, int, bytes]] = set()
    for parent, name, child in view.all_entries():
        forward.add((child, parent, name))
        directory, inode = inodes.get(parent), inodes.get(child)
        if directory is None or directory.kind is not Kind.DIRECTORY or inode is None:
            detail = f"entry {name!r} in {parent} leads to inode {child}, but one of them does not exist as such"
            yield Finding(problem=Problem.DANGLING_NAME, ino=child, detail=detail)
            continue
        names[child] += 1
        if inode.kind is Kind.DIRECTORY:
            subdirectories[parent] += 1
            children.setdefault(parent, []).append(child)
    reverse = set(view.all_places())
    for child, parent, name in sorted(forward ^ reverse):
        which = "parents row" if (child, parent, name) in forward else "entry"
        detail = f"{which} missing for {name!r} in {parent}"
        yield Finding(problem=Problem.REVERSE, ino=child, detail=detail)
    yield from _link_counts(inodes, names, subdirectories, set(view.orphans()))
    reached = _reachable_directories(children)
    for inode in inodes.values():
        if inode.kind is Kind.DIRECTORY and names[inode.ino] and inode.ino not in reached:
            yield Finding(problem=Problem.UNREACHABLE, ino=inode.ino, detail="a directory in a cycle")


def _link_counts(
    inodes: dict[int, Inode], names: Counter[int], subdirectories: Counter[int], orphans: set[int]
) -> Iterator[Finding]:
    for ino, inode in inodes.items():
        found = names[ino]
        if ino == ROOT_INO and found:
            yield Finding(problem=Problem.LINK_COUNT, ino=ino, detail="the root has a name")
        if not found and ino != ROOT_INO:
            if ino not in orphans:
                yield Finding(problem=Problem.UNREACHABLE, ino=ino, detail="no name, and not an orphan")
            expected = 0
        elif inode.kind is Kind.DIRECTORY:
            expected = 2 + subdirectories[ino]
            if found > 1:
                yield Finding(problem=Problem.LINK_COUNT, ino=ino, detail=f"a directory with {found} names")
        else:
            expected = found
        if inode.nlink != expected:
            detail = f"nlink {inode.nlink}, expected {expected}"
            yield Finding(problem=Problem.LINK_COUNT, ino=ino, detail=detail)
    if ROOT_INO not in inodes:
        yield Finding(problem=Problem.UNREACHABLE, ino=ROOT_INO, detail="there is no root directory")


def _reachable_directories(children: dict[int, list[int]]) -> set[int]:
    reached = {ROOT_INO}
    waiting = [ROOT_INO]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in reached:
                reached.add(child)
                waiting.append(child)
    return reached


def _orphans(view: CommittedView, inodes: dict[int, Inode]) -> Iterator[Finding]:
    for ino in view.orphans():
        inode = inodes.get(ino)
        if inode is None:
            yield Finding(problem=Problem.ORPHAN, ino=ino, detail="an orphan row without an inode")
        elif inode.nlink:
            yield Finding(problem=Problem.ORPHAN, ino=ino, detail=f"an orphan with nlink {inode.nlink}")


def _leaf_maps(view: CommittedView, inodes: dict[int, Inode], block_size: int) -> Iterator[Finding]:
    """Leaf maps against leaves, counts, sizes and allocations."""
    references: Counter[LeafKey] = Counter()
    allocated: Counter[int] = Counter()
    counts = {key: (count, blocks) for key, count, blocks in view.leaf_references()}
    lengths = {key: len(ids) // ID_SIZE for key, ids in view.leaves()}
    for ino, index, key in view.all_leaf_keys():
        references[key] += 1
        allocated[ino] += counts.get(key, (0, 0))[1]
        inode = inodes.get(ino)
        if inode is None or inode.kind is not Kind.FILE:
            yield Finding(problem=Problem.BEYOND_SIZE, ino=ino, detail=f"leaf {index} of what is no file")
        elif index * LEAF_IDS + lengths.get(key, 1) > block_count(inode.size_bytes, block_size):
            detail = f"leaf {index} goes past the end at {inode.size_bytes} bytes"
            yield Finding(problem=Problem.BEYOND_SIZE, ino=ino, detail=detail)
        if key not in lengths:
            yield Finding(problem=Problem.LEAF_MISSING, ino=ino, detail=f"leaf {index} ({key.hex()}) is missing")
    for key in counts.keys() | references.keys() | lengths.keys():
        recorded = counts.get(key, (0, 0))[0]
        if recorded != references[key] or not recorded:
            detail = f"leaf {key.hex()}: {recorded} references recorded, {references[key]} found"
            yield Finding(problem=Problem.LEAF_COUNT, ino=None, detail=detail)
    recorded_blocks = {ino: int.from_bytes(row, "big") for ino, row in view.keyed_by_ino(Table.ALLOCATIONS)}
    for ino in recorded_blocks.keys() | allocated.keys():
        if recorded_blocks.get(ino, 0) != allocated[ino]:
            detail = f"{recorded_blocks.get(ino, 0)} blocks recorded, {allocated[ino]} found"
            yield Finding(problem=Problem.ALLOCATION, ino=ino, detail=detail)


def _leaves(view: CommittedView) -> Iterator[Finding]:
    """Each leaf against its key, its block count and its remembered root."""
    blocks = {key: count for key, _, count in view.leaf_references()}
    present = set()
    for key, ids in view.leaves():
        present.add(key)
        problem = _leaf_problem(key, ids)
        if problem is not None:
            yield Finding(problem=Problem.LEAF_CONTENT, ino=None, detail=f"leaf {key.hex()}: {problem}")
            continue
        found = sum(1 for at in range(0, len(ids), ID_SIZE) if ids[at : at + ID_SIZE] != ZERO_BLOCK)
        if key in blocks and blocks[key] != found:
            detail = f"leaf {key.hex()}: {blocks[key]} blocks recorded, {found} found"
            yield Finding(problem=Problem.LEAF_COUNT, ino=None, detail=detail)
        root = view.leaf_root(key)
        if root is not None and root != leaf_root(ids + ZERO_BLOCK * (LEAF_IDS - len(ids) // ID_SIZE)):
            yield Finding(problem=Problem.LEAF_ROOT, ino=None, detail=f"leaf {key.hex()}: wrong remembered root")
    for key, _ in view.leaf_roots():
        if key not in present:
            yield Finding(problem=Problem.LEAF_ROOT, ino=None, detail=f"a root of leaf {key.hex()}, which is gone")


def _leaf_problem(key: LeafKey, ids: bytes) -> str | None:
    if not ids or len(ids) % ID_SIZE or len(ids) > LEAF_IDS * ID_SIZE:
        return f"{len(ids)} bytes are no run of 1 to {LEAF_IDS} ids"
    if leaf_key(ids) != key:
        return "its ids have another key"
    if ids.endswith(ZERO_BLOCK):
        return "it ends with a hole"
    if any(ids[at : at + ID_SIZE] == PADDING_ID for at in range(0, len(ids), ID_SIZE)):
        return "it contains the Merkle padding, which names no block"
    return None


def _attachments(view: CommittedView, inodes: dict[int, Inode]) -> Iterator[Finding]:
    """Symlink targets, xattrs, staging generations."""
    targets = dict(view.keyed_by_ino(Table.SYMLINKS))
    for ino in targets:
        if ino not in inodes or inodes[ino].kind is not Kind.SYMLINK:
            yield Finding(problem=Problem.STRAY_ROW, ino=ino, detail="a target of what is no symlink")
    for inode in inodes.values():
        if inode.kind is Kind.SYMLINK and len(targets.get(inode.ino, b"")) != inode.size_bytes:
            detail = f"target {targets.get(inode.ino)!r}, size {inode.size_bytes}"
            yield Finding(problem=Problem.SYMLINK, ino=inode.ino, detail=detail)
    for ino, _ in view.keyed_by_ino(Table.XATTRS):
        if ino not in inodes:
            yield Finding(problem=Problem.STRAY_ROW, ino=ino, detail="an xattr of no inode")
    for generation in view.all_generations():
        owner = inodes.get(generation.ino)
        if owner is None or owner.kind is not Kind.FILE:
            detail = f"staging generation {generation.generation} of what is no file"
            yield Finding(problem=Problem.STRAY_ROW, ino=generation.ino, detail=detail)


def _journal(view: CommittedView, inodes: dict[int, Inode]) -> Iterator[Finding]:
    """One row per inode, at its version; older ones may have been trimmed."""
    start = view.journal_start()
    reserved = view.reserved()
    journalled: dict[int, int] = {}
    for sequence, ino in view.journal():
        inode = inodes.get(ino)
        if ino in journalled or (inode is not None and inode.version != sequence):
            detail = f"row {sequence} is not the inode's latest change"
            yield Finding(problem=Problem.JOURNAL, ino=ino, detail=detail)
        journalled[ino] = sequence
        if reserved is None or sequence > reserved.sequence:
            yield Finding(problem=Problem.JOURNAL, ino=ino, detail=f"row {sequence} is past the reserved numbers")
    for ino, inode in inodes.items():
        if inode.version > start and ino not in journalled:
            yield Finding(problem=Problem.JOURNAL, ino=ino, detail=f"version {inode.version} has no journal row")
        if inode.content_version > inode.version:
            yield Finding(problem=Problem.JOURNAL, ino=ino, detail="content_version is later than version")
        if reserved is not None and ino >= max(reserved.ino, ROOT_INO + 1):
            yield Finding(problem=Problem.JOURNAL, ino=ino, detail="the ino is past the reserved numbers")


def _blocks(view: CommittedView, missing: MissingBlocks) -> Iterator[Finding]:
    """Every id of every leaf is stored; where not, which files it concerns."""
    absent: set[BlockId] = set()
    batch: list[BlockId] = []
    for ids in view.live_ids():
        batch += _split(ids)
        if len(batch) >= _BATCH_IDS:
            absent.update(missing(batch))
            batch = []
    absent.update(missing(batch))
    if not absent:
        return
    damaged = {key: absent.intersection(_split(ids)) for key, ids in view.leaves()}
    for ino, index, key in view.all_leaf_keys():
        for block_id in sorted(damaged.get(key, ())):
            detail = f"block {block_id.hex()} of leaf {index} is not stored"
            yield Finding(problem=Problem.MISSING_BLOCK, ino=ino, detail=detail)


def _split(ids: bytes) -> list[BlockId]:
    return [BlockId(ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE)]
