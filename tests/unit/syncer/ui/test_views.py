"""What a page says of a root and of a plan, whatever the facts are."""

from __future__ import annotations

from importlib.resources import files
from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest

from syncer.ui.ports import CycleFacts, Pending, RootFacts
from syncer.ui.views.plans import PER_PAGE, view_explanation, view_plan
from syncer.ui.views.roots import view_bar, view_cycle, view_parts, view_root
from syncer.ui.words import counted, name, number, span
from syncer.watch.live import Phase, RootLive

NOW = 1_800_000_000.0
FACTS = RootFacts(uuid="1", path=b"/home/me/photos", url="pithos+http://h/v1/me/photos", condition="ok")


def live(phase: Phase, **more: Any) -> RootLive:
    return RootLive(root="/home/me/photos", uuid="1", phase=phase, since=NOW, **more)


@pytest.mark.parametrize("phase", get_args(Phase))
def test_each_phase_of_the_daemon_is_told(phase: Phase) -> None:
    view = view_root(FACTS, live(phase, detail="why"), NOW)
    assert ("why" in view.why) == (phase != "paused")  # there the button says it
    assert view.needs_consent == (phase == "consent")


@pytest.mark.parametrize("phase", get_args(Phase))
def test_a_root_that_was_paused_just_now_is_told_so_unless_it_is_at_work(phase: Phase) -> None:
    """Breaks when who has pressed the button sees "In step" until the daemon has heard of it."""
    view = view_root(msgspec.structs.replace(FACTS, is_paused=True), live(phase), NOW)
    assert (view.state == "Paused") == (phase in {"idle", "quiet", "retrying", "paused"})


@pytest.mark.parametrize("condition", ["ok", "running", "never", "degraded", "away", "damaged"])
def test_each_condition_of_a_root_that_nobody_watches_is_told(condition: str) -> None:
    view = view_root(msgspec.structs.replace(FACTS, condition=condition, detail="why"), None, NOW)
    assert view.word == condition
    assert view.why == ("why",)
    assert not view.is_watched


def test_a_root_at_rest_of_which_something_is_not_synced_needs_a_look() -> None:
    pending = (
        Pending(path=b"a", is_failure=True, text="no", since_s=NOW),
        Pending(path=b"b", is_failure=False, text="by the way", since_s=NOW),
    )
    view = view_root(msgspec.structs.replace(FACTS, pending=pending), live("idle"), NOW)
    assert view.tone == "warn"
    assert [each.path for each in view.failures] == ["a"]
    assert [each.path for each in view.remarks] == ["b"]
    assert view.waits == "1 path is not synced"


def test_progress_is_told_by_bytes_where_there_are_some() -> None:
    progress = {"files": 3, "files_done": 1, "bytes": 2048, "bytes_done": 1024, "bytes_sent": 512, "bytes_received": 0}
    bar = view_bar(live("working", moving="a/b", progress={**progress, "bytes_per_s": 256, "seconds": 4}))
    assert (bar.done, bar.of, bar.latest) == (1024, 2048, "a/b")
    assert bar.text == "1 of 3 · 1 KiB of 2 KiB · ↑ 512 B ↓ 0 B, 256 B/s · about 4 s left"


def test_before_there_is_a_plan_it_is_told_what_is_read() -> None:
    bar = view_bar(live("working", progress={"bytes_hashed": 1024, "bytes_to_hash": 4096, "bytes_received": 7}))
    assert (bar.done, bar.of) == (1024, 4096)
    assert "looking at both sides" in bar.text
    assert view_bar(live("working")).of == 0


def test_a_cycle_that_broke_off_says_what_broke_it() -> None:
    cycle = view_cycle(CycleFacts(ended_s=NOW, exit_code=13, error="no server", counts={"pushed": 2}), NOW, {})
    assert (cycle.outcome, cycle.done, cycle.is_broken) == ("no server", "2 pushed", True)
    assert view_cycle(CycleFacts(ended_s=NOW, exit_code=3, error=None, counts={}), NOW, {}).outcome.startswith(
        "partly done"
    )


@pytest.mark.parametrize(
    "counts",
    [
        {},
        {"blocks_received": 1, "blocks_from_peers": 2},
        {"blocks_from_roots": 7},
        {"blocks_from_own": 7},
        {"blocks_received": 1, "blocks_from_peers": 2, "blocks_from_roots": 3, "blocks_from_own": 5},
        {"blocks_received": 10**9},
    ],
)
def test_the_parts_of_a_bar_are_the_whole_bar(counts: dict[str, int | float]) -> None:
    parts = view_parts(counts)
    assert sum(part.width for part in parts) == (1000 if counts else 0)
    assert all(one.at + one.width == other.at for one, other in pairwise(parts))
    assert {part.count for part in parts if part.width} == {number(count) for count in counts.values()}


def test_each_part_of_a_bar_has_a_colour() -> None:
    css = (files("syncer.ui") / "assets/style.css").read_text()
    for part in view_parts({"blocks_from_own": 1}):
        assert f".share .{part.key}" in css
        assert f".dot.{part.key}" in css


def test_names_that_would_turn_or_end_a_line_are_told_as_what_they_are() -> None:
    assert name("invoice\u202efdp.exe".encode()) == "invoice\\u202efdp.exe"
    assert name(b"two\nlines\x1b[31m") == "two\\x0alines\\x1b[31m"
    assert name(b"caf\xe9") == "caf\\xe9"
    assert name("שלום".encode()) == "שלום"


def test_counts_and_spans_are_written_for_people() -> None:
    assert (counted(1, "file", "files"), counted(0, "file", "files")) == ("1 file", "0 files")
    assert number(16_777_216) == "16\u202f777\u202f216"
    assert [span(seconds) for seconds in (0, 89, 600, 7200, 500_000)] == ["1 s", "89 s", "10 min", "2 h", "6 days"]


def plan(actions: list[dict[str, Any]]) -> bytes:
    fields = {"digest": "d1", "created": "2026", "needs_consent": ["much"], "not_synced": [], "notes": []}
    return msgspec.json.encode({"type": "plan", "version": 1, **fields, "actions": actions})


def test_a_plan_shows_deletions_first_and_all_of_them_by_pages() -> None:
    actions = [{"side": "local", "action": "create", "path": f"new{number}", "kind": "file"} for number in range(300)]
    actions += [{"side": "remote", "action": "trash", "path": f"old{number}", "kind": "file"} for number in range(150)]
    views = [view_plan(plan(actions), page) for page in (1, 2, 3)]
    shown = [step.path for view in views for step in view.steps]
    assert sorted(shown) == sorted(action["path"] for action in actions)
    assert all(path.startswith("old") for path in shown[:150])
    assert (views[0].pages, len(views[0].steps), views[0].total) == (3, PER_PAGE, 450)
    assert views[0].deletions == "150 deletions on the server"
    assert view_plan(plan(actions), 99).page == 3


def test_what_goes_with_its_folder_is_not_counted_again() -> None:
    absorbed = {"side": "local", "action": "trash", "path": "a/b", "kind": "file", "absorbed": True}
    assert view_plan(plan([absorbed]), 1).total == 0


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b"\xff"])
def test_what_is_no_plan_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        view_plan(line, 1)
    with pytest.raises(ValueError, match=r"\w"):
        view_explanation(line)
