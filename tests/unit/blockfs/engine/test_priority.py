from __future__ import annotations

import threading
from collections.abc import Iterator

from blockfs.engine.priority import Priority


def test_work_goes_on_when_the_last_one_waiting_is_done() -> None:
    priority = Priority(patience_s=60)
    order: list[str] = []

    def work() -> None:
        priority.give_way()
        order.append("work")

    worker = threading.Thread(target=work)
    with priority.waiting():
        with priority.waiting():
            worker.start()
        order.append("done")
    worker.join()
    assert order == ["done", "work"]


def test_nobody_waiting_costs_nothing() -> None:
    priority = Priority(patience_s=60, now_s=iter(()).__next__)
    priority.give_way()
    with priority.waiting():
        pass
    priority.give_way()


def test_a_pause_is_followed_by_as_much_work() -> None:
    """Somebody always waits for an fsync of a busy database; what it writes must be sealed nevertheless."""
    clock: Iterator[float] = iter([100.0, 110.0, 119.0, 120.0, 125.0, 129.9, 130.0, 131.0])
    priority = Priority(patience_s=0, now_s=clock.__next__)
    with priority.waiting():
        priority.give_way()  # from 100 to 110
        priority.give_way()  # at 119: not again yet
        priority.give_way()  # from 120 to 125
        priority.give_way()  # at 129.9: not again yet
        priority.give_way()  # from 130 to 131
    assert next(clock, None) is None
