"""Who of a share is there: who was heard, when, by which link, and where it takes connections."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Final

import msgspec

from syncer.peer.session.actions import Address, LinkId, PeerId

LIVE_S: Final = 60.0  # heard within: what it said it has counts, and the server may wait for it
KNOWN_S: Final = (
    600.0  # one epoch, as long as an id lives: how many there are, for answers that must not come all at once
)
MOST: Final = 256


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """One peer of one share, as it was last heard.

    Attributes:
        peer: Its sender id.
        link: By which link its last frame came.
        source: From which address of the link.
        heard_s: When, monotonic seconds.
        addresses: Where it takes connections; empty as long as it has not said.
        port: TCP; 0: none are taken, or it has not said.
        load: 0 idle to 255.
    """

    peer: PeerId
    link: LinkId
    source: Address
    heard_s: float
    addresses: tuple[bytes, ...] = ()
    port: int = 0
    load: int = 0


class Neighbours:
    """The peers of one share. Only valid frames come here.

    Attributes:
        last_s: When somebody was heard last, who may be gone since, monotonic seconds; -inf: nobody ever was.
    """

    def __init__(self) -> None:
        """Nobody."""
        self.last_s = -math.inf
        self._heard: OrderedDict[PeerId, Neighbour] = OrderedDict()  # who was heard last is last
        self._connected: set[PeerId] = set()

    def heard(self, peer: PeerId, link: LinkId, source: Address, now: float) -> bool:
        """Somebody sent a valid frame.

        Returns:
            Whether it was not live before.
        """
        self.last_s = now
        before = self._heard.get(peer)
        was_live = self.is_live(peer, now)
        if before is None:
            after = Neighbour(peer=peer, link=link, source=source, heard_s=now)
        else:
            after = msgspec.structs.replace(before, link=link, source=source, heard_s=now)
        self._heard[peer] = after
        self._heard.move_to_end(peer)
        if len(self._heard) > MOST:
            self._heard.popitem(last=False)
        return not was_live

    def reachable(self, peer: PeerId, addresses: tuple[bytes, ...], port: int, load: int) -> None:
        """Somebody who was heard said where it takes connections."""
        self._heard[peer] = msgspec.structs.replace(self._heard[peer], addresses=addresses, port=port, load=load)

    def left(self, peer: PeerId) -> bool:
        """Somebody said that it goes. Returns whether it was there."""
        return self._heard.pop(peer, None) is not None

    def connected(self, peer: PeerId) -> None:
        """There is a connection to this peer: it is live as long as that lasts."""
        self._connected.add(peer)

    def disconnected(self, peer: PeerId) -> None:
        """There is none any more."""
        self._connected.discard(peer)

    def is_connected(self, peer: PeerId) -> bool:
        """Whether there is a connection to it."""
        return peer in self._connected

    def get(self, peer: PeerId) -> Neighbour | None:
        """As it was heard last; None: it was not."""
        return self._heard.get(peer)

    def connections(self) -> tuple[PeerId, ...]:
        """Who is connected."""
        return tuple(self._connected)

    def is_live(self, peer: PeerId, now: float) -> bool:
        """Whether what this peer said still counts."""
        neighbour = self._heard.get(peer)
        return peer in self._connected or (neighbour is not None and now - neighbour.heard_s <= LIVE_S)

    def anybody(self, now: float) -> bool:
        """Whether somebody is connected or was heard lately."""
        last = next(reversed(self._heard.values()), None)
        return bool(self._connected) or (last is not None and now - last.heard_s <= LIVE_S)

    def known(self, now: float) -> int:
        """How many there are, as far as we heard."""
        while self._heard and now - next(iter(self._heard.values())).heard_s > KNOWN_S:
            self._heard.popitem(last=False)
        return len(self._heard)

    def all(self, now: float, within_s: float = math.inf) -> list[Neighbour]:
        """Who was heard within this time, the last heard last."""
        return [each for each in self._heard.values() if now - each.heard_s <= within_s]


_MAPPED: Final = bytes(10) + b"\xff\xff"
_PRIVATE: Final = ((10, 0, 0), (172, 16, 0xF0), (192, 168, 0xFF), (169, 254, 0xFF))  # first byte, second, its mask


def is_near(address: bytes) -> bool:
    """Whether an address can't lead out of the house: link-local, unique local, or of a private IPv4 network.

    Who has the key may offer any address, and must not make its neighbours knock at machines on the internet.

    Args:
        address: 16 bytes; IPv4 is mapped into IPv6.

    Source: RFC 4291 section 2.5.6, RFC 4193, RFC 1918, RFC 3927.
    """
    if address[:12] == _MAPPED:
        return any(address[12] == first and address[13] & mask == second for first, second, mask in _PRIVATE)
    return (address[0] == 0xFE and address[1] & 0xC0 == 0x80) or address[0] & 0xFE == 0xFC
