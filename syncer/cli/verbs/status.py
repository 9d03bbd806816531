"""`blocksync status`: what is linked, how the last cycle went, what is pending."""

from __future__ import annotations

import os
import time
from contextlib import suppress

import click
import msgspec

from blockfs.runtime.output import JsonValue, json_line, note, shown
from syncer.cli.lan.peering import switched_off
from syncer.cli.output import standing
from syncer.cli.output.standing import RootStatus, time_text
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import condition_of
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.core.conflict import CONFLICT_MARK
from syncer.core.ignore import IGNORE_FILE, IgnoreRules, Verdict
from syncer.core.paths import join
from syncer.engine.root_state import SHARED, LastCycle, RootState
from syncer.errors import EXPECTED, UsageError
from syncer.local.folder.identity import open_folder
from syncer.local.twins.held import Held, held
from syncer.state.keyfile import KeyFile
from syncer.state.statedb import StateDB
from syncer.watch import control
from syncer.watch.live import RootLive


@click.command("status")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per root.")
@click.option(
    "--metrics", "as_metrics", is_flag=True, help="Print how `watch` stands in the text format of Prometheus."
)
@click.option("--follow", is_flag=True, help="Show how `blocksync watch` stands, live, until Ctrl-C.")
def command(*, root: bytes | None, as_json: bool, as_metrics: bool, follow: bool) -> int | None:
    """Show ROOT's (default: every linked root's) link, last cycle, what is pending, and conflict copies."""
    registry = Registry(os.environ)
    if as_metrics:
        _tell_metrics(registry, alone=not (root or as_json or follow))
        return None
    chosen = registry.chosen(root)
    if not chosen.roots and not chosen.bad:
        note("nothing is linked; `blocksync link ROOT URL` links a folder")
    if follow:
        from syncer.cli.output.live import follow as show_live  # noqa: PLC0415 - with all that draws tables

        show_live(registry.socket, set() if root is None else {chosen.roots[0].record.uuid}, as_json=as_json)
        return None
    daemon = control.live(registry.socket)
    live = {} if daemon is None else {each.uuid: each for each in daemon.roots}
    found: list[RootStatus] = []

    def work(linked: LinkedRoot) -> None:
        status = look(linked, live.get(linked.record.uuid), switched_off(linked, registry, os.environ))
        if as_json:
            json_line("status", _fields(status))
        else:
            found.append(status)

    code = for_each(chosen, work, alone=root is not None, as_json=as_json)
    if len(found) > 1:
        standing.overview(found, watched=daemon is not None, now_s=time.time())
    for status in found if len(found) == 1 else []:
        standing.show(status)
    for bad in [] if as_json else chosen.bad:
        standing.show_bad(bad, watched=bad.uuid in live)
    return code


def _tell_metrics(registry: Registry, *, alone: bool) -> None:
    """The daemon's figures.

    Raises:
        UsageError: Something else was asked for, too.
        NotWatchingError: There is no daemon.
    """
    if not alone:
        raise UsageError("--metrics is about all roots of the daemon: it goes with neither ROOT, --json nor --follow")
    live = control.live(registry.socket)
    if live is None:
        raise control.NotWatchingError
    from syncer.cli.output import metrics  # noqa: PLC0415 - its library, for who asks for figures

    click.echo(metrics.daemon_exposition(live), nl=False)


def look(linked: LinkedRoot, live: RootLive | None = None, off: str = "") -> RootStatus:
    """Gather a root's status.

    Args:
        linked: The root.
        live: What the daemon says of it.
        off: By whom the LAN was switched off for it; empty: it was not.
    """
    with StateDB.open(linked.state, read_only=True) as database:
        state = RootState(database)
        last, shared, raw_rules = state.last_cycle(), state.last_shared(), state.rules()
        problems = database.problems()
        twins = held_by(linked, state)
        paths = database.load_base().paths.values()
        conflicts = sorted(path for path in paths if CONFLICT_MARK in path.rpartition(b"/")[2])
    key = KeyFile(linked.lan_key).told()
    condition, detail = condition_of(linked, last)
    if condition == "ok" and not paths and raw_rules is not None:
        detail = _ignoring(IgnoreRules.load(raw_rules).ignoring_everything())
    return RootStatus(
        root=linked,
        condition=condition,
        detail=detail,
        last=last,
        shared=shared,
        problems=problems,
        conflicts=conflicts,
        live=live,
        lan_off=off or key.off,
        lan_passphrase=key.passphrase,
        twins=twins,
    )


def held_by(linked: LinkedRoot, state: RootState) -> Held:
    """What the twins of a root hold; nothing where it is not there."""
    if linked.record.folder is not None:
        with suppress(*EXPECTED):
            root = open_folder(linked.path, linked.record.folder)
            try:
                return held(root, state)
            finally:
                os.close(root)
    return Held(files=0, bytes=0)


def _ignoring(verdict: Verdict | None) -> str:
    """What to say where nothing at all is synced because of a pattern."""
    if verdict is None:
        return ""
    where = "a pattern of the root" if verdict.source is None else shown(join(verdict.source, IGNORE_FILE))
    return f"everything is ignored: {where}, line {verdict.line}: {shown(verdict.pattern)}"


def _fields(status: RootStatus) -> dict[str, JsonValue]:
    record, last = status.root.record, status.last
    cycle: JsonValue = None
    if last is not None:
        cycle = {"ended": time_text(last.ended_ns), "exit_code": last.exit_code, "error": last.error, **last.counts}
    return {
        "root": shown(status.root.path),
        "url": record.url,
        "kind": "volume" if record.folder is None else "folder",
        "block_size": record.block_size,
        "condition": status.condition,
        "detail": status.detail,
        "last_cycle": cycle,
        "last_shared": None
        if status.shared is None
        else {"ended": time_text(status.shared.ended_ns), **_shared(status.shared)},
        "pending": [
            {
                "path": shown(problem.path),
                "kind": problem.kind,
                "text": problem.text,
                "since": time_text(problem.since_ns),
            }
            for problem in status.problems
        ],
        "conflicts": [shown(path) for path in status.conflicts],
        "paused": status.root.paused,
        "lan_off": status.lan_off or None,
        "lan_passphrase": status.lan_passphrase,
        "twins": {"files": status.twins.files, "bytes": status.twins.bytes},
        "watch": None if status.live is None else msgspec.to_builtins(status.live),
    }


def _shared(cycle: LastCycle) -> dict[str, JsonValue]:
    return {key: cycle.counts.get(key, 0) for key in ("blocks_received", *SHARED)}
