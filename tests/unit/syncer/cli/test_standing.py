"""What `status` prints: one screen tells the state, whatever there is to tell."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from syncer.cli.output import live as live_table
from syncer.cli.output import standing
from syncer.cli.output.standing import RootStatus
from syncer.cli.registry.roots import LinkedRoot, RootRecord, encoded_path
from syncer.cli.verbs import plan
from syncer.core.model import RelPath
from syncer.engine.root_state import LastCycle
from syncer.state.schema import Problem
from syncer.watch.live import Phase, RootLive
from tests.kit import screen as screen_kit
from tests.kit.screen import ROWS

NOW_S = 1_800_000_000.0
STOP = (
    "safety stop: the plan would delete 812 of 900 nodes on the remote side (limit: half). Nothing was done. If that "
    "is what you want, run: blocksync reconcile /srv/images --allow-deletes 0123456789abcdef"
)
STOPPED = LastCycle(ended_ns=0, exit_code=16, error=STOP, counts={})


class Screen(screen_kit.Screen):
    def overview(self, roots: list[RootStatus]) -> None:
        with contextlib.redirect_stdout(self):
            standing.overview(roots, watched=True, now_s=NOW_S)

    def show(self, root: RootStatus) -> None:
        with contextlib.redirect_stdout(self):
            standing.show(root)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    screen_kit.set_terminal(monkeypatch)
    return Screen()


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., RootStatus]:
    def make(path: bytes = b"/srv/images", condition: str = "ok", **fields: object) -> RootStatus:
        state = tmp_path / str(len(os.listdir(tmp_path)))
        state.mkdir()
        if fields.pop("paused", False):
            (state / "paused").touch()
        record = RootRecord(
            format=1, uuid="u", path=encoded_path(path), url="pithos+https://h/v1/me/images", block_size=65536,
            folder=None, volume_uuid="v",
        )  # fmt: skip
        last = LastCycle(ended_ns=int((NOW_S - 300) * 1e9), exit_code=0, error=None, counts={"pushed": 1})
        usual: dict[str, object] = {"detail": "", "last": last, "shared": None, "live": None}
        usual |= {"problems": [], "conflicts": []}
        return RootStatus(
            root=LinkedRoot(record=record, state=str(state), data=str(state)),
            condition=condition,
            **{**usual, **fields},  # type: ignore[arg-type]
        )

    return make


def live(phase: Phase, detail: str = "") -> RootLive:
    return RootLive(root="", uuid="u", phase=phase, since=NOW_S, detail=detail)


def problems(count: int) -> list[Problem]:
    paths = [RelPath(b"p%d" % number) for number in range(count)]
    return [Problem(path=path, kind="failure", text="is busy", since_ns=0) for path in paths]


def copies(count: int) -> list[RelPath]:
    return [RelPath(b"c%d" % number) for number in range(count)]


@pytest.mark.parametrize(("counts", "own"), [({"blocks_from_own": 7}, 7), ({"blocks_from_peers": 3}, 0)])
def test_it_is_told_where_blocks_came_from_also_of_a_cycle_of_an_older_release(
    screen: Screen, made: Callable[..., RootStatus], counts: dict[str, int], own: int
) -> None:
    kept = {"ended_ns": 0, "exit_code": 0, "error": None, "counts": counts}
    screen.show(made(shared=msgspec.json.decode(msgspec.json.encode(kept), type=LastCycle)))
    assert f"{own} from the root itself" in " ".join(screen.getvalue().split())


@pytest.mark.parametrize(
    ("following", "phase", "told"),
    [
        ("changes", "idle", "idle; changes here by inotify; the server tells of changes"),
        ("polling", "idle", "idle; changes here by inotify; the server is asked now and then"),
        ("changes", "paused", "paused"),
        ("", "starting", "starting"),
    ],
)
def test_how_changes_are_noticed_is_told_in_words(
    screen: Screen, made: Callable[..., RootStatus], following: str, phase: Phase, told: str
) -> None:
    now = RootLive(root="", uuid="u", phase=phase, since=NOW_S, watching="inotify", following=following)
    screen.show(made(live=now))
    (line,) = [line for line in screen.lines if "watched" in line]
    assert line.endswith(f"  {told}")


def test_ten_roots_and_a_safety_stop_are_one_screen(screen: Screen, made: Callable[..., RootStatus]) -> None:
    roots = [made(b"/home/ann/folder-%d" % number) for number in range(9)]
    screen.overview([*roots, made(condition="degraded", live=live("consent", STOP))])
    assert screen.lines[0] == "10 roots: 1 safety stop, 9 ok; watched"
    assert screen.lines[2].split() == ["ok", "-", "-", "5", "min", "ago", "/home/ann/folder-0"]
    assert screen.lines[-1] == f"/srv/images: {STOP}"
    assert screen.height < ROWS


def test_ten_roots_that_are_all_in_trouble_are_one_screen(screen: Screen, made: Callable[..., RootStatus]) -> None:
    roots = [
        made(b"/srv/%d" % number, "degraded", live=live("consent", STOP), problems=problems(50), conflicts=copies(50))
        for number in range(10)
    ]
    screen.overview(roots)
    assert screen.height < ROWS
    assert "/srv/0: safety stop" in screen.getvalue()
    assert screen.lines[-1] == "… and 8 more; `blocksync status ROOT` says what is the matter with one"


def test_what_is_not_synced_is_named(screen: Screen, made: Callable[..., RootStatus]) -> None:
    some = [
        made(condition="degraded", detail="the last cycle left something undone", problems=problems(n)) for n in (1, 9)
    ]
    screen.overview(some)
    assert screen.lines[-2:] == [
        "/srv/images: not synced: p0: is busy",
        "/srv/images: 9 not synced; one of them: p0: is busy",
    ]


def test_of_a_hundred_roots_those_in_trouble_are_shown(screen: Screen, made: Callable[..., RootStatus]) -> None:
    roots = [made(b"/srv/%02d" % number) for number in range(100)]
    roots[90] = made(b"/srv/90", "away", detail="it is not mounted")
    screen.overview(roots)
    assert screen.height <= ROWS
    assert any(line.startswith("  away") and line.endswith("/srv/90") for line in screen.lines)
    assert "/srv/90: it is not mounted" in screen.lines
    (left,) = [line for line in screen.lines if "more; `blocksync status ROOT` shows one" in line]
    shown = sum(line.startswith(("  ok", "  away")) for line in screen.lines)
    assert left.split()[2] == str(100 - shown)


def test_one_root_with_ten_thousand_conflicts_is_one_screen(screen: Screen, made: Callable[..., RootStatus]) -> None:
    screen.show(made(condition="degraded", problems=problems(300), conflicts=copies(10_000)))
    assert screen.height < ROWS
    assert any("more; `blocksync conflicts` lists all" in line for line in screen.lines)
    assert any("more; `blocksync status --json` has all" in line for line in screen.lines)


def test_what_is_no_terminal_gets_everything_and_no_colour(
    made: Callable[..., RootStatus], capsys: pytest.CaptureFixture[str]
) -> None:
    standing.show(made(condition="degraded", problems=problems(300), conflicts=copies(200)))
    out = capsys.readouterr().out
    assert (out.count("is busy"), out.count("conflict copy")) == (300, 200)
    assert "\x1b" not in out
    standing.overview([made(b"/srv/%d" % number) for number in range(200)], watched=False, now_s=NOW_S)
    out = capsys.readouterr().out
    assert out.count("/srv/") == 200
    assert out.startswith("200 roots: 200 ok; not watched: `blocksync watch` is not running\n")


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_left_out_where_they_are_not_wanted(
    screen: Screen, made: Callable[..., RootStatus], monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setenv(*variable)
    screen.show(made(condition="degraded", detail="the last cycle left something undone"))
    assert "\x1b" not in screen.getvalue()
    assert "condition   degraded: the last cycle left something undone" in screen.lines


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "ok"),
        ({"conflicts": [b"a (conflict vm 20261126T173028Z 2424dd)"]}, "conflicts"),
        ({"conflicts": [b"a (conflict vm 20261126T173028Z 2424dd)"], "live": live("working")}, "running"),
        ({"live": live("idle")}, "ok"),
        ({"live": live("working")}, "running"),
        ({"live": live("retrying")}, "retrying"),
        ({"live": live("consent")}, "safety stop"),
        ({"live": live("away")}, "away"),
        ({"condition": "away"}, "away"),
        ({"condition": "never", "last": None}, "never"),
        ({"condition": "degraded"}, "degraded"),
        ({"condition": "degraded", "paused": True, "live": live("paused")}, "paused"),
        ({"condition": "degraded", "last": STOPPED}, "safety stop"),
    ],
)
def test_a_root_stands_in_one_word_that_its_colour_repeats(
    screen: Screen, made: Callable[..., RootStatus], fields: dict[str, object], word: str
) -> None:
    state = standing.state_of(made(**fields))
    assert state.text == word
    assert state.paint is not None
    screen.overview([made(), made(**fields)])
    assert f"\x1b[{state.paint.value}m{word}\x1b[0m" in screen.getvalue()


def test_names_from_elsewhere_are_one_line_and_draw_nothing(screen: Screen, made: Callable[..., RootStatus]) -> None:
    evil = b"/srv/\x1b[2J\ncaf\xe9"
    screen.overview([made(evil, "away", detail="\x1b]0;x\x07"), made()])
    screen.show(made(evil, conflicts=[RelPath(b"\x1b[31m\n")]))
    assert "\x1b[2J" not in screen.getvalue()
    assert "\x1b]" not in screen.getvalue()
    assert "/srv/\\x1b[2J\\x0acaf\\xe9: \\x1b]0;x\\x07" in screen.lines


def test_each_phase_of_the_daemon_has_a_colour() -> None:
    """Breaks when a phase is added, and `status --follow` ends with an error when a root is in it."""
    assert set(live_table._PAINTS) == set(get_args(Phase))
    for phase in get_args(Phase):
        assert live_table._table([live(phase)]).row_count == 1


def test_a_plan_that_is_longer_than_the_screen_is_counted_at_its_end() -> None:
    rows = [("remote", "create", "a"), ("local", "trash", "b"), ("remote", "create", "c")]
    assert plan._by_kind(rows) == "remote create: 2, local trash: 1"
