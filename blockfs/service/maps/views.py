"""From one committed state to maps: reads the tree, and of blocks their lengths only."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import BlockId
from blockfs.control.maps import BlockMapReply, CellMsg, OtherMsg, SharerMsg
from blockfs.errors import NotFoundError, UsageError
from blockfs.runtime.output import shown
from blockfs.service.maps.blockmap import block_map
from blockfs.service.maps.sample import SAMPLED, Leaf, Sample
from blockfs.service.maps.sharing import Sharing, sharing
from blockfs.tree.committed import CommittedView
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, SNAPSHOTS_NAME, Inode, Kind


def file_at(view: CommittedView, path: bytes) -> Inode:
    """The regular file of a path relative to the root.

    Raises:
        NotFoundError: There is nothing, as of the last commit.
        UsageError: It is no regular file.
    """
    ino: int | None = ROOT_INO
    for name in filter(None, path.split(b"/")):
        ino = SNAPSHOTS_INO if (ino, name) == (ROOT_INO, SNAPSHOTS_NAME) else view.lookup(ino or 0, name)
    inode = None if ino is None else view.inode(ino)
    if inode is None:
        raise NotFoundError(f"there is no file {shown(path)}, as of the last commit")
    if inode.kind is not Kind.FILE:
        raise UsageError(f"{shown(path)} is no regular file: only such a file has a map")
    return inode


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A file as it is now, beside what the committed state knows of it.

    Attributes:
        inode: The file.
        path: Its path, for the reply.
        size_bytes: How long it is now.
        staged: Which of its blocks are staged: first and end of each run, ascending.
        is_behind: What the kernel has written to it is not in the tree, and not told apart.
    """

    inode: Inode
    path: bytes
    size_bytes: int
    staged: tuple[tuple[int, int], ...] = ()
    is_behind: bool = False


def part_of(blocks: int, first: int, count: int) -> range:
    """The part of a file that is asked for, made to begin and end with a leaf; a `count` of 0 is all that follow."""
    start = min(first, max(0, blocks - 1)) // LEAF_IDS * LEAF_IDS
    end = -(-(first + count) // LEAF_IDS) * LEAF_IDS if count else blocks
    return range(start, min(blocks, max(end, start + LEAF_IDS)))


def map_of(
    view: CommittedView,
    subject: Subject,
    block_size: int,
    cells: int,
    looked_at: int = SAMPLED,
    *,
    first: int = 0,
    count: int = 0,
) -> BlockMapReply:
    """The map of a file, or of a part of it.

    Args:
        view: The committed state.
        subject: The file.
        block_size: The volume's.
        cells: In how many pieces at most.
        looked_at: How many ids are looked at, about: all of a part that has no more, whatever is beside it.
        first: Where the part begins, in blocks.
        count: Of how many blocks it is; 0: all that follow.
    """
    ino = subject.inode.ino
    blocks = block_count(subject.size_bytes, block_size)
    part = part_of(blocks, first, count)
    begin, end = part.start // LEAF_IDS, -(-part.stop // LEAF_IDS)
    leaves = takewhile(lambda leaf: leaf[0] < end, view.leaf_keys(ino, begin))
    found = block_map(
        ((ino, number - begin, key) for number, key in leaves),
        live_leaves(view, but=ino),
        view.leaf_ids,
        blocks=len(part),
        cells=cells,
        staged=[(one - part.start, after - part.start) for one, after in subject.staged],
        sample=Sample(len(part) if len(part) <= looked_at else view.referenced_blocks_about(), looked_at),
    )
    return BlockMapReply(
        path=subject.path,
        block_size=block_size,
        size_bytes=subject.size_bytes,
        blocks=found.blocks,
        cells=[
            CellMsg(holes=cell.holes, staged=cell.staged, own=cell.own, shared=cell.shared, other=cell.other)
            for cell in found.cells
        ],
        others=[OtherMsg(path=view.path_of(ino) or b"", blocks=blocks) for ino, blocks in found.others],
        is_whole=found.is_whole,
        is_behind=subject.is_behind,
        first=part.start,
        file_blocks=blocks,
    )


def sharing_of(view: CommittedView, most: int, looked_at: int = SAMPLED) -> Sharing:
    """Which files share most, and a sample of all blocks that there are."""
    has_snapshots = next(view.entries(SNAPSHOTS_INO), None) is not None
    kept = (key for key, _, _ in view.leaf_references()) if has_snapshots else ()
    sample = Sample(view.referenced_blocks_about(), looked_at)
    return sharing(live_leaves(view), kept, view.leaf_ids, sample=sample, most=most)


def sharers(view: CommittedView, found: Sharing) -> list[SharerMsg]:
    """Those files by their names."""
    inodes = ((each, view.inode(each.ino)) for each in found.files)
    return [
        SharerMsg(
            path=view.path_of(each.ino) or b"",
            size_bytes=inode.size_bytes,
            blocks=each.blocks,
            shared=each.shared,
            other=view.path_of(each.other) or b"",
        )
        for each, inode in inodes
        if inode is not None
    ]


def unique_bytes(blocks: BlockDirectory, found: Sharing) -> int:
    """Canonical bytes of all distinct blocks: of those that were looked at, times how many there are."""
    total = sum(blocks.stored_lengths(map(BlockId, found.sampled)))
    return total * found.blocks // len(found.sampled) if found.sampled else 0


def live_leaves(view: CommittedView, *, but: int | None = None) -> Iterator[Leaf]:
    """Leaves of all files that have a name and are in no snapshot, file by file; of one of them none."""
    inodes = view.inodes()
    inode = next(inodes, None)
    current, is_live = 0, False
    for row in view.all_leaf_keys(but=but):
        if row[0] != current:
            current = row[0]
            while inode is not None and inode.ino < current:
                inode = next(inodes, None)
            is_live = inode is not None and inode.ino == current and bool(inode.nlink) and not inode.is_frozen
        if is_live:
            yield row
