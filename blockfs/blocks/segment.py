"""Segments and sidecars: what the bytes mean. Pure.

A segment `NNNNNNNN.seg` holds payloads, a sidecar `NNNNNNNN.idx` says in order what was appended to it. All numbers are
big endian. Both files are append-only; a segment's number is never used again.

Header, at offset 0 of both files (a segment's is padded with NUL bytes to 4096, a sidecar's to 64):

| offset | bytes | field |
|---|---|---|
| 0 | 8 | magic: `BSYNCSEG` or `BSYNCIDX` |
| 8 | 4 | format, 1 |
| 12 | 4 | 0, reserved |
| 16 | 16 | UUID of the block directory |
| 32 | 8 | segment number |
| 40 | 4 | CRC-32 of bytes 0 to 39 |

Sidecar record, 64 bytes, from offset 64 on:

| offset | bytes | field |
|---|---|---|
| 0 | 32 | block id |
| 32 | 8 | offset of the payload in the segment |
| 40 | 4 | stored length: bytes of the payload |
| 44 | 4 | length of the canonical block |
| 48 | 1 | codec: 0 = raw, 1 = zstd, 2 = raw in an adopted segment |
| 49 | 11 | 0, reserved |
| 60 | 4 | CRC-32 of bytes 0 to 59 |

A record whose CRC does not fit (a torn append) is skipped; records are always at multiples of 64.

An *adopted* segment is a file whose blocks were found in place. It has no header page: that of its sidecar, of format
2, is for both. All its records have codec 2. It may be larger than others: up to 1 TiB, mostly holes.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from blockfs.blocks.ids import BlockId
from blockfs.errors import CorruptionError, FormatTooNewError

FORMAT: Final = 1
ADOPTED_FORMAT: Final = 2  # of the sidecar of an adopted segment
PAGE: Final = 4096
"""Of the host: what a hole frees. Raw payloads start on one and own all they touch; compressed ones are packed."""

SEGMENT_HEADER_BYTES: Final = 4096  # one page, so that the first payload is aligned
SIDECAR_HEADER_BYTES: Final = 64
RECORD_BYTES: Final = 64

SEGMENT_LIMIT_BYTES: Final = 1 << 30
"""A segment of this size takes no more blocks. 1 GiB: 1 TiB makes 1024 files, few enough to keep open,
while creating one costs a few fsyncs, nothing next to a GiB of payload; and offsets fit in 32 bits."""

RAW: Final = 0  # codec: the payload is the canonical block itself
ZSTD: Final = 1  # codec: one zstd frame that tells its content's size
ADOPTED: Final = 2  # codec: as RAW, in a segment that was adopted: the index counts its offset in pages

_SEGMENT_MAGIC: Final = b"BSYNCSEG"
_SIDECAR_MAGIC: Final = b"BSYNCIDX"
_HEADER: Final = struct.Struct(">8sII16sQ")
_CRC: Final = struct.Struct(">I")
_RECORD: Final = struct.Struct(">32sQIIB11x")
_IN_PAGES: Final = 1 << 31
"""Marks the length of a freed place whose offset is in pages: adopted segments may be larger than 4 GiB."""


class Record(NamedTuple):
    """One sidecar record: where a payload was appended. A named tuple: a scan makes a quarter of a million a second."""

    block_id: BlockId
    offset: int
    stored_length: int
    length: int
    codec: int


def segment_name(number: int) -> str:
    """File name of a segment."""
    return f"{number:08d}.seg"


def sidecar_name(number: int) -> str:
    """File name of a segment's sidecar."""
    return f"{number:08d}.idx"


def align(offset: int) -> int:
    """The next multiple of 4096, or `offset` itself."""
    return -(-offset // PAGE) * PAGE


def payload_start(end: int, codec: int) -> int:
    """Where the next payload goes if everything before `end` is taken."""
    return end if codec == ZSTD else align(end)


def payload_end(offset: int, stored_length: int, codec: int) -> int:
    """Where the bytes end that a payload owns: a raw one's at a page border, a compressed one's at its last byte."""
    return offset + (stored_length if codec == ZSTD else align(stored_length))


def pack_place(offset: int, stored_length: int, codec: int) -> tuple[int, int]:
    """What a payload owns as two numbers of 32 bits; see `unpack_place`."""
    length = payload_end(offset, stored_length, codec) - offset
    return (offset // PAGE, length | _IN_PAGES) if codec == ADOPTED else (offset, length)


def unpack_place(offset: int, length: int) -> tuple[int, int]:
    """Offset and length in bytes of a packed place. Places of one segment sort the same, packed or not."""
    return (offset * PAGE, length ^ _IN_PAGES) if length & _IN_PAGES else (offset, length)


def whole_pages(start: int, end: int) -> tuple[int, int]:
    """The pages that lie in a byte range entirely, as (start, end); none if start >= end."""
    return align(start), end // PAGE * PAGE


def encode_segment_header(uuid: bytes, number: int) -> bytes:
    """First page of a segment."""
    return _header(_SEGMENT_MAGIC, FORMAT, uuid, number).ljust(SEGMENT_HEADER_BYTES, b"\0")


def encode_sidecar_header(uuid: bytes, number: int, *, adopted: bool = False) -> bytes:
    """First 64 bytes of a sidecar."""
    version = ADOPTED_FORMAT if adopted else FORMAT
    return _header(_SIDECAR_MAGIC, version, uuid, number).ljust(SIDECAR_HEADER_BYTES, b"\0")


def check_segment_header(data: bytes, uuid: bytes, number: int, name: str) -> None:
    """Accept the first bytes of a segment, at least 44.

    Raises:
        CorruptionError: Damaged, or another segment's or another block directory's file.
        FormatTooNewError: Written by a newer version.
    """
    _check_header(data, _SEGMENT_MAGIC, FORMAT, uuid, number, name)


def check_sidecar_header(data: bytes, uuid: bytes, number: int, name: str) -> bool:
    """Accept the first bytes of a sidecar. Raises as `check_segment_header`.

    Returns:
        Whether its segment was adopted.
    """
    return _check_header(data, _SIDECAR_MAGIC, ADOPTED_FORMAT, uuid, number, name) == ADOPTED_FORMAT


def is_adopted(sidecar: bytes) -> bool | None:
    """Whether the segment of a sidecar was adopted, by its first bytes, sound or not; None: they don't tell."""
    if is_whole_header(sidecar) and sidecar.startswith(_SIDECAR_MAGIC):
        return bool(_HEADER.unpack_from(sidecar)[1] == ADOPTED_FORMAT)
    for record in decode_records(sidecar[SIDECAR_HEADER_BYTES:]):
        return record.codec == ADOPTED
    return None


def is_whole_header(data: bytes) -> bool:
    """Whether the first bytes of a segment or sidecar have a sound checksum, whosever they are."""
    size = _HEADER.size + _CRC.size
    return len(data) >= size and _CRC.unpack_from(data, _HEADER.size)[0] == zlib.crc32(data[: _HEADER.size])


def encode_record(record: Record) -> bytes:
    """One sidecar record."""
    body = _RECORD.pack(*record)
    return body + _CRC.pack(zlib.crc32(body))


def decode_records(data: bytes) -> Iterator[Record]:
    """Read the records of a sidecar without its header; torn or damaged ones are skipped."""
    for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        body = data[at : at + RECORD_BYTES - _CRC.size]
        (crc,) = _CRC.unpack_from(data, at + RECORD_BYTES - _CRC.size)
        if crc == zlib.crc32(body):
            block_id, *rest = _RECORD.unpack(body)
            yield Record(BlockId(block_id), *rest)


def _header(magic: bytes, version: int, uuid: bytes, number: int) -> bytes:
    body = _HEADER.pack(magic, version, 0, uuid, number)
    return body + _CRC.pack(zlib.crc32(body))


def _check_header(data: bytes, magic: bytes, newest: int, uuid: bytes, number: int, name: str) -> int:
    size = _HEADER.size + _CRC.size
    if len(data) < size or data[:8] != magic or _CRC.unpack_from(data, _HEADER.size)[0] != zlib.crc32(data[:40]):
        raise CorruptionError(f"{name}: the header is damaged; run `blocksync scrub`, then `blocksync fsck --repair`")
    _, found_format, _, found_uuid, found_number = _HEADER.unpack_from(data)
    if found_format > newest:
        raise FormatTooNewError(name, found_format, newest)
    if found_uuid != uuid or found_number != number:
        raise CorruptionError(
            f"{name}: this is segment {found_number} of block directory {found_uuid.hex()}, "
            f"expected segment {number} of {uuid.hex()}; put the right file back or run `blocksync fsck --repair`"
        )
    return int(found_format)
