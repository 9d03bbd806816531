"""On-disk rows of the tree: what each sub-database holds, byte by byte. Pure.

All integers are big endian, so that LMDB's byte order of keys is the order of the numbers. `ino`, `sequence` and
`generation` are unsigned 64-bit; times are signed 64-bit nanoseconds since 1970-01-01 UTC (years 1677 to 2262).

| sub-database | key | value |
| --- | --- | --- |
| inodes | ino (8) | inode row, 79 bytes, in a snapshot 87, see `encode_inode` |
| dentries | parent ino (8), name (1-255) | child ino (8) |
| parents | child ino (8), parent ino (8), name (1-255) | empty; the reverse of dentries |
| leaf_map | ino (8), leaf index (8) | leaf key (32); an all-hole leaf has no row |
| leaves | leaf key (32) | 1 to 256 block ids (32 each), the last one no hole; immutable |
| leaf_refs | leaf key (32) | number of leaf_map rows with it (8), ids in it that are no holes (2) |
| leaf_roots | leaf key (32) | Merkle root (32) of the leaf padded with holes to 256 ids; a cache, may lack |
| allocations | ino (8) | ids in the inode's leaves that are no holes (8); no row means 0 |
| symlinks | ino (8) | target, 1 to 4095 bytes |
| xattrs | ino (8), name (1-255) | value, 0 to 65536 bytes |
| generations | ino (8), 1 TiB range (4), generation (8) | valid_below (8): offset in the file, 2**63-1 = no limit |
| orphans | ino (8) | empty; an inode without a name, removed at the next mount |
| journal | sequence (8) | ino (8) of the inode whose latest change it was; at most one row per inode |
| snapshots | ino (8) of a snapshot's top | see `encode_snapshot`; only once the snapshot is complete |
| copies | snapshot's top ino (8), original ino (8) | ino (8) of the original's copy in that snapshot |
| meta | name | see below |

| meta row | value |
| --- | --- |
| format | format number (4) |
| mount | mount generation (8), clean (1: 0 or 1), last sequence used (8), next ino (8); the last two hold when clean |
| reserved | sequences up to this one may have been used (8), inos below this one may have been used (8) |
| failed + ino (8) | see `encode_failed_flush`: what of this file the host failed to write; from format 3 on |
| hot + ino (8) + number (8) | see `encode_hot`: a hot file of this file; only in format 4 |
| birth | when data.mdb was made, in units of 10 ms since 1970 (8): later in a copy; optional |
| journal_start | the latest sequence that was trimmed (8): a cursor before it needs a full comparison |
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum
from typing import Final

import msgspec

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, PADDING_ID, ZERO_BLOCK
from blockfs.errors import CorruptionError

PLAIN_FORMAT: Final = 2
"""Format 2 is format 1 and snapshots: two more sub-databases, the inode `SNAPSHOTS_INO`, longer inode rows."""

FAILED_FORMAT: Final = 3
"""Format 3 is format 2 while it has rows `failed`: who does not know them would show bytes that were never written."""

FORMAT: Final = 4
"""Format 4 is format 2 or 3 while it has rows `hot`: who does not know them would show what a file was before them."""

ROOT_INO: Final = 1
SNAPSHOTS_INO: Final = 2**63 - 1
"""The directory of all snapshots. It has no name of its own in the tree: see `SNAPSHOTS_NAME`."""

TOP_INOS: Final = frozenset({ROOT_INO, SNAPSHOTS_INO})
"""Directories without a name in the tree: everything else hangs on one of them."""

SNAPSHOTS_NAME: Final = b".snapshots"
"""What leads from the root to `SNAPSHOTS_INO`. No entry of the root has this name."""

UNFINISHED_PREFIX: Final = b"/"
"""Begins the names in `SNAPSHOTS_INO` of what is being made or removed: no lookup can ask for such a name."""

NAME_MAX: Final = 255  # bytes of one name: what Linux and LMDB's 511-byte keys both carry
NO_LIMIT: Final = 2**63 - 1  # `Generation.valid_below` of a generation that no shrink has cut

RANGE_BYTES: Final = 1 << 40
"""A staging file holds one range of this size: host filesystems end near 16 TiB (architecture, section 4)."""

SYMLINK_TARGET_MAX: Final = 4095  # PATH_MAX without its NUL
XATTR_VALUE_MAX: Final = 65536  # XATTR_SIZE_MAX of Linux
MAX_TOTAL_BYTES: Final = 2**64 - 1  # of files together, as a row and a message hold it: three of the largest have more


class Table(IntEnum):
    """The sub-databases. The number is an index in memory only; on disk the lower-case name counts."""

    INODES = 0
    DENTRIES = 1
    PARENTS = 2
    LEAF_MAP = 3
    LEAVES = 4
    LEAF_REFS = 5
    LEAF_ROOTS = 6
    ALLOCATIONS = 7
    SYMLINKS = 8
    XATTRS = 9
    GENERATIONS = 10
    ORPHANS = 11
    JOURNAL = 12
    META = 13
    SNAPSHOTS = 14
    COPIES = 15


SCANNED: Final = frozenset(
    {Table.DENTRIES, Table.PARENTS, Table.LEAF_MAP, Table.XATTRS, Table.GENERATIONS, Table.ORPHANS}
)
"""Sub-databases that are read in key order before their changes are committed."""

LINE_BITS: Final = 32  # mount generations of one line have the upper bits in common: 0, in a copy any others
META_FORMAT: Final = b"format"
META_MOUNT: Final = b"mount"
META_RESERVED: Final = b"reserved"
META_JOURNAL_START: Final = b"journal_start"
META_FAILED: Final = b"failed"
META_HOT: Final = b"hot"
META_BIRTH: Final = b"birth"


class Kind(Enum):
    """What an inode is. The value is its S_IFMT bits, as in st_mode."""

    FILE = 0o100000
    DIRECTORY = 0o040000
    SYMLINK = 0o120000
    FIFO = 0o010000
    SOCKET = 0o140000
    CHARACTER = 0o020000
    BLOCK = 0o060000


class Inode(msgspec.Struct, frozen=True, kw_only=True):
    """One inode row.

    Attributes:
        ino: 1 is the root directory. Never reused.
        kind: File, directory, …
        mode: Permission bits with setuid, setgid and sticky, 0o7777 at most.
        uid: Owner.
        gid: Group.
        nlink: Names of a file; 2 plus subdirectories for a directory; 0 for an orphan.
        size_bytes: Files: published size, at most 2**63-1. Symlinks: length of the target. Others: 0.
        atime_ns: Last access, kept as relatime does and not durable by itself.
        mtime_ns: Last change of the content.
        ctime_ns: Last change of anything.
        btime_ns: Creation.
        rdev: Device number of a character or block device as in st_rdev, else 0.
        version: Sequence of the last journalled change of any kind: the key of its journal row.
        content_version: Sequence of the last change of content (files), names (directories: never set) or target.
        origin: 0, or in a snapshot the ino of the original. Such an inode never changes, is not journalled, and its
            versions are those of the original at the snapshot's instant. `SNAPSHOTS_INO` has itself as its origin.
    """

    ino: int
    kind: Kind
    mode: int
    uid: int
    gid: int
    nlink: int
    size_bytes: int = 0
    atime_ns: int
    mtime_ns: int
    ctime_ns: int
    btime_ns: int
    rdev: int = 0
    version: int = 0
    content_version: int = 0
    origin: int = 0

    @property
    def is_frozen(self) -> bool:
        """Whether it belongs to a snapshot."""
        return self.origin != 0


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A live staging file: data of one inode and 1 TiB range, written but not sealed.

    Attributes:
        ino: Whose data.
        range_index: Which 1 TiB range of the file.
        generation: Higher is newer within one inode and range.
        valid_below: Byte offset in the file from where on its pages are void (a shrink cut them), or `NO_LIMIT`.
    """

    ino: int
    range_index: int
    generation: int
    valid_below: int = NO_LIMIT


class FailedFlush(msgspec.Struct, frozen=True, kw_only=True):
    """What the host failed to write of a file.

    Attributes:
        ino: The file.
        code: The errno of the newest failure.
        is_told: Somebody who synced the file was told of it.
        runs: (first page, pages) of what must not be read until it is written again, ascending; pages of 4096 bytes.
    """

    ino: int
    code: int
    is_told: bool
    runs: tuple[tuple[int, int], ...]


class HotState(IntEnum):
    """What a hot file is to its file."""

    SEALED = 0
    """It is the content, and so are the leaves, of the row's content version."""
    BEHIND = 1
    """It is the content; the leaves tell an older one."""
    LEFT = 2
    """It was the content in a mount that died; somebody may still write into it."""


class HotRow(msgspec.Struct, frozen=True, kw_only=True):
    """A hot file: `hot/INO.NUMBER` in the volume.

    Attributes:
        ino: The file.
        number: Of the hot file; never used twice for an ino.
        state: What it is to the file. One at most is not LEFT.
        base: Of one that is LEFT the number of its copy, as it was when it was left; else 0.
    """

    ino: int
    number: int
    state: HotState
    base: int = 0


class Cursor(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A place in the change journal.

    Attributes:
        mount_generation: Changes at each unclean end, and in a copy; cursors of another generation are void.
        sequence: All changes up to this one were seen.
    """

    mount_generation: int
    sequence: int


class SnapshotRow(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a snapshot.

    Attributes:
        created_ns: When it was asked for.
        mount_generation: With `sequence`: where the journal stood at its instant.
        sequence: All changes up to this one are in it.
        files: Regular files in it, hard links once.
        logical_bytes: Sum of their sizes.
        source: Path of the original at the instant, relative to the root; b"" is the root.
    """

    created_ns: int
    mount_generation: int
    sequence: int
    files: int
    logical_bytes: int
    source: bytes


class MountRow(msgspec.Struct, frozen=True, kw_only=True):
    """The meta row `mount`: see the module's table."""

    generation: int
    clean: bool
    sequence: int
    next_ino: int


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """The meta row `reserved`: numbers up to here may have been used by a mount that did not end cleanly."""

    sequence: int
    ino: int


# kind >> 12, mode, uid, gid, nlink, size, atime, mtime, ctime, btime, rdev, version, content_version
_INODE = struct.Struct(">BHIIIQqqqqQQQ")
_FROZEN_INODE = struct.Struct(_INODE.format + "Q")  # the same, origin
_SNAPSHOT = struct.Struct(">qQQQQ")
_U64 = struct.Struct(">Q")
_U64_PAIR = struct.Struct(">QQ")
_GENERATION_KEY = struct.Struct(">QIQ")
_LEAF_REF = struct.Struct(">QH")
_MOUNT = struct.Struct(">QBQQ")
_U32 = struct.Struct(">I")
_FAILED = struct.Struct(">IB")
_HOT = struct.Struct(">BQ")
_KINDS: Final = {kind.value >> 12: kind for kind in Kind}
_KIND_BYTES: Final = {kind: kind.value >> 12 for kind in Kind}

u64 = _U64.pack
"""Encode an ino, a sequence or a count: 8 bytes, big endian."""


def encode_inode(inode: Inode) -> bytes:
    """Encode the value of an inodes row.

    Bytes: kind (1: S_IFMT >> 12), mode (2), uid (4), gid (4), nlink (4), size (8), atime, mtime, ctime, btime (8 each,
    signed), rdev (8), version (8), content_version (8); in a snapshot also origin (8).
    """
    fields = (
        _KIND_BYTES[inode.kind],
        inode.mode,
        inode.uid,
        inode.gid,
        inode.nlink,
        inode.size_bytes,
        inode.atime_ns,
        inode.mtime_ns,
        inode.ctime_ns,
        inode.btime_ns,
        inode.rdev,
        inode.version,
        inode.content_version,
    )
    return _FROZEN_INODE.pack(*fields, inode.origin) if inode.is_frozen else _INODE.pack(*fields)


def decode_inode(ino: int, row: bytes) -> Inode:
    """Decode the value of an inodes row.

    Raises:
        CorruptionError: Wrong length or an unknown kind.
    """
    try:
        origin = 0
        if len(row) == _FROZEN_INODE.size:
            (origin,) = _U64.unpack(row[_INODE.size :])
            row = row[: _INODE.size]
        kind, mode, uid, gid, nlink, size, atime, mtime, ctime, btime, rdev, version, content = _INODE.unpack(row)
        return Inode(
            ino=ino,
            kind=_KINDS[kind],
            mode=mode,
            uid=uid,
            gid=gid,
            nlink=nlink,
            size_bytes=size,
            atime_ns=atime,
            mtime_ns=mtime,
            ctime_ns=ctime,
            btime_ns=btime,
            rdev=rdev,
            version=version,
            content_version=content,
            origin=origin,
        )
    except (struct.error, KeyError) as error:
        raise CorruptionError(f"tree: inode row {ino} is damaged ({error}); run `blocksync fsck`") from None


def decode_u64(row: bytes) -> int:
    """Decode 8 bytes, big endian.

    Raises:
        CorruptionError: Not 8 bytes.
    """
    try:
        (number,) = _U64.unpack(row)
    except struct.error:
        raise CorruptionError(f"tree: a number of {len(row)} bytes, expected 8; run `blocksync fsck`") from None
    return int(number)


def ino_key(ino: int, rest: bytes = b"") -> bytes:
    """Key of a row that belongs to an inode: dentries (of the directory), xattrs and so on."""
    return _U64.pack(ino) + rest


def split_ino_key(key: bytes) -> tuple[int, bytes]:
    """The ino that a key starts with, and the rest."""
    return int.from_bytes(key[:8], "big"), key[8:]


def parent_key(child: int, parent: int, name: bytes) -> bytes:
    """Key of a parents row."""
    return _U64_PAIR.pack(child, parent) + name


def split_parent_key(key: bytes) -> tuple[int, int, bytes]:
    """Child, parent and name of a parents row."""
    return int.from_bytes(key[:8], "big"), int.from_bytes(key[8:16], "big"), key[16:]


leaf_map_key = _U64_PAIR.pack
"""Key of a leaf_map row: (ino, leaf index)."""


def decode_leaf_map_key(key: bytes) -> tuple[int, int]:
    """Reverse of `leaf_map_key`.

    Raises:
        CorruptionError: It is none.
    """
    try:
        ino, index = _U64_PAIR.unpack(key)
    except struct.error:
        raise CorruptionError(f"tree: the key {key.hex()} of a leaf is damaged; run `blocksync fsck`") from None
    return ino, index


def encode_generation(generation: Generation) -> tuple[bytes, bytes]:
    """Key and value of a generations row."""
    key = _GENERATION_KEY.pack(generation.ino, generation.range_index, generation.generation)
    return key, _U64.pack(generation.valid_below)


def decode_generation(key: bytes, row: bytes) -> Generation:
    """Decode a generations row.

    Raises:
        CorruptionError: Wrong length.
    """
    try:
        ino, range_index, number = _GENERATION_KEY.unpack(key)
    except struct.error:
        raise CorruptionError(f"tree: generation key {key.hex()} is damaged; run `blocksync fsck`") from None
    return Generation(ino=ino, range_index=range_index, generation=number, valid_below=decode_u64(row))


def failed_flush_key(ino: int) -> bytes:
    """Key of the meta row `failed` of a file."""
    return META_FAILED + _U64.pack(ino)


def encode_failed_flush(row: FailedFlush) -> bytes:
    """Value of a meta row `failed`: errno (4), told (1: 0 or 1), then first page (8) and pages (8) of each run."""
    return _FAILED.pack(row.code, row.is_told) + b"".join(_U64_PAIR.pack(*run) for run in row.runs)


def decode_failed_flush(key: bytes, row: bytes) -> FailedFlush:
    """Decode a meta row `failed`.

    Raises:
        CorruptionError: Wrong length.
    """
    try:
        (ino,) = _U64.unpack(key[len(META_FAILED) :])
        code, is_told = _FAILED.unpack_from(row)
        runs = tuple(_U64_PAIR.iter_unpack(row[_FAILED.size :]))
    except struct.error:
        raise CorruptionError(f"tree: the row {key.hex()} of a failed flush is damaged; run `blocksync fsck`") from None
    return FailedFlush(ino=ino, code=code, is_told=bool(is_told), runs=runs)


def hot_key(ino: int, number: int) -> bytes:
    """Key of the meta row of a hot file."""
    return META_HOT + _U64_PAIR.pack(ino, number)


def encode_hot(row: HotRow) -> bytes:
    """Value of the meta row of a hot file: state (1: 0 sealed, 1 behind, 2 left), base (8)."""
    return _HOT.pack(row.state, row.base)


def decode_hot(key: bytes, row: bytes) -> HotRow:
    """Decode the meta row of a hot file.

    Raises:
        CorruptionError: Wrong length, or no such state.
    """
    try:
        ino, number = _U64_PAIR.unpack(key[len(META_HOT) :])
        state, base = _HOT.unpack(row)
        return HotRow(ino=ino, number=number, state=HotState(state), base=base)
    except (struct.error, ValueError):
        raise CorruptionError(f"tree: the row {key.hex()} of a hot file is damaged; run `blocksync fsck`") from None


def format_with(*, has_failed: bool, has_hot: bool) -> int:
    """The format number of a tree with such rows."""
    return FORMAT if has_hot else FAILED_FORMAT if has_failed else PLAIN_FORMAT


def encode_leaf_ref(references: int, blocks: int) -> bytes:
    """Value of a leaf_refs row: references (8), ids that are no holes (2)."""
    return _LEAF_REF.pack(references, blocks)


def decode_leaf_ref(row: bytes) -> tuple[int, int]:
    """References and ids that are no holes.

    Raises:
        CorruptionError: Wrong length.
    """
    try:
        references, blocks = _LEAF_REF.unpack(row)
    except struct.error:
        raise CorruptionError(f"tree: a leaf count of {len(row)} bytes, expected 10; run `blocksync fsck`") from None
    return references, blocks


copy_key = _U64_PAIR.pack
"""Key of a copies row: (ino of the snapshot's top, ino of the original)."""


def encode_snapshot(row: SnapshotRow) -> bytes:
    """Value of a snapshots row.

    Bytes: created (8, signed ns), mount generation (8), sequence (8), files (8), their bytes (8), source (the rest).
    """
    fixed = _SNAPSHOT.pack(row.created_ns, row.mount_generation, row.sequence, row.files, row.logical_bytes)
    return fixed + row.source


def decode_snapshot(row: bytes) -> SnapshotRow:
    """Decode a snapshots row.

    Raises:
        CorruptionError: Too short.
    """
    try:
        created_ns, generation, sequence, files, logical_bytes = _SNAPSHOT.unpack_from(row)
    except struct.error:
        raise CorruptionError(f"tree: a snapshot row of {len(row)} bytes; run `blocksync fsck`") from None
    return SnapshotRow(
        created_ns=created_ns,
        mount_generation=generation,
        sequence=sequence,
        files=files,
        logical_bytes=logical_bytes,
        source=row[_SNAPSHOT.size :],
    )


def encode_mount(row: MountRow) -> bytes:
    """Value of the meta row `mount`."""
    return _MOUNT.pack(row.generation, row.clean, row.sequence, row.next_ino)


def decode_mount(row: bytes) -> MountRow:
    """Decode the meta row `mount`.

    Raises:
        CorruptionError: Wrong length.
    """
    try:
        generation, clean, sequence, next_ino = _MOUNT.unpack(row)
    except struct.error:
        raise CorruptionError("tree: the mount row is damaged; run `blocksync fsck`") from None
    return MountRow(generation=generation, clean=bool(clean), sequence=sequence, next_ino=next_ino)


def encode_reserved(row: Reserved) -> bytes:
    """Value of the meta row `reserved`."""
    return _U64_PAIR.pack(row.sequence, row.ino)


def decode_reserved(row: bytes) -> Reserved:
    """Decode the meta row `reserved`.

    Raises:
        CorruptionError: Wrong length.
    """
    try:
        sequence, ino = _U64_PAIR.unpack(row)
    except struct.error:
        raise CorruptionError("tree: the row of reserved numbers is damaged; run `blocksync fsck`") from None
    return Reserved(sequence=sequence, ino=ino)


def encode_format(number: int) -> bytes:
    """Value of the meta row `format`."""
    return _U32.pack(number)


def decode_format(row: bytes | None) -> int:
    """Decode the meta row `format`.

    Raises:
        CorruptionError: Missing or of the wrong length.
    """
    if row is None or len(row) != _U32.size:
        raise CorruptionError("tree: no readable format number; this is no blocksync tree, or it is damaged")
    (number,) = _U32.unpack(row)
    return int(number)


def canonical_leaf(ids: bytes) -> bytes:
    """Cut trailing holes: what is stored. b"" is an all-hole leaf, which is not stored.

    Ids past the end of a stored leaf are holes, so growing a file changes no leaf.
    """
    assert len(ids) % ID_SIZE == 0
    assert len(ids) <= LEAF_IDS * ID_SIZE
    end = len(ids)
    while end and ids[end - ID_SIZE : end] == ZERO_BLOCK:
        end -= ID_SIZE
    return ids[:end]


def non_holes(ids: bytes) -> int:
    """How many of the ids are no holes. Refuses the Merkle padding, which names no block."""
    # An unaligned occurrence of either needle would be a SHA-256 preimage of a chosen pattern.
    assert ids.find(PADDING_ID) < 0 or all(ids[at : at + ID_SIZE] != PADDING_ID for at in range(0, len(ids), ID_SIZE))
    return len(ids) // ID_SIZE - ids.count(ZERO_BLOCK)
