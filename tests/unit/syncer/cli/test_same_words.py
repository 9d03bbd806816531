"""What the page and the commands show of the same thing: in the same words, and as urgently."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import msgspec
import pytest

from blockfs.exitcodes import ExitCode
from blockfs.runtime.terminal import Paint
from syncer.cli.output import live as followed
from syncer.cli.output import peers, reporter, standing
from syncer.cli.output.standing import RootStatus
from syncer.cli.registry.roots import LinkedRoot, RootRecord, encoded_path
from syncer.core.model import RelPath
from syncer.engine.report import CHANGES, Report
from syncer.engine.root_state import LastCycle
from syncer.state.schema import Problem
from syncer.ui.ports import CycleFacts, Pending, RootFacts
from syncer.ui.views.peers import view_peers
from syncer.ui.views.roots import view_cycle, view_parts, view_root
from syncer.watch.cyclewords import SOURCES
from syncer.watch.lan import PeersLive
from syncer.watch.live import Phase, RootLive
from tests.unit.syncer.cli.quiet import QUIET

NOW_S = 1_800_000_000.0
ROOT = b"/srv/images"
PAINTS = {"good": Paint.GOOD, "busy": Paint.BUSY, "warn": Paint.WARN, "bad": Paint.BAD, "off": Paint.FAINT}
CONDITIONS = ("ok", "running", "never", "degraded", "away")


def live(phase: Phase, detail: str = "") -> RootLive:
    return RootLive(root=ROOT.decode(), uuid="u", phase=phase, since=NOW_S, detail=detail)


def facts(condition: str = "ok", detail: str = "", pending: tuple[Pending, ...] = ()) -> RootFacts:
    return RootFacts(uuid="u", path=ROOT, condition=condition, detail=detail, pending=pending)


def status(
    state: Path,
    condition: str = "ok",
    detail: str = "",
    now: RootLive | None = None,
    problems: tuple[Problem, ...] = (),
) -> RootStatus:
    record = RootRecord(
        format=1, uuid="u", path=encoded_path(ROOT), url="pithos+https://h/v1/me/images", block_size=65536,
        folder=None, volume_uuid="v",
    )  # fmt: skip
    linked = LinkedRoot(record=record, state=str(state), data=str(state))
    last = LastCycle(ended_ns=0, exit_code=0, error=None, counts={})
    return RootStatus(
        root=linked, condition=condition, detail=detail, last=last, shared=None, problems=list(problems), conflicts=[],
        live=now,
    )  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_a_cycle_did_and_cost(count: int, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(**dict.fromkeys(CHANGES, count), traffic={"requests": count})  # type: ignore[arg-type]
    cycle = CycleFacts(ended_s=NOW_S, exit_code=0, error=None, counts=report.counts())
    view = view_cycle(cycle, NOW_S, {})
    reporter.Teller(ROOT, as_json=False, dry_run=False, roots=2).summary(report)
    told = capsys.readouterr().out.strip()
    assert (view.done in told) == bool(count)
    assert told.rpartition(", ")[2] == view.cost.rpartition(", ")[2]


@pytest.mark.parametrize("count", [1, 2])
def test_where_blocks_came_from(count: int) -> None:
    counts = dict.fromkeys(SOURCES, count)
    parts = view_parts(counts)
    assert len(parts) == len(SOURCES)
    in_status = standing._blocks(counts).split(", ")
    in_reconcile = dict(reporter._rows(Report(), {**Report().counts(), **counts}))
    for part in parts:
        assert f"{part.count} {part.label}" in in_status
        row = "received" if part.key == "server" else part.label
        assert str(in_reconcile[row]).endswith({1: "1 block", 2: "2 blocks"}[count])


@pytest.mark.parametrize("phase", get_args(Phase))
def test_how_a_root_stands_that_is_watched(phase: Phase, tmp_path: Path) -> None:
    view = view_root(facts(), live(phase, "why"), NOW_S)
    assert PAINTS[view.tone] is followed._PAINTS[phase]
    if phase != "damaged":  # of that one the registry says it, and no status is made
        in_a_word = standing.state_of(status(tmp_path, now=live(phase)))
        assert (in_a_word.paint is Paint.BAD) == (view.tone == "bad")
        assert (in_a_word.paint is Paint.WARN) == (view.tone == "warn")


@pytest.mark.parametrize("condition", CONDITIONS)
def test_how_a_root_stands_that_nobody_watches(condition: str, tmp_path: Path) -> None:
    view = view_root(facts(condition, "why"), None, NOW_S)
    assert view.word == standing.state_of(status(tmp_path, condition)).text == condition
    assert view.why == ("why",)


@pytest.mark.parametrize("phase", [None, *get_args(Phase)])
@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("conflicts", [0, 1])
@pytest.mark.parametrize("code", [0, ExitCode.SAFETY_STOP])
@pytest.mark.parametrize("paused", [False, True])
def test_the_page_shows_the_word_of_status(
    phase: Phase | None, condition: str, conflicts: int, code: int, paused: bool, tmp_path: Path
) -> None:
    now = None if phase is None else live(phase)
    last = CycleFacts(ended_s=NOW_S, exit_code=code, error=None, counts={})
    shown = msgspec.structs.replace(facts(condition), conflicts=conflicts, last=last, is_paused=paused)
    one = status(tmp_path, condition, now=now)
    one = msgspec.structs.replace(
        one,
        conflicts=[RelPath(b"c")] * conflicts,
        last=LastCycle(ended_ns=0, exit_code=code, error=None, counts={}),
    )
    if paused:
        one.root.pause(paused=True)
    assert view_root(shown, now, NOW_S).word == standing.state_of(one).text


@pytest.mark.parametrize("phase", ["consent", "away", "retrying"])
def test_why_a_root_waits(phase: Phase, tmp_path: Path) -> None:
    why = "safety stop: run: blocksync reconcile /srv/images --allow-deletes 06bb8f07"
    view = view_root(facts(), live(phase, why), NOW_S)
    one = status(tmp_path, now=live(phase, why))
    assert view.why == (why,)
    assert standing._remark(one, standing.state_of(one).text) == f"{ROOT.decode()}: {why}"


def test_why_something_is_not_synced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    problem = Problem(path=RelPath(b"a/b"), kind="failure", text="it is open for writing", since_ns=0)
    pending = Pending(path=b"a/b", is_failure=True, text=problem.text, since_s=0)
    (row,) = view_root(facts(pending=(pending,)), live("idle"), NOW_S).failures
    standing.show(status(tmp_path, "degraded", problems=(problem,)))
    assert f"{row.path}: {row.text}" in capsys.readouterr().out


@pytest.mark.parametrize("code", ExitCode)
def test_how_a_cycle_ended(code: ExitCode) -> None:
    """As `--help`'s manual and the reference have it, which other tests compare with the same table."""
    ended = CycleFacts(ended_s=NOW_S, exit_code=code, error=None, counts={})
    assert view_cycle(ended, NOW_S, {}).outcome == code.meaning


@pytest.mark.parametrize("count", [0, 1, 2])
def test_what_peers_gave_and_got(count: int) -> None:
    figures = msgspec.structs.replace(QUIET, blocks_from_peers=count, blocks_to_peers=count)
    line = msgspec.json.encode(PeersLive(off="", shares=[], figures=figures))
    assert view_peers(line).exchanged == peers._counts(figures)
