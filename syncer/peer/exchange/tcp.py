"""Sockets of connections between peers: taken on the near addresses of this machine, dialled on those of another."""

from __future__ import annotations

import errno
import ipaddress
import socket
from contextlib import suppress
from typing import Final

import trio

_BACKLOG: Final = 64
_MAPPED: Final = bytes(10) + b"\xff\xff"
_LINK_LOCAL: Final = b"\xfe\x80"
_NO_IPV6: Final = frozenset({errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT})


async def listen(port: int) -> tuple[trio.SocketListener, int]:
    """Take connections, over IPv6 and IPv4 as far as the machine has them.

    Args:
        port: This one; any if it is taken.

    Returns:
        What takes them, and the port.

    Raises:
        OSError: Nothing can be taken.
    """
    try:
        taking = await _bound(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno not in _NO_IPV6:
            raise
        taking = await _bound(socket.AF_INET, "0.0.0.0", port)  # noqa: S104 - who may come in is looked at later
    taking.listen(_BACKLOG)
    return trio.SocketListener(taking), taking.getsockname()[1]


async def dial(address: bytes, port: int, zone: int) -> trio.SocketStream:
    """Connect to a peer.

    Args:
        address: 16 bytes; IPv4 is mapped into IPv6.
        port: TCP.
        zone: The kernel's number of the interface by which it was heard: nothing goes by another one. 0: not known.

    Raises:
        OSError: It can't be reached.
    """
    if address.startswith(_MAPPED):
        dialled, where = trio.socket.socket(socket.AF_INET), (socket.inet_ntoa(address[12:]), port)
    else:
        dialled = trio.socket.socket(socket.AF_INET6)
        text = socket.inet_ntop(socket.AF_INET6, address)
        where = (text, port, 0, zone if is_link_local(address) else 0)  # type: ignore[assignment]
    try:
        _keep_to(dialled, zone)
        await dialled.connect(where)
    except BaseException:
        dialled.close()
        raise
    return trio.SocketStream(dialled)  # it sets TCP_NODELAY


def here(stream: trio.SocketStream) -> tuple[bytes, int] | None:
    """At which address of ours a connection was taken, 16 bytes, and its zone. None: it is gone already."""
    return _packed(stream.socket.getsockname)


def there(stream: trio.SocketStream) -> tuple[bytes, int] | None:
    """From where it comes, 16 bytes, and the zone. None: it is gone already."""
    return _packed(stream.socket.getpeername)


def is_link_local(address: bytes) -> bool:
    """Whether it means another machine on each link."""
    return address.startswith(_LINK_LOCAL)


def text(address: bytes) -> str:
    """An address of 16 bytes as people write it."""
    if address.startswith(_MAPPED):
        return socket.inet_ntoa(address[12:])
    return socket.inet_ntop(socket.AF_INET6, address)


def _keep_to(dialled: trio.socket.SocketType, zone: int) -> None:
    """Have nothing of a connection go by another interface: one that is metered, ignored, or a tunnel.

    A link-local address is of an interface by itself; the way to another one is what the routing table says.
    """
    with suppress(OSError):  # Linux before 5.7 lets root alone; or the interface is gone, as the call will tell
        name = socket.if_indextoname(zone)
        dialled.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, name.encode() + b"\0")


async def _bound(family: int, host: str, port: int) -> trio.socket.SocketType:
    made = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a daemon that is started anew finds its port
        try:
            await made.bind((host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            await made.bind((host, 0))
    except BaseException:
        made.close()
        raise
    return made


def _packed(name: object) -> tuple[bytes, int] | None:
    with suppress(OSError):
        told = name()  # type: ignore[operator]
        address = ipaddress.ip_address(told[0].partition("%")[0])
        packed = address.packed if address.version == 6 else _MAPPED + address.packed
        return packed, told[3] if len(told) > 3 else 0
    return None
