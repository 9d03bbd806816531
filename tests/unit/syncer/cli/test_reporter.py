"""What `reconcile` prints on a terminal: its summary, and what goes before it, are one screen."""

from __future__ import annotations

import contextlib

import pytest

from syncer.cli.output.reporter import Teller
from syncer.engine.report import Failure, Report
from syncer.ports.blocks import SourceStats
from tests.kit import screen
from tests.kit.screen import Screen

REASON = "it is open for writing; it is synced when nobody has written to it for a while"


class Both(Screen):
    """stdout and stderr of a terminal."""

    def shows(self, report: Report, root: bytes = b"/home/ann/images", roots: int = 1, remarks: int = 200) -> None:
        with contextlib.redirect_stdout(self), contextlib.redirect_stderr(self):
            told(report, root, roots, remarks)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Both:
    screen.set_terminal(monkeypatch)
    return Both()


def after_much(failures: int = 3_000) -> Report:
    """A cycle in which everything has happened."""
    gave = SourceStats(blocks=1 << 20, bytes=1 << 36)
    return Report(
        pushed=120_000, pulled=80_000, moved=4_000, deleted=900, conflicts=250, traffic={"requests": 12_345},
        sources={"peers": gave, "roots": gave, "own": gave}, bytes_read_local=1 << 40, seconds=98_765.4,
        blocks_to_peers=1 << 20, bytes_to_peers=1 << 36,
        failures=[Failure(path=b"folder/with a long name/%d.img" % each, reason=REASON) for each in range(failures)],
    )  # fmt: skip


def told(report: Report, root: bytes = b"/r", roots: int = 1, remarks: int = 200) -> None:
    teller = Teller(root, as_json=False, dry_run=report.dry_run, roots=roots)
    for failure in report.failures:
        teller.failed(failure)
    for number in range(remarks):
        teller.noted(b"link-%d" % number, "it has 2 names (hard links): each is synced as a file of its own")
    teller.summary(report)


def test_a_cycle_with_conflicts_and_thousands_of_failures_is_one_screen(seen: Both) -> None:
    seen.shows(after_much())
    assert seen.height < screen.ROWS - 1  # the command above, the prompt below
    assert seen.lines[0] == f"blocksync: not synced: folder/with a long name/0.img: {REASON}"
    named = sum("not synced: folder" in line for line in seen.lines)
    assert f"… and {3_200 - named} more; `blocksync status --json /home/ann/images` has all" in seen.lines
    words = [line.split() for line in seen.lines]
    assert ["not", "synced", "3000"] in words
    assert ["conflicts", "250"] in words
    assert ["to", "peers", "64", "GiB,", "1048576", "blocks"] in words
    assert max(map(len, seen.lines[-15:])) <= screen.COLUMNS


def test_what_fits_is_told_in_full(seen: Both) -> None:
    seen.shows(after_much(failures=2), remarks=1)
    assert sum("not synced: folder" in line for line in seen.lines) == 2
    assert any(line.startswith("link-0: ") for line in seen.lines)
    assert not any(line.startswith("…") for line in seen.lines)


def test_one_failure_with_a_long_name_is_told(seen: Both) -> None:
    long = Failure(path=b"x" * 4_000, reason=REASON)
    seen.shows(Report(failures=[long]), remarks=0)
    assert REASON in seen.lines[0]


def test_ten_roots_are_one_screen(seen: Both) -> None:
    for number in range(10):
        seen.shows(after_much(), b"/srv/%d" % number, roots=10)
    assert seen.height < screen.ROWS - 1
    assert sum(", 3000 not synced; " in line for line in seen.lines) == 10


def test_what_is_no_terminal_gets_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    told(after_much())
    assert len(capsys.readouterr().err.splitlines()) == 3_200


def test_a_dry_run_names_everything(seen: Both) -> None:
    seen.shows(Report(failures=after_much(100).failures, dry_run=True), remarks=0)
    assert sum("not synced: folder" in line for line in seen.lines) == 100
