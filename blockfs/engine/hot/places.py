"""Where the blocks of leaves lie in their segments, as they were looked up last: for files that are compared often.

What is kept may be out of date, and does no harm. A leaf's key names its ids for ever. Where a block was moved from,
its pages are given back, and nothing else comes to lie there, ever: segments are appended to only, and no number is
used twice. So who still shares an old place has that block; all else is dirty, and looked up anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, NamedTuple

from blockfs.blocks.ids import LeafKey
from blockfs.engine.hot.addresses import Run

_RUNS: Final = 100_000  # kept of all leaves: 20 MB


class LeafPlaces(NamedTuple):
    """Where the blocks of a leaf lie.

    Attributes:
        runs: By place in the file; `start` is relative to the leaf's first byte.
        unknown: Numbers, in the leaf, of blocks of which nobody knows where they are.
    """

    runs: tuple[Run, ...]
    unknown: tuple[int, ...]


class KnownPlaces:
    """Those of the leaves that were looked up last. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[LeafKey, LeafPlaces] = OrderedDict()
        self._runs = 0

    def get(self, key: LeafKey) -> LeafPlaces | None:
        """What is known of a leaf."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def put(self, key: LeafKey, found: LeafPlaces) -> None:
        """Keep what was looked up, if all of it is known."""
        if found.unknown:
            return
        with self._lock:
            self._forget(key)
            self._found[key] = found
            self._runs += len(found.runs)
            while self._runs > _RUNS:
                _, oldest = self._found.popitem(last=False)
                self._runs -= len(oldest.runs)

    def forget(self, keys: Iterable[LeafKey]) -> None:
        """These are to be looked up anew."""
        with self._lock:
            for key in keys:
                self._forget(key)

    def _forget(self, key: LeafKey) -> None:
        found = self._found.pop(key, None)
        self._runs -= 0 if found is None else len(found.runs)
