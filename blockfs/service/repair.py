"""fsck of a volume that is not mounted, with repair: first what blocks lie on, then the tree that refers to them.

Order: headers of segments → sidecar records that only the index knows → a new index, if the old one is damaged or
blocks are missing → names of staging files → the tree, in one transaction → superfluous names. Each step is whole by
itself and finds nothing to do when it is repeated, so a repair that was killed is run again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.environment import structural_damage
from blockfs.blocks.maintenance.rebuild import rebuild_index, refuse_in_use
from blockfs.blocks.maintenance.repair import complete_sidecars, repair_headers
from blockfs.blocks.maintenance.scrub import cut_segments
from blockfs.control.protocol import FindingMsg, FsckReply
from blockfs.engine.content.staging import Key, encode_name
from blockfs.engine.durable.staging_check import staged_files
from blockfs.engine.hot.folder import names
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.errors import CorruptionError, NotFoundError
from blockfs.runtime.atomic import sync_directory
from blockfs.runtime.output import shown
from blockfs.runtime.units import counted
from blockfs.runtime.volumes import is_volume
from blockfs.service.maintenance import fsck_reply, segment_findings
from blockfs.service.pages import refuse_damaged_index, refuse_damaged_tree
from blockfs.tree.fsck.draft import Draft, StagedFile, World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.newer import named_hot_files
from blockfs.tree.fsck.repair import TreeRepair, bring_up_to_date

Step = Callable[[str], None]
"""Told what begins now, for a person who waits."""


@dataclass(slots=True)
class _Work:
    volume: Volume
    repair: bool
    now_ns: int
    step: Step
    staged: Mapping[Key, StagedFile]
    done: list[FindingMsg] = field(default_factory=list)

    def world(self, blocks: BlockDirectory) -> World:
        return World(
            block_size=blocks.block_size,
            now_ns=self.now_ns,
            missing=blocks.missing,
            staged=self.staged,
            hot=set(names(self.volume.hot_path)),
        )

    def say(self, kind: str, message: str, remedy: str) -> None:
        self.done.append(FindingMsg(kind=kind, message=message, remedy=remedy))


def fsck(path: bytes, *, repair: bool, now_ns: int, step: Step) -> FsckReply:
    """Check a volume that is not mounted, and repair what can be repaired.

    Args:
        path: The volume.
        repair: Otherwise nothing is changed, but that a tree of an earlier format is upgraded.
        now_ns: Time of what repair makes.
        step: See `Step`.

    Raises:
        NotFoundError: No volume there.
        LockedError: Mounted, or another command works on it.
        FormatTooNewError: Made by a newer blocksync.
        CorruptionError: The tree can't be read; or the block index, and it is not to be repaired.
        NoSpaceError: The host is full; what was not repaired is as it was.
    """
    volume, lacking = _described(path, repair=repair)
    lock = VolumeLock.acquire(volume.path)
    try:
        step("reading all pages of the tree")
        refuse_damaged_tree(volume)
        bring_up_to_date(volume.tree_path)  # before the blocks: nothing of a newer volume may be changed
        staged = staged_files(volume.staging_path)
        work = _Work(volume=volume, repair=repair, now_ns=now_ns, step=step, staged=staged)
        if lacking is not None:
            volume.write_description()
            work.done.append(lacking)
        if repair:
            _repair_blocks(work)
        else:
            refuse_damaged_index(volume)
        step("checking the tree")
        with (
            BlockDirectory.open(volume.blocks_path, read_only=not repair) as blocks,
            TreeRepair.opened(volume.tree_path, work.world(blocks)) as tree,
        ):
            if repair:
                _write(work, tree)
            else:
                work.done += segment_findings(blocks)
            reply = fsck_reply(tree.examination)
    finally:
        lock.release()
    return msgspec.structs.replace(reply, findings=work.done + reply.findings)


def _described(path: bytes, *, repair: bool) -> tuple[Volume, FindingMsg | None]:
    """What volume.toml says, or will say once it is repaired; with that finding."""
    try:
        return Volume.load(path), None
    except CorruptionError as error:
        if not (repair and is_volume(path)):
            raise
        damage = str(error).partition(": ")[0]
    volume, same = Volume.describe_anew(path)
    done = "made anew from blocks.toml"
    if not same:
        done += ", with a new identity: `blocksync link --relink` what is linked to it"
    return volume, FindingMsg(kind="description", message=damage, remedy=done)


# --- blocks


def fsck_blocks(path: str, *, repair: bool, step: Step) -> FsckReply:
    """Check a block directory that has no tree, as a server's, and repair what can be repaired.

    Which blocks must be there, only its owner knows: one that no segment and no sidecar tells of is not missed here.

    Args:
        path: Its folder.
        repair: Otherwise nothing is changed.
        step: See `Step`.

    Raises:
        LockedError: Somebody has it open.
        NotFoundError, FormatTooNewError, CorruptionError: As for blocks.toml.
        NoSpaceError: The host is full; what was not repaired is as it was.
    """
    refuse_in_use(path)
    found: list[FindingMsg] = []
    if repair:
        found += [
            FindingMsg(kind="segment-header", message=name, remedy="written again") for name in repair_headers(path)
        ]
    step("reading the block index")
    problem = _index_problem(path)
    if problem is None:
        with BlockDirectory.open(path, read_only=not repair) as blocks:
            records = complete_sidecars(blocks) if repair else 0
            cut = segment_findings(blocks)
        if records:
            text = f"{counted(records, 'block', 'blocks')} had no sidecar record"
            found.append(FindingMsg(kind="sidecar", message=text, remedy="written again"))
        if not (repair and cut):
            return FsckReply(inodes_checked=0, findings=found + cut, lost=[])
        problem = cut[0].message
    if not repair:
        found.append(FindingMsg(kind="block-index", message=problem, remedy="made anew from the segments"))
        return FsckReply(inodes_checked=0, findings=found, lost=[])
    step("making the block index anew, verifying every block")
    rebuilt = rebuild_index(path)
    anew = f"made anew with {counted(rebuilt.blocks, 'block', 'blocks')}"
    found.append(FindingMsg(kind="block-index", message=problem, remedy=anew))
    found += [FindingMsg(kind="segment", message=finding, remedy="") for finding in rebuilt.findings]
    found += [FindingMsg(kind="block", message=f"{block.hex()} is lost", remedy="") for block in rebuilt.damaged]
    return FsckReply(inodes_checked=0, findings=found, lost=[])


def _repair_blocks(work: _Work) -> None:
    path = work.volume.blocks_path
    for done in repair_headers(path):
        work.say("segment-header", done, "written again")
    problem = _index_problem(path)
    if problem is None:
        with BlockDirectory.open(path) as blocks:
            records = complete_sidecars(blocks)
            if records:
                work.say("sidecar", f"{counted(records, 'block', 'blocks')} had no sidecar record", "written again")
            problem = _index_mismatch(work, blocks)
    if problem is None:
        return
    work.step("making the block index anew, verifying every block")
    rebuilt = rebuild_index(path)
    work.say("block-index", problem, f"made anew with {counted(rebuilt.blocks, 'block', 'blocks')}")
    for finding in rebuilt.findings:
        work.say("segment", finding, "")


def _index_problem(path: str) -> str | None:
    """Why the block index must be made anew; None if it is sound as far as its pages go."""
    name = os.path.join(path, "index")
    if not os.path.exists(os.path.join(name, "data.mdb")):
        return "the block index is gone"
    damage = structural_damage(name)
    if damage:
        return f"the block index is damaged: {damage[0]}"
    try:
        with BlockDirectory.open(path) as blocks:
            for _ in blocks.index.scan():
                pass  # every row decodes
            blocks.statistics()
    except (CorruptionError, NotFoundError) as error:
        return f"the block index is damaged: {error}"
    return None


def _index_mismatch(work: _Work, blocks: BlockDirectory) -> str | None:
    """Why a sound index must be made anew: it has blocks that the segments lack, or lacks blocks that files need."""
    cut = cut_segments(blocks)
    if cut:
        return cut[0]
    work.step("checking the tree for missing blocks")
    with TreeRepair.opened(work.volume.tree_path, work.world(blocks)) as tree:
        findings = tree.examination.draft.findings
    if any(found.problem is Problem.MISSING_BLOCK for found in findings):
        return "the index lacks blocks that files need"
    return None


# --- the tree


def _write(work: _Work, tree: TreeRepair) -> None:
    """Write the repaired tree.

    Adopted staging files get their new name before the tree names it, and lose the old one after. A crash between
    leaves two names of one file: the next repair sees that, and the next mount removes the one that the tree lacks.
    """
    staging = work.volume.staging_path
    draft = tree.examination.draft
    for old, new in draft.adopted:
        os.link(os.path.join(staging, encode_name(old)), os.path.join(staging, encode_name(new)))
    if draft.adopted:
        sync_directory(staging)
    if draft.findings:
        _keep_hot_files(work, draft)
    work.step("writing the repaired tree")
    tree.write()
    for old, _ in draft.adopted:
        os.unlink(os.path.join(staging, encode_name(old)))


def _keep_hot_files(work: _Work, draft: Draft) -> None:
    """In a damaged tree a hot file that nothing names may be all that is left of one: mounts leave the new name alone.

    In a sound tree they are superfluous, and the next mount removes them.
    """
    folder = work.volume.hot_path
    for ino, number in sorted(set(names(folder)) - named_hot_files(draft)):
        kept = os.path.join(folder, b"kept-%d.%d" % (ino, number))
        os.rename(os.path.join(folder, b"%d.%d" % (ino, number)), kept)
        sync_directory(folder)
        work.say("stray-hot-file", f"inode {ino}: a hot file that the tree does not name", f"kept as {shown(kept)}")
