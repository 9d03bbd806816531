"""The index: block id → place, in LMDB. Also the counters, states and marks that the other parts share.

Databases (numbers are big endian, so that keys sort by value):

| name | key | value |
|---|---|---|
| blocks | block id (32) | row (22), below |
| segments | number (4) | state (1), rows (8), canonical bytes of these rows (8) |
| free | segment (4), offset (4) | length (4): payload without a row, to be punched; see `pack_place` |
| garbage | number (8) | places that sweeps freed, to be punched; see `freed.py` |
| pins | owner UUID (16), block id (32) | nothing |
| meta | name | unsigned number (8), but `uuid`: 16 bytes |

meta: `format`; `uuid` of the block directory; `epoch`, the current one; `swept`, the newest epoch whose collection is
over; `next_segment`, the lowest number never used; `appended`, canonical bytes stored since creation; `collected`, the
value of `appended` at the last collection.

Row:

| offset | bytes | field |
|---|---|---|
| 0 | 4 | segment number |
| 4 | 4 | offset of the payload in the segment, in bytes; with codec 2 in pages of 4096 |
| 8 | 4 | stored length: bytes of the payload |
| 12 | 4 | length of the canonical block, 1 to block size |
| 16 | 1 | codec; 0 = raw, 1 = zstd, 2 = raw in an adopted segment |
| 17 | 1 | flags; bit 0 = quarantined: the payload doesn't have this id, the next put replaces it |
| 18 | 4 | epoch of the last put or claim |

Invariants: a row that is visible points to durable payload of exactly this id (until the disk decays). A segment's
counters equal the number and lengths of the rows that point into it, in the same transaction.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

import lmdb
from lmdb import _Database

from blockfs.blocks.disk import Disk
from blockfs.blocks.environment import close_environment, lmdb_error, open_databases, open_environment
from blockfs.blocks.ids import BlockId
from blockfs.blocks.layout import REPAIR_ADVICE, Format
from blockfs.blocks.segment import ADOPTED, PAGE, RAW, ZSTD, Record, pack_place
from blockfs.errors import CorruptionError, FormatTooNewError

FORMAT: Final = 1
BATCH_ROWS: Final = 512
"""Rows changed per write transaction: a few milliseconds, so that other processes' commits don't wait long."""
SCAN_ROWS: Final = 8192
"""Rows read per read transaction of a scan: long ones keep LMDB from reusing pages."""
ADOPTED_LEAST_BYTES: Final = 8 << 20
"""With less than that live an adopted segment is moved into a common one: or they become many with little in each."""
SCAN_IDS: Final = 2048
"""Ids read per read transaction: so few that they stay in the processor's cache until they were looked at."""

_ROW: Final = struct.Struct(">IIIIBBI")
_SEGMENT: Final = struct.Struct(">BQQ")
_NUMBER: Final = struct.Struct(">Q")
_SHORT: Final = struct.Struct(">I")
_PLACE: Final = struct.Struct(">II")
_QUARANTINED: Final = 1

Reading: TypeAlias = "lmdb.Transaction[bytes]"  # strings: the class is generic only for type checkers
Writing: TypeAlias = "lmdb.Transaction[bytes]"


class Row(NamedTuple):
    """Where a block is. A named tuple, as it is built for every read; fields as in the module's table, all in bytes."""

    segment: int
    offset: int
    stored_length: int
    length: int
    codec: int
    quarantined: bool
    epoch: int

    def is_at(self, other: Row) -> bool:
        """Whether both are the same payload."""
        return self.segment == other.segment and self.offset == other.offset

    def record(self, block_id: bytes) -> Record:
        """What the segment's sidecar says of it."""
        return Record(BlockId(block_id), self.offset, self.stored_length, self.length, self.codec)


class SegmentState(Enum):
    """What may happen to a segment's file."""

    GROWING = 0  # some process appends to it (and holds its flock), or may take it over
    SEALED = 1  # full or given up; its unreferenced payload was not looked for yet
    SETTLED = 2  # every page without a byte of a row is punched, or will be by what is listed in `free`


_GROWING, _SEALED, _SETTLED = (state.value for state in SegmentState)


class SegmentRow(NamedTuple):
    """A row of `segments`."""

    state: SegmentState
    rows: int
    length_bytes: int


class Index:
    """The LMDB environment and its rows. Thread-safe; a write transaction belongs to the thread that began it."""

    def __init__(self, path: str, expected: Format, disk: Disk) -> None:
        self.path = path
        self._disk = disk
        self._environment = open_environment(
            path, map_size_bytes=expected.map_size_bytes, databases=8, advice=REPAIR_ADVICE
        )
        try:
            self._open_databases(expected)
        except lmdb.Error as error:
            close_environment(self._environment)
            raise self.error(error) from error
        except BaseException:
            close_environment(self._environment)
            raise

    def _open_databases(self, expected: Format) -> None:
        names = (b"meta", b"blocks", b"segments", b"free", b"pins")
        try:
            self._meta, self._blocks, self._segments, self._free, self._pins = open_databases(self._environment, names)
        except lmdb.NotFoundError:
            raise CorruptionError(f"{self.path}/data.mdb is not a block index; {REPAIR_ADVICE}") from None
        self.pins_database = self._pins
        with self.reading() as txn:
            uuid, found = txn.get(b"uuid", db=self._meta), self.number(txn, b"format")
        if found > FORMAT:
            raise FormatTooNewError(self.path, found, FORMAT)
        if uuid != expected.uuid.bytes:
            raise CorruptionError(
                f"{self.path}: this index belongs to block directory {(uuid or b'').hex()}, "
                f"expected {expected.uuid.hex}; {REPAIR_ADVICE}"
            )

    @staticmethod
    def create(path: str, created: Format, disk: Disk) -> Index:
        """Write an empty index into an empty folder."""
        environment = open_environment(path, map_size_bytes=created.map_size_bytes, databases=8, advice=REPAIR_ADVICE)
        try:
            with environment.begin(write=True) as txn:
                for name in (b"blocks", b"segments", b"free", b"pins"):
                    environment.open_db(name, txn=txn)
                meta = environment.open_db(b"meta", txn=txn)
                txn.put(b"uuid", created.uuid.bytes, db=meta)
                for name, value in ((b"format", FORMAT), (b"epoch", 1), (b"swept", 1), (b"next_segment", 1)):
                    txn.put(name, _NUMBER.pack(value), db=meta)
            return Index(path, created, disk)
        except lmdb.Error as error:
            raise lmdb_error(error, path, REPAIR_ADVICE) from error
        finally:
            close_environment(environment)

    def close(self) -> None:
        """Give the environment back."""
        close_environment(self._environment)

    def error(self, error: lmdb.Error) -> Exception:
        """The error of ours for an LMDB error of this index."""
        return lmdb_error(error, self.path, REPAIR_ADVICE)

    # --- transactions

    def begin(self) -> Reading:
        """A read transaction, a context manager that raises LMDB's own errors: for the read path, where µs count."""
        return self._environment.begin()

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """A read transaction. Keep it short."""
        try:
            with self._environment.begin() as txn:
                yield txn
        except lmdb.ReadersFullError as error:
            self._environment.reader_check()
            raise self.error(error) from error
        except lmdb.Error as error:
            raise self.error(error) from error

    @contextmanager
    def writing(self) -> Iterator[Writing]:
        """A write transaction that is durable when the block ends; waits for other writers of any process.

        Raises:
            NoSpaceError, CorruptionError: Nothing was changed.
        """
        try:
            txn = self._environment.begin(write=True)
            try:
                yield txn
            except BaseException:
                txn.abort()
                raise
            try:
                self._disk.commit(txn)
            except BaseException:
                txn.abort()  # does nothing if the commit got as far as to end it
                raise
        except lmdb.Error as error:
            raise self.error(error) from error

    def open_table(self, name: bytes) -> _Database:
        """A table that only some of the index's users need; made if it is missing."""
        with self.writing() as txn:
            return self._environment.open_db(name, txn=txn)

    def oldest_reader(self) -> int | None:
        """Number of the commit that the oldest read transaction of any process sees; None without readers."""
        self._environment.reader_check()
        numbers = []
        for line in self._environment.readers().splitlines():
            fields = line.split()  # pid, thread, transaction; "-" when idle; a heading first
            if len(fields) == 3 and fields[2].isdigit():
                numbers.append(int(fields[2]))
        return min(numbers, default=None)

    # --- meta

    def number(self, txn: Reading, name: bytes) -> int:
        """A number of `meta`, 0 if absent."""
        value = txn.get(name, db=self._meta)
        if value is None:
            return 0
        if len(value) != _NUMBER.size:
            raise CorruptionError(f"{self.path}: damaged number {name.decode()}; {REPAIR_ADVICE}")
        return int(_NUMBER.unpack(value)[0])

    def set_number(self, txn: Writing, name: bytes, value: int) -> None:
        """Set a number of `meta`."""
        txn.put(name, _NUMBER.pack(value), db=self._meta)

    def epoch(self) -> int:
        """The current epoch."""
        with self.reading() as txn:
            return self.number(txn, b"epoch")

    def is_swept(self, txn: Reading, epoch: int) -> bool:
        """Whether the collection that began this epoch is over. If so, no row can vanish while the epoch is held."""
        return self.number(txn, b"swept") >= epoch

    # --- blocks

    def row(self, txn: Reading, block_id: bytes) -> Row | None:
        """Look a block up; also quarantined ones."""
        value = txn.get(block_id, db=self._blocks)
        return None if value is None else self._decode(value)

    def _decode(self, value: bytes) -> Row:
        if len(value) != _ROW.size:
            raise CorruptionError(f"{self.path}: a row of {len(value)} bytes, expected {_ROW.size}; {REPAIR_ADVICE}")
        segment, offset, stored_length, length, codec, flags, epoch = _ROW.unpack(value)
        if codec == ADOPTED:
            offset *= PAGE
        return Row(segment, offset, stored_length, length, codec, bool(flags & _QUARANTINED), epoch)

    def put_row(self, txn: Writing, block_id: bytes, row: Row) -> None:
        """Write a row. The segment's counters are the caller's; see `count`."""
        flags = _QUARANTINED if row.quarantined else 0
        offset = row.offset // PAGE if row.codec == ADOPTED else row.offset
        place = (row.segment, offset, row.stored_length, row.length, row.codec, flags, row.epoch)
        txn.put(block_id, _ROW.pack(*place), db=self._blocks)

    def add(self, txn: Writing, block_id: bytes, row: Row) -> bool:
        """Store a new block's row; if the block is there already, only raise its epoch: the same id is stored once.

        Returns:
            Whether the row's payload is the one that counts now. If not, it is the caller's to free.
        """
        existing = self.row(txn, block_id)
        if existing is not None and not existing.quarantined:
            if existing.epoch < row.epoch:
                self.put_row(txn, block_id, existing._replace(epoch=row.epoch))
            return existing.is_at(row)
        if existing is not None:
            self.count(txn, existing, -1)
            self.free(txn, existing)
        self.put_row(txn, block_id, row)
        self.count(txn, row, 1)
        return True

    def set_quarantined(self, block_id: bytes, seen: Row, *, quarantined: bool) -> None:
        """Say of a block's payload whether it is what the id says, durably.

        Args:
            block_id: The block.
            seen: The row whose payload was looked at; another one is left alone.
            quarantined: It is not.
        """
        with self.writing() as txn:
            row = self.row(txn, block_id)
            if row is not None and row.is_at(seen):  # else it was replaced meanwhile
                self.put_row(txn, block_id, row._replace(quarantined=quarantined))

    def raise_epoch(self, txn: Writing, block_id: bytes, epoch: int) -> bool:
        """Keep a stored block from the collections up to `epoch`; False if it is not stored, or quarantined."""
        row = self.row(txn, block_id)
        if row is None or row.quarantined:
            return False
        if row.epoch < epoch:
            self.put_row(txn, block_id, row._replace(epoch=epoch))
        return True

    def remove_older(self, txn: Writing, ids: Iterable[bytes], epoch: int) -> list[Row]:
        """Delete the rows of these blocks that are older than `epoch`; their payload is the caller's to list.

        Args:
            txn: The transaction.
            ids: Ascending, so that neighbours are found without a search from the root. Unknown ones are left out.
            epoch: Rows of this epoch and newer ones stay.

        Returns:
            What was deleted.
        """
        removed = []
        with txn.cursor(db=self._blocks) as cursor:
            for block_id in ids:
                if not cursor.set_key(block_id):
                    continue
                row = self._decode(cursor.value())
                if row.epoch < epoch:
                    cursor.delete()
                    removed.append(row)
        self._count_out(txn, removed)
        return removed

    def _count_out(self, txn: Writing, gone: Iterable[Row]) -> None:
        """`count` rows out, each segment once."""
        rows: Counter[int] = Counter()
        length_bytes: Counter[int] = Counter()
        codecs: dict[int, int] = {}
        for segment, _, _, length, codec, _, _ in gone:
            rows[segment] += 1
            length_bytes[segment] += length
            if codec != RAW:
                codecs[segment] = codec  # all of an adopted segment's have the same
        for segment in sorted(rows):
            self._change(txn, segment, -rows[segment], -length_bytes[segment], codecs.get(segment, RAW))

    def move(self, txn: Writing, block_id: bytes, old: Row, new: Row) -> None:
        """Let a block's row point to a copy of its payload, and list the place that is superfluous now as free."""
        row = self.row(txn, block_id)
        if row is None or not row.is_at(old):
            self.free(txn, new)
            return
        self.put_row(txn, block_id, row._replace(segment=new.segment, offset=new.offset, codec=new.codec))
        self.count(txn, old, -1)
        self.count(txn, new, 1)
        self.free(txn, old)

    def scan(self, keep: Callable[[bytes, Row], bool] | None = None) -> Iterator[list[tuple[BlockId, Row]]]:
        """All rows that `keep` accepts, by id, in lists; each is of one snapshot, no transaction is open between."""
        after = b""
        while True:
            with self.reading() as txn, txn.cursor(db=self._blocks) as cursor:
                raw = list(islice(cursor, SCAN_ROWS)) if _go_behind(cursor, after) else []
            if not raw:
                return
            after = raw[-1][0]
            rows = [(BlockId(key), self._decode(value)) for key, value in raw]
            yield rows if keep is None else [(key, row) for key, row in rows if keep(key, row)]

    def scan_ids(self) -> Iterator[list[bytes]]:
        """All ids, ascending, in lists, as `scan`; quarantined ones too."""
        after = b""
        while True:
            with self.reading() as txn, txn.cursor(db=self._blocks) as cursor:
                keys = cursor.iternext(keys=True, values=False)
                ids = list(islice(keys, SCAN_IDS)) if _go_behind(cursor, after) else []
            if not ids:
                return
            yield ids
            after = ids[-1]

    # --- segments

    def segment(self, txn: Reading, number: int) -> SegmentRow | None:
        """A segment's state and counters."""
        value = txn.get(_SHORT.pack(number), db=self._segments)
        return None if value is None else self._decode_segment(value)

    def segments(self, txn: Reading) -> Iterator[tuple[int, SegmentRow]]:
        """All segments by number."""
        with txn.cursor(db=self._segments) as cursor:
            for key, value in cursor:
                yield _SHORT.unpack(key)[0], self._decode_segment(value)

    def set_segment(self, txn: Writing, number: int, row: SegmentRow) -> None:
        """Write a segment's row."""
        txn.put(_SHORT.pack(number), _SEGMENT.pack(row.state.value, row.rows, row.length_bytes), db=self._segments)

    def remove_segment(self, txn: Writing, number: int) -> None:
        """Forget a segment that has no rows."""
        txn.delete(_SHORT.pack(number), db=self._segments)

    def count(self, txn: Writing, row: Row, sign: int) -> None:
        """Count a row in (+1) or out (-1) of its segment."""
        self._change(txn, row.segment, sign, sign * row.length, row.codec)

    def _change(self, txn: Writing, number: int, rows: int, length_bytes: int, codec: int) -> None:
        # Not by way of `SegmentRow`: a sweep does this for nearly each row where there are thousands of segments.
        key = _SHORT.pack(number)
        value = txn.get(key, db=self._segments)
        if value is not None and len(value) != _SEGMENT.size:
            self._decode_segment(value)
        state, old_rows, old_bytes = (_GROWING, 0, 0) if value is None else _SEGMENT.unpack(value)
        # Packed payloads share pages, which may be dead now. Of an adopted segment with little the rest is moved.
        is_little = codec == ADOPTED and old_bytes + length_bytes < ADOPTED_LEAST_BYTES
        if rows < 0 and state == _SETTLED and (codec == ZSTD or is_little):
            state = _SEALED
        if old_rows + rows < 0 or old_bytes + length_bytes < 0:
            raise CorruptionError(f"{self.path}: wrong counters of segment {number}; {REPAIR_ADVICE}")
        txn.put(key, _SEGMENT.pack(state, old_rows + rows, old_bytes + length_bytes), db=self._segments)

    def _decode_segment(self, value: bytes) -> SegmentRow:
        try:
            state, rows, length_bytes = _SEGMENT.unpack(value)
            return SegmentRow(SegmentState(state), rows, length_bytes)
        except (struct.error, ValueError) as error:
            raise CorruptionError(f"{self.path}: damaged segment row ({error}); {REPAIR_ADVICE}") from error

    # --- free

    def free(self, txn: Writing, row: Row) -> None:
        """List a payload to be punched once no reader can know its place any more."""
        offset, length = pack_place(row.offset, row.stored_length, row.codec)
        txn.put(_PLACE.pack(row.segment, offset), _SHORT.pack(length), db=self._free)

    def freed(self, txn: Reading, limit: int) -> list[tuple[int, int, int]]:
        """The first entries of `free` as (segment, offset, length), offset and length as `unpack_place` takes them."""
        found = []
        with txn.cursor(db=self._free) as cursor:
            for key, value in cursor:
                found.append((*_PLACE.unpack(key), _SHORT.unpack(value)[0]))
                if len(found) >= limit:
                    break
        return found

    def forget_freed(self, txn: Writing, entries: Iterable[tuple[int, int, int]]) -> None:
        """Drop entries of `free` that were punched."""
        for segment, offset, _ in entries:
            txn.delete(_PLACE.pack(segment, offset), db=self._free)


def _go_behind(cursor: lmdb.Cursor[bytes], key: bytes) -> bool:
    """Go to the first entry behind `key`, b"" for the first of all; False if there is none."""
    return cursor.set_range(key + b"\0") if key else cursor.first()
