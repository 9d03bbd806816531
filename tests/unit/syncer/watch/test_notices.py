"""Which events a user is told of: once each, whatever the clocks do."""

from __future__ import annotations

import pytest

from syncer.watch.notices.events import (
    GATHER_S,
    MAX_TEXT,
    TRIED_S,
    UNSYNCED_S,
    Book,
    Kind,
    Notify,
    Standing,
    objection,
)
from syncer.watch.pacing import CycleResult

DAY_S = UNSYNCED_S
WALL_S = 1_800_000_000.0


class Root:
    """A book, and clocks that a test moves together or apart."""

    def __init__(self, path: bytes = b"/root", standing: Standing | None = None) -> None:
        self.now_s, self.wall_s = 100.0, WALL_S
        self.book = Book(path, standing or Standing(synced_s=WALL_S), self.now_s)

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds

    def sleep(self, seconds: float) -> None:
        """The machine does: the monotonic clock stands."""
        self.wall_s += seconds

    def ended(self, result: CycleResult, why: str = "", conflicts: int = 0) -> list[Kind]:
        return [each.kind for each in self.book.ended(result, why, conflicts, self.now_s, self.wall_s)]

    def look(self) -> list[Kind]:
        return [each.kind for each in self.book.look(self.now_s, self.wall_s)]


def test_a_cycle_without_events_is_no_news() -> None:
    root = Root()
    for result in (CycleResult.DONE, CycleResult.PARTLY, CycleResult.SERVER_AWAY):
        assert root.ended(result) == []


def test_a_safety_stop_is_told_once_until_a_cycle_goes_through() -> None:
    """Breaks when each further change, which is planned anew and stopped again, is told again."""
    root = Root()
    assert root.ended(CycleResult.CONSENT, "would delete all") == [Kind.SAFETY_STOP]
    assert root.ended(CycleResult.CONSENT, "would delete all, and one more") == []
    assert root.ended(CycleResult.SERVER_AWAY) == []
    assert root.ended(CycleResult.CONSENT) == []
    assert root.ended(CycleResult.DONE) == []
    root.pass_by(GATHER_S)
    assert root.ended(CycleResult.CONSENT) == [Kind.SAFETY_STOP]


def test_a_device_that_deletes_and_restores_all_day_is_told_of_now_and_then() -> None:
    root = Root()
    told = []
    for _ in range(1000):
        told += root.ended(CycleResult.CONSENT) + root.ended(CycleResult.DONE)
        root.pass_by(6)
    assert told == [Kind.SAFETY_STOP] * 10
    root.ended(CycleResult.CONSENT, "would delete all")
    root.pass_by(GATHER_S)
    assert root.look() in ([Kind.SAFETY_STOP], [])
    assert root.book.standing.is_stopped


def test_a_new_daemon_does_not_tell_it_again() -> None:
    root = Root()
    root.ended(CycleResult.CONSENT)
    again = Root(standing=root.book.standing)
    assert again.ended(CycleResult.CONSENT) == []


def test_files_that_fight_are_told_of_now_and_then() -> None:
    root = Root()
    assert root.ended(CycleResult.DONE, conflicts=2) == [Kind.CONFLICTS]
    told = []
    for _ in range(100):
        root.pass_by(5)
        told += root.book.ended(CycleResult.DONE, "", 1, root.now_s, root.wall_s)
    assert told == []
    root.pass_by(GATHER_S)
    (notice,) = root.book.look(root.now_s, root.wall_s)
    assert notice.text == "/root: 100 conflict copies were made; `blocksync conflicts` lists them"
    root.pass_by(GATHER_S)
    assert root.look() == []


def test_a_root_that_has_not_synced_for_a_day_is_told_once_with_the_reason() -> None:
    root = Root()
    root.ended(CycleResult.SERVER_AWAY, "no route to host")
    root.pass_by(DAY_S - 1)
    assert root.look() == []
    root.pass_by(1)
    (notice,) = root.book.look(root.now_s, root.wall_s)
    assert (notice.kind, notice.text) == (Kind.UNSYNCED, "/root: it has not synced for 1 day: no route to host")
    root.pass_by(10 * DAY_S)
    assert root.look() == []
    root.ended(CycleResult.DONE)
    root.pass_by(DAY_S)
    assert root.look() == [Kind.UNSYNCED]


def test_a_machine_that_slept_for_a_week_is_not_late() -> None:
    root = Root()
    root.sleep(7 * DAY_S)
    assert root.look() == []
    root.pass_by(30)
    root.ended(CycleResult.DONE)
    root.pass_by(2 * TRIED_S)
    assert root.look() == []


def test_a_daemon_that_is_started_every_morning_and_never_syncs_is_late() -> None:
    root = Root(standing=Standing(synced_s=WALL_S - 3 * DAY_S))
    root.pass_by(TRIED_S - 1)
    assert root.look() == []
    root.pass_by(1)
    assert root.look() == [Kind.UNSYNCED]


def test_a_paused_root_is_not_late_and_has_an_hour_when_it_is_resumed() -> None:
    root = Root()
    root.book.pause(root.now_s, paused=True)
    root.pass_by(5 * DAY_S)
    assert root.look() == []
    root.book.pause(root.now_s, paused=False)
    assert root.look() == []
    root.pass_by(TRIED_S)
    assert root.look() == [Kind.UNSYNCED]


def test_a_clock_that_is_put_back_makes_no_root_late_for_ever() -> None:
    root = Root(standing=Standing(synced_s=WALL_S + 365 * DAY_S))
    assert root.look() == []
    root.pass_by(DAY_S)
    assert root.look() == [Kind.UNSYNCED]


def test_texts_hold_no_line_no_escape_and_no_turn_and_are_short() -> None:
    root = Root(b"/caf\xe9\n\x1b[2J")
    (notice,) = root.book.ended(CycleResult.CONSENT, "\u202etxt.exe \udce9" + "x" * 5000, 0, root.now_s, root.wall_s)
    assert notice.root == b"/caf\xe9\n\x1b[2J"
    assert notice.text.startswith("/caf\\xe9\\x0a\\x1b[2J: \\u202etxt.exe \\udce9xxx")
    assert len(notice.text) == MAX_TEXT
    notice.text.encode()


@pytest.mark.parametrize(
    ("command", "is_good"), [((), True), (("mail", "ann"), True), (("",), False), (("a\0b",), False), (("a", ""), True)]
)
def test_a_command_begins_with_a_program(command: tuple[str, ...], is_good: bool) -> None:
    assert (objection(Notify(command=command)) is None) is is_good
