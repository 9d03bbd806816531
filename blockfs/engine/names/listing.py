"""Reading a directory in pieces, with positions that stay valid while it changes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

import msgspec

from blockfs.engine.names.attributes import Attributes
from blockfs.engine.names.inodes import Inodes
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, UNFINISHED_PREFIX

_DOTS: Final = 2  # positions 0 and 1 are "." and ".."
_GONE_MAX: Final = 1000  # names: below that nobody minds


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One directory entry.

    Attributes:
        name: "." and ".." come first, if asked for.
        attributes: Of the inode.
        next_position: Where to go on after this entry; the d_off of readdir(3).
    """

    name: bytes
    attributes: Attributes
    next_position: int


class Met:
    """What the readers of one directory share: the names that any of them met, by number, and which came meanwhile.

    Under the engine's lock. `came` and `went` are told of each entry that begins or ends to exist.

    Attributes:
        names: In the order in which they were first met; some may be gone.
        changes: How many names have come.
    """

    def __init__(self) -> None:
        self.names: list[bytes] = []
        self.changes = 0
        self._numbers: dict[bytes, int] = {}
        self._newcomers: dict[bytes, int] = {}
        self._last = b""
        self._gone = 0

    @property
    def is_stale(self) -> bool:
        """Most of the names are gone: whoever begins to read should not keep them any longer."""
        return self._gone > _GONE_MAX and self._gone > len(self.names) // 2

    @property
    def last(self) -> bytes:
        """The greatest name that was met."""
        return self._last

    def number(self, name: bytes) -> int:
        """Meet a name."""
        number = self._numbers.setdefault(name, len(self.names))
        if number == len(self.names):
            self.names.append(name)
            self._last = max(self._last, name)
        return number

    def came(self, name: bytes) -> None:
        """The directory has one more name."""
        self.changes += 1
        self._newcomers[name] = self.changes
        self._gone -= name in self._numbers

    def went(self, name: bytes) -> None:
        """The directory has a name less."""
        self._newcomers.pop(name, None)
        self._gone += name in self._numbers

    def is_newer(self, name: bytes, changes: int) -> bool:
        """Whether a name came after so many changes."""
        return self._newcomers.get(name, 0) > changes


class Readers:
    """What is met of the directories that are being read. Under the engine's lock."""

    def __init__(self) -> None:
        self._met: WeakValueDictionary[int, Met] = WeakValueDictionary()

    def begin(self, ino: int) -> Met:
        """What is met of a directory: shared by all of its readers, and kept for as long as one of them is there."""
        met = self._met.get(ino)
        if met is None or met.is_stale:
            met = self._met[ino] = Met()
        return met

    def changed(self, ino: int, name: bytes, exists: bool) -> None:
        """A directory has one more name, or one less."""
        met = self._met.get(ino)
        if met is not None:
            (met.came if exists else met.went)(name)


class Listing:
    """An open directory.

    Positions number the names in the order in which any reader of the directory first met them (byte order), and stay
    so: who goes back to a position gets the names behind it, without those removed meanwhile. Names that come while
    they are read are left out: a reader that renames what it finds would else meet it again for ever. POSIX leaves
    that open. Reading from 0 starts anew. A position that nobody was given counts: it is the same entry if nothing has
    changed; one behind the last entry is the end.

    Readers share what they have met: who opens a large directory a thousand times holds its names once.
    """

    def __init__(self, inodes: Inodes, readers: Readers, ino: int) -> None:
        self._inodes = inodes
        self._readers = readers
        self._ino = ino
        self._met: Met | None = None
        self._began = 0

    def read(self, position: int = 0, *, dots: bool = False) -> Iterator[Entry]:
        """Entries from a position on. Advance it under the engine's lock; stop whenever a buffer is full.

        Args:
            position: 0 or an entry's `next_position`.
            dots: Also "." and "..".
        """
        met = self._begun(anew=position == 0)
        for at in range(position, _DOTS):
            if dots:
                yield self._dot(at)
        while not self.reach(position):
            pass
        before = max(0, position - _DOTS)
        if before > len(met.names):
            return
        for name, ino in self._entries(met.names[before - 1] if before else b""):
            if not met.is_newer(name, self._began):
                attributes = self._inodes.attributes(self._inodes.inode(ino))
                yield Entry(name=name, attributes=attributes, next_position=met.number(name) + 1 + _DOTS)

    def reach(self, position: int, most: int = 1000) -> bool:
        """Meet names up to a position, for who comes there from nowhere: it must count them. Under the engine's lock.

        Args:
            position: Where to read next.
            most: Names in one call: other requests wait about 1 ms for 1,000.

        Returns:
            Whether they are met, or there are no more. Else call it again.
        """
        met = self._begun(anew=False)
        left = position - _DOTS - len(met.names)
        if left <= 0:
            return True
        found = [name for name, _ in islice(self._entries(met.last), min(left, most))]
        for name in found:
            met.number(name)
        return len(found) == left or len(found) < most

    def _begun(self, *, anew: bool) -> Met:
        if anew or self._met is None:
            self._met = self._readers.begin(self._ino)
            self._began = self._met.changes
        return self._met

    def _entries(self, after: bytes) -> Iterator[tuple[bytes, int]]:
        for name, ino in self._inodes.tree.entries(self._ino, after):
            if self._ino != SNAPSHOTS_INO or not name.startswith(UNFINISHED_PREFIX):
                yield name, ino

    def _dot(self, at: int) -> Entry:
        ino = self._ino if at == 0 else parent_of(self._inodes, self._ino)
        attributes = self._inodes.attributes(self._inodes.inode(ino))
        return Entry(name=b"." if at == 0 else b"..", attributes=attributes, next_position=at + 1)


def parent_of(inodes: Inodes, ino: int) -> int:
    """The directory that contains a directory; the root contains itself, and so does a removed directory.

    The directory of snapshots is in the root.
    """
    if ino in {ROOT_INO, SNAPSHOTS_INO}:
        return ROOT_INO
    place = next(inodes.tree.places(ino), None)
    return ino if place is None else place[0]
