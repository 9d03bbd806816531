"""Who waits for activity is woken by it, by the end of the mount, and by nothing else."""

from __future__ import annotations

import threading

from blockfs.service.activity import Activity

LONG_S = 600.0


def test_asking_for_the_first_time_does_not_wait() -> None:
    assert Activity().wait(None, LONG_S) == 0


def test_what_happened_before_the_question_is_told_at_once() -> None:
    activity = Activity()
    seen = activity.wait(None, LONG_S)
    activity.note()
    assert activity.wait(seen, LONG_S) != seen


def test_a_waiting_caller_is_woken_by_a_change_and_by_the_end() -> None:
    for wake in (Activity.note, Activity.end):
        activity = Activity()
        answers: list[int] = []
        thread = threading.Thread(
            target=lambda activity=activity, answers=answers: answers.append(activity.wait(0, LONG_S))
        )
        thread.start()
        wake(activity)
        thread.join()
        assert answers == [1 if wake is Activity.note else 0]


def test_time_is_up() -> None:
    assert Activity().wait(0, 0.0) == 0
