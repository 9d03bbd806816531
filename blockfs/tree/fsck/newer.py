"""fsck of rows that an older program does not know, and of the format number, which says whether there are some.

What the host failed to write is lost until it is written again, so it is named each time.
"""

from __future__ import annotations

from typing import Final

from blockfs.tree.fsck.draft import Draft
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.repaired import RepairedRows
from blockfs.tree.schema import (
    META_FAILED,
    META_FORMAT,
    META_HOT,
    FailedFlush,
    HotRow,
    HotState,
    Inode,
    Kind,
    Table,
    decode_failed_flush,
    decode_format,
    decode_hot,
    encode_format,
    format_with,
    hot_key,
)

_PAGE: Final = 4096
_WHAT: Final = "could not be written to the host's disk"


def check_hot(draft: Draft) -> None:
    """Drop rows of nobody, those above one per file that say that they are its content, and those without a file."""
    live: dict[int, int] = {}
    for key, value in reversed(list(draft.rows.scan(Table.META, META_HOT))):  # the newest first
        row = decode_hot(key, value)
        inode = draft.inode(row.ino)
        if inode is None or inode.kind is not Kind.FILE or inode.is_frozen:
            _drop(draft, row, Problem.STRAY_ROW, "a hot file of what is no file")
        elif row.state is not HotState.LEFT and row.ino in live:
            _drop(draft, row, Problem.STRAY_ROW, f"a second hot file beside {live[row.ino]}")
        elif draft.world.hot is not None and (row.ino, row.number) not in draft.world.hot:
            _drop(draft, row, Problem.MISSING_STAGING, "its hot file is gone")
            if row.state is HotState.BEHIND:
                draft.lost(row.ino, "what was written since it was sealed")
        elif row.state is not HotState.LEFT:
            live[row.ino] = row.number


def named_hot_files(draft: Draft) -> set[tuple[int, int]]:
    """(ino, number) of the hot files that rows name, the copies of those that were left included."""
    rows = [decode_hot(key, value) for key, value in draft.rows.scan(Table.META, META_HOT)]
    return {(row.ino, number) for row in rows for number in (row.number, row.base)}


def _drop(draft: Draft, row: HotRow, problem: Problem, what: str) -> None:
    draft.found(problem, row.ino, f"{what} (number {row.number})", "row removed")
    draft.rows.delete(Table.META, hot_key(row.ino, row.number))


def needed_format(rows: RepairedRows) -> int:
    """The format number that fits the rows."""
    has_failed, has_hot = (next(rows.scan(Table.META, kind), None) is not None for kind in (META_FAILED, META_HOT))
    return format_with(has_failed=has_failed, has_hot=has_hot)


def check_format(draft: Draft) -> None:
    """See that the format number says whether there are rows of failed flushes and hot files."""
    found, wanted = draft.rows.get(Table.META, META_FORMAT), needed_format(draft.rows)
    if found is not None and decode_format(found) != wanted:
        draft.found(
            Problem.META, None, f"format {decode_format(found)}, expected {wanted}", f"format {wanted} recorded"
        )
        draft.rows.put(Table.META, META_FORMAT, encode_format(wanted))


def check_failed(draft: Draft) -> None:
    """Name failed ranges, and drop the rows of nobody."""
    for key, value in list(draft.rows.scan(Table.META, META_FAILED)):
        row = decode_failed_flush(key, value)
        inode = draft.inode(row.ino)
        if inode is None or inode.kind is not Kind.FILE or inode.is_frozen:
            draft.found(Problem.STRAY_ROW, row.ino, "a failed flush of what is no file", "row removed")
            draft.rows.delete(Table.META, key)
            continue
        if row.runs:
            _name(draft, inode, row)


def _name(draft: Draft, inode: Inode, row: FailedFlush) -> None:
    ranges = [(first * _PAGE, min((first + pages) * _PAGE, inode.size_bytes)) for first, pages in row.runs]
    lost = [(start, end) for start, end in ranges if start < end]
    total = sum(end - start for start, end in lost)
    detail = f"{total} bytes {_WHAT}; they read as EIO until they are written again, or the file is removed"
    draft.found(Problem.FAILED_FLUSH, inode.ino, detail)
    for start, end in lost:
        draft.lost(inode.ino, _WHAT, start, end)
