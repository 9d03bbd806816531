"""Of a complete listing, what differs from the base; the rest is forgotten page by page. Pure.

For servers that list everything and tell no changes. Of an object that is as its base row says only one bit is kept,
so memory follows the differences. The order of the pages does not matter: a server sorts names as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Final

import msgspec

from syncer.core.model import ROOT, Nid, RelPath, RemoteStat
from syncer.core.partial.affected import UnboundedError
from syncer.core.paths import split
from syncer.core.rows import BaseRows

_KNOWN_DIRECTORIES: Final = 4096  # listings are mostly sorted: few directories are met at a time


class Numbers:
    """A set of numbers that lie close together: one bit for each of their range."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def __contains__(self, number: object) -> bool:
        assert isinstance(number, int)
        at = number >> 3
        return at < len(self._bits) and bool(self._bits[at] >> (number & 7) & 1)

    def add(self, number: int) -> None:
        """Put one in."""
        at = number >> 3
        if at >= len(self._bits):
            self._bits.extend(bytes(max(at + 1 - len(self._bits), len(self._bits) // 2)))
        self._bits[at] |= 1 << (number & 7)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing is held against.

    Attributes:
        rows: Opens the base; it must not change until the end.
        below: The listing is of more: only what is below this folder is in the base, by its path from there on. With a
            slash at the end, or empty.
    """

    rows: Callable[[], AbstractContextManager[BaseRows]]
    below: bytes = b""


class ListingDiff:
    """Of one listing, taken page by page."""

    def __init__(self, known: Known) -> None:
        self._rows = known.rows
        self._below = known.below
        self._agreeing = Numbers()
        self._differing: set[RelPath] = set()
        self._directories: dict[RelPath, Nid | None] = {}

    def differing(self, objects: Sequence[RemoteStat]) -> list[RemoteStat]:
        """Some of the objects; returns those that are not as the base says.

        Raises:
            UnboundedError: The base is torn.
        """
        differing: list[RemoteStat] = []
        with self._rows() as rows:
            for stat in objects:
                if not stat.path.startswith(self._below):
                    continue
                above, name = split(RelPath(stat.path[len(self._below) :]))
                parent = self._number(rows, above)
                nid = None if parent is None else rows.agreeing(parent, name, stat.tag)
                if nid is None:
                    differing.append(stat)
                    self._differing.add(stat.path)
                else:
                    self._agreeing.add(nid)
        return differing

    def missing(self) -> list[RelPath]:
        """What the base has and no page had, once all pages were taken.

        Raises:
            UnboundedError: The base is torn.
        """
        found: list[RelPath] = []
        with self._rows() as rows:
            for row in rows.others(self._agreeing):
                path = rows.path(row)
                if path is None:
                    raise UnboundedError(row.nid)
                if (full := RelPath(self._below + path)) not in self._differing:
                    found.append(full)
        return found

    def _number(self, rows: BaseRows, path: RelPath) -> Nid | None:
        trail: list[RelPath] = []
        at = path
        while at and at not in self._directories:
            trail.append(at)
            at, _ = split(at)
        nid = self._directories[at] if at else ROOT
        for each in reversed(trail):
            found = rows.at(nid, split(each)[1]) if nid is not None else ()
            if len(found) > 1:
                raise UnboundedError(each)
            if len(self._directories) >= _KNOWN_DIRECTORIES:
                self._directories.clear()
            nid = self._directories[each] = found[0].nid if found else None
        return nid
