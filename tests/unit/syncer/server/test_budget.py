"""What requests of one account may use together: for every order in which they come, wait, give back and give up."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.server.budget import Allowance, Budgets, Purse
from syncer.server.errors import TooMany

MOST = 100


@given(st.lists(st.tuples(st.integers(1, 150), st.integers(0, 3), st.booleans()), min_size=1, max_size=12))
def test_what_is_used_has_a_bound_and_everybody_gets_an_answer(wanted: list[tuple[int, int, bool]]) -> None:
    """A request that needs more than all goes alone; nothing is lost when one gives up."""
    allowance = Allowance(MOST, 1)
    running: list[int] = []
    answers: list[bool] = []

    async def request(size: int, steps: int, hurried: bool) -> None:
        try:
            await allowance.take(size, 0.0 if hurried else 1e9)
        except TooMany:
            answers.append(False)
            return
        running.append(size)
        assert sum(running) <= allowance.used_bytes  # others may have been granted theirs and not run yet
        assert allowance.used_bytes <= MOST or running == [allowance.used_bytes]
        for _ in range(steps):
            await anyio.sleep(0)
        running.remove(size)
        allowance.give(size)
        answers.append(True)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for one in wanted:
                tasks.start_soon(request, *one)
                await anyio.sleep(0)

    anyio.run(main)
    assert len(answers) == len(wanted)
    assert all(answers) or any(hurried for _, _, hurried in wanted)
    assert allowance.used_bytes == 0


def test_a_request_that_is_cancelled_while_it_waits_takes_nothing() -> None:
    async def main() -> None:
        budgets = Budgets(MOST, 1)
        first, second, third = (Purse(budgets, "alice") for _ in range(3))
        await first.reserve(80)
        with anyio.move_on_after(0) as scope:
            await second.reserve(90)
        assert scope.cancelled_caught
        await third.reserve(20)  # nobody is before it any more
        first.close()
        third.close()
        assert budgets.of("alice").used_bytes == 0

    anyio.run(main)


def test_accounts_do_not_wait_for_each_other() -> None:
    async def main() -> None:
        budgets = Budgets(MOST, 1, patience_s=0)
        alice, bob, again = Purse(budgets, "alice"), Purse(budgets, "bob"), Purse(budgets, "alice")
        await alice.reserve(MOST)
        await bob.reserve(MOST)
        with pytest.raises(TooMany) as refused:
            await again.reserve(1)
        assert refused.value.headers["Retry-After"]
        alice.keep(10)
        await again.reserve(90)

    anyio.run(main)
