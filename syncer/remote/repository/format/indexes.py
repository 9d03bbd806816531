"""Indexes: where the chunks of many packs are, in two sections: nodes of trees, and chunks of files.

    0     24   head of a sealed object, kind b"i" (see `sealed`), bound to nothing
    24    24   role b"h": lengths of the two messages that follow, 4 bytes each
    48    x    section TREES, role b"t": a message of the codec, sealed
    48+x  y    section FILES, role b"d": 4 bytes n, a message of the codec of n bytes, zeros up to the length that
               `padding` gives the object; sealed

Who reads a tree needs the first section only, and it is the shorter one: a range from the object's beginning. The name
is the SHA-256 of all bytes; of who has read a part only, the key has vouched.

Body of a section, integers big-endian:

    0     4    r, how many indexes this one replaces; 0 in FILES
    4     4    p, how many packs
    8     4    n, how many chunks
    12    32r  digests of indexes, ascending: all that they say is said here, too
    …     52p  digest (32), salt (16) and length (4) of each pack, ascending
    …     48n  id of a chunk (32), number of its pack (4), offset (4), bytes there (4), of the chunk (4), ascending

A chunk may be in several packs. A section stays as it is in memory, 48 bytes a chunk, and is searched there.

Source: docs/design/repository.md, section 7.
"""

from __future__ import annotations

import hashlib
import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import accumulate, pairwise
from typing import Final

import msgspec

from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.codec import BadMessage, Codec
from syncer.remote.repository.format.keys import SALT_BYTES, ChunkId, Content, Keys
from syncer.remote.repository.format.packs import MAX_BYTES as MAX_PACK_BYTES
from syncer.remote.repository.format.packs import MAX_CHUNK_BYTES, Entry, Pack, PackRef
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.sealed import (
    HEAD_BYTES,
    NAME_BYTES,
    TAG_BYTES,
    Envelope,
    Kind,
    check_name,
    digest_of,
    object_name,
)

MERGED_BYTES: Final = 8 << 20  # nothing longer is merged: 170,000 chunks, 2 GB or more of files
SMALL_BYTES: Final = 16 << 10  # as cheap to write again as not: shorter ones are always merged
MAX_BYTES: Final = 64 << 20
FIRST_BYTES: Final = 32 << 10  # what to ask for of one that is unknown: mostly the section TREES is in it
MAX_REPLACED: Final = 4096
_COUNT: Final = struct.Struct(">I")
_COUNTS: Final = struct.Struct(">III")
_LENGTHS: Final = struct.Struct(">II")
_PACK: Final = struct.Struct(">32s16sI")
_ROW: Final = struct.Struct(">32sIIII")
_START: Final = HEAD_BYTES + _LENGTHS.size + TAG_BYTES
_HEADER: Final = b"h"
_ROLES: Final = {Content.TREES: b"t", Content.FILES: b"d"}


class Found(msgspec.Struct, frozen=True):
    """Where a chunk is.

    Attributes:
        pack: Its pack.
        entry: Its place there.
    """

    pack: PackRef
    entry: Entry


class Section:
    """One section of an index, or of several that were merged. Immutable: threads may share it."""

    def __init__(self, body: bytes) -> None:
        """By its body.

        Raises:
            ValueError: No section of ours.
        """
        if len(body) < _COUNTS.size:
            raise ValueError("it is too short")
        replaced, packs, chunks = _COUNTS.unpack_from(body)
        self._chunks: Final[int] = chunks
        self._packs_at = _COUNTS.size + replaced * NAME_BYTES
        self._rows_at = self._packs_at + packs * _PACK.size
        if len(body) != self._rows_at + self._chunks * _ROW.size or replaced > MAX_REPLACED:
            raise ValueError("its counts and its length differ")
        self.body: Final = body
        self.replaces: Final = tuple(
            body[at : at + NAME_BYTES] for at in range(_COUNTS.size, self._packs_at, NAME_BYTES)
        )
        self._packs = [(PackRef(digest, salt), size) for digest, salt, size in self._raw_packs()]
        # Where the ids of each beginning are: eight or so. A search through all takes three times as long.
        self._shift: Final[int] = 32 - max(0, chunks.bit_length() - 3)
        self._starts: Final = array("I", accumulate(self._check()))

    def __len__(self) -> int:
        """How many chunks it has places of."""
        return self._chunks

    @property
    def packs(self) -> Mapping[PackRef, int]:
        """Its packs, and how many bytes each has."""
        return dict(self._packs)

    def find(self, chunk: ChunkId) -> Found | None:
        """Where a chunk is; of several places always the same. Takes some 2 µs."""
        return next(self.find_all(chunk), None)

    def find_all(self, chunk: ChunkId) -> Iterator[Found]:
        """All places of a chunk, by their packs."""
        part = self._part(chunk)
        at = bisect_left(range(self._chunks), bytes(chunk), self._starts[part], self._starts[part + 1], key=self._id)
        while at < self._chunks and self._id(at) == chunk:
            yield self._found(at)
            at += 1

    def stored_bytes(self) -> dict[PackRef, int]:
        """How many bytes of each pack are chunks."""
        totals = [0] * len(self._packs)
        for _, pack, _, length, _ in _ROW.iter_unpack(memoryview(self.body)[self._rows_at :]):
            totals[pack] += length
        return {ref: total for (ref, _), total in zip(self._packs, totals, strict=True)}

    def places(self) -> Iterator[Found]:
        """All places of all chunks, ascending by id."""
        return map(self._found, range(self._chunks))

    def rows(self, numbers: Mapping[PackRef, int]) -> Iterator[bytes]:
        """Its rows, for packs of these numbers; without those of other packs. The numbers must ascend as packs do."""
        by_number = [numbers.get(ref) for ref, _ in self._packs]
        for chunk, pack, *place in _ROW.iter_unpack(memoryview(self.body)[self._rows_at :]):
            if (number := by_number[pack]) is not None:
                yield _ROW.pack(chunk, number, *place)

    def _id(self, at: int) -> bytes:
        start = self._rows_at + at * _ROW.size
        return self.body[start : start + NAME_BYTES]

    def _found(self, at: int) -> Found:
        chunk, pack, offset, length, plain = _ROW.unpack_from(self.body, self._rows_at + at * _ROW.size)
        return Found(self._packs[pack][0], Entry(ChunkId(chunk), offset, length, plain))

    def _raw_packs(self) -> Iterator[tuple[bytes, bytes, int]]:
        return _PACK.iter_unpack(memoryview(self.body)[self._packs_at : self._rows_at])

    def _part(self, chunk: bytes) -> int:
        return int.from_bytes(chunk[:4], "big") >> self._shift

    def _check(self) -> array[int]:
        """See that all is in order; how many chunks there are in the part before each part, and in the last one."""
        packs, rows = len(self._packs), memoryview(self.body)[self._rows_at :]
        ascending = all(before < after for before, after in pairwise(self.replaces)) and all(
            before < after for (before, _), (after, _) in pairwise(self._packs)
        )
        if not ascending or any(size > MAX_PACK_BYTES for _, size in self._packs):
            raise ValueError("its lists can't be")
        last: tuple[object, ...] = ()
        counts = array("I", bytes(4 * ((1 << 32 - self._shift) + 1)))
        for row in _ROW.iter_unpack(rows):
            chunk, pack, offset, length, plain = row
            if row <= last:
                raise ValueError("it is not sorted")
            if pack >= packs or offset + length > self._packs[pack][1] or plain > MAX_CHUNK_BYTES:
                raise ValueError("it has a chunk that can't be where it says")
            last = row
            counts[self._part(chunk) + 1] += 1
        return counts


EMPTY: Final = Section(_COUNTS.pack(0, 0, 0))


class Index(msgspec.Struct, frozen=True):
    """What an index object says.

    Attributes:
        trees: Where nodes of trees are, and which indexes this one replaces.
        files: Where chunks of files are.
    """

    trees: Section
    files: Section


def section(packs: Iterable[Pack], replaces: Iterable[bytes] = ()) -> Section:
    """The section of these packs.

    Args:
        packs: All of one kind of content; the same one twice is one.
        replaces: Digests of indexes, for the section TREES.
    """
    ordered = sorted({pack.ref: pack for pack in packs}.items())
    rows = sorted(
        _ROW.pack(each.id, number, each.offset, each.length, each.plain)
        for number, (_, pack) in enumerate(ordered)
        for each in pack.entries
    )
    return _section(replaces, [(ref, pack.size_bytes) for ref, pack in ordered], rows)


def merged(sections: Sequence[Section], *, without: Iterable[PackRef] = (), replaces: Iterable[bytes] = ()) -> Section:
    """What several sections say, as one.

    Args:
        sections: All of one kind of content.
        without: Packs that are gone.
        replaces: Digests of indexes, for the section TREES.
    """
    sizes: dict[PackRef, int] = {}
    for each in sections:
        sizes.update(each.packs)
    for gone in without:
        sizes.pop(gone, None)
    packs = sorted(sizes.items())
    numbers = {ref: number for number, (ref, _) in enumerate(packs)}
    return _section(replaces, packs, merge(*(each.rows(numbers) for each in sections)))


def to_merge(new_bytes: int, sizes: Mapping[bytes, int]) -> list[bytes]:
    """Which indexes to write again with a new one, so that there are never many.

    One is taken if it is no longer than all that is taken before it, the new one included: a row is so written again
    only into an index of twice the length, and indexes that stay are each longer than all shorter ones together.

    Args:
        new_bytes: About how long the new one is.
        sizes: Bytes of those that there are, by digest; without those that another one replaces.

    Returns:
        Digests: the new index has what they have, and replaces them.
    """
    total, taken = new_bytes, list[bytes]()
    for digest, size in sorted(sizes.items(), key=lambda each: (each[1], each[0])):
        if size > max(total, SMALL_BYTES) or total + size > MERGED_BYTES or len(taken) == MAX_REPLACED:
            break
        total += size
        taken.append(digest)
    return taken


def live(replaces: Mapping[bytes, Iterable[bytes]]) -> set[bytes]:
    """Which indexes to look into.

    Args:
        replaces: By digest of each index that is there, what it replaces.
    """
    return set(replaces).difference(*replaces.values())


def encode(keys: Keys, salt: bytes, index: Index, codec: Codec) -> tuple[bytes, bytes]:
    """The object's digest and its bytes. `salt` are 16 fresh random bytes."""
    assert not index.files.replaces
    envelope = Envelope(keys, Kind.INDEX, salt)
    trees, files = codec.encode(index.trees.body), codec.encode(index.files.body)
    at = _START + len(trees) + TAG_BYTES
    size = padded(at + _COUNT.size + len(files) + TAG_BYTES)
    files = b"".join((_COUNT.pack(len(files)), files)).ljust(size - at - TAG_BYTES, b"\0")
    raw = b"".join(
        (
            envelope.head,
            envelope.seal(HEAD_BYTES, _HEADER, _LENGTHS.pack(len(trees) + TAG_BYTES, len(files) + TAG_BYTES)),
            envelope.seal(_START, _ROLES[Content.TREES], trees),
            envelope.seal(at, _ROLES[Content.FILES], files),
        )
    )
    assert len(raw) == size <= MAX_BYTES
    return hashlib.sha256(raw).digest(), raw


def decode(keys: Keys, digest: bytes, raw: bytes, codec: Codec) -> Index:
    """What an index says.

    Raises:
        DamagedObjectError: Not what its name says, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    name = object_name(Kind.INDEX, digest)
    check_name(Kind.INDEX, name, raw)
    envelope, trees, files = _opened(keys, name, raw)
    at = _START + trees
    if at + files != len(raw):
        raise DamagedObjectError(name, "is malformed: it is not as long as it says")
    view = memoryview(raw)
    index = Index(
        _decoded(envelope, name, Content.TREES, _START, view[_START:at], codec),
        _decoded(envelope, name, Content.FILES, at, view[at:], codec),
    )
    if index.files.replaces:
        raise DamagedObjectError(name, "is malformed: its second section replaces indexes")
    return index


def trees_end(keys: Keys, digest: bytes, first: bytes) -> int:
    """How many bytes from its beginning have the section TREES.

    Args:
        keys: The repository's.
        digest: Of the index.
        first: At least its first 48 bytes.

    Raises:
        DamagedObjectError: Not the beginning of an index of this repository.
        FormatTooNewError: A newer blocksync's.
    """
    return _START + _opened(keys, object_name(Kind.INDEX, digest), first)[1]


def decode_trees(keys: Keys, digest: bytes, first: bytes, codec: Codec) -> Section:
    """The section TREES of an index, of which at least the first `trees_end` bytes are at hand.

    The name is not held against the bytes: the store may show another index of this repository instead, and as well
    hide this one. What is found by it is verified when it is opened.

    Raises:
        DamagedObjectError: Damaged, or not made with this repository's key.
        FormatTooNewError: A newer blocksync's.
    """
    name = object_name(Kind.INDEX, digest)
    envelope, trees, _ = _opened(keys, name, first)
    return _decoded(envelope, name, Content.TREES, _START, memoryview(first)[_START : _START + trees], codec)


def index_of(name: str) -> bytes | None:
    """The digest in the name of an object; None: no index has such a name."""
    return digest_of(Kind.INDEX, name)


def _opened(keys: Keys, name: str, raw: bytes) -> tuple[Envelope, int, int]:
    envelope = Envelope.of(keys, Kind.INDEX, name, raw[:HEAD_BYTES])
    plain = envelope.open(HEAD_BYTES, _HEADER, memoryview(raw)[HEAD_BYTES:_START])
    if plain is None or len(plain) != _LENGTHS.size:
        raise DamagedObjectError(name, "is damaged, or was not made with this repository's key")
    trees, files = _LENGTHS.unpack(plain)
    return envelope, trees, files


def _decoded(envelope: Envelope, name: str, content: Content, at: int, sealed: memoryview, codec: Codec) -> Section:
    message = envelope.open(at, _ROLES[content], sealed)
    if message is None:
        raise DamagedObjectError(name, "is damaged: a section can't be opened")
    if content is Content.FILES:
        message = message[_COUNT.size : _COUNT.size + int.from_bytes(message[: _COUNT.size], "big")]
    try:
        return Section(codec.decode(message, MAX_BYTES))
    except BadMessage as error:
        raise DamagedObjectError(name, str(error)) from error
    except ValueError as error:
        raise DamagedObjectError(name, f"is malformed: {error}") from None


def _section(replaces: Iterable[bytes], packs: Sequence[tuple[PackRef, int]], rows: Iterable[bytes]) -> Section:
    """Rows ascend; the same one twice is one."""
    told = sorted(set(replaces))
    body = bytearray(_COUNTS.size)
    body += b"".join(told)
    for ref, size in packs:
        assert len(ref.salt) == SALT_BYTES
        body += _PACK.pack(ref.digest, ref.salt, size)
    start = len(body)
    last = b""
    for row in rows:
        if row != last:
            body += row
        last = row
    _COUNTS.pack_into(body, 0, len(told), len(packs), (len(body) - start) // _ROW.size)
    return Section(bytes(body))
