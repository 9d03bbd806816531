"""Where a frame came from, and where its answer goes."""

from __future__ import annotations

import msgspec

from syncer.peer.wire.carrier import Carrier


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A place on one link. Never an identity: repeaters and virtual machines change or share addresses.

    Attributes:
        carrier: By what it was reached, and is again.
        host: The MAC, 6 bytes; the IPv6 address, 16 bytes; the IPv4 address, 4 bytes.
        port: UDP; 0 with Ethernet.
    """

    carrier: Carrier
    host: bytes
    port: int = 0
