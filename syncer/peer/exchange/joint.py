"""What several roots of one share have between them: one index for whoever asks.

Two folders of a machine may be linked to the same share, and each has an index. A fault of one of them never reaches a
peer: it has nothing then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from blockfs.runtime.logs import Log
from syncer.errors import EXPECTED
from syncer.peer.wire.bodies import TOKEN_BYTES
from syncer.ports.blocks import ShareIndex

log = Log()

DOUBT_S: Final = 3600.0  # as long as who said so asks us for nothing
_DOUBTS: Final = 1024  # blocks; the oldest is forgotten
_KEPT: Final = 65_536  # ids that came in, for who looks later
A = TypeVar("A")
T = TypeVar("T")


class Joint:
    """A `ShareIndex` of those that are served now; they may be others at any time. Any thread.

    Attributes:
        share: Which share.
    """

    def __init__(self, share: str, clock: Callable[[], float] = time.time) -> None:
        """Nothing is served.

        Args:
            share: Its name.
            clock: Seconds; in any thread.
        """
        self._clock = clock
        self.share = share
        self._indexes: tuple[ShareIndex, ...] = ()
        self._positions: dict[int, int] = {}
        self._lock = threading.Lock()
        self._doubtful: dict[BlockId, tuple[float, bool]] = {}  # until when; whether some root has it right
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
        damaged = {block[:TOKEN_BYTES] for block, is_right in self._doubts().items() if not is_right}
        return (
            [there and prefix not in damaged for there, prefix in zip(held, prefixes, strict=True)] if damaged else held
        )

    def read(self, block: BlockId) -> bytes | None:
        """See ShareIndex. What came wrong once is looked at before it is given."""
        return self._right(block) if block in self._doubts() else self._read(block)

    def scrub(self, block: BlockId) -> bool:
        """A peer says that this came wrong: look at all copies. A wrong one is not given for an hour; it is logged.

        Returns:
            Whether a right one is here.
        """
        is_wrong = any(data is not None and block_id(canonical(data)) != block for data in self._copies(block))
        is_right = self._right(block) is not None
        if is_wrong:
            log.warning("share.block_damaged", share=self.share, block=block.hex(), is_elsewhere=is_right)
            with self._lock:
                self._doubtful.pop(block, None)
                self._doubtful[block] = (self._clock() + DOUBT_S, is_right)
                while len(self._doubtful) > _DOUBTS:
                    del self._doubtful[next(iter(self._doubtful))]
        return is_right

    def _doubts(self) -> dict[BlockId, bool]:
        """What came wrong in the last hour, and whether some root has it right."""
        if not self._doubtful:
            return {}
        now = self._clock()
        with self._lock:
            return {block: is_right for block, (until, is_right) in self._doubtful.items() if until > now}

    def _copies(self, block: BlockId) -> Iterator[bytes | None]:
        return (_asked(index.read, block) for index in self._indexes)

    def _right(self, block: BlockId) -> bytes | None:
        copies = (data for data in self._copies(block) if data is not None)
        return next((data for data in copies if block_id(canonical(data)) == block), None)

    def _read(self, block: BlockId) -> bytes | None:
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
    except EXPECTED as error:
        log.warning("peers.index_failed", error=str(error))
        return None
