"""fsck of the tree: which invariants one committed state breaks, and what a repair makes of it.

Each step finds what is wrong in its part and puts it right in a draft, so that the next one starts from sound rows and
says nothing twice. A check throws the draft away; a repair writes it in one transaction. Beside a mount only a check
makes sense: it reads a committed snapshot.

Memory: 9 bytes per directory, about 40 MB of counters, and the damage itself. Everything else is read in key order.
"""

from __future__ import annotations

import msgspec

from blockfs.tree.committed import CommittedView
from blockfs.tree.fsck.draft import Draft, World
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.leaves import adopt_strays, check_blocks, check_leaves, check_staged
from blockfs.tree.fsck.names import all_inodes, check_inodes, check_link_counts, check_names, remove_rows_of_nobody
from blockfs.tree.fsck.newer import check_failed, check_format, check_hot
from blockfs.tree.fsck.repaired import RepairedRows
from blockfs.tree.fsck.rows import check_meta, check_rows
from blockfs.tree.fsck.snapshots import check_snapshots
from blockfs.tree.schema import Table, decode_u64, u64


class Examination(msgspec.Struct, frozen=True, kw_only=True):
    """What was found.

    Attributes:
        draft: The repaired state, with findings and losses; not written.
        inodes: How many there are.
    """

    draft: Draft
    inodes: int


def examine(view: CommittedView, world: World) -> Examination:
    """Check all invariants, and work out the repairs.

    Args:
        view: A committed state; the draft reads it as long as it is used.
        world: What it has to fit to.
    """
    draft = Draft(RepairedRows(view.rows), world)
    check_rows(draft)
    check_meta(draft)
    check_inodes(draft)
    check_names(draft)
    remove_rows_of_nobody(draft)
    check_failed(draft)
    check_hot(draft)
    check_format(draft)
    if world.staged is not None:
        check_staged(draft, world.staged)
    check_leaves(draft)
    if world.staged is not None:
        adopt_strays(draft, world.staged)
    check_snapshots(draft)
    check_link_counts(draft)
    _check_journal(draft)
    if world.missing is not None:
        check_blocks(draft, world.missing)
    draft.finish()
    return Examination(draft=draft, inodes=sum(1 for _ in draft.rows.scan(Table.INODES)))


def _check_journal(draft: Draft) -> None:
    """One row per inode, at its version; older ones may have been trimmed. Rows of removed inodes are tombstones."""
    start = draft.journal_start()
    for key, row in draft.rows.scan(Table.JOURNAL):
        ino = decode_u64(row)
        inode = draft.inode(ino)
        if inode is not None and inode.version != decode_u64(key):
            detail = f"row {decode_u64(key)} is not the inode's latest change"
            draft.found(Problem.JOURNAL, ino, detail, "row removed")
            draft.rows.delete(Table.JOURNAL, key)
    for inode in all_inodes(draft):
        if inode.is_frozen:
            continue  # its versions are those of its original
        if inode.content_version > inode.version:
            detail = "content_version is later than version"
        elif inode.version > start and draft.rows.get(Table.JOURNAL, u64(inode.version)) != u64(inode.ino):
            detail = f"version {inode.version} has no journal row"
        else:
            continue
        draft.found(Problem.JOURNAL, inode.ino, detail, "journalled anew")
        draft.put_inode(inode)
