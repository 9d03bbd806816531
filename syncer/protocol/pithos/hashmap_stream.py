"""A hashmap read as it comes: ids leave as bytes, piece by piece, and nothing else of a long one is kept. Pure.

A hashmap of 2^24 ids has 1.1 GB of JSON; as strings in memory they would be three times that. All that is not an id is
collected (the *skeleton*, some 100 bytes) with a mark where ids were, and read as JSON at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, ObjectHash
from syncer.protocol.extensions import blocklists
from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.hashmap import MAX_BLOCKS, HashmapError, checked_count, checked_ids

_IDS: Final = re.compile(rb'"[0-9A-Fa-f]{64}"(?:[ \t\r\n]*,[ \t\r\n]*"[0-9A-Fa-f]{64}")*+')
_BETWEEN: Final = b'", \t\r\n'
_MARK: Final = b"#"  # of the skeleton; outside of ids no hashmap has one
_HOLES: Final = 4096  # ids at a time
_MAX_SKELETON_BYTES: Final = 64 << 10
_MAX_TOKEN_BYTES: Final = 64 << 10  # without a comma


class _Skeleton(msgspec.Struct):
    """What is left of a hashmap: marks instead of hashes."""

    size_bytes: int = msgspec.field(name="bytes")
    hashes: list[str]
    block_size: int | None = None
    block_hash: str | None = None


_SKELETON: Final = msgspec.json.Decoder(_Skeleton)


class HashmapReader:
    """Reads one hashmap.

    Attributes:
        count: Ids so far.
        base_version: None: it stands for itself.
        object_hash: None: it tells none.
    """

    base_version: int | None = None
    object_hash: ObjectHash | None = None

    def __init__(self, block_size: int) -> None:
        """Begin.

        Args:
            block_size: Bytes of a block on this server.
        """
        self._block_size = block_size
        self._rest = b""
        self._skeleton = bytearray()
        self._first = b""  # the only id, if there is but one: an empty object may be written with one
        self.count = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take the next piece of the body.

        Yields:
            Ids that were completed by it, concatenated.

        Raises:
            HashmapError: Something that no hashmap has, or too many ids.
        """
        text = self._rest + piece if self._rest else piece
        cut = text.rfind(b",") + 1  # an id is not torn there
        self._rest = text[cut:]
        if len(self._rest) > _MAX_TOKEN_BYTES:
            raise HashmapError("Invalid data formatting: a value is too long")
        yield self._take(text[:cut])

    def finish(self) -> tuple[Iterable[bytes], int]:
        """The body is complete.

        Returns:
            Its last ids, and the object's size in bytes.

        Raises:
            HashmapError: It is no hashmap of such an object; see `hashmap.decode_hashmap`.
        """
        ids, self._rest = self._take(self._rest), b""
        try:
            wire = _SKELETON.decode(bytes(self._skeleton))
        except MALFORMED as error:
            raise HashmapError(f"Invalid data formatting: {error}") from None
        count = checked_count(wire.size_bytes, wire.block_size, wire.block_hash, self._block_size)
        if not all(mark.startswith(_MARK.decode()) for mark in wire.hashes):
            raise HashmapError("Invalid hash: expected 64 hex digits")
        marked = sum(int(mark[1:]) for mark in wire.hashes)
        if marked != self.count:
            raise HashmapError("Invalid data formatting: there are hashes outside of the list of hashes")
        if wire.size_bytes == 0 and self.count == 1 and self._first == ZERO_BLOCK:
            self.count = 0
        if self.count != count:
            raise HashmapError("The object's size does not match with the object's hashmap length")
        return [ids], wire.size_bytes

    def _take(self, text: bytes) -> bytes:
        """Ids out of a text that tears none; the rest of it goes to the skeleton."""
        found = []
        at = 0
        for match in _IDS.finditer(text):
            ids = bytes.fromhex(match[0].translate(None, _BETWEEN).decode())
            self._leave(text[at : match.start()])
            self._skeleton += b'"%s%d"' % (_MARK, len(ids) // ID_SIZE)
            found.append(ids)
            at = match.end()
        self._leave(text[at:])
        joined = b"".join(found)
        self.count += len(joined) // ID_SIZE
        if self.count > MAX_BLOCKS:
            raise HashmapError(f"more than {MAX_BLOCKS} blocks")
        checked_ids(joined)
        if not self._first:
            self._first = joined[:ID_SIZE]
        return joined

    def _leave(self, text: bytes) -> None:
        if _MARK in text:
            raise HashmapError("Invalid data formatting: expected hashes of 64 hex digits")
        self._skeleton += text
        if len(self._skeleton) > _MAX_SKELETON_BYTES:
            self._skeleton = self._squeezed()

    def _squeezed(self) -> bytearray:
        """Neighbouring marks as one; what is too long then is no hashmap."""
        squeezed = _MARKS.sub(_sum, bytes(self._skeleton))
        if len(squeezed) > _MAX_SKELETON_BYTES // 2:
            raise HashmapError("Invalid data formatting: too much beside the hashes")
        return bytearray(squeezed)


class BinaryReader:
    """Reads one block list in binary (`blocklists`), and puts the holes in.

    Attributes:
        count: Ids so far.
        base_version: Of which version it tells the difference, known with the first piece; None: of holes.
        object_hash: Of the result; None: not told.
    """

    def __init__(self, block_size: int) -> None:
        """Begin.

        Args:
            block_size: Bytes of a block on this server.
        """
        self._block_size = block_size
        self._rest = bytearray()
        self._size_bytes: int | None = None
        self._blocks = 0
        self._left = 0  # ids of the splice that is being read
        self.count = 0
        self.base_version: int | None = None
        self.object_hash: ObjectHash | None = None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Take the next piece of the body.

        Yields:
            Ids that were completed by it, concatenated, some thousand at a time.

        Raises:
            HashmapError: It is no such list; see `blocklists.decode`.
        """
        self._rest += piece
        at = 0 if self._size_bytes is not None else self._read_head()
        while at < len(self._rest):
            if not self._left:
                if len(self._rest) - at < blocklists.SPLICE.size:
                    break
                first, self._left = blocklists.SPLICE.unpack_from(self._rest, at)
                if first < self.count or not 0 < self._left <= self._blocks - first:
                    raise HashmapError(f"the splice at {first} is empty, out of order, or beyond the object")
                at += blocklists.SPLICE.size
                yield from self._holes(first)
            whole = min(self._left, (len(self._rest) - at) // ID_SIZE)
            if not whole:
                break
            yield checked_ids(bytes(self._rest[at : at + whole * ID_SIZE]))
            at += whole * ID_SIZE
            self.count += whole
            self._left -= whole
        if self._size_bytes is not None:
            del self._rest[:at]

    def finish(self) -> tuple[Iterable[bytes], int]:
        """The body is complete.

        Returns:
            Its last ids, and the object's size in bytes.

        Raises:
            HashmapError: It is cut off.
        """
        if self._size_bytes is None or self._rest or self._left:
            raise HashmapError("the block list is cut off")
        return self._holes(self._blocks), self._size_bytes

    def _read_head(self) -> int:
        """Returns where the splices begin."""
        end = self._rest.find(b"\n", 0, blocklists.HEAD_BYTES)
        if end < 0:
            if len(self._rest) >= blocklists.HEAD_BYTES:
                raise HashmapError("Invalid data formatting: expected one line of JSON before the ids")
            return len(self._rest)
        told = blocklists.decode(bytes(self._rest[: end + 1]), self._block_size)
        self._size_bytes, self.object_hash = told.delta.size_bytes, told.delta.object_hash
        self.base_version = told.base_version
        self._blocks = block_count(self._size_bytes, self._block_size)
        return end + 1

    def _holes(self, until: int) -> Iterator[bytes]:
        while self.count < until:
            count = min(_HOLES, until - self.count)
            self.count += count
            yield ZERO_BLOCK * count


_MARKS: Final = re.compile(rb'"#\d{1,9}"(?:[ \t\r\n]*,[ \t\r\n]*"#\d{1,9}")++')
_NUMBER: Final = re.compile(rb"\d+")


def _sum(marks: re.Match[bytes]) -> bytes:
    return b'"#%d"' % sum(int(number) for number in _NUMBER.findall(marks[0]))
