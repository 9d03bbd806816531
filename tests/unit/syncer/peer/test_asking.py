"""The asker: each want is asked, asked again at 0.3, 1, 5 and each 30 s, and left alone when two peers offer it."""

from __future__ import annotations

import itertools
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import PeerId
from syncer.peer.session.asking import (
    AGAIN_S,
    ANSWERS,
    COALESCE_S,
    ENOUGH,
    QUESTIONS,
    WANTS,
    Asking,
    Question,
    Questions,
)
from tests import effort

P, Q = PeerId(b"p" * 16), PeerId(b"q" * 16)


def block(number: int) -> BlockId:
    return BlockId(number.to_bytes(32, "big"))


def nobody(_peer: PeerId) -> bool:
    return False


def everybody(_peer: PeerId) -> bool:
    return True


def ask(asking: Asking, now: float, most: int = 1000) -> tuple[BlockId, ...]:
    """Ask for all that is due, as a session does."""
    taken: tuple[BlockId, ...] = ()
    while asking.due(now):
        taken += asking.take(most, now)
    asking.flushed(now)
    return taken


def test_the_first_want_goes_at_once_and_those_right_behind_it_go_together() -> None:
    asking = Asking()
    asking.want([block(1)], 5.0)
    assert ask(asking, 5.0) == (block(1),)
    asking.want([block(2)], 5.0005)
    asking.want([block(3)], 5.0010)
    assert not asking.due(5.0010)
    assert asking.flush_at() == 5.0 + COALESCE_S
    assert ask(asking, 5.0 + COALESCE_S) == (block(2), block(3))


def test_what_nobody_offers_is_asked_again_and_again_ever_more_seldom() -> None:
    asking, now, times = Asking(), 0.0, []
    asking.want([block(1)], now)
    for _ in range(7):
        assert ask(asking, now) == (block(1),)
        times.append(now)
        now = asking.again_at()
        asking.mature(now, nobody)
    waits = [round(after - before, 6) for before, after in itertools.pairwise(times)]
    assert waits == [*AGAIN_S, AGAIN_S[-1], AGAIN_S[-1]]


def test_what_a_live_peer_offers_is_not_asked_until_it_is_gone() -> None:
    """Breaks as all blocks asked twice where one machine has all of them."""
    asking = Asking()
    asking.want([block(1), block(2)], 0.0)
    ask(asking, 0.0)
    assert asking.offered([block(1)], P) == (block(1),)
    asking.mature(0.3, everybody)
    assert ask(asking, 0.3) == (block(2),)
    asking.mature(1.3, nobody)
    assert set(ask(asking, 1.3)) == {block(1), block(2)}


def test_when_somebody_comes_all_is_asked_that_fewer_than_two_offer() -> None:
    asking = Asking()
    asking.want([block(1), block(2), block(3)], 0.0)
    ask(asking, 0.0)
    asking.offered([block(1), block(2), block(9)], P)
    asking.offered([block(1)], Q)
    asking.hasten(0.1, everybody)
    asking.hasten(0.1, everybody)
    assert set(ask(asking, 0.1)) == {block(2), block(3)}
    asking.hasten(0.15, lambda peer: peer == Q)
    assert set(ask(asking, 0.15)) == {block(1), block(2), block(3)}


def test_a_peer_that_offers_twice_is_one_peer() -> None:
    asking = Asking()
    asking.want([block(1)], 0.0)
    ask(asking, 0.0)
    asking.offered([block(1)], P)
    asking.offered([block(1)], P)
    asking.hasten(0.3, everybody)
    assert ask(asking, 0.3) == (block(1),)


def test_what_is_dropped_is_never_asked_and_counts_for_nobody() -> None:
    asking = Asking()
    asking.want([block(1), block(2)], 0.0)
    asking.drop([block(1)])
    assert ask(asking, 0.0) == (block(2),)
    asking.drop([block(2)])
    assert asking.offered([block(1), block(2)], P) == ()
    assert asking.again_at() == math.inf
    assert asking.flush_at() == math.inf
    assert not asking._providers


def test_what_is_dropped_and_wanted_anew_is_asked_like_a_new_want() -> None:
    """Breaks when the list of its former life asks it a second time."""
    asking = Asking()
    asking.want([block(1)], 0.0)
    ask(asking, 0.0)
    asking.drop([block(1)])
    asking.want([block(1)], 0.2)
    assert ask(asking, 0.2) == (block(1),)
    asking.mature(0.3, nobody)
    assert ask(asking, 0.3) == ()
    asking.mature(0.5, nobody)
    assert ask(asking, 0.5) == (block(1),)


def test_ids_asked_together_wait_as_long_as_each_was_asked_often() -> None:
    asking = Asking()
    asking.want([block(1)], 0.0)
    ask(asking, 0.0)
    asking.want([block(2)], 0.2999)
    asking.mature(0.3, nobody)
    assert set(ask(asking, 0.3)) == {block(1), block(2)}
    asking.mature(0.6, nobody)
    assert ask(asking, 0.6) == (block(2),)
    asking.mature(1.3, nobody)
    assert ask(asking, 1.3) == (block(1),)


def test_beyond_the_most_nothing_is_taken() -> None:
    asking = Asking()
    assert asking.want(map(block, range(WANTS + 10)), 0.0) == WANTS
    assert len(asking) == WANTS
    asking.drop([block(0)])
    assert asking.want([block(WANTS + 1), block(WANTS + 2)], 0.0) == 1


@given(st.integers(0, 60), st.integers(0, 30), st.integers(0, 1 << 32))
def test_what_goes_over_connections_is_all_but_some_that_begin_anywhere(count: int, kept: int, offset: int) -> None:
    asking = Asking()
    asking.want(map(block, range(count)), 0.0)
    beyond = asking.take_beyond(kept, offset, 0.0)
    rest = ask(asking, 0.0)
    assert sorted(beyond + rest) == [block(number) for number in range(count)]
    assert len(rest) == min(kept, count)
    if rest:
        assert rest[0] == block(offset % count)


class AskingMachine(RuleBasedStateMachine):
    """Every want is asked as often as the table of waits says, whatever comes and goes meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.asking = Asking()
        self.now = 0.0
        self.wanted: dict[BlockId, tuple[int, float]] = {}  # times asked, next time
        self.offers: dict[BlockId, set[PeerId]] = {}
        self.live = {P, Q}
        self.hastened: set[BlockId] = set()

    @rule(numbers=st.lists(st.integers(0, 12), max_size=6))
    def want(self, numbers: list[int]) -> None:
        self.asking.want(map(block, numbers), self.now)
        for number in numbers:
            self.wanted.setdefault(block(number), (0, self.now))

    @rule(numbers=st.lists(st.integers(0, 12), max_size=6))
    def drop(self, numbers: list[int]) -> None:
        self.asking.drop(map(block, numbers))
        for number in numbers:
            self.wanted.pop(block(number), None)
            self.offers.pop(block(number), None)
            self.hastened.discard(block(number))

    @rule(numbers=st.lists(st.integers(0, 12), max_size=6), peer=st.sampled_from([P, Q]))
    def offer(self, numbers: list[int], peer: PeerId) -> None:
        told = self.asking.offered(map(block, numbers), peer)
        assert set(told) == {block(number) for number in numbers} & set(self.wanted)
        for each in told:
            self.offers.setdefault(each, set()).add(peer)

    @rule(live=st.sets(st.sampled_from([P, Q])))
    def lives(self, live: set[PeerId]) -> None:
        self.live = live

    @rule()
    def somebody_comes(self) -> None:
        self.asking.hasten(self.now, lambda peer: peer in self.live)
        for each, (times, _) in self.wanted.items():
            if times and len(self.offers.get(each, set()) & self.live) < ENOUGH:
                self.hastened.add(each)
                self.wanted[each] = (times, self.now)

    @precondition(lambda self: self.wanted)
    @rule()
    def pass_time(self) -> None:
        """To the next deadline, and ask what is due."""
        deadline = min(self.asking.again_at(), self.asking.flush_at())
        assert deadline < math.inf, "a want that is never asked"
        self.now = max(self.now, deadline)
        self.asking.mature(self.now, lambda peer: peer in self.live)
        due = {each for each, (_, at) in self.wanted.items() if at <= self.now}
        expected = {each for each in due if self._open(each)}
        taken = set(ask(self.asking, self.now)) if self.asking.due(self.now) else set()
        if taken:
            assert taken == expected
        for each in due if taken else due - expected:
            times = self.wanted[each][0]
            self.hastened.discard(each)
            self.wanted[each] = (times + 1, self.now + AGAIN_S[min(times, len(AGAIN_S) - 1)])

    @invariant()
    def memory_is_bounded(self) -> None:
        assert set(self.asking._wants) == set(self.wanted)
        assert set(self.asking._providers) <= set(self.wanted)
        assert set(self.asking._due) <= set(self.wanted)

    def _open(self, each: BlockId) -> bool:
        return self.wanted[each][0] == 0 or each in self.hastened or not self.offers.get(each, set()) & self.live


AskingMachine.TestCase.settings = settings(max_examples=effort.count("properties"), stateful_step_count=30)
TestAskingMachine = AskingMachine.TestCase


def test_an_answer_counts_once_for_each_peer_and_soon() -> None:
    questions = Questions()
    questions.add(7, Question("s", b"m" * 16, (block(1),), 0.0))
    asked = questions.get(7, 10.0)
    assert asked is not None
    assert asked.take_answer(P)
    assert not asked.take_answer(P)
    assert asked.take_answer(Q)
    assert questions.get(7, 10.1) is None
    assert questions.get(8, 0.0) is None


def test_few_questions_and_answers_are_kept() -> None:
    questions = Questions()
    for qid in range(3 * QUESTIONS):
        questions.add(qid, Question("s", b"m" * 16, (block(1),), qid / 1000))
    assert len(questions) == QUESTIONS
    questions.add(1, Question("s", b"m" * 16, (block(1),), 1000.0))
    assert len(questions) == 1
    asked = questions.get(1, 1000.0)
    assert asked is not None
    assert sum(asked.take_answer(PeerId(number.to_bytes(16, "big"))) for number in range(2 * ANSWERS)) == ANSWERS
