"""One interface on which peers are heard and asked, by whatever carries frames there."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from blockfs.runtime.logs import Log
from syncer.peer.links.address import Address
from syncer.peer.links.interfaces import Usable
from syncer.peer.links.sockets import Sockets, Wire
from syncer.peer.links.ways import Ways
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.frames import HEADER_BYTES, FrameType
from syncer.peer.wire.keys import SENDER_BYTES

log = Log()

_PASSING: Final = frozenset({errno.ENOBUFS, errno.EAGAIN})
"""A queue is full: it happens to one frame, and says nothing of the next."""
_TYPE: Final = slice(4, 5)
_UNANSWERED: Final = frozenset({bytes([FrameType.HELLO]), bytes([FrameType.BYE])})
_SENDER: Final = slice(16, 16 + SENDER_BYTES)


class Came(msgspec.Struct, frozen=True, kw_only=True):
    """A link is up, or one that is up has changed: this is what it is now.

    Attributes:
        link: Its name, that of the interface.
        carriers: What carries frames, the best first.
        bound: The longest body, in bytes, of a frame to all.
        wireless: Broadcasts are dear.
        metered: Traffic costs.
        serves: False: peers are asked, but not served.
        addresses: Where it can be reached, 16 bytes each, link-local first.
        index: The kernel's number of the interface: the zone of its link-local addresses.
    """

    link: str
    carriers: tuple[Carrier, ...]
    bound: int
    wireless: bool
    metered: bool
    serves: bool
    addresses: tuple[bytes, ...]
    index: int


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """A link is not there any more, or must not be used any more."""

    link: str


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """A frame that came.

    Attributes:
        link: By which link.
        source: From whom; the answer goes there.
        frame: At most 2,048 bytes, begins with our magic; all else about it is unknown.
    """

    link: str
    source: Address
    frame: bytes


class Link:
    """An interface that is used.

    Attributes:
        usable: What it is.
        wire: The interface, as carriers want it.
        ways: By which carriers frames to all go.
    """

    def __init__(
        self, usable: Usable, sockets: Mapping[Carrier, Sockets], counters: Counter[str], before: Link | None = None
    ) -> None:
        """Nothing is heard or sent.

        Args:
            usable: What it is.
            sockets: What was opened.
            counters: Of all links; see `Links.counters`.
            before: What it was until now: neighbours and budget are kept where the wire is the same.
        """
        self.usable = usable
        self.wire = Wire(name=usable.interface.name, index=usable.interface.index)
        self._sockets = {carrier: sockets[carrier] for carrier in usable.carriers}
        self._counters = counters
        self._told: set[int] = set()
        known = before is not None and _wire(before.usable) == _wire(usable)
        ways = Ways(usable.carriers, usable.interface.mtu, wireless=usable.wireless)
        self.ways: Ways = before.ways if before is not None and known else ways

    @property
    def name(self) -> str:
        """That of the interface."""
        return self.wire.name

    def join(self) -> Iterator[tuple[Sockets, socket.socket]]:
        """Hear what is sent to all. What becomes readable by that; again: nothing new."""
        for carrier in self._sockets.values():
            try:
                ear = carrier.join(self.wire)
            except OSError as error:
                self._failed(error)
            else:
                if ear is not None:
                    yield carrier, ear

    def came(self, now: float) -> Came:
        """What there is to tell about it."""
        usable = self.usable
        return Came(
            link=self.name,
            carriers=usable.carriers,
            bound=self.ways.longest_body(now),
            wireless=usable.wireless,
            metered=usable.metered,
            serves=usable.serves,
            addresses=usable.addresses,
            index=self.wire.index,
        )

    def send(self, frame: bytes, to: Address | None, now: float) -> bool:
        """Send a frame; None: to all. An error is counted, and told once; the frame is gone.

        Returns:
            Whether it was sent by one carrier at least.
        """
        answered = frame[_TYPE] not in _UNANSWERED
        carriers = self.ways.take(len(frame), now, answered=answered) if to is None else (to.carrier,)
        if not carriers:
            self._counters["over_budget" if self.ways.fits(len(frame)) else "too_long"] += 1
        return sum([self._send(frame, carrier, to) for carrier in carriers]) > 0

    def confirm(self, frame: bytes, source: Address, now: float) -> None:
        """A frame that came by this link was valid: its sender hears what goes by the same carrier."""
        if len(frame) >= HEADER_BYTES:
            self.ways.heard(frame[_SENDER], source.carrier, now)

    def _send(self, frame: bytes, carrier: Carrier, to: Address | None) -> bool:
        sockets = self._sockets.get(carrier)
        if sockets is None:
            self._counters["unsent"] += 1
            return False
        try:
            sockets.send(frame, self.wire, to)
        except OSError as error:
            self._counters["unsent"] += 1
            self._failed(error)
            return False
        self._counters["sent"] += 1
        self._counters["sent_to_all"] += to is None
        return True

    def _failed(self, error: OSError) -> None:
        code = error.errno or 0
        self._counters[f"error_{errno.errorcode.get(code, str(code))}"] += 1
        if code not in _PASSING and code not in self._told:
            self._told.add(code)
            log.info("link.failed", link=self.name, error=error.strerror)


def _wire(usable: Usable) -> tuple[object, ...]:
    return usable.interface.index, usable.interface.mtu, usable.carriers, usable.wireless
