"""What the kernel keeps from us: filters for sockets, in the classic BPF of socket(7).

A frame that is not ours, or that a router has passed on, is dropped before a process is woken. Packets of one wire come
with a hop limit of 255, which no router leaves as it is (RFC 5082), so nobody beyond the wire is ever answered.
"""

from __future__ import annotations

import struct
from typing import Final

from syncer.peer.wire.frames import MAGIC

HOPS: Final = 255
HOST, BROADCAST, MULTICAST, OTHERHOST, OUTGOING = range(5)  # sll_pkttype, packet(7)

_INSTRUCTION: Final = struct.Struct("=HBBI")  # struct sock_filter: code, jump if true, jump if false, value
_LOAD_WORD, _LOAD_BYTE, _AND, _IF_EQUAL, _RETURN = 0x20, 0x30, 0x54, 0x15, 0x06
_ANCILLARY: Final = 0xFFFFF000  # SKF_AD_OFF: not from the packet, from what the kernel knows of it
_PROTOCOL, _PKTTYPE = _ANCILLARY + 0, _ANCILLARY + 4
_NETWORK: Final = 0xFFF00000  # SKF_NET_OFF: from the IP header on
_UDP_HEADER_BYTES: Final = 8  # where the filter of a UDP socket begins to read
_HOP_LIMIT: Final = {4: _NETWORK + 8, 6: _NETWORK + 7}
_MAGIC: Final = int.from_bytes(MAGIC, "big") << 8
_ALL: Final = 0xFFFF

# A test: load something, keep these bits of it, and go on if it is one of these values.
_Test = tuple[int, int, int | None, tuple[int, ...]]


def of_packets(ethertype: int) -> bytes:
    """For AF_PACKET, SOCK_DGRAM: our EtherType, to us or to all, our magic."""
    return _program(
        (_LOAD_WORD, _PROTOCOL, None, (ethertype,)),
        (_LOAD_WORD, _PKTTYPE, None, (HOST, BROADCAST, MULTICAST)),
        (_LOAD_WORD, 0, 0xFFFFFF00, (_MAGIC,)),
    )


def of_datagrams(version: int, kinds: tuple[int, ...]) -> bytes:
    """For UDP: our magic, from this wire, and sent in this way.

    Args:
        version: Of IP, 4 or 6.
        kinds: HOST, BROADCAST, MULTICAST.
    """
    return _program(
        (_LOAD_WORD, _PKTTYPE, None, kinds),
        (_LOAD_BYTE, _HOP_LIMIT[version], None, (HOPS,)),
        (_LOAD_WORD, _UDP_HEADER_BYTES, 0xFFFFFF00, (_MAGIC,)),
    )


def _program(*tests: _Test) -> bytes:
    """All of these tests, one after the other; a packet that is too short for one is dropped."""
    lines: list[tuple[int, int, int, int]] = []
    for load, place, mask, values in tests:
        lines.append((load, 0, 0, place))
        if mask is not None:
            lines.append((_AND, 0, 0, mask))
        for left, value in reversed(list(enumerate(reversed(values)))):
            # True: over the other comparisons and the drop behind them. False: the next comparison.
            lines.append((_IF_EQUAL, left + 1, 0, value))
        lines.append((_RETURN, 0, 0, 0))
    lines.append((_RETURN, 0, 0, _ALL))
    return b"".join(_INSTRUCTION.pack(*line) for line in lines)
