"""Packs: many chunks in one object, found by their places, each opened alone.

    0      24   head of a sealed object, kind b"p" (see `sealed`); bound to what is in it: 1 byte, see `Content`
    24     …    entries, one behind the other, role b"e": a message of the codec, sealed
    t      …    trailer, role b"t", whose plaintext is

                0    4    n, how many entries
                4    40n  for each, in order: id (32), bytes in the pack (4), bytes of the chunk (4)
                …    …    zeros, so that the pack has the length that `padding` gives it

    end-20 20   foot, role b"f": 4 bytes, the length of the trailer in the pack

Integers are big-endian. So the store sees a length that says little, and neither how many chunks there are nor where
they begin, unless it is asked for them one by one. The name is the SHA-256 of all bytes. Who opens a chunk by its place
needs the pack's salt, so places have it with the name (`PackRef`). A chunk that was opened is the one of its id, or
nothing: the id is compared each time.

Source: docs/design/repository.md, section 7.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.codec import BadMessage, Codec
from syncer.remote.repository.format.keys import ChunkId, Content, Keys
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.sealed import (
    HEAD_BYTES,
    HEADER_BYTES,
    NAME_BYTES,
    TAG_BYTES,
    Envelope,
    Kind,
    check_name,
    object_name,
)

TARGET_BYTES: Final = 16 << 20  # no pack of chunks of files has more
MAX_CHUNK_BYTES: Final = 16 << 20  # of a file 256 KiB, see `config`; nodes of trees may be longer
MAX_BYTES: Final = 40 << 20  # almost a full one, the longest chunk, padding
FOOT_BYTES: Final = 4 + TAG_BYTES
_CHUNKS: Final = 240  # of the longest ones, 64 KiB as they are, are in a pack at least
_COUNT: Final = struct.Struct(">I")
_ROW: Final = struct.Struct(">32sII")
_MIN_ENTRY: Final = 1 + TAG_BYTES  # a chunk of no bytes, as it is
_ENTRY, _TRAILER, _FOOT = b"e", b"t", b"f"


class PackRef(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False, forbid_unknown_fields=True):
    """Names a pack, and opens what is in it.

    Attributes:
        digest: SHA-256 of its bytes.
        salt: 16 bytes: its own key is made of it.
    """

    digest: bytes
    salt: bytes

    @property
    def name(self) -> str:
        """Of the object."""
        return object_name(Kind.PACK, self.digest)


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False, forbid_unknown_fields=True):
    """A chunk's place in its pack.

    Attributes:
        id: The chunk's.
        offset: In the pack.
        length: Bytes there.
        plain: Bytes of the chunk.
    """

    id: ChunkId
    offset: int
    length: int
    plain: int

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.offset + self.length


class Pack(msgspec.Struct, frozen=True):
    """A pack that is complete.

    Attributes:
        ref: Names it.
        size_bytes: How long it is.
        entries: What is in it, in order.
    """

    ref: PackRef
    size_bytes: int
    entries: Sequence[Entry]


class PackBuilder:
    """Fills one pack. For one thread; compressing, sealing and hashing release the interpreter's lock."""

    def __init__(self, keys: Keys, content: Content, salt: bytes, codec: Codec) -> None:
        """A pack without entries.

        Args:
            keys: The repository's.
            content: What will be in it.
            salt: 16 fresh random bytes.
            codec: This thread's.
        """
        self._envelope = Envelope(keys, Kind.PACK, salt, bytes([content.value]))
        self._codec = codec
        self._salt = salt
        self._parts = [self._envelope.head]
        self._digest = hashlib.sha256(self._envelope.head)
        self.entries: list[Entry] = []
        self.size_bytes = HEAD_BYTES

    @property
    def is_full(self) -> bool:
        """Whether it is time to finish it: another chunk of a file may not fit into `TARGET_BYTES` any more.

        That is a length that padding leaves as it is; a little more would be padded by half a MiB.
        """
        rest = _COUNT.size + TAG_BYTES + FOOT_BYTES
        least = self.size_bytes + _ROW.size * (len(self.entries) + 1) + rest
        return bool(self.entries) and least + TARGET_BYTES // _CHUNKS > TARGET_BYTES

    def add(self, chunk: ChunkId, data: bytes | memoryview) -> Entry:
        """Put a chunk into it. Its place counts when the pack is finished. Not for a pack that is full."""
        assert not self.is_full
        assert len(data) <= MAX_CHUNK_BYTES
        return self.add_encoded(chunk, self._codec.encode(data), len(data))

    def add_encoded(self, chunk: ChunkId, message: bytes, plain: int) -> Entry:
        """Put a chunk into it that was compressed before, as one of another pack."""
        entry = Entry(chunk, self.size_bytes, len(message) + TAG_BYTES, plain)
        self._put(self._envelope.seal(entry.offset, _ENTRY, message))
        self.entries.append(entry)
        return entry

    def finish(self) -> tuple[Pack, bytes]:
        """The pack, and its bytes. Nothing may be added afterwards."""
        assert self.entries
        rows = [_ROW.pack(each.id, each.length, each.plain) for each in self.entries]
        table = _COUNT.pack(len(rows)) + b"".join(rows)
        least = self.size_bytes + len(table) + TAG_BYTES + FOOT_BYTES
        trailer = table.ljust(len(table) + padded(least) - least, b"\0")
        length = len(trailer) + TAG_BYTES
        self._put(self._envelope.seal(self.size_bytes, _TRAILER, trailer))
        self._put(self._envelope.seal(self.size_bytes, _FOOT, _COUNT.pack(length)))
        assert self.size_bytes <= MAX_BYTES
        ref = PackRef(self._digest.digest(), self._salt)
        return Pack(ref, self.size_bytes, self.entries), b"".join(self._parts)

    def _put(self, part: bytes) -> None:
        self._parts.append(part)
        self._digest.update(part)
        self.size_bytes += len(part)


class PackReader:
    """Opens what is in a pack, by ranges of its bytes. Threads may share it."""

    def __init__(self, keys: Keys, content: Content, ref: PackRef) -> None:
        """Of the pack with this name and salt."""
        self._keys = keys
        self._content = content
        self._envelope = Envelope(keys, Kind.PACK, ref.salt, bytes([content.value]))
        self.name: Final = ref.name

    def open(self, entry: Entry, sealed: bytes | memoryview, codec: Codec) -> bytes:
        """A chunk: verified.

        Args:
            entry: Its place.
            sealed: The bytes there, `entry.length`.
            codec: This thread's.

        Raises:
            DamagedObjectError: Not the chunk of this id.
        """
        message = self.open_encoded(entry, sealed)
        try:
            data = codec.decode(message, min(entry.plain, MAX_CHUNK_BYTES), exact=True)
        except BadMessage as error:
            raise DamagedObjectError(self.name, f"{error} (at {entry.offset})") from error
        if self._keys.chunk_id(self._content, data) != entry.id:
            raise DamagedObjectError(self.name, f"holds another chunk than it should at {entry.offset}")
        return data

    def open_encoded(self, entry: Entry, sealed: bytes | memoryview) -> bytes:
        """A chunk as the codec made it, to be put into another pack. Not yet held against its id.

        Raises:
            DamagedObjectError: Not what was sealed there.
        """
        message = None if len(sealed) != entry.length else self._envelope.open(entry.offset, _ENTRY, sealed)
        if message is None:
            raise DamagedObjectError(self.name, f"is damaged at {entry.offset}, or no pack of this repository")
        return message

    def trailer_length(self, size: int, foot: bytes | memoryview) -> int:
        """How many of its last bytes tell what is in it: trailer and foot.

        Args:
            size: Bytes of the pack.
            foot: The last 20 of them.

        Raises:
            DamagedObjectError: Not the end of this pack.
        """
        plain = self._envelope.open(size - FOOT_BYTES, _FOOT, foot) if HEAD_BYTES < size <= MAX_BYTES else None
        if plain is None or len(plain) != _COUNT.size:
            raise DamagedObjectError(self.name, f"is damaged: its {size} bytes do not end as those of a pack do")
        length: int = _COUNT.unpack(plain)[0]
        if not _COUNT.size + TAG_BYTES <= length <= size - HEAD_BYTES - FOOT_BYTES:
            raise DamagedObjectError(self.name, "is malformed: its trailer is longer than itself")
        return length + FOOT_BYTES

    def entries(self, size: int, end: bytes | memoryview) -> list[Entry]:
        """What is in it, in order.

        Args:
            size: Bytes of the pack.
            end: The last `trailer_length` of them.

        Raises:
            DamagedObjectError: Not the end of this pack.
        """
        start = size - len(end)
        table = self._envelope.open(start, _TRAILER, memoryview(end)[:-FOOT_BYTES])
        if table is None or len(table) < _COUNT.size:
            raise DamagedObjectError(self.name, "is damaged: its trailer can't be read")
        count: int = _COUNT.unpack_from(table)[0]
        behind = _COUNT.size + count * _ROW.size
        if len(table) < behind:
            raise DamagedObjectError(self.name, "is malformed: its trailer is shorter than it says")
        entries, at = [], HEAD_BYTES
        for chunk, length, plain in _ROW.iter_unpack(memoryview(table)[_COUNT.size : behind]):
            entries.append(Entry(ChunkId(chunk), at, length, plain))
            if length < _MIN_ENTRY or plain > MAX_CHUNK_BYTES:
                raise DamagedObjectError(self.name, f"is malformed: no chunk is as long as the one at {at}")
            at += length
        if at != start:
            raise DamagedObjectError(self.name, "is malformed: its entries do not fill it")
        return entries


def read_pack(keys: Keys, content: Content, name: str, raw: bytes) -> tuple[Pack, PackReader]:
    """What is in a pack of which all bytes are at hand. Its chunks are not opened yet.

    Raises:
        DamagedObjectError: Not what its name says, or of another repository or content.
        FormatTooNewError: A newer blocksync's.
    """
    check_name(Kind.PACK, name, raw)
    Envelope.of(keys, Kind.PACK, name, raw[:HEAD_BYTES])
    ref = PackRef(bytes.fromhex(name[-2 * NAME_BYTES :]), raw[HEADER_BYTES:HEAD_BYTES])
    reader, view = PackReader(keys, content, ref), memoryview(raw)
    length = reader.trailer_length(len(raw), view[-FOOT_BYTES:])
    return Pack(ref, len(raw), reader.entries(len(raw), view[-length:])), reader


class Fetch(msgspec.Struct, frozen=True):
    """A range of a pack that is worth one request.

    Attributes:
        start: Its first byte.
        end: Behind its last.
        entries: Those wanted in it, ascending.
    """

    start: int
    end: int
    entries: Sequence[Entry]


MAX_GAP_BYTES: Final = 256 << 10  # a request costs about as much as so many bytes, at 100 Mbit/s and 20 ms
_MAX_WASTE: Final = 50  # of a fetch less than 1/50 is not wanted


def plan(wanted: Iterable[Entry], *, gap_bytes: int = MAX_GAP_BYTES) -> list[Fetch]:
    """Which ranges of a pack to fetch for some of its entries.

    Ranges are joined over gaps as long as a gap is no longer than `gap_bytes`, and less than 2 % of what is fetched at
    once isn't wanted. Two places are never fetched twice.

    Args:
        wanted: Entries of one pack, in any order.
        gap_bytes: 0 for who waits for one chunk: then only neighbours are joined.
    """
    fetches: list[_Span] = []
    for entry in sorted(set(wanted), key=lambda each: each.offset):
        fetches.append(_Span(entry.offset, entry.end, entry.length, [entry]))
        while len(fetches) > 1 and (joined := fetches[-2].joined(fetches[-1], gap_bytes)):
            fetches[-2:] = [joined]
    return [Fetch(each.start, each.end, each.entries) for each in fetches]


class _Span(msgspec.Struct):
    start: int
    end: int
    wanted: int
    entries: list[Entry]

    def joined(self, after: _Span, gap_bytes: int) -> _Span | None:
        wanted, end = self.wanted + after.wanted, max(self.end, after.end)
        length = end - self.start
        if after.start - self.end > gap_bytes or (length - wanted) * _MAX_WASTE >= max(length, 1):
            return None
        self.entries.extend(after.entries)
        return _Span(self.start, end, wanted, self.entries)
