"""Whom we don't ask, and for how long."""

from __future__ import annotations

from syncer.peer.session.actions import LinkId, PeerId
from syncer.peer.session.standing import BAN_S, LACKED_S, UNREACHABLE_S, Standing

P, A, B, L = PeerId(b"p" * 16), b"a" * 16, b"b" * 16, LinkId("l")


def test_a_wrong_block_bans_the_id_and_the_address_for_an_hour() -> None:
    standing = Standing()
    standing.ban(P, A, 0.0)
    for each in (P, A):
        assert standing.is_banned(each, BAN_S - 1)
        assert not standing.is_banned(each, BAN_S)
    assert [(ban.peer, ban.address) for ban in standing.bans(1.0)] == [(P, A)]
    assert standing.bans(BAN_S) == []


def test_who_lists_a_banned_address_offers_nothing() -> None:
    """A new id does not help as long as the address is the old one."""
    standing = Standing()
    standing.ban(P, A, 0.0)
    assert standing.open([B, A], L, 1.0) == ()
    assert standing.open([B], L, 1.0) == (B,)


def test_a_ban_is_lifted_by_id_by_address_or_with_all() -> None:
    for which in (P, A, None):
        standing = Standing()
        standing.ban(P, A, 0.0)
        assert standing.unban(which) == 1
        assert not standing.is_banned(P, 1.0)
        assert not standing.is_banned(A, 1.0)
    assert Standing().unban(P) == 0


def test_three_offers_that_are_not_there_are_enough_for_a_minute() -> None:
    standing = Standing()
    standing.lacked(P, 0.0)
    standing.lacked(P, 1.0)
    assert not standing.is_ignored(P, 1.0)
    standing.lacked(P, 2.0)
    assert standing.is_ignored(P, 2.0)
    assert not standing.is_ignored(P, 2.0 + LACKED_S)


def test_an_offer_that_is_not_there_now_and_then_is_forgiven() -> None:
    standing = Standing()
    for number in range(20):
        standing.lacked(P, number * LACKED_S * 0.6)
        assert not standing.is_ignored(P, number * LACKED_S * 0.6)


def test_where_nobody_opens_we_knock_ever_more_seldom() -> None:
    standing = Standing()
    standing.unreachable(A, L, 0.0)
    assert standing.open([A, B], L, UNREACHABLE_S - 1) == (B,)
    assert standing.open([A], LinkId("other"), 0.0) == (A,)
    assert standing.open([A], L, UNREACHABLE_S) == (A,)
    standing.unreachable(A, L, UNREACHABLE_S)
    assert standing.open([A], L, 3 * UNREACHABLE_S - 1) == ()
    assert standing.open([A], L, 3 * UNREACHABLE_S) == (A,)
    standing.reached((A,), L)
    standing.unreachable(A, L, 0.0)
    assert standing.open([A], L, UNREACHABLE_S) == (A,)


def test_connections_that_fail_at_once_count_once() -> None:
    """Breaks as a day without a peer after one cut of the network."""
    standing = Standing()
    for number in range(5):
        standing.unreachable(A, L, number / 10)
    assert standing.open([A], L, UNREACHABLE_S) == (A,)


def test_a_link_that_comes_up_begins_anew() -> None:
    standing = Standing()
    standing.unreachable(A, L, 0.0)
    standing.unreachable(A, LinkId("other"), 0.0)
    standing.renewed(L)
    assert standing.open([A], L, 1.0) == (A,)
    assert standing.open([A], LinkId("other"), 1.0) == ()


def test_what_is_held_against_others_is_bounded() -> None:
    standing = Standing()
    for number in range(5000):
        peer, address = PeerId(number.to_bytes(16, "big")), number.to_bytes(16, "little")
        standing.ban(peer, address, 0.0)
        standing.lacked(peer, 0.0)
        standing.unreachable(address, L, 0.0)
    assert max(map(len, (standing._bans, standing._lacked, standing._ignored, standing._closed))) <= 1024
