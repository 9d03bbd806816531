"""What a recording holds, and the disks that a power cut could leave of it.

A disk keeps all writes before the last barrier. Of those after it, it may have done any, in any order, and the one it
was at only in part.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path

import msgspec

_HEADER = struct.Struct(">QI")
_BARRIER_OFFSET = (1 << 64) - 1


def encode_write(offset: int, data: bytes) -> bytes:
    """A write, as it stands in a recording."""
    return _HEADER.pack(offset, len(data)) + data


def encode_barrier() -> bytes:
    """A flush that was done."""
    return _HEADER.pack(_BARRIER_OFFSET, 0)


class Entry(msgspec.Struct, frozen=True):
    """One write or barrier.

    Attributes:
        end: Position in the recording right after it: the clock of the promises.
        offset: Where on the disk; None: a barrier.
        place: Where its data begin in the recording.
        length: Bytes.
    """

    end: int
    offset: int | None
    place: int
    length: int


def read_entries(path: Path) -> list[Entry]:
    """All entries of a recording."""
    entries = []
    size_bytes = path.stat().st_size
    with path.open("rb") as file:
        at = 0
        while at < size_bytes:
            offset, length = _HEADER.unpack(os.pread(file.fileno(), _HEADER.size, at))
            place = at + _HEADER.size
            at = place + length
            entries.append(Entry(at, None if offset == _BARRIER_OFFSET else offset, place, length))
    return entries


class Loss(Enum):
    """What happens to the writes after the last barrier."""

    NONE = "all are done"
    ALL = "none is done"
    SOME = "some are done, in another order"
    TORN_PAGES = "some 4 KiB pages of some are done"
    TORN_SECTORS = "some 512-byte sectors of some are done"


class Cut(msgspec.Struct, frozen=True):
    """A moment at which the power goes.

    Attributes:
        count: Entries of the recording that the disk has received.
        loss: What it made of those after the last barrier.
        seed: Decides which.
    """

    count: int
    loss: Loss
    seed: int


def choose_cuts(entries: list[Entry], start: int, count: int, seed: int, losses: Sequence[Loss]) -> list[Cut]:
    """Cuts at random entries that end after position `start`, in the order of the recording; losses by turns."""
    chance = random.Random(seed)
    first = next(number for number, entry in enumerate(entries, 1) if entry.end > start)
    counts = sorted(chance.randint(first, len(entries)) for _ in range(count))
    return [Cut(at, losses[number % len(losses)], chance.randrange(1 << 32)) for number, at in enumerate(counts)]


class Replay:
    """Makes the images of cuts. Cuts must come in order: the certain part is written once.

    Args:
        recording: The file.
        entries: Its entries.
        certain: Path for the image of what the barriers hold fast; kept up to date between cuts.
        size_bytes: Of the disk.
    """

    def __init__(self, recording: Path, entries: list[Entry], certain: Path, size_bytes: int) -> None:
        self._entries = entries
        self._certain_path = certain
        self._done = 0
        self._source = os.open(recording, os.O_RDONLY)
        self._certain = os.open(certain, os.O_RDWR | os.O_CREAT)
        os.truncate(self._certain, size_bytes)

    def close(self) -> None:
        os.close(self._source)
        os.close(self._certain)

    def position(self, cut: Cut) -> int:
        """The clock at a cut: promises made up to it must hold."""
        return self._entries[cut.count - 1].end

    def make(self, cut: Cut, image: Path) -> None:
        """Write the image of a cut."""
        received = self._entries[: cut.count]
        barrier = max((number for number, entry in enumerate(received, 1) if entry.offset is None), default=0)
        for entry in self._entries[self._done : barrier]:
            if entry.offset is not None:
                os.pwrite(self._certain, self._data(entry), entry.offset)
        self._done = max(self._done, barrier)
        _copy_sparse(self._certain, image)
        target = os.open(image, os.O_RDWR)
        try:
            for offset, data in surviving(self._writes(received[barrier:]), cut.loss, cut.seed):
                os.pwrite(target, data, offset)
        finally:
            os.close(target)

    def _writes(self, entries: list[Entry]) -> list[tuple[int, bytes]]:
        return [(entry.offset, self._data(entry)) for entry in entries if entry.offset is not None]

    def _data(self, entry: Entry) -> bytes:
        return os.pread(self._source, entry.length, entry.place)


def surviving(writes: list[tuple[int, bytes]], loss: Loss, seed: int) -> Iterator[tuple[int, bytes]]:
    """What a disk did of writes after its last barrier, in the order in which it did it."""
    chance = random.Random(seed)
    match loss:
        case Loss.NONE:
            yield from writes
        case Loss.ALL:
            return
        case Loss.SOME:
            yield from chance.sample(writes, chance.randint(0, len(writes)))
        case Loss.TORN_PAGES | Loss.TORN_SECTORS:
            unit = 4096 if loss is Loss.TORN_PAGES else 512
            for offset, data in writes:
                if chance.random() < 0.5:
                    yield offset, data
                    continue
                for at in range(0, len(data), unit):
                    if chance.random() < 0.5:
                        yield offset + at, data[at : at + unit]


def _copy_sparse(source: int, target: Path) -> None:
    """Copy the parts of a file that are data; the rest of the new file is a hole."""
    target.unlink(missing_ok=True)
    size_bytes = os.fstat(source).st_size
    fd = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        os.truncate(fd, size_bytes)
        at = 0
        while at < size_bytes:
            try:
                start = os.lseek(source, at, os.SEEK_DATA)
            except OSError:  # ENXIO: nothing but a hole is left
                break
            at = os.lseek(source, start, os.SEEK_HOLE)
            while start < at:
                data = os.pread(source, min(at - start, 1 << 20), start)
                os.pwrite(fd, data, start)
                start += len(data)
    finally:
        os.close(fd)
