"""What a load has done and what it was promised, and whether a volume after a power cut keeps it.

All content describes itself: a cell names its file, its place and the write that made it; a whole file names itself and
its version. So whatever is found can be traced to one write, and anything else is garbage.

Times are positions in the recording. A change that began after the cut cannot be seen; a promise made before it holds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

CELL = 512
HOLE = 0
_ABSENT = -1

Change = TypeVar("Change", tuple[int, int], tuple[int, int, int])


class BrokenPromiseError(AssertionError):
    """The volume lost or made up something."""


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise BrokenPromiseError(message)


@dataclass(slots=True)
class CellFile:
    """A file of cells of 512 bytes, changed by one thread. Event 0 is the file as it was made: empty.

    Attributes:
        tag: Names the file in its cells.
        begun: Per event: the position when it began.
        cells: Per cell: (event, value) in order. A value is the event that wrote the cell, or HOLE, or _ABSENT.
        sizes: (event, smallest, largest size in cells that may be seen of it) in order.
        promises: (position, event) in order: from that position on all up to that event is durable.
    """

    tag: str
    begun: list[int] = field(default_factory=lambda: [0])
    cells: list[list[tuple[int, int]]] = field(default_factory=list)
    sizes: list[tuple[int, int, int]] = field(default_factory=lambda: [(0, 0, 0)])
    promises: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def size(self) -> int:
        """Size in cells after all events."""
        return self.sizes[-1][2]

    def write(self, position: int, first: int, count: int) -> bytes:
        """Note a write that begins now; returns its data."""
        event = len(self.begun)
        self.begun.append(position)
        old = self.size
        for cell in range(old, first):
            self._set(event, cell, HOLE)
        for cell in range(first, first + count):
            self._set(event, cell, event)
        if first + count > old:
            # The kernel may hand a long write over in parts.
            self.sizes.append((event, old, first + count))
        return b"".join(self._content(cell, event) for cell in range(first, first + count))

    def truncate(self, position: int, size: int) -> None:
        """Note a truncate that begins now."""
        event = len(self.begun)
        self.begun.append(position)
        for cell in range(size, self.size):
            self._set(event, cell, _ABSENT)
        for cell in range(self.size, size):
            self._set(event, cell, HOLE)
        self.sizes.append((event, size, size))

    def _set(self, event: int, cell: int, value: int) -> None:
        if cell == len(self.cells):
            self.cells.append([(0, _ABSENT)])
        self.cells[cell].append((event, value))

    def promise(self, position: int, event: int) -> None:
        """Note that all up to an event is durable now."""
        self.promises.append((position, event))

    @property
    def last_event(self) -> int:
        """The newest event: to be asked before an fsync."""
        return len(self.begun) - 1

    def _content(self, cell: int, event: int) -> bytes:
        return f"{self.tag:16}{cell:24}{event:24}".encode() * (CELL // 64)

    def check(self, data: bytes | None, cut: int, *, grows_with_nuls: bool = False) -> None:
        """Compare what was found (None: no such file) with what may be there after a cut.

        Args:
            data: What was found.
            cut: Where in the recording.
            grows_with_nuls: Where the file grew and that was not promised there may be NUL bytes, too.

        Raises:
            BrokenPromiseError: It may not.
        """
        certain = max(event for position, event in self.promises if position <= cut)
        newest = max(event for event, position in enumerate(self.begun) if position <= cut)
        if data is None:
            _require(certain == 0, f"{self.tag}: gone")
            return
        seen = list(_possible(self.sizes, certain, newest))
        size = len(data) / CELL
        _require(
            any(low <= size <= high for _, low, high in seen),
            f"{self.tag}: {size} cells; possible after event {certain}: {seen}",
        )
        for cell in range(-(-len(data) // CELL)):
            found = data[cell * CELL : (cell + 1) * CELL]
            values = {value for _, value in _possible(self.cells[cell], certain, newest)}
            if grows_with_nuls and _ABSENT in values:
                values.add(HOLE)
            contents = (bytes(CELL) if value == HOLE else self._content(cell, value) for value in values - {_ABSENT})
            _require(
                any(content[: len(found)] == found for content in contents),
                f"{self.tag}: cell {cell} of {size}: {found[:64]!r}, possible: {sorted(values)}",
            )


def _possible(changes: list[Change], certain: int, newest: int) -> Iterator[Change]:
    """Of ordered changes (event, …): the last one that is certain, and all later ones that may have happened."""
    last = None
    for change in changes:
        if change[0] <= certain:
            last = change
            continue
        if last is not None:
            yield last
            last = None
        if change[0] <= newest:
            yield change
    if last is not None:
        yield last


class Version(msgspec.Struct, frozen=True):
    """Content that a name got.

    Attributes:
        number: Names the content; 0: the name was removed.
        whole: All of it must be there if any is: it was fsynced, or it replaced something, or it was cloned. Else it
            may be cut short.
    """

    number: int
    whole: bool


@dataclass(slots=True)
class NameHistory:
    """A name whose file is replaced, cloned and removed as a whole, by one thread.

    Attributes:
        versions: Per event: what the name stands for after it; event 0: nothing.
        begun: Per event: the position when it began.
        promises: (position, event) in order.
    """

    versions: list[Version] = field(default_factory=lambda: [Version(0, True)])
    begun: list[int] = field(default_factory=lambda: [0])
    promises: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def now(self) -> Version:
        """What the name stands for after all events."""
        return self.versions[-1]

    @property
    def last_event(self) -> int:
        """The newest event."""
        return len(self.begun) - 1

    def change(self, position: int, version: Version) -> None:
        """Note a change that begins now."""
        self.begun.append(position)
        self.versions.append(version)

    def promise(self, position: int, event: int) -> None:
        """Note that the change of an event is durable now."""
        self.promises.append((position, event))

    def check(self, name: str, data: bytes | None, cut: int, *, grows_with_nuls: bool = False) -> None:
        """See `CellFile.check`."""
        certain = max(event for position, event in self.promises if position <= cut)
        newest = max(event for event, position in enumerate(self.begun) if position <= cut)
        possible = self.versions[certain : newest + 1]
        if data is None:
            _require(any(not version.number for version in possible), f"{name}: gone, possible: {possible}")
            return
        for version in possible:
            if version.number:
                content = whole_content(version.number)
                if data == content or (not version.whole and content.startswith(data)):
                    return
                if grows_with_nuls and not version.whole and _has_nuls_for(content, data):
                    return
        raise BrokenPromiseError(f"{name}: {len(data)} bytes, {data[:32]!r}; possible: {possible}")


def _has_nuls_for(content: bytes, data: bytes) -> bool:
    """Whether data are the beginning of a content, but for pages that are NUL."""
    parts = ((data[at : at + 4096], content[at : at + 4096]) for at in range(0, len(data), 4096))
    return all(theirs.startswith(part) or not part.strip(b"\0") for part, theirs in parts)


@dataclass(slots=True)
class SnapshotHistory:
    """A snapshot of the folder of names: there as a whole, or not at all.

    Attributes:
        contents: File name → number of its content.
        begun: Position when its creation began.
        made: Position from which on it is durable; None: never.
        deleting: Position when its deletion began.
        deleted: Position from which on it is gone for good.
    """

    contents: dict[str, int]
    begun: int
    made: int | None = None
    deleting: int | None = None
    deleted: int | None = None

    def check(self, name: str, found: dict[str, bytes] | None, cut: int) -> None:
        """See `CellFile.check`; `found` are the files of the snapshot."""
        if found is None:
            is_certain = self.made is not None and self.made <= cut and (self.deleting is None or cut < self.deleting)
            _require(not is_certain, f"snapshot {name}: gone")
            return
        _require(self.begun <= cut and (self.deleted is None or cut < self.deleted), f"snapshot {name}: is there")
        _require(found.keys() == self.contents.keys(), f"snapshot {name}: {sorted(found)}, not {sorted(self.contents)}")
        for file, number in self.contents.items():
            data = found[file]
            _require(data == whole_content(number), f"snapshot {name}: {file}: {len(data)} bytes, {data[:32]!r}")


def whole_content(number: int) -> bytes:
    """The content of a version: its number decides all of it."""
    noise = random.Random(number)
    length = noise.choice([1, 700, 5000, 4096, 70_000, 200_000])
    return f"version {number:20}\n".encode() + noise.randbytes(length)
