"""A peer that moved: its connection goes to an address that it has no more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from syncer.peer.exchange.circle import Contact
from syncer.peer.session.actions import Answered, LinkId, PeerId

OLD, NEW = b"\xfe\x80" + bytes(13) + b"\1", b"\xfe\x80" + bytes(13) + b"\2"
IPV4 = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
ANSWER = Answered(
    share="share", peer=PeerId(bytes(16)), ids=(), addresses=(OLD, IPV4), port=1, load=0, link=LinkId("lan0")
)


@pytest.mark.parametrize(
    ("used", "answer", "moved"),
    [
        (OLD, {"addresses": (NEW, IPV4)}, True),
        (OLD, {}, False),
        (OLD, {"addresses": (IPV4,)}, False),  # on a link without IPv6 for a while: the connection may live
        (OLD, {"addresses": (NEW,), "link": LinkId("lan1")}, False),  # it has other addresses there
        (IPV4, {"addresses": (NEW,)}, False),  # a short answer has no room for all
    ],
)
def test_who_has_another_link_local_address_on_the_same_link_has_moved(
    used: bytes, answer: dict[str, Any], moved: bool
) -> None:
    contact = Contact(ANSWER)
    contact.address = used
    contact.download = object()  # type: ignore[assignment]
    contact.answer = replace(ANSWER, **answer)
    assert contact.has_moved is moved


def test_who_is_not_connected_has_not_moved() -> None:
    contact = Contact(ANSWER)
    contact.address, contact.answer = OLD, replace(ANSWER, addresses=(NEW,))
    assert not contact.has_moved
