"""By which carriers frames to all go: everybody who is there hears them, and the budget of the interface is kept."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.links.ways import KNOWN_S, Ways
from syncer.peer.session.budget import Bucket
from syncer.peer.wire.carrier import Carrier

L2, SIX, FOUR = Carrier.ETHERNET, Carrier.UDP6, Carrier.UDP4
ALL = (L2, SIX, FOUR)
NOBODY, ANN, BEN = bytes(16), b"a" * 16, b"b" * 16


def ways(carriers: tuple[Carrier, ...] = ALL, mtu: int = 1500) -> Ways:
    return Ways(carriers, mtu, wireless=False)


def test_the_first_frame_goes_by_all_the_next_by_the_best() -> None:
    known = ways()
    assert known.take(124, 0) == ALL
    assert known.take(124, 1) == (L2,)
    assert known.take(124, KNOWN_S - 1) == (L2,)
    assert known.take(124, KNOWN_S) == ALL


def test_what_nobody_answers_goes_by_all_and_finds_out_nothing() -> None:
    """A HELLO must not be the attempt: who has UDP only, and says nothing by itself, would not be asked for minutes."""
    known = ways()
    assert known.take(124, 0, answered=False) == ALL
    assert known.take(124, 1) == ALL
    assert known.take(124, 2, answered=False) == ALL
    assert known.take(124, 3) == (L2,)


def test_a_frame_that_fits_only_the_best_does_not_count_as_an_attempt_by_the_others() -> None:
    known = ways()
    assert known.take(1500, 0) == (L2,)
    assert known.take(1472, 0) == (L2, FOUR)
    assert known.take(124, 0) == (L2, SIX)


def test_who_is_heard_by_a_worse_carrier_only_is_asked_by_it() -> None:
    known = ways()
    known.take(124, 0)
    known.heard(ANN, SIX, 1)
    assert known.take(124, 2) == (L2, SIX)
    assert known.longest_body(2) == 1392
    assert known.take(124, 1 + KNOWN_S + 1) == ALL  # the attempt is due, too
    assert known.take(124, 1 + KNOWN_S + 2) == (L2,)
    assert known.longest_body(1 + KNOWN_S + 2) == 1440


def test_who_is_heard_by_both_is_asked_by_the_better_one() -> None:
    known = ways()
    known.take(124, 0)
    for carrier in (SIX, L2, FOUR):
        known.heard(ANN, carrier, 1)
    assert known.take(124, 2) == (L2,)
    known.heard(BEN, FOUR, 3)
    assert known.take(124, 4) == (L2, FOUR)


def test_without_ethernet_the_next_is_the_best() -> None:
    known = ways((SIX, FOUR))
    assert known.take(124, 0) == (SIX, FOUR)
    assert known.take(124, 1) == (SIX,)
    assert known.longest_body(1) == 1392


def test_no_more_is_kept_than_some_senders() -> None:
    known = ways()
    for number in range(10_000):
        known.heard(number.to_bytes(16, "big"), SIX, 0)
    known.heard(ANN, FOUR, 0)
    assert len(known._heard) == 256
    assert known.needed(0) == ALL


@given(st.lists(st.tuples(st.floats(0, 0.2), st.integers(0, 3), st.integers(100, 1500)), max_size=300), st.booleans())
def test_all_copies_together_keep_to_the_budget(steps: list[tuple[float, int, int]], wireless: bool) -> None:
    """Whoever is heard by whatever: no more frames go out than one carrier alone might send."""
    known = Ways(ALL, 1500, wireless=wireless)
    limit = Bucket(8, 20) if wireless else Bucket(64, 200)
    now = 0.0
    for wait_s, who, size in steps:
        now += wait_s
        if who:
            known.heard(bytes([who]) * 16, ALL[who - 1], now)
        for carrier in known.take(size, now):
            assert limit.take(now), carrier
