"""Our own sender id: no pair of id and counter comes twice, whatever clocks and copies of the machine do."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.session.sender import JUMP_S, Sender

START = 1_700_000_100.0  # the middle of an epoch


def made(seed: int = 0) -> Sender:
    return Sender(random.Random(seed).randbytes)


def test_it_stays_while_the_clocks_agree() -> None:
    sender = made()
    sender.at(10.0, START)
    first = sender.id
    assert [sender.count() for _ in range(3)] == [1, 2, 3]
    sender.at(11.0, START + 1.0 + JUMP_S * 0.9)
    assert sender.id == first
    assert sender.count() == 4


def test_an_epoch_makes_another() -> None:
    sender = made()
    epoch = sender.at(10.0, START)
    first = sender.id
    assert sender.at(610.0, START + 600) == epoch + 1
    assert sender.id != first
    assert sender.count() == 1
    assert sender.is_own(first)


def test_a_jump_of_the_wall_clock_makes_another() -> None:
    """A machine that was asleep, or resumed from a saved state: its random numbers may be those of another."""
    for jump in (-3.0, 3.0):
        sender = made()
        sender.at(10.0, START)
        first = sender.id
        sender.at(11.0, START + 1.0 + jump)
        assert sender.id != first


def test_a_frame_that_we_never_sent_is_told_from_a_replay() -> None:
    sender = made()
    sender.at(10.0, START)
    sent = sender.count()
    assert not sender.never_sent(sender.id, sent)
    assert sender.never_sent(sender.id, sent + 1)
    assert not sender.never_sent(b"x" * 16, sent + 1)
    former = sender.id
    sender.renew()
    assert not sender.never_sent(former, sent + 1)
    assert sender.is_own(former)


@given(st.lists(st.tuples(st.floats(0, 400), st.floats(-700, 700), st.booleans()), max_size=40))
def test_no_pair_comes_twice(moves: list[tuple[float, float, bool]]) -> None:
    sender, seen, now, unix_s = made(), set[tuple[int, bytes, int]](), 0.0, START
    for wait, jump, renew in moves:
        now, unix_s = now + wait, unix_s + wait + jump
        epoch = sender.at(now, unix_s)
        if renew:
            sender.renew()
        pair = (epoch, sender.id, sender.count())
        assert pair not in seen
        seen.add(pair)
    assert len(sender._ids) <= 64
