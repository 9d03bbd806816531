"""Changing a part of an object: which blocks of the result are made of what. Pure.

The new bytes are an object of their own (a body that was stored as it came, or another object). Where a block of theirs
becomes a block of the result as it is, its id is taken; elsewhere the block is composed of old and new bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.errors import BadRequest, RangeNotSatisfiable


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A run of bytes of one block of the result.

    Attributes:
        is_new: Of the new bytes; else of the old object.
        start: Where in these.
        length: How many, at least 1.
    """

    is_new: bool
    start: int
    length: int


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """New bytes over an object.

    Attributes:
        block_size: Of both.
        old_size: Of the object.
        offset: Where the new bytes go, at most `old_size`.
        length: How many there are.
        cut: Size at which the result ends at the latest; None: where it ends.
    """

    block_size: int
    old_size: int
    offset: int
    length: int
    cut: int | None = None

    @property
    def size(self) -> int:
        """Bytes of the result."""
        whole = max(self.old_size, self.offset + self.length)
        return whole if self.cut is None else min(whole, self.cut)

    @property
    def blocks(self) -> int:
        """Blocks of the result."""
        return -(-self.size // self.block_size)

    def changed(self) -> Iterator[int]:
        """Indices of the result's blocks that are not the old object's, ascending."""
        first = self.offset // self.block_size
        behind = min(self.blocks, -(-(self.offset + self.length) // self.block_size)) if self.length else first
        yield from range(first, behind)
        last = self.blocks - 1  # cut short: its bytes behind the end must go
        if self.size < self.old_size and self.size % self.block_size and not first <= last < behind:
            yield last

    def parts(self, index: int) -> list[Part]:
        """What a block of the result is made of, in order."""
        start = index * self.block_size
        end = min(start + self.block_size, self.size)
        low, high = max(start, self.offset), min(end, self.offset + self.length)
        if low >= high:
            return [Part(is_new=False, start=start, length=end - start)]
        found = []
        if start < low:
            found.append(Part(is_new=False, start=start, length=low - start))
        found.append(Part(is_new=True, start=low - self.offset, length=high - low))
        if high < end:
            found.append(Part(is_new=False, start=high, length=end - high))
        return found

    def whole_block(self, parts: list[Part], new_size: int) -> int | None:
        """Index of the new bytes' block that a block of the result is, None if it has to be composed.

        Args:
            parts: Of the block.
            new_size: Bytes of the object that the new bytes are the beginning of.
        """
        part = parts[0]
        if len(parts) > 1 or not part.is_new or part.start % self.block_size:
            return None
        if part.length < self.block_size and part.start + part.length != new_size:
            return None
        return part.start // self.block_size


class UpdateOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Where new bytes go.

    Attributes:
        offset: First byte that they replace; None: behind the end.
        length: How many of them; None: all there are.
        total: Size that the object must have, and keep; None: any.
        cut: Size at which the object ends afterwards at the latest; None: no cut.
        meta: New metadata.
        keeps_meta: Metadata that are not named stay.
        conditions: On the object.
    """

    offset: int | None
    length: int | None = None
    total: int | None = None
    cut: int | None = None
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)
    keeps_meta: bool = True
    conditions: Conditions = UNCONDITIONAL

    def edit(self, old_size: int, available: int, block_size: int) -> Edit:
        """What is done to an object of this size.

        Args:
            old_size: Of the object.
            available: New bytes that there are.
            block_size: Of both.

        Raises:
            RangeNotSatisfiable: The offset is behind the end, or the size is not as was said.
            BadRequest: There are fewer new bytes than the range has.
        """
        offset = old_size if self.offset is None else self.offset
        length = available if self.length is None else self.length
        if offset > old_size:
            raise RangeNotSatisfiable(f"The range begins at {offset}, behind the object's end at {old_size}")
        if self.cut is not None:
            length = min(length, max(0, self.cut - offset))  # kamaki asks for a byte more than it wants to keep
        if length > available:
            raise BadRequest(f"The range has {length} bytes, but its source only {available}")
        if self.total is not None and (self.total != old_size or offset + length > old_size):
            raise RangeNotSatisfiable(f"The object has {old_size} bytes, and the range would change that")
        return Edit(block_size=block_size, old_size=old_size, offset=offset, length=length, cut=self.cut)
