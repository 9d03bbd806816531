"""Frames in UDP datagrams to an IPv6 multicast group of the wire. Nothing is configured, no privilege is needed.

An ear for each interface is bound to the group there, and any number of processes may have one. The mouth sends, and
gets what is sent to us alone. It has the port if that is free (one hole in a firewall is enough then), else any: so an
answer never goes to another process of this machine.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import struct
from typing import Final

from syncer.peer.links.address import Address
from syncer.peer.links.attaching import attach
from syncer.peer.links.filters import HOPS, HOST, MULTICAST, of_datagrams
from syncer.peer.links.sockets import RECEIVE_BYTES, Arrived, Wire
from syncer.peer.wire.carrier import Carrier

_MEMBERSHIP: Final = struct.Struct("=16sI")  # struct ipv6_mreq: group, interface
_LINK_LOCAL: Final = b"\xfe\x80"


class Multicast:
    """UDP over IPv6."""

    carrier: Final = Carrier.UDP6

    def __init__(self, group: str, port: int) -> None:
        """Open it.

        Raises:
            OSError: EAFNOSUPPORT: the host has no IPv6.
        """
        self._group, self._port = group, port
        self._ears: dict[int, socket.socket] = {}
        with contextlib.ExitStack() as stack:
            self._mouth = stack.enter_context(_socket(HOST))
            self._mouth.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, HOPS)
            self._mouth.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, HOPS)
            self._mouth.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_LOOP, 0)
            bind_first_or_anywhere(self._mouth, "::", port)
            stack.pop_all()
        self.sockets = (self._mouth,)

    def send(self, frame: bytes, wire: Wire, to: Address | None) -> None:
        """Send a frame; None: to the group.

        Raises:
            OSError: It was not sent.
        """
        host, port = (self._group, self._port) if to is None else (socket.inet_ntop(socket.AF_INET6, to.host), to.port)
        self._mouth.sendto(frame, (host, port, 0, wire.index))

    def receive(self, waiting: socket.socket, most_bytes: int) -> Arrived | None:
        """What came; None: not from a link-local address.

        Raises:
            OSError: BlockingIOError: nothing came.
        """
        frame, (host, port, _, index) = waiting.recvfrom(most_bytes)
        packed = socket.inet_pton(socket.AF_INET6, host.partition("%")[0])
        if not packed.startswith(_LINK_LOCAL):
            return None
        source = Address(carrier=self.carrier, host=packed, port=port)
        return Arrived(frame=frame, index=index, source=source)

    def join(self, wire: Wire) -> socket.socket | None:
        """Hear the group on this interface.

        Raises:
            OSError: The interface is gone, or has no IPv6.
        """
        if wire.index in self._ears:
            return None
        with contextlib.ExitStack() as stack:
            ear = stack.enter_context(_socket(MULTICAST))
            ear.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            ear.bind((self._group, self._port, 0, wire.index))
            group = _MEMBERSHIP.pack(socket.inet_pton(socket.AF_INET6, self._group), wire.index)
            ear.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group)
            stack.pop_all()
        self._ears[wire.index] = ear
        return ear

    def leave(self, wire: Wire) -> socket.socket | None:
        """Hear it no more on this interface. Returns the ear, for the caller to close."""
        return self._ears.pop(wire.index, None)

    def close(self) -> None:
        """Close all."""
        for each in (self._mouth, *self._ears.values()):
            each.close()


def _socket(kind: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    try:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        attach(made, of_datagrams(6, (kind,)))
    except BaseException:
        made.close()
        raise
    return made


def bind_first_or_anywhere(mouth: socket.socket, host: str, port: int) -> None:
    """Bind a socket to a port that no other has; if one has it, to any.

    Afterwards others may bind to the port: those that listen to what is sent to all.
    """
    try:
        mouth.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        mouth.bind((host, 0))
    mouth.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
