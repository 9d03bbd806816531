"""Who is connected, and who has to go when there are too many. Rules only: no sockets.

Everybody may connect; only who has shown a token is known. A connection without one costs a descriptor and a few KiB,
so it can be taken away at any time: at a bound the oldest *stranger* goes. A known connection never does: whoever
opens a thousand silent ones can lock out nobody who has a token, not even behind the same address.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import msgspec

_IPV6_PREFIX: Final = 64  # bits: what one subscriber has; whoever has it has all addresses in it


@dataclass(slots=True, kw_only=True, eq=False)
class Guest:
    """One connection.

    Attributes:
        address: The other side's, without the port.
        hang_up: Ends the connection at once.
        look: Called about once a second with the loop's time: ends it if a time-out has passed.
        account: Whose token it has shown; None for a stranger.
        token: The one it has shown last.
        held_bytes: Of heads that have no reply yet, complete or not.
    """

    address: str
    hang_up: Callable[[], None]
    look: Callable[[float], None]
    account: str | None = None
    token: bytes = b""
    held_bytes: int = 0
    network: str = field(init=False)

    def __post_init__(self) -> None:
        """Find the neighbourhood that is counted together."""
        self.network = network_of(self.address)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How many there may be.

    Attributes:
        connections: In all.
        of_network: Strangers of one address (IPv6: of one /64).
        of_account: Connections that have shown tokens of one account.
        held_bytes: Of heads without a reply, of all strangers together.
    """

    connections: int
    of_network: int
    of_account: int
    held_bytes: int = 64 << 20

    @classmethod
    def within(cls, connections: int) -> Bounds:
        """Usual shares of so many connections: no address and no account can have them all."""
        return cls(connections=connections, of_network=max(1, connections // 2), of_account=max(1, connections // 4))


class Guests:
    """All connections. For one thread: the loop's."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds: Final = bounds
        self._all: dict[Guest, None] = {}
        self._strangers: dict[Guest, None] = {}  # the oldest first
        self._networks: dict[str, dict[Guest, None]] = {}  # strangers, the oldest first
        self._accounts: Counter[str] = Counter()
        self._held_bytes = 0

    def enter(self, guest: Guest) -> list[Guest]:
        """Somebody comes.

        Returns:
            Who was sent away for that; the newcomer, if all others are known.
        """
        self._all[guest] = self._strangers[guest] = None
        neighbours = self._networks.setdefault(guest.network, {})
        neighbours[guest] = None
        gone = []
        if len(neighbours) > self.bounds.of_network:
            gone.append(self._send_away(next(iter(neighbours))))
        while len(self._all) > self.bounds.connections:
            gone.append(self._send_away(next(iter(self._strangers))))
        return gone

    def leave(self, guest: Guest) -> None:
        """A connection has ended. Harmless if it was sent away."""
        if guest not in self._all:
            return
        del self._all[guest]
        self._hold(guest, 0)
        if guest.account is None:
            self._forget_stranger(guest)
        else:
            self._accounts[guest.account] -= 1
            if not self._accounts[guest.account]:
                del self._accounts[guest.account]

    def show(self, guest: Guest, account: str, token: bytes) -> bool:
        """A connection shows a token that we know. The first account it shows is the one it counts for.

        Returns:
            False: this account has too many connections already, this one stays a stranger.
        """
        if guest not in self._all or guest.account is not None:
            guest.token = token
            return True
        if self._accounts[account] >= self.bounds.of_account:
            return False
        self._forget_stranger(guest)
        self._hold(guest, 0)
        guest.account, guest.token = account, token
        self._accounts[account] += 1
        return True

    def hold(self, guest: Guest, held_bytes: int) -> list[Guest]:
        """The heads of a connection cost so much by now.

        Returns:
            Strangers that were sent away for that: those who hold most.
        """
        if guest.account is not None or guest not in self._all:
            return []
        self._hold(guest, held_bytes)
        gone = []
        while self._held_bytes > self.bounds.held_bytes:
            gone.append(self._send_away(max(self._strangers, key=lambda one: one.held_bytes)))
        return gone

    def counts(self) -> tuple[int, int]:
        """How many have shown a token, and how many have not."""
        strangers = len(self._strangers)
        return len(self._all) - strangers, strangers

    def look(self, now: float) -> None:
        """End those whose time is over."""
        for guest in list(self._all):
            guest.look(now)

    def withdraw(self, tokens: Collection[bytes]) -> int:
        """Only these tokens are known from now on: whoever has shown another last is hung up. Returns how many."""
        gone = [guest for guest in self._all if guest.account is not None and guest.token not in tokens]
        for guest in gone:
            self._send_away(guest)
        return len(gone)

    def _send_away(self, guest: Guest) -> Guest:
        self.leave(guest)
        guest.hang_up()
        return guest

    def _hold(self, guest: Guest, held_bytes: int) -> None:
        self._held_bytes += held_bytes - guest.held_bytes
        guest.held_bytes = held_bytes

    def _forget_stranger(self, guest: Guest) -> None:
        del self._strangers[guest]
        neighbours = self._networks[guest.network]
        del neighbours[guest]
        if not neighbours:
            del self._networks[guest.network]


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """What is counted as one neighbour: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, _IPV6_PREFIX), strict=False))
