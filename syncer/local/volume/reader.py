"""Blocks of a volume's files, for a push: from its block directory, verified."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.errors import LocalChangedError
from syncer.ports.localvalues import Piece, outcomes


class VolumeReader:
    """See `Reader`. Blocks never change, so what is read is the observed version, or nothing."""

    def __init__(self, run: Callable[..., Awaitable[list[bytes | Exception]]], read: Callable[[Piece], bytes]) -> None:
        """Take what runs blocking work in a thread, and what reads a block of the share."""
        self._run = run
        self._read_one = read

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        """See Reader."""
        return await self._run(outcomes, pieces, self._read)

    def _read(self, piece: Piece) -> bytes:
        data = b"" if piece.id == ZERO_BLOCK else self._read_one(piece)
        if block_id(data) != piece.id:
            raise LocalChangedError(piece.stat.path, "its block is damaged, or not what it was when it was hashed")
        return data
