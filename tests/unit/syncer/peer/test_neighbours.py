"""Who is there: heard lately, connected, or gone."""

from __future__ import annotations

import ipaddress

import pytest

from syncer.peer.session.actions import LinkId, PeerId
from syncer.peer.session.neighbours import KNOWN_S, LIVE_S, MOST, Neighbours, is_near

L = LinkId("l")


def peer(number: int) -> PeerId:
    return PeerId(number.to_bytes(16, "big"))


def test_who_was_heard_is_live_for_a_minute_and_known_for_ten() -> None:
    there = Neighbours()
    assert there.heard(peer(1), L, b"mac", 0.0)
    assert not there.heard(peer(1), L, b"mac", 0.0)
    assert there.is_live(peer(1), LIVE_S)
    assert there.anybody(LIVE_S)
    assert not there.is_live(peer(1), LIVE_S + 1)
    assert not there.anybody(LIVE_S + 1)
    assert there.known(KNOWN_S) == 1
    assert there.known(KNOWN_S + 1) == 0


def test_who_is_heard_again_after_a_while_is_new() -> None:
    there = Neighbours()
    there.heard(peer(1), L, b"mac", 0.0)
    assert there.heard(peer(1), L, b"mac", LIVE_S + 1)


def test_who_is_connected_is_live_without_a_word() -> None:
    there = Neighbours()
    there.heard(peer(1), L, b"mac", 0.0)
    there.connected(peer(1))
    assert there.is_live(peer(1), 1e6)
    assert there.anybody(1e6)
    there.disconnected(peer(1))
    assert not there.is_live(peer(1), 1e6)


def test_who_goes_is_gone() -> None:
    there = Neighbours()
    there.heard(peer(1), L, b"mac", 0.0)
    assert there.left(peer(1))
    assert not there.left(peer(1))
    assert not there.anybody(0.0)


def test_the_last_frame_tells_the_way_and_the_last_answer_the_addresses() -> None:
    there = Neighbours()
    there.heard(peer(1), L, b"mac", 0.0)
    there.reachable(peer(1), (b"a" * 16,), 99, 7)
    there.heard(peer(1), LinkId("m"), b"udp", 1.0)
    (only,) = there.all(1.0)
    assert (only.link, only.source, only.addresses, only.port, only.load) == ("m", b"udp", (b"a" * 16,), 99, 7)
    assert there.all(12.0, within_s=10.0) == []


def test_a_crowd_is_remembered_in_part() -> None:
    there = Neighbours()
    for number in range(3 * MOST):
        there.heard(peer(number), L, b"mac", 0.0)
    assert there.known(0.0) == MOST


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("fe80::1", True),
        ("febf::1", True),
        ("fec0::1", False),
        ("fd12::1", True),
        ("2001:db8::1", False),
        ("::ffff:10.1.2.3", True),
        ("::ffff:172.31.0.1", True),
        ("::ffff:172.32.0.1", False),
        ("::ffff:192.168.0.1", True),
        ("::ffff:169.254.7.7", True),
        ("::ffff:8.8.8.8", False),
        ("::ffff:127.0.0.1", False),
        ("::1", False),
        ("ff02::1", False),
    ],
)
def test_only_addresses_of_the_house_are_near(text: str, near: bool) -> None:
    """Breaks as a neighbour that makes us connect to a machine on the internet."""
    assert is_near(ipaddress.IPv6Address(text).packed) is near
