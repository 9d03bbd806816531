"""Which frames of a sender were seen: a window of counters, so that a frame counts once however often it comes."""

from __future__ import annotations

from typing import Final

WINDOW: Final = 64  # frames may overtake each other by so much: two links, and a receiver's queue


class ReplayWindow:
    """Counters of one sender with one key.

    Look before deciphering, commit after the tag was right: else a forged counter would shut the true ones out.
    """

    __slots__ = ("_bits", "_top")

    def __init__(self) -> None:
        """A sender of whom nothing came yet."""
        self._top = 0
        self._bits = 1  # bit n: the counter `_top` - n was seen. Counters begin with 1: 0 was seen

    def is_new(self, counter: int) -> bool:
        """Whether no frame with this counter, from 1, was committed. False too for what is older than the window."""
        behind = self._top - counter
        return behind < 0 or (behind < WINDOW and not self._bits >> behind & 1)

    def commit(self, counter: int) -> None:
        """Remember a new counter."""
        assert self.is_new(counter)
        ahead = counter - self._top
        if ahead <= 0:
            self._bits |= 1 << -ahead
        else:
            # A shift by a counter that somebody chose would be as much memory: beyond the window nothing is left.
            self._bits = 1 if ahead >= WINDOW else (self._bits << ahead | 1) & ((1 << WINDOW) - 1)
            self._top = counter
