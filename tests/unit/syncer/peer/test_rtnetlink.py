"""Messages of the kernel about interfaces."""

from __future__ import annotations

import struct

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.links.rtnetlink import RTM_GETLINK, RTM_NEWADDR, RTM_NEWLINK, Interface, read, request

SIX = bytes.fromhex("fe80000000000000020000fffe000001")


def attribute(kind: int, value: bytes) -> bytes:
    return (struct.pack("=HH", 4 + len(value), kind) + value).ljust((4 + len(value) + 3) & ~3, b"\0")


def message(kind: int, body: bytes, *, sequence: int = 7, flags: int = 2) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body


LINK = struct.pack("=BxHiII", 0, 1, 5, 0x1043, 0) + b"".join(
    [
        attribute(3, b"br0\0"),
        attribute(4, struct.pack("=I", 1400)),
        attribute(10, struct.pack("=I", 9)),
        attribute(18, attribute(1, b"bridge\0")),
        attribute(999, b"what nobody knows"),
    ]
)
DONE = message(3, bytes(4))


def address(family: int, value: bytes, flags: int = 0x80, more: int | None = None, local: bool = False) -> bytes:
    body = struct.pack("=BBBBI", family, 64, flags, 253, 5) + attribute(2 if local else 1, value)
    return message(RTM_NEWADDR, body + (attribute(8, struct.pack("=I", more)) if more is not None else b""))


def test_a_link_is_read_with_its_kind_and_master() -> None:
    told = read(message(RTM_NEWLINK, LINK) + DONE, 7)
    assert told.links == (Interface(index=5, name="br0", mtu=1400, flags=0x1043, hardware=1, kind="bridge", master=9),)
    assert (told.done, told.torn) == (True, False)


def test_addresses_are_those_that_can_be_used_now() -> None:
    data = b"".join(
        [
            address(10, SIX),
            address(2, bytes([10, 0, 0, 1]), local=True),
            address(10, SIX[:-1] + b"\x02", flags=0x40),  # tentative
            address(10, SIX[:-1] + b"\x03", more=0x08),  # found double
            address(10, SIX[:-1] + b"\x04", more=0x20),  # deprecated
        ]
    )
    assert read(data, 7).addresses == ((5, SIX), (5, bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])))


def test_answers_to_other_requests_are_passed_over() -> None:
    told = read(message(RTM_NEWLINK, LINK, sequence=8) + message(3, bytes(4), sequence=8), 7)
    assert (told.links, told.done) == ((), False)


def test_a_dump_that_was_interrupted_or_refused_is_torn() -> None:
    assert read(message(RTM_NEWLINK, LINK, flags=0x12), 7).torn
    refused = read(message(2, struct.pack("=i", -1) + bytes(16)), 7)
    assert (refused.torn, refused.done) == (True, True)


def test_a_request_asks_for_a_dump() -> None:
    assert struct.unpack_from("=IHHII", request(RTM_GETLINK, 7)) == (32, RTM_GETLINK, 0x301, 7, 0)


@given(st.binary(max_size=200), st.integers(0, len(LINK)))
def test_no_bytes_are_more_than_passed_over(noise: bytes, cut: int) -> None:
    read(noise, 0)
    read(message(RTM_NEWLINK, LINK[:cut] + noise) + noise, 7)
    read(message(RTM_NEWADDR, noise), 7)
