"""What tests ask of a tree's committed state, and the program does not."""

from __future__ import annotations

from blockfs.tree.committed import CommittedView
from blockfs.tree.fsck.check import examine
from blockfs.tree.fsck.draft import MissingBlocks, World
from blockfs.tree.fsck.findings import Finding
from blockfs.tree.schema import Table, decode_u64


def check(view: CommittedView, block_size: int, missing: MissingBlocks | None = None) -> list[Finding]:
    """Which invariants are broken; see `examine`."""
    return examine(view, World(block_size=block_size, missing=missing)).draft.findings


def journal_rows(view: CommittedView) -> list[tuple[int, int]]:
    """All journal rows: (sequence, ino)."""
    return [(decode_u64(key), decode_u64(row)) for key, row in view.rows.scan(Table.JOURNAL)]
