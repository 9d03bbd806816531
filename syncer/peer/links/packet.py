"""Ethernet frames: one AF_PACKET socket for all interfaces, also those that come later.

Opening needs CAP_NET_RAW; sending, receiving and interfaces that come and go need nothing. A socket for each interface
would need the capability for as long as the process runs.
"""

from __future__ import annotations

import socket
from typing import Final

from syncer.peer.links.address import Address
from syncer.peer.links.attaching import attach, bind_everywhere
from syncer.peer.links.filters import of_packets
from syncer.peer.links.sockets import RECEIVE_BYTES, Arrived, Wire
from syncer.peer.wire.carrier import Carrier

_ALL: Final = b"\xff" * 6


class Packets:
    """Ethernet frames with our EtherType."""

    carrier: Final = Carrier.ETHERNET

    def __init__(self, ethertype: int) -> None:
        """Open it.

        Raises:
            OSError: EPERM: no CAP_NET_RAW. EAFNOSUPPORT: the host has no packet sockets.
        """
        self._ethertype = ethertype
        # With protocol 0 it receives nothing yet: so no frame comes past the filter.
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
            attach(self._socket, of_packets(ethertype))
            bind_everywhere(self._socket, ethertype)
        except BaseException:
            self._socket.close()
            raise
        self.sockets = (self._socket,)

    def send(self, frame: bytes, wire: Wire, to: Address | None) -> None:
        """Send a frame; None: to all.

        Raises:
            OSError: It was not sent.
        """
        host = _ALL if to is None else to.host
        self._socket.sendto(frame, (wire.name, self._ethertype, 0, 0, host))

    def receive(self, waiting: socket.socket, most_bytes: int) -> Arrived | None:
        """What came; None: nothing of use.

        Raises:
            OSError: BlockingIOError: nothing came.
        """
        frame, (name, _, _, _, host) = waiting.recvfrom(most_bytes)
        return Arrived(frame=frame, name=name, source=Address(carrier=self.carrier, host=host))

    def join(self, wire: Wire) -> None:
        """Hear this interface: nothing to do."""

    def leave(self, wire: Wire) -> None:
        """Hear it no more: nothing to do."""

    def close(self) -> None:
        """Close it."""
        self._socket.close()
