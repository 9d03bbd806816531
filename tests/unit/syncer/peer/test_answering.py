"""The responder: whether it answers, and when."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.session.actions import LinkId, PeerId, Ticket
from syncer.peer.session.answering import (
    CROWD,
    IMPLOSION,
    JITTER_MOST_S,
    Answering,
    Newcomer,
    Reply,
    Request,
    jitter_s,
    keeps_silent,
)
from syncer.peer.session.budget import WORK
from syncer.peer.session.keyring import RootKey, ShareKey
from syncer.peer.wire.bodies import WhoHas

KEY = ShareKey("s", RootKey(raw=b"k" * 32))
chances = st.floats(0, 1, exclude_max=True)


def request(*, discovery: bool = False, key: ShareKey = KEY) -> Request:
    question = WhoHas(qid=1, tokens=(b"12345678", b"abcdefgh"), discovery=discovery)
    return Request(key=key, peer=PeerId(b"p" * 16), question=question, bound=64, link=LinkId("l"), source=b"mac")


def accepted(answering: Answering, asked: Request, known: int = 1) -> Ticket:
    ticket = answering.accept(asked, known)
    assert ticket is not None
    return ticket


def newcomer(*, key: ShareKey = KEY) -> Newcomer:
    return Newcomer(key=key, link=LinkId("l"), source=b"mac")


def replies(answering: Answering, now: float) -> list[Reply]:
    return [each for each in answering.due(now) if isinstance(each, Reply)]


def test_who_has_some_answers_at_once() -> None:
    answering = Answering(random.Random(0).randbytes)
    answering.looked_up(accepted(answering, request()), [False, True], 1, 5.0)
    assert answering.next_due() == 5.0
    assert [reply.bitmap for reply in replies(answering, 5.0)] == [b"\x02"]
    assert len(answering) == 0


def test_who_has_none_answers_only_to_who_asks_who_is_there() -> None:
    answering = Answering(random.Random(0).randbytes)
    answering.looked_up(accepted(answering, request()), [False, False], 1, 5.0)
    assert answering.due(5.0) == []
    answering.looked_up(accepted(answering, request(discovery=True)), [False, False], 1, 5.0)
    assert [reply.bitmap for reply in replies(answering, 5.0)] == [b"\x00"]


@given(st.integers(0, 256), chances)
def test_answers_of_few_come_at_once_and_of_many_within_ten_milliseconds(known: int, chance: float) -> None:
    wait = jitter_s(known, chance)
    assert 0 <= wait <= JITTER_MOST_S
    assert wait == 0 or known > CROWD


@given(st.integers(0, 256), chances)
def test_few_all_answer_and_of_many_about_eight(known: int, chance: float) -> None:
    assert keeps_silent(known, chance) == (known > IMPLOSION and chance * known >= CROWD)


def test_of_a_hundred_about_eight_answer() -> None:
    """Breaks as a hundred answers to each question, or as none."""
    answering = [Answering(random.Random(seed).randbytes) for seed in range(100)]
    answers = [sum(each.accept(request(), 100) is not None for each in answering) for _ in range(50)]
    assert CROWD / 2 < sum(answers) / len(answers) < CROWD * 2


def test_questions_in_work_are_bounded() -> None:
    answering = Answering(random.Random(0).randbytes)
    tickets = [accepted(answering, request()) for _ in range(WORK)]
    assert answering.is_full()
    answering.looked_up(tickets[0], [True, True], 1, 0.0)
    assert answering.is_full()  # its answer waits
    answering.due(0.0)
    assert not answering.is_full()


def test_a_share_that_is_left_is_answered_no_more() -> None:
    answering = Answering(random.Random(0).randbytes)
    other = ShareKey("t", RootKey(raw=b"o" * 32))
    waiting, looked_up, kept = (accepted(answering, request(key=key)) for key in (KEY, KEY, other))
    answering.looked_up(waiting, [True, True], 1, 0.0)
    answering.forget("s")
    answering.looked_up(looked_up, [True, True], 1, 0.0)
    answering.looked_up(kept, [True, True], 1, 0.0)
    assert [reply.request.key.share for reply in replies(answering, 1.0)] == ["t"]


def test_who_comes_is_answered_at_once_where_few_are() -> None:
    answering = Answering(random.Random(0).randbytes)
    answering.came(newcomer(), 1, 5.0)
    assert answering.next_due() == 5.0
    assert answering.due(5.0) == [newcomer()]


def test_of_a_hundred_about_eight_answer_who_comes_and_not_all_at_once() -> None:
    """Breaks as a hundred answers to each machine that starts."""
    answering = [Answering(random.Random(seed).randbytes) for seed in range(100)]
    for each in answering:
        each.came(newcomer(), 100, 5.0)
    waiting = [each.next_due() for each in answering if len(each)]
    assert CROWD / 2 < len(waiting) < CROWD * 2
    assert len(set(waiting)) == len(waiting)
    assert all(5.0 <= due <= 5.0 + JITTER_MOST_S for due in waiting)


def test_who_comes_is_not_answered_for_a_share_that_is_left() -> None:
    answering = Answering(random.Random(0).randbytes)
    answering.came(newcomer(), 1, 5.0)
    answering.forget("s")
    assert answering.due(9.0) == []
