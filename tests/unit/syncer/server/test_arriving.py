"""How long a body is waited for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from syncer.server.http.arriving import LEAST_BYTES_PER_S, Waiting


@given(st.lists(st.integers(1, 100_000), max_size=50))
def test_a_body_is_never_waited_for_longer_than_its_bytes_are_worth(sizes: list[int]) -> None:
    waiting, waited = Waiting(120.0), 0.0
    for size in sizes:
        pause = waiting.allowance_s  # the slowest that is allowed
        assert 0 <= pause <= 120.0
        waited += pause
        waiting.got(size, pause)
    assert waited <= 120.0 + sum(sizes) / LEAST_BYTES_PER_S + 1e-6


def test_a_client_of_a_byte_a_minute_is_given_up_soon() -> None:
    waiting, waited = Waiting(120.0), 0.0
    while waiting.allowance_s >= 60:
        waiting.got(1, 60.0)
        waited += 60
    assert waited <= 180


def test_a_slow_line_is_waited_for() -> None:
    waiting = Waiting(120.0)
    for _ in range(100_000):
        waiting.got(1400, 0.35)  # 4 kB/s
        assert waiting.allowance_s > 60
