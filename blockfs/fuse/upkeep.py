"""gc, fsck, scrub and stats of an open volume, as answers for the command line: the same mounted and not."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.gc import collect
from blockfs.blocks.scrub import scrub as scrub_blocks
from blockfs.control.protocol import FindingMsg, FsckReply, GcReply, ScrubReply
from blockfs.tree.check import Finding, check
from blockfs.tree.store import Tree

Stop = Callable[[], bool]
"""Asked now and then: the mount is ending, let go."""


def _nothing() -> None:
    """No pending changes: the volume is not mounted."""


def _never() -> bool:
    return False


def gc(blocks: BlockDirectory, tree: Tree, *, commit: Callable[[], None] = _nothing, stop: Stop = _never) -> GcReply:
    """Remove blocks that no committed file and no pin refers to.

    Args:
        blocks: The block directory.
        tree: Whose leaves are the roots.
        commit: Makes pending changes durable, so that they name their blocks before the marking.
        stop: See `Stop`.

    Raises:
        CollectionStopped: `stop` said so.
        NoSpaceError: The host is full.
    """

    def live() -> Iterator[bytes]:
        with tree.committed() as view:
            yield from view.live_ids()

    done = collect(blocks, live, before_mark=commit, stop=stop)
    return GcReply(blocks_removed=done.blocks_removed, bytes_freed=done.bytes_freed)


def fsck(blocks: BlockDirectory, tree: Tree) -> FsckReply:
    """Check a committed state and that every block it names is stored."""
    with tree.committed() as view:
        findings = check(view, blocks.block_size, blocks.missing)
        inodes = sum(1 for _ in view.inodes())
    return FsckReply(inodes_checked=inodes, findings=[_finding(found) for found in findings])


def _finding(found: Finding) -> FindingMsg:
    where = "" if found.ino is None else f"inode {found.ino}: "
    return FindingMsg(kind=found.problem.value, message=where + found.detail)


def scrub(blocks: BlockDirectory, *, stop: Stop = _never) -> ScrubReply:
    """Read and hash every stored block; corrupt ones are quarantined.

    Raises:
        ScrubStopped: `stop` said so.
    """
    done = scrub_blocks(blocks, stop=stop)
    return ScrubReply(
        clean=done.is_clean,
        blocks_checked=done.blocks_checked,
        bytes_read=done.bytes_read,
        corrupt=[bytes(block_id) for block_id in done.corrupt],
        findings=list(done.findings),
    )


def stored_bytes(volume: bytes) -> int:
    """Bytes that a volume takes on its host, without staging."""
    staging = os.path.join(volume, b"staging")
    total = 0
    for folder, folders, names in os.walk(volume):
        folders[:] = [name for name in folders if os.path.join(folder, name) != staging]
        for name in [*names, *folders]:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except FileNotFoundError:
                continue  # a segment that gc has just removed
    return total
