"""fsck of contents: leaves, who refers to them, their counts; which bytes of which files are gone.

Content is never invented: where a leaf is gone, the file gets ids of `LOST_BLOCK`, and reading there fails. Content is
never thrown away either: a leaf that no file refers to becomes a file in lost+found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS, leaf_key, leaf_root
from blockfs.blocks.ids import ID_SIZE, LOST_BLOCK, PADDING_ID, ZERO_BLOCK, BlockId, LeafKey
from blockfs.runtime.units import counted
from blockfs.tree.fsck.draft import Draft, MissingBlocks, StagedFile, StagingKey
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.rows import SIZE_LIMIT
from blockfs.tree.schema import (
    RANGE_BYTES,
    Generation,
    Inode,
    Kind,
    Table,
    canonical_leaf,
    decode_leaf_ref,
    decode_u64,
    encode_leaf_ref,
    leaf_map_key,
    non_holes,
    split_ino_key,
    u64,
)

_KEYS_PER_PASS: Final = 1 << 18
"""Leaves counted at once, about 40 MB. More leaves take more passes: 256 Ki leaves of 64 KiB blocks are 4 TiB."""

_LOST: Final = "content"
_STAGED: Final = "writes that were not sealed yet, somewhere in this range; what was sealed before is seen instead"


def check_leaves(draft: Draft) -> None:
    """Leaves against their keys, leaf maps against leaves and sizes, counts against both."""
    _check_contents(draft)
    _check_roots(draft)
    _check_maps(draft)
    _check_counts(draft)
    _check_allocations(draft)


def split(ids: bytes) -> list[BlockId]:
    """The ids of a leaf one by one."""
    return [BlockId(ids[at : at + ID_SIZE]) for at in range(0, len(ids), ID_SIZE)]


# --- leaves ---


def _check_contents(draft: Draft) -> None:
    for raw_key, ids in draft.rows.scan(Table.LEAVES):
        problem = _leaf_problem(raw_key, ids)
        if problem is None:
            continue
        draft.found(Problem.LEAF_CONTENT, None, f"leaf {raw_key.hex()}: {problem}", "leaf removed")
        for table in (Table.LEAVES, Table.LEAF_REFS, Table.LEAF_ROOTS):
            draft.rows.delete(table, raw_key)
        kept = _salvaged(ids)
        if kept:
            # Under the key of what it is now: nobody refers to that, so it becomes a file in lost+found.
            draft.rows.put(Table.LEAVES, leaf_key(kept), kept)


def _leaf_problem(key: bytes, ids: bytes) -> str | None:
    if not ids or len(ids) % ID_SIZE or len(ids) > LEAF_IDS * ID_SIZE:
        return f"{len(ids)} bytes are no run of 1 to {LEAF_IDS} ids"
    if leaf_key(ids) != key:
        return "its ids have another key"
    if ids.endswith(ZERO_BLOCK):
        return "it ends with a hole"
    if PADDING_ID in split(ids):
        return "it contains the Merkle padding, which names no block"
    return None


def _salvaged(ids: bytes) -> bytes:
    """What can be kept of a damaged leaf's ids; b"" if nothing."""
    whole = split(ids[: min(len(ids) // ID_SIZE, LEAF_IDS) * ID_SIZE])
    return canonical_leaf(b"".join(LOST_BLOCK if block_id == PADDING_ID else block_id for block_id in whole))


def _check_roots(draft: Draft) -> None:
    for raw_key, root in draft.rows.scan(Table.LEAF_ROOTS):
        ids = draft.rows.get(Table.LEAVES, raw_key)
        if ids is None:
            detail = f"a root of leaf {raw_key.hex()}, which is gone"
        elif root != leaf_root(ids + ZERO_BLOCK * (LEAF_IDS - len(ids) // ID_SIZE)):
            detail = f"leaf {raw_key.hex()}: wrong remembered root"
        else:
            continue
        draft.found(Problem.LEAF_ROOT, None, detail, "root forgotten")
        draft.rows.delete(Table.LEAF_ROOTS, raw_key)


# --- leaf maps ---


def _leaf_rows(draft: Draft) -> Iterator[tuple[int, int, LeafKey]]:
    for key, row in draft.rows.scan(Table.LEAF_MAP):
        ino, rest = split_ino_key(key)
        yield ino, decode_u64(rest), LeafKey(row)


def _check_maps(draft: Draft) -> None:
    for ino, index, key in _leaf_rows(draft):
        inode = draft.inode(ino)
        if inode is None or inode.kind is not Kind.FILE:
            draft.found(Problem.BEYOND_SIZE, ino, f"leaf {index} of what is no file", "taken from it")
            draft.rows.delete(Table.LEAF_MAP, leaf_map_key(ino, index))
            continue
        ids = draft.rows.get(Table.LEAVES, key)
        if ids is None:
            _replace_lost_leaf(draft, inode, index, key)
            continue
        end = index * LEAF_IDS + len(ids) // ID_SIZE
        if end > block_count(inode.size_bytes, draft.world.block_size):
            size = end * draft.world.block_size
            detail = f"leaf {index} goes past the end at {inode.size_bytes} bytes"
            draft.found(Problem.BEYOND_SIZE, ino, detail, f"size set to {size}")
            draft.lost(ino, f"its size: it was {inode.size_bytes}, which leaves out stored data, and is now {size}")
            draft.put_inode(replace(inode, size_bytes=size), content_changed=True)


def _replace_lost_leaf(draft: Draft, inode: Inode, index: int, key: LeafKey) -> None:
    block_size = draft.world.block_size
    start = index * LEAF_IDS * block_size
    count = min(LEAF_IDS, block_count(inode.size_bytes, block_size) - index * LEAF_IDS)
    detail = f"leaf {index} ({key.hex()}) is missing"
    map_key = leaf_map_key(inode.ino, index)
    if count <= 0:
        draft.found(Problem.LEAF_MISSING, inode.ino, f"{detail}, and lies past the end", "row removed")
        draft.rows.delete(Table.LEAF_MAP, map_key)
        return
    end = min(start + count * block_size, inode.size_bytes)
    draft.found(Problem.LEAF_MISSING, inode.ino, detail, f"bytes {start} to {end - 1} marked as lost")
    ids = LOST_BLOCK * count
    draft.rows.put(Table.LEAVES, leaf_key(ids), ids)
    draft.rows.put(Table.LEAF_MAP, map_key, leaf_key(ids))
    draft.put_inode(inode, content_changed=True)
    if draft.world.missing is None:
        draft.lost(inode.ino, _LOST, start, end)  # else check_blocks says so


# --- counts ---


def _check_counts(draft: Draft) -> None:
    """References and block counts, for a part of all leaves at a time."""
    passes = 1 + sum(1 for _ in draft.rows.scan(Table.LEAVES)) // _KEYS_PER_PASS
    for number in range(passes):
        _count_part(draft, (number << 16) // passes, ((number + 1) << 16) // passes)


def _count_part(draft: Draft, low: int, high: int) -> None:
    """Count leaves whose keys begin with 16 bits in [low, high). Keys are digests: parts are of one size."""

    def is_here(key: bytes) -> bool:
        return low <= int.from_bytes(key[:2], "big") < high

    references = Counter(key for _, _, key in _leaf_rows(draft) if is_here(key))
    for raw_key, ids in draft.rows.scan(Table.LEAVES, after=low.to_bytes(2, "big")):
        if not is_here(raw_key):
            break
        key = LeafKey(raw_key)
        if not references[key]:
            path = _keep_as_file(draft, key, ids)
            draft.found(Problem.LEAF_COUNT, None, f"leaf {key.hex()}: nobody refers to it", f"kept as {path}")
            references[key] = 1
        expected = encode_leaf_ref(references[key], non_holes(ids))
        row = draft.rows.get(Table.LEAF_REFS, key)
        if row != expected:
            recorded = "no count" if row is None else _counts(*decode_leaf_ref(row))
            detail = f"leaf {key.hex()}: {recorded} recorded, {references[key]} and {non_holes(ids)} found"
            draft.found(Problem.LEAF_COUNT, None, detail, "corrected")
            draft.rows.put(Table.LEAF_REFS, key, expected)
    for raw_key, _ in draft.rows.scan(Table.LEAF_REFS, after=low.to_bytes(2, "big")):
        if not is_here(raw_key):
            break
        if draft.rows.get(Table.LEAVES, raw_key) is None:
            draft.found(Problem.LEAF_COUNT, None, f"leaf {raw_key.hex()}: counted, but not there", "row removed")
            draft.rows.delete(Table.LEAF_REFS, raw_key)


def _counts(references: int, blocks: int) -> str:
    return f"{counted(references, 'reference', 'references')}, {counted(blocks, 'block', 'blocks')}"


def _keep_as_file(draft: Draft, key: LeafKey, ids: bytes) -> str:
    """Make a file of a leaf that nobody refers to; returns its path."""
    ino = draft.new_ino()
    draft.new_inode(ino, Kind.FILE, mode=0o600, size_bytes=len(ids) // ID_SIZE * draft.world.block_size)
    draft.rows.put(Table.LEAF_MAP, leaf_map_key(ino, 0), key)
    draft.rows.put(Table.ALLOCATIONS, u64(ino), u64(non_holes(ids)))
    return draft.reconnect(ino, b"leaf-" + key.hex()[:16].encode())


def _check_allocations(draft: Draft) -> None:
    for ino, rows in groupby(_leaf_rows(draft), lambda row: row[0]):
        blocks = sum(_blocks_of(draft, key) for _, _, key in rows)
        recorded = draft.allocated_blocks(ino)
        if recorded != blocks:
            _correct_allocation(draft, ino, recorded, blocks)
    for key, row in draft.rows.scan(Table.ALLOCATIONS):
        ino = split_ino_key(key)[0]
        if next(draft.leaf_keys(ino), None) is None:
            _correct_allocation(draft, ino, decode_u64(row), 0)


def _blocks_of(draft: Draft, key: LeafKey) -> int:
    row = draft.rows.get(Table.LEAF_REFS, key)
    return 0 if row is None else decode_leaf_ref(row)[1]


def _correct_allocation(draft: Draft, ino: int, recorded: int, found: int) -> None:
    detail = f"{counted(recorded, 'block', 'blocks')} recorded, {found} found"
    draft.found(Problem.ALLOCATION, ino, detail, "corrected")
    if found:
        draft.rows.put(Table.ALLOCATIONS, u64(ino), u64(found))
    else:
        draft.rows.delete(Table.ALLOCATIONS, u64(ino))
    if recorded > found and draft.inode(ino) is not None:
        size = counted(recorded - found, "block", "blocks")
        draft.lost(ino, f"perhaps {size}: a row of its leaf map may be gone, and its place with it; reads as NUL")


# --- blocks and staged data ---


def check_blocks(draft: Draft, missing: MissingBlocks) -> None:
    """Every id of every leaf is stored; where not, which bytes of which files it concerns. Nothing is changed."""
    damaged = {LeafKey(key) for key, ids in draft.rows.scan(Table.LEAVES) if missing(split(ids))}
    if not damaged:
        return
    for ino, index, key in _leaf_rows(draft):
        if key in damaged:
            inode = draft.inode(ino)
            assert inode is not None
            _tell_missing(draft, inode, index, split(draft.leaf_ids(key)), missing)


def _tell_missing(draft: Draft, inode: Inode, index: int, ids: list[BlockId], missing: MissingBlocks) -> None:
    """One finding for each run of missing blocks."""
    absent = set(missing(ids))
    block_size = draft.world.block_size
    for is_absent, run in groupby(enumerate(ids), lambda numbered: numbered[1] in absent):
        if is_absent:
            numbered = list(run)
            start = (index * LEAF_IDS + numbered[0][0]) * block_size
            end = min(start + len(numbered) * block_size, inode.size_bytes)
            first = numbered[0][1]
            which = (
                f"block {first.hex()} is" if len(numbered) == 1 else f"{len(numbered)} blocks from {first.hex()} on are"
            )
            draft.found(Problem.MISSING_BLOCK, inode.ino, f"bytes {start} to {end - 1}: {which} not stored")
            draft.lost(inode.ino, _LOST, start, end)


def check_staged(draft: Draft, staged: Mapping[StagingKey, StagedFile]) -> None:
    """Every generation has its staging file."""
    for generation in draft.all_generations():
        if key_of(generation) in staged:
            continue
        detail = f"its staged data of generation {generation.generation} are gone"
        draft.found(Problem.MISSING_STAGING, generation.ino, detail, "given up")
        draft.drop_generation(generation)
        inode = draft.inode(generation.ino)
        assert inode is not None
        start = generation.range_index * RANGE_BYTES
        end = min(start + RANGE_BYTES, generation.valid_below, inode.size_bytes)
        if start < end:
            draft.lost(inode.ino, _STAGED, start, end)
        draft.put_inode(inode, content_changed=True)


def adopt_strays(draft: Draft, staged: Mapping[StagingKey, StagedFile]) -> None:
    """Keep staging files that the tree does not name as files in lost+found, if the tree is damaged in any way.

    In a sound tree they are superfluous, and the next mount removes them: sealed, or never flushed before a crash.
    """
    if not draft.findings:
        return
    named = {key_of(generation) for generation in draft.all_generations()}
    kept = {staged[key].identity for key in named if key in staged}
    for key in sorted(staged.keys() - named):
        file, (ino, range_index, generation) = staged[key], key
        if not file.size_bytes or file.identity in kept:
            continue
        kept.add(file.identity)
        size = min(range_index * RANGE_BYTES + file.size_bytes, SIZE_LIMIT)
        new = draft.new_ino()
        draft.new_inode(new, Kind.FILE, mode=0o600, size_bytes=size)
        draft.put_generation(Generation(ino=new, range_index=range_index, generation=generation))
        draft.adopted.append((key, (new, range_index, generation)))
        path = draft.reconnect(new, b"staged-%d.%d.%d" % (ino, range_index, generation))
        draft.found(Problem.STRAY_STAGING, ino, "staged data that the tree does not name", f"kept as {path}")


def key_of(generation: Generation) -> StagingKey:
    """Which staging file holds a generation."""
    return generation.ino, generation.range_index, generation.generation
