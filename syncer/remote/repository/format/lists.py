"""The two lists that say what a file holds: its block list in the share's grid, and where its chunks are.

Of a short file a list is a byte string in its entry, of a longer one a map (`prolly`), so that two versions share what
did not change. How long the file is decides, so equal lists are equal bytes.

Block list: nothing for a file of at most one block, whose id is the file's hash; the ids for up to 8 blocks; else a
map whose keys are numbers of parts of 16 blocks (4 bytes) and whose values are their ids. A part of holes only is not
there.

Chunk list: of a file of at most 64 KiB one part; else a map whose keys are numbers of parts of 256 KiB (5 bytes). A
part has the chunks that begin in it; what no chunk covers is zeros:

    0    2    p, how many packs
    2    48p  each: digest and salt
    …    50   for each chunk, ascending: where it begins, from the part's beginning on (4), its length (4), which of the
              packs (2), where in the pack (4), bytes there (4), id (32)

Integers are big-endian.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format import prolly
from syncer.remote.repository.format.entries import Bytes, Listed
from syncer.remote.repository.format.keys import ChunkId
from syncer.remote.repository.format.packs import Entry, PackRef
from syncer.remote.repository.format.prolly import Nodes, Root, Shape

INLINE_BLOCKS: Final = 8
BLOCKS_OF_A_PART: Final = 16
BLOCK_PARTS_OF_A_NODE: Final = 16  # on average: 8 KiB
INLINE_BYTES: Final = 64 << 10
PART_BYTES: Final = 256 << 10
CHUNK_PARTS_OF_A_NODE: Final = 8  # on average: 7 KiB
_BLOCK_KEY: Final = struct.Struct(">I")
_CHUNK_KEY: Final = struct.Struct(">BI")
_PACKS: Final = struct.Struct(">H")
_REF: Final = struct.Struct(">32s16s")
_ROW: Final = struct.Struct(">IIHII32s")
_HOLES: Final = ZERO_BLOCK * BLOCKS_OF_A_PART


class Located(msgspec.Struct, frozen=True, gc=False):
    """A chunk of a file, and where it is.

    Attributes:
        start: Where it begins in the file.
        length: Bytes of it.
        id: The chunk's.
        pack: The pack that has it.
        offset: Where in the pack.
        stored: Bytes there.
    """

    start: int
    length: int
    id: ChunkId
    pack: PackRef
    offset: int
    stored: int

    @property
    def end(self) -> int:
        """Where it ends in the file."""
        return self.start + self.length

    @property
    def entry(self) -> Entry:
        """Its place, as the pack knows it."""
        return Entry(self.id, self.offset, self.stored, self.length)


def blocks_shape(split: bytes) -> Shape:
    """Of maps of block lists."""
    return Shape(split=split, entries=BLOCK_PARTS_OF_A_NODE)


def chunks_shape(split: bytes) -> Shape:
    """Of maps of chunk lists."""
    return Shape(split=split, entries=CHUNK_PARTS_OF_A_NODE)


def blocks_of(nodes: Nodes, file: Bytes, block_size: int) -> BlockList:
    """The block list of a file, its Merkle root compared.

    Raises:
        DamagedObjectError: It is not what the file's hash says.
    """
    count = block_count(file.size_bytes, block_size)
    if count <= 1:
        ids = file.object_hash * count
    elif isinstance(file.blocks, bytes):
        ids = file.blocks
    else:
        last = (count - 1) // BLOCKS_OF_A_PART
        parts = [_HOLES] * (last + 1)
        parts[last] = ZERO_BLOCK * (count - last * BLOCKS_OF_A_PART)
        for key, value in prolly.items(nodes, file.blocks):
            number = _number(_BLOCK_KEY, key)
            if number > last or len(value) != len(parts[number]):
                raise _damaged("a block list")
            parts[number] = value
        ids = b"".join(parts)
    try:
        blocks = BlockList(block_size=block_size, size_bytes=file.size_bytes, ids=ids)
    except ValueError:
        raise _damaged("a block list") from None
    if blocks.object_hash != file.object_hash:
        raise _damaged("a block list")
    return blocks


def block_ids_in(nodes: Nodes, file: Bytes, block_size: int, first: int, last: int) -> bytes:
    """The ids of some blocks of a file, one behind the other; of a part of the list, so nothing vouches for them.

    Args:
        nodes: Where lists are.
        file: The file.
        block_size: Of the share.
        first: The first block.
        last: Behind the last; at most as many as the file has.
    """
    count = block_count(file.size_bytes, block_size)
    last = min(last, count)
    if count <= 1:
        return (file.object_hash * count)[first * ID_SIZE : last * ID_SIZE]
    if isinstance(file.blocks, bytes):
        return file.blocks[first * ID_SIZE : last * ID_SIZE]
    start, end = first // BLOCKS_OF_A_PART, -(-last // BLOCKS_OF_A_PART)
    parts = dict.fromkeys(range(start, end), _HOLES)
    for key, value in prolly.items(nodes, file.blocks, _BLOCK_KEY.pack(start), _BLOCK_KEY.pack(end)):
        parts[_number(_BLOCK_KEY, key)] = value
    ids = b"".join(part for _, part in sorted(parts.items()))
    skipped = first - start * BLOCKS_OF_A_PART
    return ids[skipped * ID_SIZE : (skipped + last - first) * ID_SIZE]


def listed_blocks(
    nodes: Nodes, shape: Shape, blocks: BlockList, older: tuple[Listed, BlockList] | None = None
) -> Listed:
    """Write a block list.

    Args:
        nodes: Where to.
        shape: See `blocks_shape`.
        blocks: The list.
        older: One that it is like, as it was written, and what it says: only what differs is looked at.
    """
    count = len(blocks)
    if count <= INLINE_BLOCKS:
        return blocks.ids if count > 1 else b""
    step = BLOCKS_OF_A_PART * ID_SIZE
    root, was = (older[0], older[1].ids) if older is not None and isinstance(older[0], Root) else (None, b"")
    edits: dict[bytes, bytes | None] = {}
    for at in range(0, max(len(blocks.ids), len(was)), step):
        part = blocks.ids[at : at + step]
        if part != was[at : at + step]:
            holes = not part or part == _HOLES[: len(part)]
            edits[_BLOCK_KEY.pack(at // step)] = None if holes else part
    made = prolly.update(nodes, shape, root, edits)
    return b"" if made is None else made


def chunks_of(nodes: Nodes, file: Bytes, start: int = 0, end: int | None = None) -> Iterator[Located]:
    """The chunks of a file, in order; those that reach into a range of it.

    Args:
        nodes: Where lists are.
        file: The file.
        start: Where the range begins.
        end: Where it ends; None: with the file.

    Raises:
        DamagedObjectError: The list says what can't be.
    """
    end = file.size_bytes if end is None else min(end, file.size_bytes)
    if start >= end:
        return
    # A chunk that reaches in may begin in the part before, but not further away: `config` has none as long.
    first = max(start // PART_BYTES - 1, 0)
    parts: Iterable[tuple[bytes, bytes]]
    if isinstance(file.chunks, bytes):
        parts = [(_chunk_key(0), file.chunks)] if file.chunks else []
    else:
        parts = prolly.items(nodes, file.chunks, _chunk_key(first), _chunk_key((end - 1) // PART_BYTES + 1))
    behind = 0
    for key, value in parts:
        high, low = _unpacked(_CHUNK_KEY, key)
        for chunk in _parse(((high << 32) + low) * PART_BYTES, value):
            if chunk.start < behind or chunk.length == 0 or chunk.end > file.size_bytes:
                raise _damaged("a chunk list")
            behind = chunk.end
            if chunk.end > start and chunk.start < end:
                yield chunk


def fetch_chunks_of(nodes: Nodes, file: Bytes, ranges: Iterable[tuple[int, int]]) -> None:
    """Have nodes at hand in which `chunks_of` looks for some ranges: a request for each level, not for each range."""
    if isinstance(file.chunks, Root):
        numbers = {
            number
            for start, end in ranges
            for number in range(max(start // PART_BYTES - 1, 0), (end - 1) // PART_BYTES + 1)
        }
        prolly.get(nodes, file.chunks, map(_chunk_key, numbers))


class ChunkList:
    """A chunk list that is being made: of an older one, of which some windows are cut anew."""

    def __init__(self, nodes: Nodes, shape: Shape, older: Bytes | None = None) -> None:
        """Begin with the chunks of an older version; None: with none."""
        self._nodes = nodes
        self._shape = shape
        self._older = older
        self._root = older.chunks if older is not None and isinstance(older.chunks, Root) else None
        self._edits: dict[bytes, bytes | None] = {}

    def window(self, start: int, length: int, chunks: Sequence[Located]) -> None:
        """What is in a window now. Both are multiples of 256 KiB; a file ends where `finish` says."""
        self._edits.update(window_parts(start, length, chunks))

    def parts(self, parts: Mapping[bytes, bytes | None]) -> None:
        """What is in windows now, as `window_parts` says it."""
        self._edits.update(parts)

    def finish(self, size: int) -> Listed:
        """Write the list of a file of this length."""
        if size == 0:
            return b""
        if size <= INLINE_BYTES:
            same = self._older.chunks if self._older is not None and isinstance(self._older.chunks, bytes) else b""
            return self._edits.get(_chunk_key(0), same) or b""
        beyond = _chunk_key(-(-size // PART_BYTES))
        edits = {key: value if key < beyond else None for key, value in self._edits.items()}
        if self._root is not None:
            edits |= dict.fromkeys((key for key, _ in prolly.items(self._nodes, self._root, beyond)), None)
        elif self._older is not None and isinstance(self._older.chunks, bytes) and self._older.chunks:
            edits.setdefault(_chunk_key(0), self._older.chunks)
        made = prolly.update(self._nodes, self._shape, self._root, edits)
        return b"" if made is None else made


def window_parts(start: int, length: int, chunks: Iterable[Located]) -> dict[bytes, bytes | None]:
    """Parts of a chunk list, by their keys; None where no chunk begins. Some 55 bytes a chunk.

    Args:
        start: Where a window begins: a multiple of 256 KiB.
        length: Bytes of it, likewise.
        chunks: That begin in it, ascending.
    """
    assert start % PART_BYTES == length % PART_BYTES == 0
    parts: dict[int, list[Located]] = {
        number: [] for number in range(start // PART_BYTES, (start + length) // PART_BYTES)
    }
    for chunk in chunks:
        parts[chunk.start // PART_BYTES].append(chunk)
    return {
        _chunk_key(number): _encoded(number * PART_BYTES, inside) if inside else None
        for number, inside in parts.items()
    }


def _encoded(base: int, chunks: Sequence[Located]) -> bytes:
    packs = {pack: number for number, pack in enumerate(dict.fromkeys(chunk.pack for chunk in chunks))}
    refs = b"".join(_REF.pack(pack.digest, pack.salt) for pack in packs)
    rows = [_ROW.pack(c.start - base, c.length, packs[c.pack], c.offset, c.stored, c.id) for c in chunks]
    return b"".join((_PACKS.pack(len(packs)), refs, *rows))


def _parse(base: int, raw: bytes) -> Iterator[Located]:
    (count,) = _unpacked(_PACKS, raw[: _PACKS.size])
    rows = _PACKS.size + count * _REF.size
    if len(raw) <= rows or (len(raw) - rows) % _ROW.size:
        raise _damaged("a chunk list")
    packs = [PackRef(digest, salt) for digest, salt in _REF.iter_unpack(raw[_PACKS.size : rows])]
    for start, length, pack, offset, stored, chunk in _ROW.iter_unpack(raw[rows:]):
        if pack >= count or start >= PART_BYTES:
            raise _damaged("a chunk list")
        yield Located(base + start, length, ChunkId(chunk), packs[pack], offset, stored)


def _chunk_key(number: int) -> bytes:
    return _CHUNK_KEY.pack(number >> 32, number & 0xFFFFFFFF)


def _number(form: struct.Struct, key: bytes) -> int:
    return int(_unpacked(form, key)[0])


def _unpacked(form: struct.Struct, raw: bytes) -> tuple[int, ...]:
    try:
        return form.unpack(raw)
    except struct.error:
        raise _damaged("a list") from None


def _damaged(what: str) -> DamagedObjectError:
    return DamagedObjectError("tree", f"is malformed: {what} of a file says what can't be")
