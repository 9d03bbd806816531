"""What `reconcile` prints: tables and JSON lines on stdout, failures and progress on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.status import Status
from rich.table import Table

from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.output import JsonValue, json_line, note, shown
from blockfs.runtime.units import format_size
from syncer.core.model import Action, Plan, RelPath
from syncer.engine.report import Failure, Report

_FIRST_HARD: Final = 10  # exit codes from here on say that a root's cycle was broken off


def worst(codes: Sequence[int]) -> int:
    """The exit code of several roots: the first broken-off cycle, else damaged, partly done, conflict, done."""
    for code in codes:
        if code == ExitCode.UNEXPECTED or code >= _FIRST_HARD:
            return code
    return min((code for code in codes if code), default=int(ExitCode.DONE))


class Teller:
    """`engine.report.Listener` for one root on the command line."""

    def __init__(self, root: bytes, *, as_json: bool, dry_run: bool) -> None:
        self._root = shown(root)
        self._json = as_json
        self._dry_run = dry_run
        self._status: Status | None = None
        self._total = self._done = 0

    @contextmanager
    def working(self) -> Iterator[None]:
        """Show progress on stderr while the block runs, if a person is looking."""
        console = Console(stderr=True, highlight=False, markup=False)
        if not console.is_terminal:
            yield
            return
        with console.status(f"{self._root}: looking at both sides …") as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def planned(self, plan: Plan) -> None:
        """Tell a dry run's actions; count for the progress."""
        self._total = len(plan.local) + len(plan.remote)
        if self._dry_run:
            for action in (*plan.remote, *plan.local):
                self._action(action, action.path)

    def done(self, action: Action, path: RelPath) -> None:
        """Tell one action."""
        self._done += 1
        if self._status is not None:
            self._status.update(f"{self._root}: {self._done} of {self._total} · {shown(path)}")
        self._action(action, path)

    def failed(self, failure: Failure) -> None:
        """Name what is not synced."""
        if self._json:
            self._line("failure", {"path": shown(failure.path), "reason": failure.reason})
        else:
            note(f"blocksync: not synced: {shown(failure.path)}: {failure.reason}")

    def noted(self, path: bytes, text: str) -> None:
        """Pass a remark on."""
        if self._json:
            self._line("note", {"path": shown(path), "text": text})
        else:
            note(f"{shown(path)}: {text}")

    def stale(self, path: str, reason: str) -> None:
        """Name an action of a saved plan that does not hold any more."""
        if self._json:
            self._line("stale", {"path": path, "reason": reason})
        else:
            note(f"does not hold any more: {path}: {reason}")

    def broken_off(self, error: Exception, code: int) -> None:
        """Say in the JSON stream that this root's cycle did not go through; stderr gets its line from the caller."""
        if self._json:
            self._line("error", {"exit_code": code, "message": str(error)})

    def summary(self, report: Report) -> None:
        """The last words on this root."""
        counts = report.counts()
        if self._json:
            more: dict[str, JsonValue] = {"failures": len(report.failures), "dry_run": report.dry_run}
            self._line("summary", {**counts, **more})
            return
        title = f"{self._root} (dry run: nothing was changed)" if report.dry_run else self._root
        table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column()
        table.add_column(justify="right")
        for name, value in _rows(report, counts):
            table.add_row(name, value)
        Console(file=sys.stdout, highlight=False, markup=False).print(table)

    def _action(self, action: Action, path: RelPath) -> None:
        kind = type(action).__name__.lower()
        if self._json:
            self._line("action", {"side": action.side.value, "action": kind, "path": shown(path)})
        elif self._dry_run:
            note(f"{action.side.value}: {kind} {shown(path)}")

    def _line(self, kind: str, fields: Mapping[str, JsonValue]) -> None:
        json_line(kind, {"root": self._root, **fields})


def _rows(report: Report, counts: Mapping[str, int | float]) -> Iterator[tuple[str, str]]:
    for name in ("pushed", "pulled", "moved", "deleted", "conflicts"):
        yield name, str(counts[name])
    if report.failures:
        yield "not synced", str(len(report.failures))
    yield "sent", f"{format_size(int(counts['bytes_sent']))}, {counts['blocks_sent']} blocks"
    yield "received", f"{format_size(int(counts['bytes_received']))}, {counts['blocks_received']} blocks"
    yield "read locally", format_size(report.bytes_read_local)
    yield "time", f"{report.seconds:.1f} s, {counts['requests']} requests"
