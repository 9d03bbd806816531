"""Whom we don't ask: peers that sent wrong blocks, that lack what they offered, and addresses where nobody opens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

import msgspec

from syncer.peer.session.actions import LinkId, PeerId

BAN_S: Final = 3600.0
LACKED_MOST: Final = 3  # so many blocks that a peer offered and did not have
LACKED_S: Final = 60.0
UNREACHABLE_S: Final = 600.0  # then twice as long each time: a firewall, or an access point that isolates
UNREACHABLE_MOST_S: Final = 86_400.0
_MOST: Final = 1024  # of each kind; the oldest is forgotten

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Ban(msgspec.Struct, frozen=True, kw_only=True):
    """One peer that we take nothing from.

    Attributes:
        peer: The id it had.
        address: 16 bytes, from where the wrong block came.
        until_s: Monotonic seconds.
    """

    peer: PeerId
    address: bytes
    until_s: float


class _Few(OrderedDict[K, V], Generic[K, V]):
    """A dict that forgets the oldest."""

    def keep(self, key: K, value: V) -> None:
        self.pop(key, None)
        self[key] = value
        if len(self) > _MOST:
            self.popitem(last=False)


class Standing:
    """What we hold against others. An insider with a new id and a new address is out of it: one block each time."""

    def __init__(self) -> None:
        """Nothing, against nobody."""
        self._bans: _Few[bytes, Ban] = _Few()
        self._lacked: _Few[PeerId, tuple[int, float]] = _Few()
        self._ignored: _Few[PeerId, float] = _Few()
        self._closed: _Few[tuple[bytes, LinkId], tuple[float, float]] = _Few()

    # --- wrong blocks

    def ban(self, peer: PeerId, address: bytes, now: float) -> None:
        """A block from here was not what it should be. For one hour nothing is taken from this id or address."""
        ban = Ban(peer=peer, address=address, until_s=now + BAN_S)
        self._bans.keep(peer, ban)
        self._bans.keep(address, ban)

    def unban(self, which: bytes | None = None) -> int:
        """Lift the bans of an id or address; None: all. Returns how many there were."""
        lifted = {ban for key, ban in self._bans.items() if which is None or which in (ban.peer, ban.address)}
        for ban in lifted:
            self._bans.pop(ban.peer, None)
            self._bans.pop(ban.address, None)
        return len(lifted)

    def is_banned(self, peer_or_address: bytes, now: float) -> bool:
        """Whether nothing is taken from here."""
        ban = self._bans.get(peer_or_address)
        return ban is not None and now < ban.until_s

    def bans(self, now: float) -> list[Ban]:
        """The bans that hold."""
        return [ban for key, ban in self._bans.items() if key == ban.peer and now < ban.until_s]

    # --- blocks that were offered and not there

    def lacked(self, peer: PeerId, now: float) -> None:
        """It does not have a block that it offered. Three in a minute: it is not asked for a minute."""
        count, since_s = self._lacked.get(peer, (0, now))
        if now - since_s > LACKED_S:
            count, since_s = 0, now
        self._lacked.keep(peer, (count + 1, since_s))
        if count + 1 >= LACKED_MOST:
            self._ignored.keep(peer, now + LACKED_S)
            del self._lacked[peer]

    def is_ignored(self, peer: PeerId, now: float) -> bool:
        """Whether what this peer offers is not taken for now."""
        return now < self._ignored.get(peer, now)

    # --- addresses where nobody opens

    def unreachable(self, address: bytes, link: LinkId, now: float) -> None:
        """A connection to this address by this link's interface failed: 10 minutes no other try, then twice as long."""
        until_s, wait_s = self._closed.get((address, link), (now, UNREACHABLE_S / 2))
        if now >= until_s:  # else several connections failed at once: that counts once
            wait_s = min(2 * wait_s, UNREACHABLE_MOST_S)
            self._closed.keep((address, link), (now + wait_s, wait_s))

    def reached(self, addresses: Iterable[bytes], link: LinkId) -> None:
        """A connection was made, or somebody has come who takes them there: what was before is forgotten."""
        for address in addresses:
            self._closed.pop((address, link), None)

    def renewed(self, link: LinkId) -> None:
        """A link came up, maybe on another network: its closed addresses may be open."""
        for each in [each for each in self._closed if each[1] == link]:
            del self._closed[each]

    def open(self, addresses: Iterable[bytes], link: LinkId, now: float) -> tuple[bytes, ...]:
        """Those of the addresses to which a connection may be tried. None of them, if one is banned."""
        known = tuple(addresses)
        if any(self.is_banned(address, now) for address in known):
            return ()
        return tuple(address for address in known if now >= self._closed.get((address, link), (now, 0.0))[0])
