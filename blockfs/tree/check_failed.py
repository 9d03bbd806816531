"""fsck of what the host failed to write: it is lost until it is written again, so it is named each time."""

from __future__ import annotations

from typing import Final

from blockfs.tree.draft import Draft
from blockfs.tree.findings import Problem
from blockfs.tree.schema import (
    FORMAT,
    META_FAILED,
    META_FORMAT,
    PLAIN_FORMAT,
    FailedFlush,
    Inode,
    Kind,
    Table,
    decode_failed_flush,
    decode_format,
    encode_format,
)

_PAGE: Final = 4096
_WHAT: Final = "could not be written to the host's disk"


def check_failed(draft: Draft) -> None:
    """Name failed ranges, drop the rows of nobody, and see that the format number says whether there are rows."""
    is_needed = False
    for key, value in list(draft.rows.scan(Table.META, META_FAILED)):
        row = decode_failed_flush(key, value)
        inode = draft.inode(row.ino)
        if inode is None or inode.kind is not Kind.FILE or inode.is_frozen:
            draft.found(Problem.STRAY_ROW, row.ino, "a failed flush of what is no file", "row removed")
            draft.rows.delete(Table.META, key)
            continue
        is_needed = True
        if row.runs:
            _name(draft, inode, row)
    found = draft.rows.get(Table.META, META_FORMAT)
    wanted = FORMAT if is_needed else PLAIN_FORMAT
    if found is not None and decode_format(found) != wanted:
        draft.found(
            Problem.META, None, f"format {decode_format(found)}, expected {wanted}", f"format {wanted} recorded"
        )
        draft.rows.put(Table.META, META_FORMAT, encode_format(wanted))


def _name(draft: Draft, inode: Inode, row: FailedFlush) -> None:
    ranges = [(first * _PAGE, min((first + pages) * _PAGE, inode.size_bytes)) for first, pages in row.runs]
    lost = [(start, end) for start, end in ranges if start < end]
    total = sum(end - start for start, end in lost)
    detail = f"{total} bytes {_WHAT}; they read as EIO until they are written again, or the file is removed"
    draft.found(Problem.FAILED_FLUSH, inode.ino, detail)
    for start, end in lost:
        draft.lost(inode.ino, _WHAT, start, end)
