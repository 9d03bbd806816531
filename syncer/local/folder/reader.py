"""Blocks of an ordinary directory's files, for a push: verified, from memory if the look before read them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Final, Self

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
        with Opener(self._root) as opener, _LastFile(opener) as files:
            return outcomes(pieces, partial(self._read, files))

    def _read(self, files: _LastFile, piece: Piece) -> bytes:
        blocks, stat = piece.blocks, piece.stat
        # What is in memory was hashed when it was read, and can't change; who sends it compares what arrived.
        held = self._held.take(piece.id)
        if held is not None and stat.path in self._same:
            return held
        descriptor = files.open(stat.path)
        # One block names its content, so what is read tells whether it is the same; what is in memory does not.
        if (held is not None or len(blocks) > 1) and stat.path not in self._same:
            if tag_of(status(b"", descriptor)) != stat.tag:
                raise LocalChangedError(stat.path, "it was written to")
            if len(blocks) > 1:
                self._same.add(stat.path)
        if held is not None or piece.id == ZERO_BLOCK:
            return held or b""
        length = block_length(piece.index, blocks.size_bytes, blocks.block_size)
        data = read_exactly(descriptor, piece.index * blocks.block_size, length)
        self._counters.bytes_read += len(data)
        data = canonical(data)
        if block_id(data) != piece.id:
            raise LocalChangedError(stat.path, _CHANGED)
        return data


class _LastFile:
    """The file that was read last stays open: the next block is mostly one of the same."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._path: RelPath | None = None
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def open(self, path: RelPath) -> int:
        """A descriptor of a file, closed when the next one is opened."""
        if path != self._path:
            self._close()
            self._descriptor = self._opener.open(path)
            self._path = path
        return self._descriptor

    def _close(self) -> None:
        if self._path is not None:
            os.close(self._descriptor)
            self._path = None
