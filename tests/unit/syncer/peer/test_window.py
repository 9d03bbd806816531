"""The replay window: a frame counts once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.session.window import WINDOW, ReplayWindow


@given(st.lists(st.integers(1, 400), max_size=300))
def test_it_is_a_set_of_counters_that_forgets_by_refusing(counters: list[int]) -> None:
    """Breaks when a replay is taken twice, or a late frame that is young enough is refused."""
    window, seen = ReplayWindow(), set[int]()
    for counter in counters:
        top = max(seen, default=0)
        assert window.is_new(counter) == (counter not in seen and counter > top - WINDOW)
        if window.is_new(counter):
            window.commit(counter)
            seen.add(counter)
            assert not window.is_new(counter)


def test_looking_changes_nothing() -> None:
    """A forged frame with a high counter must not shut out the true ones."""
    window = ReplayWindow()
    window.commit(1)
    assert window.is_new(1 << 63)
    assert window.is_new(2)


def test_the_largest_counter_costs_no_memory() -> None:
    window = ReplayWindow()
    window.commit(5)
    window.commit((1 << 64) - 1)
    assert window._bits.bit_length() <= WINDOW
    assert not window.is_new(5)
    assert window.is_new((1 << 64) - 2)


def test_a_counter_of_zero_was_seen_before_it_came() -> None:
    """Counters begin with 1."""
    window = ReplayWindow()
    assert not window.is_new(0)
