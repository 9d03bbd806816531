"""What goes out: the links that are up, what each may still broadcast, and the sealing of frames.

A broadcast is sealed once and goes by all links, byte for byte the same: who hears it twice drops the second as a
replay, and answers by the link that was faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncer.peer.session.actions import Address, Link, LinkId, Send
from syncer.peer.session.budget import Bucket, broadcasts
from syncer.peer.session.counters import Counters
from syncer.peer.session.keyring import ShareKey
from syncer.peer.session.sender import Sender
from syncer.peer.wire.bodies import MAX_ADDRESSES, Presence
from syncer.peer.wire.frames import BUCKETS, FrameType, seal

_LINKS: Final = 64  # whose budgets are kept, also while they are down: a link that flaps must not get a new one


class Outbound:
    """All links."""

    def __init__(self, sender: Sender, counters: Counters) -> None:
        """None is up.

        Args:
            sender: Who we are.
            counters: Where frames are counted.
        """
        self._sender = sender
        self._counters = counters
        self._up: dict[LinkId, Link] = {}
        self._budgets: dict[tuple[LinkId, bool], Bucket] = {}
        self.port = 0

    def up(self, link: Link) -> bool:
        """A link came up, or is another now. Returns whether that is news for others: it came, or its addresses."""
        if link.bound < BUCKETS[0]:
            self._up.pop(link.id, None)
            return False
        before = self._up.get(link.id)
        self._up[link.id] = link
        kind = (link.id, link.wireless)
        self._budgets[kind] = self._budgets.pop(kind) if kind in self._budgets else broadcasts(wireless=link.wireless)
        while len(self._budgets) > max(_LINKS, len(self._up)):
            idle = (each for each in self._budgets if each[0] not in self._up)
            del self._budgets[next(idle, next(iter(self._budgets)))]
        return before is None or before.addresses != link.addresses

    def down(self, link: LinkId) -> None:
        """A link is gone."""
        self._up.pop(link, None)

    def is_up(self, link: LinkId) -> bool:
        """Whether this link can be used."""
        return link in self._up

    def answers(self, link: LinkId) -> bool:
        """Whether questions that come by this link, which is up, are answered."""
        return self.port != 0 and self._up[link].answers

    def links(self) -> list[LinkId]:
        """Those that are up."""
        return list(self._up)

    def bound(self) -> int:
        """The longest body that fits every link that is up. 0: none is."""
        return min((link.bound for link in self._up.values()), default=0)

    def addresses(self, link: LinkId) -> tuple[bytes, ...]:
        """Where we take connections by this link."""
        return self._up[link].addresses[:MAX_ADDRESSES]

    def ready(self, now: float) -> bool:
        """Whether some link may broadcast a frame now."""
        ready_s = self.ready_at(now)
        return ready_s is not None and ready_s <= now

    def ready_at(self, now: float) -> float | None:
        """When some link may. None: no link is up."""
        return min((self._budget(link).ready_at(now) for link in self._up.values()), default=None)

    def question(self, key: ShareKey, body: bytes, epoch: int, now: float) -> list[Send]:
        """Send a WHOHAS to all by every link that may.

        Args:
            key: Of the share.
            body: Padded, for the smallest link.
            epoch: As `Sender.at` told it just now.
            now: Monotonic seconds.
        """
        links = [link.id for link in self._up.values() if self._may(link, now)]
        return self._send(links, None, self._seal(key, FrameType.WHOHAS, body, epoch), FrameType.WHOHAS)

    def presence(self, link: LinkId, kind: FrameType, keys: Iterable[ShareKey], epoch: int, now: float) -> list[Send]:
        """Say HELLO, which asks who is there, or BYE by one link, under each of these keys."""
        sends: list[Send] = []
        body = Presence(port=self.port, addresses=self.addresses(link), asks=kind is FrameType.HELLO).encode()
        for key in keys:
            if self._may(self._up[link], now):
                sends += self._send([link], None, self._seal(key, kind, body, epoch), kind)
        return sends

    def hello(self, key: ShareKey, link: LinkId, to: Address, epoch: int) -> list[Send]:
        """Say HELLO to one, who asked; this one asks nothing, or two machines would never end."""
        body = Presence(port=self.port, addresses=self.addresses(link)).encode()
        return self._send([link], to, self._seal(key, FrameType.HELLO, body, epoch), FrameType.HELLO)

    def answer(self, key: ShareKey, body: bytes, link: LinkId, to: Address, epoch: int) -> list[Send]:
        """Send an IHAVE to one."""
        return self._send([link], to, self._seal(key, FrameType.IHAVE, body, epoch), FrameType.IHAVE)

    def _seal(self, key: ShareKey, kind: FrameType, body: bytes, epoch: int) -> bytes:
        return seal(key.of(epoch), kind, self._sender.id, self._sender.count(), body)

    def _send(self, links: list[LinkId], to: Address | None, frame: bytes, kind: FrameType) -> list[Send]:
        self._counters.frames_out[kind] += len(links)
        return [Send(link=link, to=to, frame=frame) for link in links]

    def _may(self, link: Link, now: float) -> bool:
        may = self._budget(link).take(now)
        self._counters.broadcasts_held += not may
        return may

    def _budget(self, link: Link) -> Bucket:
        return self._budgets[link.id, link.wireless]
