"""What `reconcile` prints: tables and JSON lines on stdout, failures and progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import trio

from blockfs.runtime.failures import said
from blockfs.runtime.output import JsonValue, json_line, note, printable, shown
from blockfs.runtime.terminal import Paint, Painted, rows_of, size_of
from blockfs.runtime.units import counted, format_size
from syncer.cli.output import columns
from syncer.cli.output.progress import Progress
from syncer.core.model import Action, Plan, RelPath
from syncer.engine.report import CHANGES, Failure, Report
from syncer.ports.localvalues import LocalCounters
from syncer.ports.remote import Counters
from syncer.watch.cyclewords import SOURCES, TO_PEERS, changed

if TYPE_CHECKING:  # imported where somebody looks: 25 ms
    from rich.text import Text

_ABOUT: Final = (
    3  # rows of the screen that are neither summary nor remark: the command, a word on the rest, the next prompt
)
_SUMMARY: Final = 15  # rows of a summary, at most
_BRIEF_SUMMARY: Final = 2
_FLUSH_S: Final = 0.1  # a line is not kept back for longer than this and the next second's


class _Line:
    """What the terminal shows, made anew each time it is drawn."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller

    def __rich__(self) -> Text:
        from rich.text import Text  # noqa: PLC0415 - see above

        return Text(printable(self._teller.line()), no_wrap=True, overflow="ellipsis")


class Teller:
    """`engine.report.Listener` for one root on the command line."""

    def __init__(self, root: bytes, *, as_json: bool, dry_run: bool, roots: int = 1) -> None:
        """Tell of one root.

        Args:
            root: Its path.
            as_json: As JSON lines.
            dry_run: Nothing is done.
            roots: How many share the screen: where it is not the only one, its summary is a line.
        """
        self._is_brief = roots > 1
        self._size = size_of(sys.stderr)
        rows = 0 if self._size is None else self._size[1] - _ABOUT
        self._room = rows // roots - (_BRIEF_SUMMARY if self._is_brief else _SUMMARY)
        self._has_remarked = False
        self._left_out = 0
        self._root = shown(root)
        self._json = as_json
        self._dry_run = dry_run
        self._progress: Progress | None = None
        self._latest = ""
        self._told_s = 0.0
        self._broken_off = False

    @contextmanager
    def working(self, counters: Counters, hashing: LocalCounters | None = None) -> Iterator[None]:
        """Show progress on stderr while the block runs, if a person is looking."""
        self._progress = Progress(counters=counters, hashing=hashing)
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console  # noqa: PLC0415 - see above

        with Console(stderr=True, highlight=False, markup=False).status(_Line(self)):
            yield

    async def tick(self) -> None:
        """Tell about once a second how far it is, until cancelled: one large file takes long, too."""
        while True:
            await trio.sleep(1)
            if self._json and self._progress is not None:
                if self._progress.files:
                    self._line("progress", self._progress.figures(time.monotonic()))
                else:
                    self._line("looking", self._progress.looking())

    def line(self) -> str:
        """How far it is, for a terminal."""
        if self._progress is None:
            return f"{self._root}: looking at both sides"
        if not self._progress.files:
            return f"{self._root}: {self._progress.looking_line()} …"
        return f"{self._root}: {self._progress.line(time.monotonic())} · {self._latest}"

    def planned(self, plan: Plan) -> None:
        """Tell a dry run's actions; count for the progress."""
        if self._progress is not None:
            self._progress.planned(plan, time.monotonic())
        if self._dry_run:
            for action in (*plan.remote, *plan.local):
                self._action(action, action.path)

    def done(self, action: Action, path: RelPath) -> None:
        """Tell one action."""
        if self._progress is not None:
            self._progress.done(action)
        self._latest = shown(path)
        self._action(action, path)

    def failed(self, failure: Failure) -> None:
        """Name what is not synced."""
        if self._json:
            self._line("failure", {"path": shown(failure.path), "reason": failure.reason})
        else:
            self._remark(f"blocksync: not synced: {shown(failure.path)}: {failure.reason}")

    def noted(self, path: bytes, text: str) -> None:
        """Pass a remark on."""
        if self._json:
            self._line("note", {"path": shown(path), "text": text})
        else:
            self._remark(f"{shown(path)}: {text}")

    def stale(self, path: str, reason: str) -> None:
        """Name an action of a saved plan that does not hold any more."""
        if self._json:
            self._line("stale", {"path": path, "reason": reason})
        else:
            note(f"does not hold any more: {path}: {reason}")

    def broken_off(self, error: Exception, code: int) -> None:
        """Say in the JSON stream that this root's cycle did not go through; stderr gets its line from the caller."""
        self._broken_off = True
        if self._json:
            self._line("error", {"exit_code": code, "message": said(error)})

    def summary(self, report: Report) -> None:
        """The last words on this root."""
        counts = report.counts()
        if self._json:
            more: dict[str, JsonValue] = {"failures": len(report.failures), "dry_run": report.dry_run}
            self._line("summary", {**counts, **more})
            return
        if self._left_out and not self._is_brief:
            note(f"… and {self._left_out} more; `blocksync status --json {self._root}` has all")
        if self._broken_off and not any(counts[name] for name in (*CHANGES, "mutating_requests")):
            return  # the message says all
        title = f"{self._root} (dry run: nothing was changed)" if report.dry_run else self._root
        is_in_step = not (self._broken_off or report.failures or any(counts[name] for name in CHANGES))
        if is_in_step or self._is_brief:
            # Ten roots have to fit a screen.
            columns.line(Painted(title, Paint.STRONG), ": ", *_in_a_line(report, counts, is_in_step=is_in_step))
            return
        columns.pairs(Painted(title, Paint.STRONG), list(_rows(report, counts)), numbers=True)

    def _remark(self, text: str) -> None:
        """Print a line on stderr; on a terminal as many of them as leave room for the summary."""
        if self._size is None or self._dry_run:
            note(text)
            return
        takes = rows_of(text, self._size[0])
        is_due = takes <= self._room or not (self._has_remarked or self._is_brief)
        if self._left_out or not is_due:
            self._left_out += 1
            return
        self._room -= takes
        self._has_remarked = True
        note(text)

    def _action(self, action: Action, path: RelPath) -> None:
        kind = type(action).__name__.lower()
        if self._json:
            # Ten thousand small files come in a second or two: not a system call for each.
            now_s = time.monotonic()
            due = now_s - self._told_s > _FLUSH_S
            self._told_s = now_s if due else self._told_s
            self._line("action", {"side": action.side.value, "action": kind, "path": shown(path)}, flush=due)
        elif self._dry_run:
            note(f"{action.side.value}: {kind} {shown(path)}")

    def _line(self, kind: str, fields: Mapping[str, JsonValue], *, flush: bool = True) -> None:
        json_line(kind, {"root": self._root, **fields}, flush=flush)


def _in_a_line(report: Report, counts: Mapping[str, int | float], *, is_in_step: bool) -> Iterator[columns.Cell]:
    if is_in_step:
        yield Painted("in step", Paint.GOOD)
    done = [name for name in CHANGES if counts[name]]
    for name in done:
        yield Painted(changed(name, counts[name]), Paint.WARN if name == "conflicts" else None)
        yield ", " if name != done[-1] or report.failures else ""
    if report.failures:
        yield Painted(f"{len(report.failures)} not synced", Paint.BAD)
    sent, received = format_size(int(counts["bytes_sent"])), format_size(int(counts["bytes_received"]))
    yield "" if is_in_step else f"; sent {sent}, received {received}"
    yield f"; {_cost(report, counts)}"


def _rows(report: Report, counts: Mapping[str, int | float]) -> Iterator[tuple[str, columns.Cell]]:
    for name in CHANGES:
        yield name, Painted(str(counts[name]), Paint.WARN if name == "conflicts" and counts[name] else None)
    if report.failures:
        yield "not synced", Painted(str(len(report.failures)), Paint.BAD)
    for way in ("sent", "received"):
        yield way, f"{format_size(int(counts[f'bytes_{way}']))}, {_blocks(counts, f'blocks_{way}')}"
    for source in ("blocks_from_peers", "blocks_from_roots", "blocks_from_own"):
        size = f"{format_size(int(counts['bytes_from_peers']))}, " if source == "blocks_from_peers" else ""
        if counts[source]:
            yield SOURCES[source], f"{size}{_blocks(counts, source)}"
    if counts["blocks_to_peers"]:
        yield TO_PEERS, f"{format_size(int(counts['bytes_to_peers']))}, {_blocks(counts, 'blocks_to_peers')}"
    yield "read locally", format_size(report.bytes_read_local)
    yield "time", _cost(report, counts)


def _blocks(counts: Mapping[str, int | float], key: str) -> str:
    return counted(int(counts[key]), "block", "blocks")


def _cost(report: Report, counts: Mapping[str, int | float]) -> str:
    return f"{report.seconds:.1f} s, {counted(int(counts['requests']), 'request', 'requests')}"
