"""Blocks of an ordinary directory's files, for a push: verified, from memory if the look before read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.core.model import RelPath
from syncer.errors import LocalChangedError
from syncer.local.folder.filehash import read_exactly
from syncer.local.folder.held import HeldBlocks
from syncer.local.safe_open import Opener, tag_of
from syncer.local.syscalls import status
from syncer.ports.localvalues import LocalCounters, Piece, outcomes

_CHANGED: Final = "its content is not what it was when it was hashed"


class FolderReader:
    """See `BlockReader`. For one run of pushes."""

    def __init__(self, root: int, counters: LocalCounters, held: HeldBlocks, limiter: trio.CapacityLimiter) -> None:
        """Take the root's descriptor (not closed here), its counters, what is in memory, what limits its threads."""
        self._root = root
        self._counters = counters
        self._held = held
        self._limiter = limiter
        self._same: set[RelPath] = set()  # files of several blocks that were looked at

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        """See BlockReader."""
        return await trio.to_thread.run_sync(self._read_all, pieces, limiter=self._limiter)

    def _read_all(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        with Opener(self._root) as opener:
            return outcomes(pieces, partial(self._read, opener))

    def _read(self, opener: Opener, piece: Piece) -> bytes:
        blocks, stat = piece.blocks, piece.stat
        held = self._held.take(piece.id)
        descriptor = opener.open(stat.path)
        try:
            # One block names its content, so what is read tells whether it is the same; what is in memory does not.
            if (held is not None or len(blocks) > 1) and stat.path not in self._same:
                if tag_of(status(b"", descriptor)) != stat.tag:
                    raise LocalChangedError(stat.path, "it was written to")
                if len(blocks) > 1:
                    self._same.add(stat.path)
            if held is None and piece.id != ZERO_BLOCK:
                length = block_length(piece.index, blocks.size_bytes, blocks.block_size)
                data = read_exactly(descriptor, piece.index * blocks.block_size, length)
                self._counters.bytes_read += len(data)
                held = canonical(data)
        finally:
            os.close(descriptor)
        if block_id(held or b"") != piece.id:
            raise LocalChangedError(stat.path, _CHANGED)
        return held or b""
