"""What the three ways to carry a frame have in common."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from syncer.peer.links.address import Address
from syncer.peer.wire.carrier import Carrier

RECEIVE_BYTES: Final = 1 << 20
"""Asked of the kernel for frames that wait, which gives at most net.core.rmem_max; what comes beyond is lost."""


class Wire(msgspec.Struct, frozen=True, kw_only=True):
    """An interface, as the kernel names it."""

    name: str
    index: int


class Arrived(msgspec.Struct, frozen=True, kw_only=True):
    """A frame, as it came. The interface is told by name or, where that is empty, by index."""

    frame: bytes
    source: Address
    name: str = ""
    index: int = 0


class Sockets(Protocol):
    """A carrier: what sends and receives frames on all interfaces. All calls return at once."""

    @property
    def carrier(self) -> Carrier:
        """Which."""

    @property
    def sockets(self) -> Sequence[socket.socket]:
        """What becomes readable, whatever interfaces there are."""

    def send(self, frame: bytes, wire: Wire, to: Address | None) -> None:
        """Send a frame; None: to all. OSError: it was not sent."""

    def receive(self, waiting: socket.socket, most_bytes: int) -> Arrived | None:
        """What came on one of the sockets; None: nothing of use. BlockingIOError: nothing came."""

    def join(self, wire: Wire) -> socket.socket | None:
        """Hear what is sent to all on this interface. Returns a new socket to read; None: those that are there do.

        OSError: it is not possible now.
        """

    def leave(self, wire: Wire) -> socket.socket | None:
        """Hear it no more. Returns what `join` made, for the caller to close."""

    def close(self) -> None:
        """Close all sockets."""
