"""Reading a directory in pieces, with positions that stay valid while it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from blockfs.engine.names.attributes import Attributes
from blockfs.engine.names.inodes import Inodes
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, UNFINISHED_PREFIX

_DOTS: Final = 2  # positions 0 and 1 are "." and ".."


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


class Listing:
    """An open directory.

    Positions number the names in the order in which this handle first met them (byte order), and stay so: a reader
    who goes back to a position gets the same names, without those removed meanwhile. Names that are added behind the
    last position met are seen, others not; POSIX leaves that open. Reading from 0 starts anew. A position from before
    counts from there on, so it is the same entry if nothing has changed; one behind the last entry is the end.
    """

    def __init__(self, inodes: Inodes, ino: int) -> None:
        self._inodes = inodes
        self._ino = ino
        self._names: list[bytes] = []
        self._scan: Iterator[tuple[bytes, int]] | None = None

    def read(self, position: int = 0, *, dots: bool = False) -> Iterator[Entry]:
        """Entries from a position on. Advance it under the engine's lock; stop whenever a buffer is full.

        Args:
            position: 0 or an entry's `next_position`.
            dots: Also "." and "..".
        """
        if position == 0:
            self._names.clear()
            self._scan = None
        for at in range(position, _DOTS):
            if dots:
                yield self._dot(at)
        index = max(0, position - _DOTS)
        while not self.reach(position):
            pass
        while index < len(self._names) or (index == len(self._names) and self._meet_next()):
            name = self._names[index]
            index += 1
            ino = self._inodes.tree.lookup(self._ino, name)
            if ino is not None:
                attributes = self._inodes.attributes(self._inodes.inode(ino))
                yield Entry(name=name, attributes=attributes, next_position=index + _DOTS)

    def reach(self, position: int, most: int = 1000) -> bool:
        """Meet names up to a position, for who comes there from nowhere: it must count them. Under the engine's lock.

        Args:
            position: Where to read next.
            most: Names in one call: other requests wait about 1 ms for 1,000.

        Returns:
            Whether they are met, or there are no more. Else call it again.
        """
        for _ in range(most):
            if position - _DOTS <= len(self._names) or not self._meet_next():
                return True
        return position - _DOTS <= len(self._names)

    def _dot(self, at: int) -> Entry:
        ino = self._ino if at == 0 else parent_of(self._inodes, self._ino)
        attributes = self._inodes.attributes(self._inodes.inode(ino))
        return Entry(name=b"." if at == 0 else b"..", attributes=attributes, next_position=at + 1)

    def _meet_next(self) -> bool:
        if self._scan is None:
            after = self._names[-1] if self._names else b""
            self._scan = self._inodes.tree.entries(self._ino, after)
        for name, _ in self._scan:
            if self._ino != SNAPSHOTS_INO or not name.startswith(UNFINISHED_PREFIX):
                self._names.append(name)
                return True
        self._scan = None  # names may be added behind the last one later
        return False


def parent_of(inodes: Inodes, ino: int) -> int:
    """The directory that contains a directory; the root contains itself, and so does a removed directory.

    The directory of snapshots is in the root.
    """
    if ino in {ROOT_INO, SNAPSHOTS_INO}:
        return ROOT_INO
    place = next(inodes.tree.places(ino), None)
    return ino if place is None else place[0]
