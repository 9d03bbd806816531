"""What volumes held: noted once an hour, and bounded."""

from __future__ import annotations

from pathlib import Path

from syncer.cli.ui.history import MOST_LINES, History, thinned
from syncer.ui.ports import Use

UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def use(at_s: float) -> Use:
    return Use(at_s=at_s, logical_bytes=3, unique_bytes=2, stored_bytes=1)


def test_what_is_noted_is_told_again_but_once_an_hour_only(tmp_path: Path) -> None:
    history = History(str(tmp_path / "volumes"))
    assert history.of(UUID) == ()
    for at_s in (0.0, 10.0, 3600.0, 3601.0, 7200.0, 7000.0):
        history.note(UUID, use(at_s))
    assert [each.at_s for each in history.of(UUID)] == [0.0, 3600.0, 7200.0, 7000.0]  # a clock that was set back, too


def test_a_line_that_cant_be_read_costs_itself_only(tmp_path: Path) -> None:
    history = History(str(tmp_path))
    history.note(UUID, use(0.0))
    with (tmp_path / f"{UUID}.jsonl").open("ab") as file:
        file.write(b"{half a li\n")
    history.note(UUID, use(3600.0))
    assert [each.at_s for each in history.of(UUID)] == [0.0, 3600.0]


def test_a_name_that_is_no_uuid_leads_nowhere(tmp_path: Path) -> None:
    history = History(str(tmp_path / "volumes"))
    history.note("../evil", use(0.0))
    assert not list(tmp_path.rglob("*.jsonl"))


def test_the_older_half_gets_thinner_and_the_newer_stays() -> None:
    uses = [use(float(hour)) for hour in range(MOST_LINES + 1)]
    kept = thinned(uses)
    assert kept[-MOST_LINES // 2 :] == uses[-MOST_LINES // 2 :]
    assert len(kept) == 3 * MOST_LINES // 4 + 1
    assert thinned(kept) == kept
