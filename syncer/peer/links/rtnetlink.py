"""rtnetlink(7): the interfaces of this network namespace with their addresses, as bytes that become values. Pure.

Messages are of the kernel, not of strangers; what is not understood is left out all the same.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import msgspec

RTM_NEWLINK, RTM_GETLINK, RTM_NEWADDR, RTM_GETADDR = 16, 18, 20, 22
GROUPS: Final = 0x1 | 0x10 | 0x100  # RTMGRP_LINK, RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
UP, LOOPBACK, POINTOPOINT, RUNNING = 0x1, 0x8, 0x10, 0x40  # netdevice(7)
ETHERNET: Final = 1  # ARPHRD_ETHER: also Wi-Fi, bridges, VLANs

_HEAD: Final = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
_LINK: Final = struct.Struct("=BxHiII")  # struct ifinfomsg: family, hardware, index, flags, change
_ADDRESS: Final = struct.Struct("=BBBBI")  # struct ifaddrmsg: family, prefix, flags, scope, index
_ATTRIBUTE: Final = struct.Struct("=HH")  # struct rtattr: length with this head, type
_ERROR, _DONE = 2, 3
_REQUEST_DUMP: Final = 0x301
_INTERRUPTED: Final = 0x10  # NLM_F_DUMP_INTR
_MAC, _NAME, _MTU, _MASTER, _LINKINFO = 1, 3, 4, 10, 18
_KIND: Final = 1
_WHOLE, _LOCAL, _FLAGS = 1, 2, 8
_UNUSABLE: Final = 0x40 | 0x08 | 0x20  # tentative, found double, deprecated
_INET, _INET6 = 2, 10
_MAPPED: Final = bytes(10) + b"\xff\xff"


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """One interface.

    Attributes:
        index: The kernel's number; never used again while the machine runs.
        name: It may change.
        mtu: Bytes.
        flags: UP, LOOPBACK, …
        hardware: ETHERNET, …
        kind: "bridge", "veth", "tun", …; empty: a real one, mostly.
        master: The bridge or bond that it is a member of; 0: none.
        addresses: 16 bytes each, IPv4 mapped into IPv6, only those that can be used now.
    """

    index: int
    name: str
    mtu: int
    flags: int
    hardware: int = ETHERNET
    kind: str = ""
    master: int = 0
    addresses: tuple[bytes, ...] = ()


class Dump(msgspec.Struct, frozen=True, kw_only=True):
    """What some messages say.

    Attributes:
        links: Interfaces, without their addresses.
        addresses: (index, address).
        done: The answer is complete.
        torn: It is not consistent, or an error: ask again.
    """

    links: tuple[Interface, ...] = ()
    addresses: tuple[tuple[int, bytes], ...] = ()
    done: bool = False
    torn: bool = False


def request(kind: int, sequence: int) -> bytes:
    """A message that asks for all links (RTM_GETLINK) or all addresses (RTM_GETADDR)."""
    body = bytes(_LINK.size if kind == RTM_GETLINK else _ADDRESS.size)
    return _HEAD.pack(_HEAD.size + len(body), kind, _REQUEST_DUMP, sequence, 0) + body


def read(data: bytes, sequence: int) -> Dump:
    """Read one datagram of the kernel that answers this request."""
    links: list[Interface] = []
    addresses: list[tuple[int, bytes]] = []
    done = torn = False
    at = 0
    while at + _HEAD.size <= len(data):
        length, kind, flags, of, _ = _HEAD.unpack_from(data, at)
        if length < _HEAD.size:
            break
        body = data[at + _HEAD.size : at + length]
        at += _aligned(length)
        if of != sequence:
            continue
        torn |= bool(flags & _INTERRUPTED) or kind == _ERROR
        done |= kind in {_DONE, _ERROR}
        if kind == RTM_NEWLINK and len(body) >= _LINK.size:
            links.append(_link(body))
        elif kind == RTM_NEWADDR and len(body) >= _ADDRESS.size:
            addresses += _address(body)
    return Dump(links=tuple(links), addresses=tuple(addresses), done=done, torn=torn)


def _link(body: bytes) -> Interface:
    _, hardware, index, flags, _ = _LINK.unpack_from(body)
    told = dict(_attributes(body[_LINK.size :]))
    return Interface(
        index=index,
        name=told.get(_NAME, b"").rstrip(b"\0").decode("utf-8", "backslashreplace"),
        mtu=_number(told.get(_MTU)),
        flags=flags,
        hardware=hardware,
        kind=dict(_attributes(told.get(_LINKINFO, b""))).get(_KIND, b"").rstrip(b"\0").decode("ascii", "replace"),
        master=_number(told.get(_MASTER)),
    )


def _address(body: bytes) -> Iterator[tuple[int, bytes]]:
    family, _, flags, _, index = _ADDRESS.unpack_from(body)
    told = dict(_attributes(body[_ADDRESS.size :]))
    flags |= _number(told.get(_FLAGS))
    address = told.get(_LOCAL, told.get(_WHOLE, b""))
    if flags & _UNUSABLE:
        return
    if family == _INET6 and len(address) == 16:
        yield index, address
    elif family == _INET and len(address) == 4:
        yield index, _MAPPED + address


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _ATTRIBUTE.size <= len(data):
        length, kind = _ATTRIBUTE.unpack_from(data, at)
        if length < _ATTRIBUTE.size:
            return
        yield kind & 0x3FFF, data[at + _ATTRIBUTE.size : at + length]
        at += _aligned(length)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _number(value: bytes | None) -> int:
    return int.from_bytes(value[:4], "little" if _LITTLE else "big") if value else 0


_LITTLE: Final = struct.pack("=H", 1) == b"\x01\x00"
