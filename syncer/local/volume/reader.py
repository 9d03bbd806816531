"""Blocks of a volume's files, for a push: from its block directory, verified."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.errors import LocalChangedError
from syncer.ports.localvalues import Piece, outcomes


class VolumeReader:
    """See `BlockReader`. Blocks never change, so what is read is the observed version, or nothing."""

    def __init__(self, read: Callable[[Piece], bytes], limiter: trio.CapacityLimiter) -> None:
        """Take what reads a block of the share, and what limits the threads."""
        self._read_one = read
        self._limiter = limiter

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        """See BlockReader."""
        return await trio.to_thread.run_sync(outcomes, pieces, self._read, limiter=self._limiter)

    def _read(self, piece: Piece) -> bytes:
        data = b"" if piece.id == ZERO_BLOCK else self._read_one(piece)
        if block_id(data) != piece.id:
            raise LocalChangedError(piece.stat.path, "its block is damaged, or not what it was when it was hashed")
        return data
