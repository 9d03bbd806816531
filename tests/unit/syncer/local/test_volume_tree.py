from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from blockfs.control.protocol import NodeRow
from syncer.core.base import BaseIndex
from syncer.core.model import Kind, RelPath
from syncer.local.volume.changes import changed_runs
from syncer.local.volume.tree import UnresolvedError, from_base, overlaid, paths_by_inode, stat_of
from tests.unit.syncer.local.inodes import ROOTS, base_row, row


def paths(base: BaseIndex, rows: list[NodeRow], gone: list[int]) -> dict[int, list[bytes]]:
    nodes = overlaid(from_base(base), rows, gone)
    return {ino: sorted(found) for ino, found in paths_by_inode(nodes, ROOTS).items()}


LEVELS = 3000  # more than Python's calls go deep

BASE = BaseIndex(
    [base_row(1, 11, b"d", kind=Kind.DIRECTORY), base_row(2, 12, b"f", 1), base_row(3, 13, b"g"), base_row(4, 13, b"h")]
)


def test_without_changes_the_tree_is_the_bases_hard_links_included() -> None:
    assert paths(BASE, [], []) == {11: [b"d"], 12: [b"d/f"], 13: [b"g", b"h"]}


def test_a_renamed_directory_takes_along_what_is_below_it() -> None:
    assert paths(BASE, [row(11, (1, b"e"), kind="directory")], [13]) == {11: [b"e"], 12: [b"e/f"]}


def test_new_and_moved_inodes_lie_where_the_journal_says() -> None:
    rows = [row(20, (11, b"new")), row(12, (1, b"out"), (91, b"2-f"))]
    assert paths(BASE, rows, []) == {
        11: [b"d"],
        12: [b".blocksync/park/2-f", b"out"],
        13: [b"g", b"h"],
        20: [b"d/new"],
    }


def test_a_listing_that_does_not_fit_the_base_asks_for_a_full_one() -> None:
    with pytest.raises(UnresolvedError):
        paths(BASE, [row(20, (77, b"lost"))], [])
    with pytest.raises(UnresolvedError):
        paths(BASE, [], [11])
    with pytest.raises(UnresolvedError):
        from_base(BaseIndex([base_row(2, 12, b"f", 1)]))
    loop = [row(11, (14, b"d"), kind="directory"), row(14, (11, b"x"), kind="directory")]
    with pytest.raises(UnresolvedError):
        paths(BASE, loop, [])


def test_folders_may_be_nested_deeper_than_calls_go() -> None:
    """Breaks as a sync that no user of the volume gets any more."""
    rows = [row(101 + level, (100 + level, b"d"), kind="directory") for level in range(1, LEVELS)]
    rows.append(row(101, (1, b"d"), kind="directory"))
    found = paths(BaseIndex([]), [*rows[::-1], row(50, (100 + LEVELS, b"f"))], [])
    assert found[50] == [b"d/" * LEVELS + b"f"]


def test_special_files_are_no_nodes_and_evidence_is_inode_and_content_version() -> None:
    assert stat_of(row(5, (1, b"p"), kind="fifo"), RelPath(b"p")) is None
    stat = stat_of(row(5, (1, b"f")), RelPath(b"f"))
    assert stat is not None
    assert (stat.tag.ino, stat.tag.version, stat.tag.device, stat.tag.ctime_ns, stat.tag.btime_ns) == (5, 2, 0, 0, 0)


ids = st.lists(st.sampled_from([ZERO_BLOCK, block_id(b"a"), block_id(b"b")]), max_size=12)


@given(ids, ids)
def test_changed_runs_turn_the_old_list_into_the_new_one(new: list[bytes], old: list[bytes]) -> None:
    size = 4096
    target = BlockList(block_size=size, size_bytes=size * len(new), ids=b"".join(new))
    start = BlockList(block_size=size, size_bytes=size * len(old), ids=b"".join(old))
    made = bytearray(start.splice(target.size_bytes, {}).ids)
    for first, run in changed_runs(target, start):
        made[first * ID_SIZE : first * ID_SIZE + len(run)] = run
    assert bytes(made) == target.ids
