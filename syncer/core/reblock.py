"""Two block sizes over one file: which blocks of the one grid lie over which of the other. Pure.

A volume and a server may cut files into blocks of different sizes, both powers of two. Ids of one grid say nothing
about ids of the other, except that equal bytes have equal ids. So where all blocks of one grid that lie over a block of
the other are as they were, that block is, too, and need not be read again. Trailing NULs never count in an id;
therefore growing by NULs, or losing some, changes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count, block_length


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes of a block that come from a block of the other grid.

    Attributes:
        index: Of that block.
        start: First byte in that block.
        length: How many.
    """

    index: int
    start: int
    length: int


def pieces(index: int, block_size: int, other_size: int, size_bytes: int) -> list[Piece]:
    """What block `index` of a grid consists of, in blocks of the other grid.

    Args:
        index: A block of the file in the grid of `block_size`.
        block_size: Its bytes.
        other_size: Bytes of a block in the other grid.
        size_bytes: Of the file.
    """
    at = index * block_size
    end = at + block_length(index, size_bytes, block_size)
    found: list[Piece] = []
    while at < end:
        other, start = divmod(at, other_size)
        length = min(other_size - start, end - at)
        found.append(Piece(index=other, start=start, length=length))
        at += length
    return found


def over(indexes: Iterable[int], block_size: int, other_size: int, size_bytes: int) -> list[int]:
    """The blocks of the other grid that overlap some blocks, ascending. Blocks beyond the end overlap none."""
    count = block_count(size_bytes, block_size)
    found: set[int] = set()
    for index in indexes:
        if index < count:
            found.update(piece.index for piece in pieces(index, block_size, other_size, size_bytes))
    return sorted(found)


def stale(new: BlockList, old: BlockList, other: BlockList) -> list[int]:
    """Blocks of the other grid whose ids may differ from those of an old version, ascending: only these must be read.

    All others are those of `other`, resized (`BlockList.splice`).

    Args:
        new: The new version, in one grid.
        old: The old version in the same grid.
        other: The old version in the other grid.
    """
    found = over(new.changed_from(old), new.block_size, other.block_size, new.size_bytes)
    count = block_count(new.size_bytes, other.block_size)
    if len(new) < len(old) and count and (not found or found[-1] != count - 1):
        found.append(count - 1)  # it lost what lay behind the new end
    return found


def joined(parts: Sequence[Piece], blocks: Mapping[int, bytes], block_size: int) -> bytes:
    """The bytes of a block from canonical blocks of the other grid."""
    return b"".join(
        blocks[part.index].ljust(block_size, b"\0")[part.start : part.start + part.length] for part in parts
    )
