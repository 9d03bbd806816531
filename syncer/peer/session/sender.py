"""Our own sender id and counter: under one id no counter is used twice, or a key and a nonce would meet again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from syncer.peer.wire.keys import SENDER_BYTES, epoch_of

JUMP_S: Final = 2.0  # so far the wall's clock may go from the monotonic one between two frames
_KEPT: Final = 64  # ids of ours that we still know. One an epoch; only who has the key can make them come faster


class Sender:
    """Who we are in frames: 16 random bytes, new in each process and epoch, and a counter.

    A virtual machine that is resumed, or is a copy, goes on with the random numbers of another: so a jump of the clock
    makes a new id, and so does a valid frame under our id that we did not send.
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        """Nobody yet.

        Args:
            entropy: So many bytes, random, from the system.
        """
        self._entropy = entropy
        self._ids: dict[bytes, None] = {}
        self._epoch: int | None = None
        self._ahead_s = 0.0
        self._counter = 0
        self.id = b""

    def at(self, now: float, unix_s: float) -> int:
        """The epoch of this moment. Owed before `id` is used or a counter taken: the id may have to be another now."""
        epoch = epoch_of(unix_s)
        ahead_s = unix_s - now
        if epoch != self._epoch or abs(ahead_s - self._ahead_s) > JUMP_S:
            self._epoch = epoch
            self.renew()
        self._ahead_s = ahead_s
        return epoch

    def renew(self) -> None:
        """Be another at once."""
        self.id = self._entropy(SENDER_BYTES)
        self._counter = 0
        self._ids[self.id] = None
        if len(self._ids) > _KEPT:
            del self._ids[next(iter(self._ids))]

    def count(self) -> int:
        """The counter of the next frame."""
        self._counter += 1
        return self._counter

    def is_own(self, sender: bytes) -> bool:
        """Whether we are or were this sender."""
        return sender in self._ids

    def never_sent(self, sender: bytes, counter: int) -> bool:
        """Whether a frame under our present id can't be ours, though it may yet be forged: look at its tag."""
        return sender == self.id and counter > self._counter
