"""By which carriers a frame to all goes out on one interface. Pure.

Who has the best carrier listens to the others, too. So who has only a worse one is heard and answered at once; but to
be asked, it must be known. Rules:

- The best carrier always.
- Another one if somebody was heard by it within ten minutes, and by none that is better.
- Another one once in ten minutes all the same, at the first question that fits: who is there answers, and is known.
- HELLO and BYE by all: they are rare, and are no such question: nobody answers BYE, and HELLO not everybody.

Whom both reach gets a frame twice, with one counter: the second is a replay and dropped. All copies together keep to
the budget of the interface, and extra ones to a quarter of it, so that they never displace many of the first ones.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from syncer.peer.session.budget import Bucket, broadcasts
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.frames import OVERHEAD_BYTES, body_bound

KNOWN_S: Final = 600.0  # one epoch: as long as a sender id lives
_SENDERS: Final = 256


class Ways:
    """What is known of one interface."""

    def __init__(self, carriers: Sequence[Carrier], mtu: int, *, wireless: bool) -> None:
        """Nobody was heard.

        Args:
            carriers: The best first; not empty.
            mtu: Of the interface, bytes.
            wireless: Broadcasts are dear.
        """
        self._carriers = tuple(carriers)
        self._longest = {carrier: OVERHEAD_BYTES + body_bound(mtu, carrier) for carrier in carriers}
        self._heard: OrderedDict[bytes, tuple[Carrier, float]] = OrderedDict()
        self._probed = dict.fromkeys(carriers, -math.inf)
        self._budget = broadcasts(wireless=wireless)
        self._extra = Bucket(2, 5) if wireless else Bucket(16, 50)

    def heard(self, sender: bytes, carrier: Carrier, now: float) -> None:
        """A valid frame of this sender came by this carrier."""
        known, at = self._heard.pop(sender, (carrier, now))
        if carrier in self._carriers:
            better = now - at <= KNOWN_S and self._rank(known) < self._rank(carrier)
            self._heard[sender] = (known, at) if better else (carrier, now)
            while len(self._heard) > _SENDERS:
                self._heard.popitem(last=False)

    def needed(self, now: float) -> tuple[Carrier, ...]:
        """Carriers that a frame to all must go by for everybody who is known to hear it; the best first."""
        used = {self._carriers[0]}
        used |= {carrier for carrier, at in self._heard.values() if now - at <= KNOWN_S}
        return tuple(carrier for carrier in self._carriers if carrier in used)

    def longest_body(self, now: float) -> int:
        """The longest body, in bytes, that all of them can carry."""
        return min(self._longest[carrier] for carrier in self.needed(now)) - OVERHEAD_BYTES

    def fits(self, size: int) -> bool:
        """Whether a carrier can carry a frame of so many bytes at all."""
        return size <= max(self._longest.values())

    def take(self, size: int, now: float, *, answered: bool = True) -> tuple[Carrier, ...]:
        """By which carriers a frame to all of `size` bytes goes now, as far as the budget has room.

        Args:
            size: Bytes of the frame.
            now: Monotonic seconds.
            answered: Whether it is a question, so that who hears it is heard.
        """
        needed = self.needed(now)
        taken = []
        for carrier in self._carriers:
            if size > self._longest[carrier]:
                continue
            if answered and carrier not in needed and now - self._probed[carrier] < KNOWN_S:
                continue
            if (carrier is self._carriers[0] or self._extra.take(now)) and self._budget.take(now):
                taken.append(carrier)
                if answered:
                    self._probed[carrier] = now
        return tuple(taken)

    def _rank(self, carrier: Carrier) -> int:
        return self._carriers.index(carrier) if carrier in self._carriers else len(self._carriers)
