"""Threads that answer requests which wait."""

from __future__ import annotations

import threading

import structlog

from blockfs.engine.fatal import Fatal
from blockfs.fuse.kernel.workers import Workers


def test_as_many_wait_at_once_as_there_are_threads_and_the_others_come_later() -> None:
    workers = Workers(2, "waits", Fatal())
    go_on, came = threading.Event(), threading.Semaphore(0)
    done: list[tuple[int, threading.Thread]] = []

    def job(number: int) -> None:
        came.release()
        go_on.wait()
        done.append((number, threading.current_thread()))

    for number in range(5):
        workers.submit(lambda number=number: job(number))
    for _ in range(2):
        came.acquire()
    assert not came.acquire(blocking=False)
    go_on.set()
    workers.close()
    assert sorted(number for number, _ in done) == [0, 1, 2, 3, 4]
    assert len({thread for _, thread in done}) == 2
    assert not any(thread.is_alive() for _, thread in done)


def test_threads_are_started_as_they_are_needed() -> None:
    workers = Workers(16, "waits", Fatal())
    before = threading.active_count()
    for _ in range(3):
        done = threading.Event()
        workers.submit(done.set)
        done.wait()
    assert before < threading.active_count() <= before + 3
    workers.close()
    assert threading.active_count() == before


def test_an_error_that_nobody_met_abandons_the_mount_and_costs_no_thread() -> None:
    """Breaks if whoever asks next waits for a thread that is gone."""
    fatal = Fatal()
    workers = Workers(1, "waits", fatal)
    done = threading.Event()
    with structlog.testing.capture_logs() as logs:
        workers.submit(lambda: next(iter(())))
        workers.submit(done.set)
        workers.close()
    assert done.is_set()
    assert fatal.has_struck
    assert [one["event"] for one in logs] == ["mount.abandoned"]
