"""A block that comes in parts: no more memory than it may have, nothing out of place, and in its one form at the end.

A block is sent without its trailing zeros, and a list of blocks tells ids alone: only HEAD says how long it will be.
Whether they are the block that was asked for is not decided here: its id is the SHA-256 of what `end` returns.
"""

from __future__ import annotations

from syncer.peer.drops import Drop
from syncer.peer.messages import Octets


class Incoming:
    """One request's answer: `head`, `data` any number of times, `end`. After a Drop the peer has broken a rule.

    A request that broke off goes on at `received`, at the same peer, and with a `head` again.

    Args:
        block_size: Of the share, in bytes: no block is longer.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._block: bytearray | None = None
        self._received = 0

    @property
    def received(self) -> int:
        """Bytes that are here: the offset for a request that goes on."""
        return self._received

    def head(self, total: int) -> Drop | None:
        """The block will have `total` bytes. Memory is taken only if it may."""
        if self._block is None and total <= self._block_size:
            self._block = bytearray(total)
        return None if self._block is not None and len(self._block) == total else Drop.TRANSFER

    def data(self, content: Octets) -> Drop | None:
        """The next bytes."""
        end = self._received + len(content)
        if self._block is None or end > len(self._block):
            return Drop.TRANSFER
        self._block[self._received : end] = content
        self._received = end
        return None

    def end(self) -> bytearray | Drop:
        """The block: all of it has come, and it has no trailing zeros."""
        if self._block is None or self._received != len(self._block) or self._block[-1:] == b"\0":
            return Drop.TRANSFER
        return self._block
