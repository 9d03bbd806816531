"""The figures of `blocksync stats`, from one committed state."""

from __future__ import annotations

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import ZERO_BLOCK
from blockfs.tree.committed import CommittedView
from blockfs.tree.schema import MAX_TOTAL_BYTES, Inode, Kind
from blockfs.tree.waiting import Pause, asking, go_on


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of a volume come to.

    Attributes:
        files: Regular files, hard links once, without those of snapshots.
        logical_bytes: Sum of their sizes.
        filled_bytes: Bytes in sealed blocks that are no holes, of these files and of those of snapshots.
        blocks: Distinct blocks they refer to.
        unique_bytes: Canonical lengths of these blocks.
    """

    files: int
    logical_bytes: int
    filled_bytes: int
    blocks: int
    unique_bytes: int

    @property
    def dedup_ratio(self) -> float:
        """Filled bytes per unique byte; 1.0 if there are none."""
        return self.filled_bytes / self.unique_bytes if self.unique_bytes else 1.0


def figures_of(view: CommittedView, blocks: BlockDirectory, pause: Pause = go_on) -> Figures:
    """Add up a committed state. Reads every inode and distinct leaf; memory about 100 bytes per distinct block."""
    files, logical_bytes, filled = totals(view, blocks.block_size)
    unique = view.unique_ids()
    return Figures(
        files=files,
        logical_bytes=logical_bytes,
        filled_bytes=filled,
        blocks=len(unique),
        unique_bytes=sum(blocks.stored_lengths(asking(unique, pause))),
    )


def totals(view: CommittedView, block_size: int) -> tuple[int, int, int]:
    """Files, their bytes, and bytes in blocks that are no holes, these of snapshots, too. Reads every inode."""
    files = logical_bytes = filled = 0
    for inode in view.inodes():
        if inode.kind is Kind.FILE and inode.nlink:
            if not inode.is_frozen:
                files += 1
                logical_bytes += inode.size_bytes
            filled += _filled(view, inode, block_size)
    return files, min(logical_bytes, MAX_TOTAL_BYTES), filled


def _filled(view: CommittedView, inode: Inode, block_size: int) -> int:
    """Bytes of a file in blocks that are no holes; the last block counts only as far as the file goes."""
    allocated = view.allocated_blocks(inode.ino)
    last, tail = divmod(inode.size_bytes, block_size)
    if allocated and tail and view.block_ids(inode.ino, last, 1) != ZERO_BLOCK:
        return (allocated - 1) * block_size + tail
    return allocated * block_size
