"""What is in the trash stays for its time, also where this machine's clock was wrong for a while."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.local.verbs.retention import Clock, Retention, age_s, gone_on
from tests.kit.state import MemoryState

DAY_S = 86_400.0
KEEP_S = 30 * DAY_S
NOW_S = 1_790_000_000.0
PAST_S, FUTURE_S = NOW_S - 7 * 365 * DAY_S, NOW_S + 5 * 365 * DAY_S


class Trash:
    """Entries by when they were made, by the clock of then and in truth; cycles delete of them."""

    def __init__(self, noted: bool = True) -> None:
        self.entries: dict[str, float] = {}
        self._retention = Retention(KEEP_S, MemoryState())
        if noted:
            self.cycle(NOW_S)

    def put(self, name: str, at_s: float) -> None:
        self.entries[name] = at_s

    def cycle(self, now_s: float) -> None:
        is_over = self._retention.is_over(now_s)
        self.entries = {name: at_s for name, at_s in self.entries.items() if not is_over(at_s)}

    def days(self, first: float, last: float) -> None:
        """A cycle each day."""
        for day in range(int(first), int(last) + 1):
            self.cycle(NOW_S + day * DAY_S)


def test_an_entry_stays_for_its_time_and_no_longer() -> None:
    trash = Trash()
    trash.put("file", NOW_S)
    trash.days(1, 30)
    assert trash.entries
    trash.cycle(NOW_S + 30 * DAY_S + 1)
    assert not trash.entries


def test_a_cycle_in_the_past_makes_no_entry_old() -> None:
    trash = Trash()
    trash.cycle(PAST_S)
    trash.put("file", PAST_S)
    trash.days(1, 30)
    assert trash.entries
    trash.days(31, 32)
    assert not trash.entries


def test_a_machine_that_began_in_the_past_keeps_what_it_put_away_then() -> None:
    trash = Trash(noted=False)
    trash.cycle(PAST_S)
    trash.put("file", PAST_S)
    trash.days(1, 22)
    assert trash.entries


def test_a_cycle_in_the_future_deletes_nothing_and_what_is_put_away_in_it_goes_in_time() -> None:
    trash = Trash()
    trash.put("before", NOW_S)
    trash.cycle(FUTURE_S)
    trash.put("meanwhile", FUTURE_S)
    trash.cycle(FUTURE_S + 600)
    assert trash.entries.keys() == {"before", "meanwhile"}
    trash.days(1, 31)
    assert trash.entries.keys() == {"before", "meanwhile"}
    trash.days(32, 33)
    assert not trash.entries


@pytest.mark.parametrize("gap_days", [8, 40, 400])
def test_who_syncs_rarely_keeps_longer_and_not_for_ever(gap_days: int) -> None:
    trash = Trash()
    trash.put("file", NOW_S)
    cycles = 0
    while trash.entries:
        cycles += 1
        trash.cycle(NOW_S + cycles * gap_days * DAY_S)
    assert cycles == 5


def test_a_small_step_back_changes_nothing() -> None:
    clock = gone_on(Clock(since_s=0.0, last_s=NOW_S), NOW_S - 100, KEEP_S)
    assert clock == Clock(since_s=0.0, last_s=NOW_S)


def test_nothing_is_kept_where_nothing_is_to_be_kept() -> None:
    retention = Retention(0.0, MemoryState())
    retention.is_over(NOW_S)
    assert retention.is_over(NOW_S + 1)(NOW_S)


@given(
    steps=st.lists(st.floats(0, 6 * DAY_S), min_size=1, max_size=40),
    wrong_s=st.one_of(st.floats(-40 * 365 * DAY_S, -2 * 3600), st.floats(2 * 3600, 40 * 365 * DAY_S)),
    at=st.integers(0, 39),
    made=st.integers(0, 39),
)
def test_one_wrong_cycle_takes_a_quarter_of_its_time_from_an_entry_at_worst(
    steps: list[float], wrong_s: float, at: int, made: int
) -> None:
    """Each time is true but one; an entry is put away in any cycle, also in the wrong one."""
    clock, true_s, stamps = gone_on(None, NOW_S, KEEP_S), NOW_S, list[tuple[float, float]]()
    for number, step in enumerate(steps):
        true_s += step
        now_s = true_s + (wrong_s if number == at else 0.0)
        clock = gone_on(clock, now_s, KEEP_S)
        stamps.append((now_s, true_s))
        stamp, since_s = stamps[min(made, number)]
        assert age_s(clock, stamp, now_s) <= true_s - since_s + KEEP_S / 4 + 3600


@given(steps=st.lists(st.floats(0, 7 * DAY_S), min_size=1, max_size=40))
def test_a_clock_that_is_right_is_believed(steps: list[float]) -> None:
    clock, now_s = gone_on(None, NOW_S, KEEP_S), NOW_S
    for step in steps:
        now_s += step
        clock = gone_on(clock, now_s, KEEP_S)
        assert age_s(clock, NOW_S, now_s) == pytest.approx(now_s - NOW_S)


@pytest.mark.parametrize("raw", [b"", b"{}", b"\xff", b"[1]"])
def test_a_note_that_can_not_be_read_is_made_anew_and_nothing_goes_by_it(raw: bytes) -> None:
    state = MemoryState()
    state.keep("trash-clock", raw)
    assert not Retention(KEEP_S, state).is_over(NOW_S)(PAST_S)
    assert Retention(KEEP_S, state).is_over(NOW_S + 1)(PAST_S)
