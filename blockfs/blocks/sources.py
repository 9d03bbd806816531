"""Where a block can be had that is damaged or missing here.

A place on this machine is asked for one block after the other: `BlockSource`. Who brings blocks from elsewhere has an
order of its own: a `Deliver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final, Protocol, Self

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import BlockId
from blockfs.errors import CorruptBlockError, MissingBlockError, UsageError

_BATCH: Final = 64  # blocks per sync: at most 256 MiB in memory


Store = Callable[[Sequence[tuple[BlockId, bytes]]], None]
"""Takes blocks with or without trailing NUL bytes, from one thread at a time. They are verified, and durable when it
returns; what is wrong is left out."""

Deliver = Callable[[Sequence[BlockId], Store], None]
"""Fetches blocks, in any order and as many at a time as it likes, and hands them over. What it can't have it leaves."""


class BlockSource(Protocol):
    """Delivers blocks by id. What it delivers is verified by whoever asks."""

    def fetch(self, block_id: BlockId) -> bytes | None:
        """The block's bytes, with or without trailing NUL bytes; None if this source doesn't have it."""


class DirectorySource:
    """Another block directory as a source."""

    def __init__(self, blocks: BlockDirectory) -> None:
        self._blocks = blocks

    @classmethod
    @contextmanager
    def opened(cls, path: str) -> Iterator[Self]:
        """Open a block directory to read from it.

        Raises:
            NotFoundError: No block directory there.
            CorruptionError, FormatTooNewError: It can't be read.
        """
        with BlockDirectory.open(path, read_only=True) as blocks:
            yield cls(blocks)

    def fetch(self, block_id: BlockId) -> bytes | None:
        """The block's canonical bytes; None if it is not stored there, or damaged there, too."""
        try:
            return self._blocks.get(block_id)
        except (MissingBlockError, CorruptBlockError):
            return None


def fetch_again(blocks: BlockDirectory, wanted: Iterable[BlockId], sources: Sequence[BlockSource]) -> list[BlockId]:
    """Store blocks that are quarantined or missing, from the first source that delivers the right bytes.

    Args:
        blocks: Where to; it may be in use by others.
        wanted: Blocks that something refers to durably.
        sources: Asked in this order.

    Returns:
        The blocks that are stored now, durably.
    """
    done: list[BlockId] = []
    source = iter(wanted)
    while batch := list(islice(source, _BATCH)):
        with blocks.hold() as hold:
            stored = [
                block_id
                for block_id in batch
                if any(_store(blocks, hold, block_id, one.fetch(block_id)) for one in sources)
            ]
            blocks.sync()
        done += stored
    return done


def deliver_again(blocks: BlockDirectory, wanted: Sequence[BlockId], deliver: Deliver) -> list[BlockId]:
    """As `fetch_again`, from somebody who delivers.

    Returns:
        The blocks that are stored now, durably.
    """
    done: list[BlockId] = []

    def store(got: Sequence[tuple[BlockId, bytes]]) -> None:
        with blocks.hold() as hold:
            stored = [block_id for block_id, data in got if _store(blocks, hold, block_id, data)]
            blocks.sync()
        done.extend(stored)

    if wanted:
        deliver(wanted, store)
    return done


def _store(blocks: BlockDirectory, hold: EpochHold, block_id: BlockId, data: bytes | None) -> bool:
    if data is None:
        return False
    try:
        blocks.put(data, hold, block_id=block_id)
    except (CorruptBlockError, UsageError):  # other bytes, or more of them than a block has here
        return False
    return True
