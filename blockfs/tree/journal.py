"""Numbers that are never used twice, and the bounded length of the change journal.

Sequences and inos are reserved durably ahead: the meta row `reserved` is always committed before, or together with,
the first row that uses a number near its end. A mount that did not end cleanly may have handed out any number below
that mark, so the next mount continues at it, under a new mount generation that voids all older cursors.

A copy has handed out none of what the original did after it was made, and would hand the same out again. It is told by
its file's time of birth, and gets a generation of another line (`LINE_BITS`). In a line, a greater one is later.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Final

import lmdb
from msgspec.structs import replace

from blockfs.errors import CorruptionError
from blockfs.tree.overlay import scan_snapshot
from blockfs.tree.schema import (
    LINE_BITS,
    META_BIRTH,
    META_JOURNAL_START,
    META_MOUNT,
    META_RESERVED,
    MountRow,
    Reserved,
    Table,
    decode_mount,
    decode_reserved,
    decode_u64,
    encode_mount,
    encode_reserved,
    u64,
)

RESERVE_STEP: Final = 1 << 20  # about a minute of the fastest metadata load, and 2**44 of them before 64 bits run out
JOURNAL_ROWS: Final = 1 << 20  # about 60 MiB; a cursor that is a million inodes behind is cheaper compared in full

_LINES: Final = 1 << 30  # together less than fsck's `NUMBER_LIMIT`
_BIRTH_NS: Final = 10**7  # as coarse as the coarsest filesystem: exFAT rounds when an inode is written, not before


class Numbers:
    """The next sequence and ino of one mount.

    Args:
        row: State at the begin of this mount.
        reserved: What is durably reserved.
    """

    def __init__(self, row: MountRow, reserved: Reserved) -> None:
        self._row = row
        self._sequence = row.sequence
        self._next_ino = row.next_ino
        self._reserved = reserved

    @property
    def last_sequence(self) -> int:
        """The greatest sequence handed out so far."""
        return self._sequence

    def take_sequence(self) -> int:
        """A sequence greater than all before."""
        self._sequence += 1
        return self._sequence

    def take_ino(self) -> int:
        """An ino that no inode ever had."""
        self._next_ino += 1
        return self._next_ino - 1

    def reserve(self) -> Reserved | None:
        """The reservation to commit with the current changes, when half of the last one is used up; else None."""
        left = min(self._reserved.sequence - self._sequence, self._reserved.ino - self._next_ino)
        if left >= RESERVE_STEP // 2:
            return None
        self._reserved = _reservation(self._sequence, self._next_ino)
        return self._reserved

    def clean_row(self) -> MountRow:
        """What to record when everything is committed and the mount ends."""
        return replace(self._row, clean=True, sequence=self._sequence, next_ino=self._next_ino)


def _reservation(sequence: int, next_ino: int) -> Reserved:
    return Reserved(sequence=sequence + RESERVE_STEP, ino=next_ino + RESERVE_STEP)


def begin_mount(
    transaction: lmdb.Transaction[bytes], meta: lmdb._Database, birth_ns: int | None
) -> tuple[Numbers, bool]:
    """Record that a mount is under way. The caller commits before it hands out any number.

    Args:
        transaction: To write.
        meta: Where the rows are.
        birth_ns: When the tree's file was made; None: the host does not say, and a copy is not told from the original.

    Returns:
        The numbers to go on with, and whether the last mount ended cleanly.

    Raises:
        CorruptionError: The rows are missing or damaged.
    """
    row, reserved, was_clean = _next_mount(transaction, meta)
    if birth_ns is not None:
        birth, known = u64(birth_ns // _BIRTH_NS), transaction.get(META_BIRTH, db=meta)
        if known is not None and known != birth:
            row = replace(row, generation=secrets.randbelow(_LINES - 1) + 1 << LINE_BITS)
        transaction.put(META_BIRTH, birth, db=meta)
    transaction.put(META_MOUNT, encode_mount(row), db=meta)
    transaction.put(META_RESERVED, encode_reserved(reserved), db=meta)
    return Numbers(row, reserved), was_clean


def begin_reading(transaction: lmdb.Transaction[bytes], meta: lmdb._Database) -> tuple[Numbers, bool]:
    """What `begin_mount` returns, for a mount that writes nothing: its numbers must never become durable."""
    row, reserved, was_clean = _next_mount(transaction, meta)
    return Numbers(row, reserved), was_clean


def _next_mount(transaction: lmdb.Transaction[bytes], meta: lmdb._Database) -> tuple[MountRow, Reserved, bool]:
    mount_value, reserved_value = transaction.get(META_MOUNT, db=meta), transaction.get(META_RESERVED, db=meta)
    if mount_value is None or reserved_value is None:
        raise CorruptionError("tree: the mount row is missing; this is no blocksync tree, or it is damaged")
    row, reserved = decode_mount(mount_value), decode_reserved(reserved_value)
    clean = row.clean
    if clean:
        row = replace(row, clean=False)
    else:
        row = MountRow(generation=row.generation + 1, clean=False, sequence=reserved.sequence, next_ino=reserved.ino)
    return row, _reservation(row.sequence, row.next_ino), clean


def trim(transaction: lmdb.Transaction[bytes], databases: list[lmdb._Database], limit: int) -> None:
    """Cut the oldest journal rows when there are more than `limit`, and record how far the journal reaches back."""
    journal, meta = databases[Table.JOURNAL], databases[Table.META]
    rows = int(transaction.stat(journal)["entries"])
    if rows <= limit:
        return
    # An eighth at a time: a commit that trims should be the exception.
    oldest = list(_first_keys(transaction, journal, rows - limit + limit // 8))
    for key in oldest:
        transaction.delete(key, db=journal)
    start = max(decode_u64(oldest[-1]), decode_u64(transaction.get(META_JOURNAL_START, db=meta) or u64(0)))
    transaction.put(META_JOURNAL_START, u64(start), db=meta)


def _first_keys(transaction: lmdb.Transaction[bytes], database: lmdb._Database, count: int) -> Iterator[bytes]:
    for _, (key, _value) in zip(range(count), scan_snapshot(transaction, database, b"", None), strict=False):
        yield key
