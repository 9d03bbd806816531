from __future__ import annotations

from collections.abc import Iterator

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from syncer.remote.parallel import cut_into_lists, for_each


def test_at_most_so_many_jobs_run_at_once_and_none_is_taken_early() -> None:
    running, most, taken = 0, 0, 0
    done: list[int] = []

    def jobs() -> Iterator[int]:
        nonlocal taken
        for job in range(20):
            taken += 1
            assert taken <= len(done) + 3
            yield job

    async def work(job: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await trio.sleep(job % 3 + 1)
        running -= 1
        done.append(job)

    trio.run(for_each, jobs(), work, 3, clock=MockClock(autojump_threshold=0))
    assert most == 3
    assert sorted(done) == list(range(20))


def test_the_first_error_comes_out_bare_and_stops_the_others() -> None:
    finished = []

    async def work(job: int) -> None:
        await trio.sleep(job)
        if job == 2:
            raise KeyError("two")
        finished.append(job)

    with pytest.raises(KeyError, match="two"):
        trio.run(for_each, iter([1, 2, 5, 9]), work, 3, clock=MockClock(autojump_threshold=0))
    assert finished == [1]


def test_a_cancellation_passes_through() -> None:
    async def main() -> bool:
        with trio.move_on_after(1) as scope:
            await for_each(iter(range(9)), lambda _job: trio.sleep_forever(), 3)
        return scope.cancelled_caught

    assert trio.run(main, clock=MockClock(autojump_threshold=0))


@given(st.integers(0, 300), st.sampled_from([1, 7, 16, 64]))
def test_lists_begin_small_and_end_small(count: int, size: int) -> None:
    jobs = list(range(count))

    cut = cut_into_lists(jobs, size, 1, lambda _: 0)
    assert [job for part in cut for job in part] == jobs
    sizes = [len(part) for part in cut]
    least, first = max(1, size // 4), max(1, size // 8)
    left = [count - sum(sizes[:at]) for at in range(len(sizes))]
    assert all(now <= min(size, max(least, before // 4)) for now, before in zip(sizes, left, strict=True))
    assert not sizes or sizes[0] <= first
    assert all(now >= first for now in sizes[:-1])


def test_a_list_is_full_when_its_contents_are_as_many_bytes_as_may_be_in_memory() -> None:
    assert cut_into_lists([9, 9, 0, 0], 16, 10, lambda size_bytes: size_bytes) == [[9], [9, 0, 0]]
