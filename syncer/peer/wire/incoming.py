"""A block that comes in parts: no more memory than it may have, nothing out of place, and in its one form at the end.

A block is sent without its trailing zeros, and a list of blocks tells ids alone: only HEAD says how long it will be.
Whether they are the block that was asked for is not decided here: its id is the SHA-256 of what `end` returns.
"""

from __future__ import annotations

from typing import Final

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.messages import Octets

_PIECES: Final = 256  # kept as they came: who sends a byte at a time must not cost us a hundred for each


class Incoming:
    """One request's answer: `head`, `data` any number of times, `end`; or `whole`. After a Drop it has broken a rule.

    A request that broke off goes on at `received`, at the same peer, and with a `head` again.

    Args:
        block_size: Of the share, in bytes: no block is longer.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._total: int | None = None
        self._received = 0
        self._pieces: list[Octets] = []

    @property
    def received(self) -> int:
        """Bytes that are here: the offset for a request that goes on."""
        return self._received

    def head(self, total: int) -> Drop | None:
        """The block will have `total` bytes."""
        if self._total is None and total <= self._block_size:
            self._total = total
        return None if self._total == total else Drop.TRANSFER

    def data(self, content: Octets) -> Drop | None:
        """The next bytes. They are kept as they are, so nobody may change them."""
        end = self._received + len(content)
        if self._total is None or end > self._total:
            return Drop.TRANSFER
        self._received = end
        self._pieces.append(content)
        if len(self._pieces) >= _PIECES:
            self._pieces = [b"".join(self._pieces)]
        return None

    def end(self) -> bytes | Drop:
        """The block: all of it has come, and it has no trailing zeros."""
        if self._received != self._total:
            return Drop.TRANSFER
        return _one_form(b"".join(self._pieces))

    def whole(self, content: Octets) -> bytes | Drop:
        """The block, in place of `head`, `data` and `end`."""
        if self._total is not None or len(content) > self._block_size:
            return Drop.TRANSFER
        return _one_form(bytes(content))


def _one_form(block: bytes) -> bytes | Drop:
    return Drop.TRANSFER if block.endswith(b"\0") else block
