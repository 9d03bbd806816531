"""gc, fsck, scrub and stats of an open volume, as answers for the command line: the same mounted and not."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import Final

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import LOST_BLOCK, BlockId
from blockfs.blocks.maintenance.gc import CollectionStopped, collect
from blockfs.blocks.maintenance.scrub import ScrubResult, ScrubStopped, Step, cut_segments
from blockfs.blocks.maintenance.scrub import scrub as scrub_blocks
from blockfs.control.protocol import FindingMsg, FsckReply, GcReply, LossMsg, ScrubReply
from blockfs.engine.durable.staging_check import missing_staging
from blockfs.engine.portions import Stop, never
from blockfs.engine.space.ballast import Ballast
from blockfs.errors import BlockfsError, CorruptionError
from blockfs.tree.committed import CommittedView
from blockfs.tree.fsck.check import Examination, examine
from blockfs.tree.fsck.draft import World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.leaves import split
from blockfs.tree.reader import TreeReader
from blockfs.tree.schema import SNAPSHOTS_INO, SNAPSHOTS_NAME, TOP_INOS
from blockfs.tree.store import Tree
from blockfs.tree.waiting import Pause, go_on

MAX_PATHS: Final = 10_000  # paths in one answer: it must fit into a frame of the control socket
MAX_IDS: Final = 100_000  # likewise: 3.2 MB
MAX_FINDINGS: Final = 5_000  # likewise, with a path each


def _nothing() -> None:
    """No pending changes: the volume is not mounted."""


class NoMemoryError(BlockfsError):
    """A collection needs more memory than there is. Nothing was removed."""

    errno = errno.ENOMEM

    def __init__(self) -> None:
        super().__init__("there is not enough memory to collect: 128 MiB for 1 TiB of blocks of 64 KiB are needed")


def gc(
    blocks: BlockDirectory,
    tree: Tree,
    ballast: Ballast,
    *,
    commit: Callable[[], None] = _nothing,
    stop: Stop = never,
) -> GcReply:
    """Remove blocks that no committed file and no pin refers to.

    Args:
        blocks: The block directory.
        tree: Whose leaves are the roots.
        ballast: The volume's: a full host must not prevent what makes room.
        commit: Makes pending changes durable, so that they name their blocks before the marking.
        stop: See `Stop`.

    Raises:
        CollectionStopped: `stop` said so.
        CorruptionError: A leaf of the tree is damaged: what its blocks are is not known.
        NoSpaceError: The host is full.
        NoMemoryError: The marks don't fit.
    """

    def pause() -> None:
        if stop():
            raise CollectionStopped("collection stopped; the next one starts over")

    def live() -> Iterator[bytes]:
        view = tree.view_for_marking(pause)
        try:
            yield from view.marked_ids()
        finally:
            view.close()

    try:
        done = ballast.spend(lambda: collect(blocks, live, commit=commit, stop=stop))
    except MemoryError:
        raise NoMemoryError from None
    return GcReply(blocks_removed=done.blocks_removed, bytes_freed=done.bytes_freed)


def fsck(blocks: BlockDirectory, tree: Tree, staging_path: bytes, *, pause: Pause = go_on) -> FsckReply:
    """Check a committed state, and that every block and staging file it names is there. May run beside a mount.

    What a file referred to when the check began may be collected while it runs. So a block is only lost if it is gone,
    and a state that is committed after that still refers to it. `pause`: asked now and then.
    """
    reply = _examined(blocks, tree, pause)
    gone_before = _missing_blocks(reply)
    if gone_before:
        lost_before, reply = reply.lost, _examined(blocks, tree, pause)
        passing = [one for one in _missing_blocks(reply) if one not in gone_before]
        reply = msgspec.structs.replace(
            reply,
            findings=[one for one in reply.findings if one not in passing],
            lost=[one for one in reply.lost if one in lost_before],
        )
    gone = [
        FindingMsg(kind=Problem.MISSING_STAGING.value, message=f"inode {lost.ino}: its staged data are gone")
        for lost in missing_staging(tree, staging_path)
    ]
    return msgspec.structs.replace(reply, findings=segment_findings(blocks) + reply.findings + gone)


def _examined(blocks: BlockDirectory, tree: Tree, pause: Pause) -> FsckReply:
    with tree.committed(pause) as view:
        return fsck_reply(examine(view, World(block_size=blocks.block_size, missing=blocks.missing)))


def _missing_blocks(reply: FsckReply) -> list[FindingMsg]:
    return [found for found in reply.findings if found.kind == Problem.MISSING_BLOCK.value]


def segment_findings(blocks: BlockDirectory) -> list[FindingMsg]:
    """Segments that are gone or cut off. Which files that concerns, a scrub or a repair tells."""
    remedy = "blocks that are gone are taken out of the block index"
    return [FindingMsg(kind="segment", message=cut, remedy=remedy) for cut in cut_segments(blocks)]


def fsck_reply(examination: Examination) -> FsckReply:
    """What fsck found, with paths: those that files have in the repaired tree."""
    draft = examination.draft
    findings = []
    for found in draft.findings[:MAX_FINDINGS]:
        where = "" if found.ino is None else f"inode {found.ino}: "
        findings.append(FindingMsg(kind=found.problem.value, message=where + found.detail, remedy=found.remedy))
    if len(draft.findings) > MAX_FINDINGS:
        rest = len(draft.findings) - MAX_FINDINGS
        findings.append(FindingMsg(kind="more", message=f"{rest} more findings are not listed"))
    lost = [
        LossMsg(
            inode=loss.ino,
            path=draft.path(loss.ino) if loss.path is None else loss.path,
            what=loss.what,
            start=loss.start,
            end=loss.end,
        )
        for loss in draft.losses[:MAX_FINDINGS]
    ]
    return FsckReply(inodes_checked=examination.inodes, findings=findings, lost=lost)


def scrub(
    blocks: BlockDirectory, tree: Tree, *, stop: Stop = never, step: Step = lambda _done, _all: None
) -> ScrubReply:
    """Read and hash every stored block; corrupt ones are quarantined. Files that need them, or missing ones, are named.

    `step`: told how many blocks are checked, and of how many.

    Raises:
        ScrubStopped: `stop` said so.
    """

    def pause() -> None:
        if stop():
            raise ScrubStopped("scrub stopped; what was found so far is quarantined")

    done = scrub_blocks(blocks, stop=stop, step=step)
    paths: list[bytes] = []
    with tree.committed(pause) as view:
        gone_before = _missing(blocks, view)
    with tree.committed(pause) as view:
        # In both: what a file has given up meanwhile may have been collected. See `fsck`.
        missing = gone_before and (gone_before & _missing(blocks, view)) - set(done.corrupt)
        if done.corrupt or missing:
            paths = list(islice(paths_with_blocks(view, missing.union(done.corrupt)), MAX_PATHS))
    reply = scrub_reply(done)
    return msgspec.structs.replace(
        reply, clean=reply.clean and not missing, missing=sorted(missing)[:MAX_IDS], paths=paths
    )


def scrub_reply(done: ScrubResult) -> ScrubReply:
    """What a scrub of a block directory found, as far as that alone can tell."""
    return ScrubReply(
        clean=done.is_clean,
        blocks_checked=done.blocks_checked,
        bytes_read=done.bytes_read,
        corrupt=[bytes(block_id) for block_id in done.corrupt[:MAX_IDS]],
        missing=[],
        paths=[],
        findings=list(done.findings),
    )


def _missing(blocks: BlockDirectory, view: CommittedView) -> set[BlockId]:
    """Blocks that files need and that are not stored, or quarantined. Memory: 100 bytes for each."""
    return {block_id for ids in view.live_ids() for block_id in blocks.missing(split(ids)) if block_id != LOST_BLOCK}


def paths_with_blocks(view: CommittedView, wanted: set[BlockId]) -> Iterator[bytes]:
    """All paths of the files that refer to any of these blocks. Reads all leaves and leaf maps."""
    leaves = {key for key, ids in view.leaves() if not wanted.isdisjoint(split(ids))}
    for ino, rows in groupby(view.all_leaf_keys(), lambda row: row[0]):
        if any(key in leaves for _, _, key in rows):
            yield from paths_of(view, ino)


def paths_of(tree: TreeReader, ino: int) -> Iterator[bytes]:
    """All paths of an inode, relative to the root. A file may have several names, each folder above it has one.

    Raises:
        CorruptionError: A folder is below itself.
    """
    for parent, name in tree.places(ino):
        folder = _folder_path(tree, parent)
        if folder is not None:
            yield os.path.join(folder, name)


def _folder_path(tree: TreeReader, ino: int) -> bytes | None:
    """None: nothing leads there. Not a call for each level: users nest folders deeper than Python's calls go."""
    names: list[bytes] = []
    seen: set[int] = set()
    while ino not in TOP_INOS:
        place = next(tree.places(ino), None)
        if place is None:
            return None
        if ino in seen:
            raise CorruptionError(f"tree: directory {ino} is below itself; run `blocksync fsck`")
        seen.add(ino)
        ino, name = place
        names.append(name)
    if ino == SNAPSHOTS_INO:
        names.append(SNAPSHOTS_NAME)
    return b"/".join(reversed(names))


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
