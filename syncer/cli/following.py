"""`blocksync status --follow`: how the daemon stands, live on a terminal or as JSON lines."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterator

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from blockfs.runtime.output import json_line, printable
from syncer.watch import control
from syncer.watch.live import DaemonLive, RootLive


def follow(socket: str, uuids: Collection[str], *, as_json: bool) -> None:
    """Show how roots stand whenever that changes, until the daemon ends.

    Args:
        socket: The daemon's.
        uuids: Which roots; empty: all.
        as_json: One line per root and change, instead of a table.

    Raises:
        NotWatchingError: No daemon, or it has ended.
    """
    if as_json:
        for root in _changes(control.follow(socket), uuids):
            json_line("live", msgspec.to_builtins(root))
        return
    console = Console(file=sys.stdout, highlight=False, markup=False)
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


def _table(roots: list[RootLive]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("root", "state", "since", "changes wait", "last cycle", "remarks"):
        table.add_column(name, overflow="fold")
    for root in roots:
        last = ", ".join(f"{int(root.last.get(key, 0))} {key}" for key in ("pushed", "pulled", "moved", "deleted"))
        remarks = "\n".join([text for text in (root.moving, root.detail, *root.degraded) if text])
        waiting = "all" if root.dirty < 0 else f"in {root.dirty} places" if root.dirty else ""
        since = time.strftime("%H:%M:%S", time.localtime(root.since))
        cells = (root.root, root.phase, since, waiting, last if root.last else "", remarks)
        table.add_row(*map(printable, cells))
    return table
