"""Wants in the order in which a source gets them: by priority, then as they came, or drawn by chance. Pure.

Adding, removing and looking are O(1) each, whatever the pool holds.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from syncer.ports.blocks import Priority

Draw = Callable[[int], int]
"""A number from 0 to below the argument, by chance."""


class Urgent(Protocol):
    """What a pool holds. Hashed by identity; its priority does not change while it is in a pool."""

    @property
    def priority(self) -> Priority:
        """See Priority."""
        ...


T = TypeVar("T", bound=Urgent)


class Pool(Generic[T]):
    """In order."""

    def __init__(self) -> None:
        self._lines: tuple[OrderedDict[T, None], ...] = tuple(OrderedDict() for _ in Priority)

    def __bool__(self) -> bool:
        return any(self._lines)

    def add(self, item: T) -> None:
        """Put it behind those of its priority."""
        self._lines[item.priority][item] = None

    def discard(self, item: T) -> None:
        """Take it out; it is in."""
        del self._lines[item.priority][item]

    def first(self) -> T | None:
        """The most urgent one, of these the one that came first; None: the pool is empty. It stays."""
        for line in self._lines:
            if line:
                return next(iter(line))
        return None

    def pop(self) -> T | None:
        """Take out the one that `first` tells."""
        for line in self._lines:
            if line:
                return line.popitem(last=False)[0]
        return None


class Lottery(Pool[T]):
    """In order, or by chance."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: tuple[list[T], ...] = tuple([] for _ in Priority)
        self._places: dict[T, int] = {}

    def __len__(self) -> int:
        return len(self._places)

    def add(self, item: T) -> None:
        """Put it in."""
        self._lines[item.priority][item] = None
        row = self._rows[item.priority]
        self._places[item] = len(row)
        row.append(item)

    def discard(self, item: T) -> None:
        """Take it out; it is in."""
        del self._lines[item.priority][item]
        row = self._rows[item.priority]
        at, last = self._places.pop(item), row.pop()
        if last is not item:
            row[at] = last
            self._places[last] = at

    def drawn(self, draw: Draw) -> T | None:
        """One of the most urgent ones, by chance; None: the pool is empty. It stays."""
        for row in self._rows:
            if row:
                return row[draw(len(row))]
        return None
