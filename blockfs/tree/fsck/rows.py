"""fsck, first steps: rows that can't be what their table holds go, and the rows about the tree itself are made good.

After them every row decodes, so all further steps may use the typed reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE
from blockfs.errors import CorruptionError
from blockfs.runtime.output import shown
from blockfs.tree.fsck.draft import Draft, numbers_of
from blockfs.tree.fsck.findings import Problem
from blockfs.tree.fsck.newer import needed_format
from blockfs.tree.journal import RESERVE_STEP
from blockfs.tree.schema import (
    META_BIRTH,
    META_FAILED,
    META_FORMAT,
    META_HOT,
    META_JOURNAL_START,
    META_MOUNT,
    META_RESERVED,
    NAME_MAX,
    ROOT_INO,
    SNAPSHOTS_INO,
    SYMLINK_TARGET_MAX,
    UNFINISHED_PREFIX,
    XATTR_VALUE_MAX,
    MountRow,
    Reserved,
    Table,
    decode_failed_flush,
    decode_format,
    decode_hot,
    decode_inode,
    decode_mount,
    decode_reserved,
    decode_snapshot,
    decode_u64,
    encode_format,
    encode_mount,
    encode_reserved,
    split_ino_key,
    split_parent_key,
)

NUMBER_LIMIT: Final = 1 << 62  # no volume gets there: 2**44 mounts that end uncleanly
SIZE_LIMIT: Final = 2**63 - 1


def check_rows(draft: Draft) -> None:
    """Remove every row that does not decode. What it stood for is missing from then on, and found missing later."""
    for table in Table:
        is_sound = _RULES.get(table)
        if is_sound is None:
            continue
        for key, row in draft.rows.scan(table):
            if not is_sound(key, row, draft.world.block_size):
                name = table.name.lower()
                detail = f"{name}: key {key.hex()} with {len(row)} bytes makes no sense"
                draft.found(Problem.BAD_ROW, _ino_of(table, key), detail, "row removed")
                draft.rows.delete(table, key)
                if table is Table.XATTRS:
                    draft.lost(split_ino_key(key)[0], f"extended attribute {shown(key[8:])}")


def check_meta(draft: Draft) -> None:
    """Make good the rows about the tree; afterwards numbers can be handed out."""
    rows = draft.rows
    if rows.get(Table.META, META_FORMAT) is None:
        # The volume's own format was read before, and is not newer.
        found = needed_format(rows)
        rows.put(Table.META, META_FORMAT, encode_format(found))
        draft.found(Problem.META, None, "the format number is missing", f"format {found} recorded")
    mount, reserved = numbers_of(rows)
    sequence, ino = _greatest(draft)
    if reserved is None or mount is None:
        reserved = Reserved(sequence=sequence + RESERVE_STEP, ino=ino + RESERVE_STEP)
        # A generation that no cursor can have: there were never so many mounts as seconds.
        generation = draft.world.now_ns // 10**9 if mount is None else mount.generation
        mount = MountRow(generation=generation, clean=False, sequence=0, next_ino=0)
        draft.found(Problem.META, None, "the row of the last mount or of reserved numbers is missing", "made anew")
        rows.put(Table.META, META_MOUNT, encode_mount(mount))
    used_sequence, used_ino = max(sequence, reserved.sequence), max(ino + 1, reserved.ino)
    if (used_sequence, used_ino) != (reserved.sequence, reserved.ino):
        detail = f"sequence {sequence} or inode {ino} is past the reserved {reserved.sequence} and {reserved.ino}"
        draft.found(Problem.JOURNAL, None, detail, "reserved")
        reserved = Reserved(sequence=used_sequence, ino=used_ino)
    if mount.clean and (mount.sequence < sequence or mount.next_ino <= ino):
        detail = f"sequence {sequence} or inode {ino} is past those of the last mount"
        draft.found(Problem.META, None, detail, "last mount taken for unclean")
        mount = MountRow(generation=mount.generation, clean=False, sequence=0, next_ino=0)
        rows.put(Table.META, META_MOUNT, encode_mount(mount))
    if rows.get(Table.META, META_RESERVED) != encode_reserved(reserved):
        rows.put(Table.META, META_RESERVED, encode_reserved(reserved))
    draft.begin_numbers(mount, reserved)


def _greatest(draft: Draft) -> tuple[int, int]:
    """The greatest sequence and the greatest ino that any row uses."""
    sequence, ino = draft.journal_start(), ROOT_INO
    for key, row in draft.rows.scan(Table.INODES):
        number = split_ino_key(key)[0]
        sequence = max(sequence, decode_inode(number, row).version)
        ino = ino if number == SNAPSHOTS_INO else number
    for key, row in draft.rows.scan(Table.JOURNAL):
        sequence, ino = max(sequence, decode_u64(key)), max(ino, decode_u64(row))
    for table in (Table.DENTRIES, Table.PARENTS, Table.LEAF_MAP, Table.GENERATIONS):
        for key, row in draft.rows.scan(table):
            numbers = {split_ino_key(key)[0], decode_u64(row) if table is Table.DENTRIES else 0}
            ino = max(ino, *(numbers - {SNAPSHOTS_INO}))
    return sequence, ino


def _ino_of(table: Table, key: bytes) -> int | None:
    return split_ino_key(key)[0] if table in _BY_INO and len(key) >= 8 else None


_BY_INO: Final = frozenset(Table) - {Table.LEAVES, Table.LEAF_REFS, Table.LEAF_ROOTS, Table.JOURNAL, Table.META}


def is_name(name: bytes) -> bool:
    """Whether a directory may hold this name."""
    return 0 < len(name) <= NAME_MAX and b"/" not in name and b"\0" not in name and name not in {b".", b".."}


def _is_entry(parent: int, name: bytes) -> bool:
    is_unfinished = parent == SNAPSHOTS_INO and name.startswith(UNFINISHED_PREFIX)
    return is_name(name.removeprefix(UNFINISHED_PREFIX) if is_unfinished else name)


def _is_ino(number: int) -> bool:
    return 0 < number < NUMBER_LIMIT or number == SNAPSHOTS_INO


def _inode(key: bytes, row: bytes, _: int) -> bool:
    if len(key) != 8 or not _is_ino(ino := split_ino_key(key)[0]):
        return False
    try:
        inode = decode_inode(ino, row)
    except CorruptionError:
        return False
    numbers_fit = max(inode.version, inode.content_version) < NUMBER_LIMIT
    return numbers_fit and inode.mode <= 0o7777 and inode.size_bytes <= SIZE_LIMIT


def _dentry(key: bytes, row: bytes, _: int) -> bool:
    return (
        len(row) == 8 and _is_ino(decode_u64(row)) and _is_ino(split_ino_key(key)[0]) and _is_entry(*split_ino_key(key))
    )


def _parent(key: bytes, row: bytes, _: int) -> bool:
    child, parent, name = split_parent_key(key)
    return not row and _is_ino(child) and _is_ino(parent) and _is_entry(parent, name)


def _leaf_map(key: bytes, row: bytes, block_size: int) -> bool:
    if len(key) != 16 or len(row) != ID_SIZE or not _is_ino(split_ino_key(key)[0]):
        return False
    return (decode_u64(key[8:]) + 1) * LEAF_IDS * block_size <= SIZE_LIMIT + 1


def _leaf_reference(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == ID_SIZE and len(row) == 10


def _leaf_root(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == len(row) == ID_SIZE


def _number(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == len(row) == 8 and _is_ino(split_ino_key(key)[0])


def _symlink(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == 8 and _is_ino(split_ino_key(key)[0]) and 0 < len(row) <= SYMLINK_TARGET_MAX


def _xattr(key: bytes, row: bytes, _: int) -> bool:
    return 8 < len(key) <= 8 + NAME_MAX and _is_ino(split_ino_key(key)[0]) and len(row) <= XATTR_VALUE_MAX


def _generation(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == 20 and len(row) == 8 and _is_ino(split_ino_key(key)[0]) and decode_u64(row) <= SIZE_LIMIT


def _orphan(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == 8 and not row and _is_ino(split_ino_key(key)[0])


def _journal(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == len(row) == 8 and 0 < decode_u64(key) < NUMBER_LIMIT and _is_ino(decode_u64(row))


def _snapshot(key: bytes, row: bytes, _: int) -> bool:
    try:
        decode_snapshot(row)
    except CorruptionError:
        return False
    return len(key) == 8 and _is_ino(split_ino_key(key)[0])


def _copy(key: bytes, row: bytes, _: int) -> bool:
    return len(key) == 16 and len(row) == 8


def _meta(key: bytes, row: bytes, _: int) -> bool:
    try:
        numbers = [0]
        if key == META_FORMAT:
            decode_format(row)
        elif key == META_MOUNT:
            mount = decode_mount(row)
            numbers = [mount.generation, mount.sequence, mount.next_ino]
        elif key == META_RESERVED:
            reserved = decode_reserved(row)
            numbers = [reserved.sequence, reserved.ino]
        elif key in (META_JOURNAL_START, META_BIRTH):
            numbers = [decode_u64(row)]
        elif key.startswith(META_FAILED):
            failed = decode_failed_flush(key, row)
            numbers = [failed.ino, *(first + pages for first, pages in failed.runs)]
        elif key.startswith(META_HOT):
            hot = decode_hot(key, row)
            numbers = [hot.ino, hot.number, hot.base]
    except CorruptionError:
        return False
    return max(numbers) < NUMBER_LIMIT


_RULES: Final[dict[Table, Callable[[bytes, bytes, int], bool]]] = {
    Table.INODES: _inode,
    Table.DENTRIES: _dentry,
    Table.PARENTS: _parent,
    Table.LEAF_MAP: _leaf_map,
    # A leaf's ids are looked at with its key, in check_leaves: what can be kept of a damaged one is kept.
    Table.LEAF_REFS: _leaf_reference,
    Table.LEAF_ROOTS: _leaf_root,
    Table.ALLOCATIONS: _number,
    Table.SYMLINKS: _symlink,
    Table.XATTRS: _xattr,
    Table.GENERATIONS: _generation,
    Table.ORPHANS: _orphan,
    Table.JOURNAL: _journal,
    Table.META: _meta,
    Table.SNAPSHOTS: _snapshot,
    Table.COPIES: _copy,
}
