"""Sealing large files without copying: a staging file whose blocks are new becomes a segment (ADR 0014).

Order: hashed where it lies → fdatasync of the staging file → it is adopted, which makes the rows of its blocks durable
→ leaves and the removal of the generation in one change set → commit → it loses its own name → what of it is no
block's is punched. A crash before that commit finds the generation, with all its bytes: nothing is punched before.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from blockfs.blocks.codec import Compression
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import BlockId
from blockfs.blocks.segments.adoption import Found
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.generation import StagedGeneration
from blockfs.engine.content.hostfile import read_range, translated
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.reader import Segment
from blockfs.engine.content.staging import RANGE, RANGE_SHIFT, StagingFile, encode_name
from blockfs.engine.context import Stores
from blockfs.runtime.linux import write_back


class InPlace:
    """The staging files of one seal that may become segments, and the new blocks found in them. Pinned until `release`.

    Made under the engine's lock; all else without it, by one thread.

    Attributes:
        places: Generation and range of each file.
    """

    def __init__(self, stores: Stores, state: FileState, frozen: Sequence[StagedGeneration]) -> None:
        self._stores = stores
        self._least_bytes = stores.config.adopt_bytes
        self._found: dict[StagingFile, dict[BlockId, Found]] = {}
        self.places: dict[StagingFile, tuple[StagedGeneration, int]] = {}
        if stores.blocks.format.compression is not Compression.NONE:
            return
        # Those that were dropped since have nothing to give, and perhaps no file any more.
        for generation in [one for one in frozen if one in state.generations]:
            for range_index, file in generation.files.items():
                if generation.pages.count * PAGE >= self._least_bytes and not (file.failed or file.is_shared):
                    stores.staging.acquire(file)
                    self._found[file] = {}
                    self.places[file] = (generation, range_index)

    def release(self) -> None:
        """Unpin the files. Idempotent."""
        while self._found:
            self._stores.staging.release(self._found.popitem()[0])

    def note(
        self, segments: Sequence[Segment], start: int, parts: Sequence[bytes], hold: EpochHold
    ) -> dict[int, BlockId]:
        """Name the blocks of a run that lie in one of these files, and note those that are not stored.

        Args:
            segments: Where the run's bytes came from, resolved.
            start: Byte offset of the run in the file that is sealed.
            parts: Its blocks.
            hold: See `BlockDirectory.recognise`.

        Returns:
            Ids by number in `parts`; the others lie nowhere as a whole.
        """
        files = list(dict.fromkeys(one.source for one in segments if one.source in self._found))
        places: dict[int, tuple[StagingFile, int]] = {}
        at = start
        for number, part in enumerate(parts):
            for file in files:
                assert isinstance(file, StagingFile)
                if _lies_in(file, at, part, is_all=len(segments) == 1):
                    places[number] = file, at % RANGE
                    break
            at += len(part)
        self._start_writing(places, parts)
        named = self._stores.blocks.recognise([parts[number] for number in places], hold)
        for one, (file, offset) in zip(named, places.values(), strict=True):
            if not one.is_stored:
                self._found[file].setdefault(one.block_id, Found(one.block_id, offset, one.length))
        return {number: one.block_id for number, one in zip(places, named, strict=True)}

    @staticmethod
    def _start_writing(places: dict[int, tuple[StagingFile, int]], parts: Sequence[bytes]) -> None:
        """Have the host begin to write what is hashed next: fdatasync will find it written."""
        for file in {file for file, _ in places.values()}:
            ends = [(offset, offset + len(parts[number])) for number, (one, offset) in places.items() if one is file]
            first, last = min(ends)[0], max(ends)[1]
            with contextlib.suppress(OSError):  # fdatasync tells
                write_back(file.fd, first, last - first, wait=False)

    def worth_it(self) -> list[StagingFile]:
        """The files with enough new blocks to be segments. Those of the others are to be copied."""
        return [file for file, found in self._found.items() if _bytes_of(found) >= self._least_bytes]

    def adopt(self, file: StagingFile, hold: EpochHold) -> bool:
        """Make a segment of a durable file; False if the host can't do it: then copy.

        Raises:
            NoSpaceError: The host has no room for what tells of the blocks.
            HostIoError: The host failed.
        """
        path = os.fsdecode(os.path.join(self._stores.staging.path, encode_name(file.key)))
        self._stores.config.checkpoint("blocks.adopt")
        try:
            with translated("block directory"):
                file.segment = self._stores.blocks.adopt(path, self._found[file].values(), hold)
        finally:  # also if it failed half-way: who lets go of it then must wait for readers
            file.is_shared = os.fstat(file.fd).st_nlink > 1
        if file.segment is None:
            return False
        self._found[file].clear()
        return True

    def copy(self, hold: EpochHold) -> None:
        """Put the new blocks that no adoption has stored.

        Raises:
            NoSpaceError: See `BlockDirectory.put`.
            CorruptBlockError: The host has lost what lay there.
        """
        for file, found in self._found.items():
            for block_id, offset, length in found.values():
                self._stores.priority.give_way()
                data = read_range(file.fd, offset, length)
                with translated("block directory"):
                    self._stores.blocks.put(data, hold, block_id=block_id)


def _lies_in(file: StagingFile, at: int, part: bytes, *, is_all: bool) -> bool:
    """Whether the bytes of a file from an offset on lie in a staging file as they are: holes are NULs there, too.

    So must the rest of a last page be that is not all the file's, after a cut, say: whoever shares pages of a segment
    with a longer file shows it.
    """
    if at >> RANGE_SHIFT != file.key[1]:
        return False
    rest = -len(part) % PAGE
    return (is_all and not rest) or read_range(file.fd, at % RANGE, len(part) + rest) == part + bytes(rest)


def _bytes_of(found: dict[BlockId, Found]) -> int:
    return sum(one.length for one in found.values())
