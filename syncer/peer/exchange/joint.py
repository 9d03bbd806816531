"""What several roots of one share have between them: one index for whoever asks.

Two folders of a machine may be linked to the same share, and each has an index. A fault of one of them never reaches a
peer: it has nothing then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from blockfs.runtime.logs import Log
from syncer.errors import SyncerError
from syncer.ports.blocks import ShareIndex

log = Log()

_KEPT: Final = 65_536  # ids that came in, for who looks later
A = TypeVar("A")
T = TypeVar("T")


class Joint:
    """A `ShareIndex` of those that are served now; they may be others at any time. Any thread.

    Attributes:
        share: Which share.
    """

    def __init__(self, share: str) -> None:
        """Nothing is served.

        Args:
            share: Its name.
        """
        self.share = share
        self._indexes: tuple[ShareIndex, ...] = ()
        self._positions: dict[int, int] = {}
        self._lock = threading.Lock()
        self._recent: list[BlockId] = []
        self._dropped = 0

    def __bool__(self) -> bool:
        """Whether anything is served."""
        return bool(self._indexes)

    def set(self, indexes: Sequence[ShareIndex]) -> None:
        """These are served from now on."""
        with self._lock:
            self._indexes = tuple(indexes)
            self._positions = {id(index): self._positions.get(id(index), 0) for index in indexes}

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """See ShareIndex."""
        held = [False] * len(prefixes)
        for index in self._indexes:
            found = _asked(index.match, prefixes) or held
            held = [one or other for one, other in zip(held, found, strict=True)]
        return held

    def read(self, block: BlockId) -> bytes | None:
        """See ShareIndex."""
        for index in self._indexes:
            data = _asked(index.read, block)
            if data is not None:
                return data
        return None

    def recent(self, since: int) -> tuple[int, Sequence[BlockId]]:
        """See ShareIndex. What is older than the last 65,536 is not told."""
        with self._lock:
            for index in self._indexes:
                told = _asked(index.recent, self._positions.get(id(index), 0))
                if told is not None:
                    self._positions[id(index)], ids = told
                    self._recent += ids
            excess = len(self._recent) - _KEPT
            if excess > 0:
                del self._recent[:excess]
                self._dropped += excess
            return self._dropped + len(self._recent), self._recent[max(0, since - self._dropped) :]


def _asked(look: Callable[[A], T], at: A) -> T | None:
    try:
        return look(at)
    except (SyncerError, BlockfsError, OSError) as error:
        log.warning("peers.index_failed", error=str(error))
        return None
