"""`blocksync status --follow`: how the daemon stands, live on a terminal, as lines of text, or as JSON lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator
from typing import Final

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from blockfs.runtime.output import json_line, printable, tell
from blockfs.runtime.terminal import Paint
from blockfs.runtime.units import counted
from syncer.watch import control
from syncer.watch.live import DaemonLive, Phase, RootLive

_PAINTS: Final[dict[Phase, Paint]] = {
    "starting": Paint.BUSY,
    "idle": Paint.GOOD,
    "quiet": Paint.BUSY,
    "working": Paint.BUSY,
    "retrying": Paint.WARN,
    "consent": Paint.BAD,
    "away": Paint.WARN,
    "paused": Paint.FAINT,
    "damaged": Paint.BAD,
}


def follow(socket: str, uuids: Collection[str], *, as_json: bool) -> None:
    """Show how roots stand whenever that changes, until the daemon ends.

    Args:
        socket: The daemon's.
        uuids: Which roots; empty: all.
        as_json: One line per root and change, instead of a table. Where there is no terminal to draw it on, a line of
            text per root and change of it.

    Raises:
        NotWatchingError: No daemon, or it has ended.
    """
    if as_json:
        for root in _changes(control.follow(socket), uuids):
            json_line("live", msgspec.to_builtins(root))
        return
    console = Console(file=sys.stdout, highlight=False, markup=False)
    if not console.is_terminal or console.is_dumb_terminal:
        _tell_lines(control.follow(socket), uuids)
        return
    with Live(console=console, auto_refresh=False) as screen:
        for daemon in control.follow(socket):
            screen.update(_table(_chosen(daemon, uuids)), refresh=True)


def _chosen(daemon: DaemonLive, uuids: Collection[str]) -> list[RootLive]:
    return [root for root in daemon.roots if not uuids or root.uuid in uuids]


def _changes(stream: Iterator[DaemonLive], uuids: Collection[str]) -> Iterator[RootLive]:
    """Roots that are not as they were last told."""
    told: dict[str, RootLive] = {}
    for daemon in stream:
        for root in _chosen(daemon, uuids):
            if told.get(root.uuid) != root:
                told[root.uuid] = root
                yield root


def _tell_lines(stream: Iterator[DaemonLive], uuids: Collection[str]) -> None:
    """One line whenever it is another one; each is out at once (`tell` flushes), so that whoever reads sees it now."""
    told: dict[str, str] = {}
    for root in _changes(stream, uuids):
        line = "  ".join(cell.replace("\n", "; ") for cell in _cells(root) if cell)
        if told.get(root.uuid) != line:
            told[root.uuid] = line
            tell(line)


def _table(roots: list[RootLive]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("root", "state", "since", "changes wait", "last change", "remarks"):
        table.add_column(name, overflow="fold")
    for root in roots:
        path, phase, *more = ("\n".join(map(printable, cell.split("\n"))) for cell in _cells(root))
        table.add_row(path, Text(phase, style=_PAINTS[root.phase].style), *more)
    return table


def _cells(root: RootLive) -> tuple[str, ...]:
    changed = ", ".join(f"{int(root.changed.get(key, 0))} {key}" for key in ("pushed", "pulled", "moved", "deleted"))
    remarks = "\n".join([text for text in (root.moving, root.detail, *root.degraded) if text])
    waiting = "all" if root.dirty < 0 else f"in {counted(root.dirty, 'place', 'places')}" if root.dirty else ""
    since = time.strftime("%H:%M:%S", time.localtime(root.since))
    return root.root, root.phase, since, waiting, changed if root.changed else "", remarks
