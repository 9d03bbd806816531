"""Group commit: shared transactions, separate answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.commits import Commits, StoreClosedError
from syncer.server.errors import Refusal
from tests.unit.syncer.server.stores import BLOCK, Clock


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    Catalogue.create(str(tmp_path / "k"), block_size=BLOCK)
    opened = Catalogue.open(str(tmp_path / "k"))
    yield opened
    opened.close()


@pytest.fixture
def commits(catalogue: Catalogue) -> Iterator[Commits]:
    made = Commits(catalogue, Clock())
    yield made
    made.close()


class Gate:
    """Keeps the writer busy until the group behind it is complete."""

    def __init__(self, commits: Commits, pool: ThreadPoolExecutor) -> None:
        self._entered, self._open = threading.Event(), threading.Event()
        self._job = pool.submit(commits.run, self._wait)
        self._entered.wait()

    def _wait(self, _: Change) -> None:
        self._entered.set()
        self._open.wait()

    def open(self) -> None:
        self._open.set()
        self._job.result()


def test_each_gets_its_own_answer(commits: Commits) -> None:
    with ThreadPoolExecutor(8) as pool:
        serials = list(pool.map(lambda _: commits.run(Change.next_serial), range(100)))
    assert sorted(serials) == list(range(1, 101))


def test_a_refusal_does_not_disturb_the_others(commits: Commits, catalogue: Catalogue) -> None:
    def refuse(_: Change) -> None:
        raise Refusal("no")

    with ThreadPoolExecutor(8) as pool:
        gate = Gate(commits, pool)
        refused = pool.submit(commits.run, refuse)
        done = pool.submit(commits.run, lambda change: change.make_account("alice"))
        gate.open()
        assert done.result() == 1
        with pytest.raises(Refusal):
            refused.result()
    with catalogue.reading() as view:
        assert view.account("alice") == 1


def test_a_failure_undoes_the_whole_group_and_all_of_it_hear_so(commits: Commits, catalogue: Catalogue) -> None:
    def fail(change: Change) -> None:
        change.make_account("bob")
        raise MemoryError("half-way")

    with ThreadPoolExecutor(8) as pool:
        gate = Gate(commits, pool)
        done = [pool.submit(commits.run, lambda change: change.make_account("alice")), pool.submit(commits.run, fail)]
        while commits._jobs.qsize() < 2:
            pass
        gate.open()
        for job in done:
            with pytest.raises(MemoryError):
                job.result()
    with catalogue.reading() as view:
        assert view.count("accounts") == 0
    assert commits.run(lambda change: change.make_account("carol")) == 1


def test_who_refuses_after_writing_fails(commits: Commits, catalogue: Catalogue) -> None:
    """Breaks when a refused request may leave a part of itself behind in the group's transaction."""

    def half(change: Change) -> None:
        change.make_account("bob")
        raise Refusal("too late")

    with pytest.raises(AssertionError):
        commits.run(half)
    with catalogue.reading() as view:
        assert view.count("accounts") == 0


def test_the_floor_is_below_the_time_of_a_group_that_is_not_visible_yet(catalogue: Catalogue) -> None:
    clock = Clock()
    commits = Commits(catalogue, clock)
    with ThreadPoolExecutor(1) as pool:
        before_us = clock.now_us
        gate = Gate(commits, pool)
        clock.now_us += 5_000_000
        assert commits.floor_us() == before_us
        gate.open()
        assert commits.floor_us() == clock.now_us
    commits.close()


def test_after_closing_nothing_is_done(commits: Commits) -> None:
    commits.close()
    with pytest.raises(StoreClosedError):
        commits.run(Change.next_serial)
    commits.close()
