"""Frames in UDP datagrams to the IPv4 broadcast address: where there is neither CAP_NET_RAW nor IPv6.

A mouth, as in udp6.py; one ear hears all interfaces.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from typing import Final

from syncer.peer.links.address import Address
from syncer.peer.links.attaching import attach
from syncer.peer.links.filters import BROADCAST, HOPS, HOST, of_datagrams
from syncer.peer.links.sockets import RECEIVE_BYTES, Arrived, Wire
from syncer.peer.links.udp6 import bind_first_or_anywhere
from syncer.peer.wire.carrier import Carrier

_ALL: Final = "255.255.255.255"
_IP_PKTINFO: Final = 8
_PKTINFO: Final = struct.Struct("=I4s4s")  # struct in_pktinfo: interface, local address, destination


class Broadcast:
    """UDP over IPv4."""

    carrier: Final = Carrier.UDP4

    def __init__(self, port: int) -> None:
        """Open it.

        Raises:
            OSError: EAFNOSUPPORT: the host has no IPv4.
        """
        self._port = port
        with contextlib.ExitStack() as stack:
            mouth = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            ear = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
            for one, kind in ((mouth, HOST), (ear, BROADCAST)):
                one.setblocking(False)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
                one.setsockopt(socket.IPPROTO_IP, _IP_PKTINFO, 1)
                attach(one, of_datagrams(4, (kind,)))
            mouth.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            mouth.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, HOPS)
            bind_first_or_anywhere(mouth, "0.0.0.0", port)  # noqa: S104 (all interfaces: the filter and the session choose)
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.bind((_ALL, port))
            stack.pop_all()
        self._mouth, self._ear = mouth, ear
        self.sockets = (mouth, ear)

    def send(self, frame: bytes, wire: Wire, to: Address | None) -> None:
        """Send a frame; None: to all.

        Raises:
            OSError: It was not sent.
        """
        place = (_ALL, self._port) if to is None else (socket.inet_ntop(socket.AF_INET, to.host), to.port)
        by = _PKTINFO.pack(wire.index, bytes(4), bytes(4))
        self._mouth.sendmsg([frame], [(socket.IPPROTO_IP, _IP_PKTINFO, by)], 0, place)

    def receive(self, waiting: socket.socket, most_bytes: int) -> Arrived | None:
        """What came; None: the kernel does not say on which interface.

        Raises:
            OSError: BlockingIOError: nothing came.
        """
        frame, notes, _, (host, port) = waiting.recvmsg(most_bytes, socket.CMSG_SPACE(_PKTINFO.size))
        for level, kind, note in notes:
            if (level, kind, len(note)) == (socket.IPPROTO_IP, _IP_PKTINFO, _PKTINFO.size):
                index = _PKTINFO.unpack(note)[0]
                source = Address(carrier=self.carrier, host=socket.inet_pton(socket.AF_INET, host), port=port)
                return Arrived(frame=frame, index=index, source=source)
        return None

    def join(self, wire: Wire) -> None:
        """Hear this interface: nothing to do."""

    def leave(self, wire: Wire) -> None:
        """Hear it no more: nothing to do."""

    def close(self) -> None:
        """Close both."""
        self._mouth.close()
        self._ear.close()
