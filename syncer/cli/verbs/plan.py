"""`blocksync plan`: what the next cycle would do. As JSON it can be kept, looked at, and run."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

import click
import msgspec
import trio

from blockfs.runtime.output import JSON_VERSION, note, shown, tell
from blockfs.runtime.terminal import Paint, Painted, size_of
from blockfs.runtime.units import counted
from syncer.cli.output import columns
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.many_roots import for_each
from syncer.cli.session.readonly import read_only
from syncer.cli.session.savedplan import PlanNote, SavedPlan
from syncer.core.model import Move, Plan
from syncer.core.paths import path_in
from syncer.core.planner.merge import Policy
from syncer.core.planner.safety import objections
from syncer.core.planner.savedplan import describe_all
from syncer.engine.report import Report
from syncer.remote.parallel import one_error


@click.command("plan")
@click.argument("root", type=PATH, required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one plan per root, for `reconcile --plan`.")
def command(root: bytes | None, as_json: bool) -> int:
    """Show what the next reconcile of ROOT (default: of every linked root) would do. Changes nothing.

    `blocksync plan ROOT --json > FILE`, later `blocksync reconcile --plan FILE`: does exactly that, or nothing.
    """

    def work(linked: LinkedRoot) -> None:
        plan, policy, report = _look(linked)
        if as_json:
            click.echo(msgspec.json.encode(_saved(linked, plan, policy, report)).decode())
        else:
            _show(linked, plan, report)

    return for_each(Registry(os.environ).chosen(root), work, alone=root is not None, as_json=as_json)


def _look(linked: LinkedRoot) -> tuple[Plan, Policy, Report]:
    async def look() -> tuple[Plan, Policy, Report]:
        async with read_only(linked) as session:
            plan, look = await session.plan()
            report = Report(dry_run=True)
            report.take_notes(plan, look.seen.problems)
            return plan, session.policy, report

    with one_error():
        return trio.run(look)


def _saved(linked: LinkedRoot, plan: Plan, policy: Policy, report: Report) -> SavedPlan:
    failures = [PlanNote(path=shown(failure.path), text=failure.reason) for failure in report.failures]
    return SavedPlan(
        type="plan",
        version=JSON_VERSION,
        root=shown(linked.path),
        root_uuid=linked.record.uuid,
        url=linked.record.url,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        host=policy.host,
        utc=policy.utc,
        digest=plan.digest,
        needs_consent=list(objections(plan)),
        actions=describe_all(plan),
        not_synced=failures,
        notes=[PlanNote(path=shown(path), text=text) for path, text in report.notes],
    )


def _by_kind(rows: Sequence[tuple[str, str, str]]) -> str:
    """How many actions of each kind there are on each side."""
    counts = Counter((side, action) for side, action, _ in rows)
    return ", ".join(f"{side} {action}: {count}" for (side, action), count in counts.items())


def _show(linked: LinkedRoot, plan: Plan, report: Report) -> None:
    rows = []
    for described, action in zip(describe_all(plan), (*plan.remote, *plan.local), strict=True):
        source = ""
        if isinstance(action, Move):
            tree = (plan.local_state if action in plan.local else plan.remote_state).tree
            source = f"{shown(path_in(tree, action.nid) or b'')} -> "
        rows.append((str(described["side"]), str(described["action"]), source + shown(action.path)))
    title = f"{shown(linked.path)}: {counted(len(rows), 'action', 'actions')}"
    columns.show(title, ("side", "action", "path"), rows) if rows else tell(f"{title}: nothing to do")
    size = size_of(sys.stdout)
    if size is not None and len(rows) >= size[1] - 2:  # the title has left the screen
        columns.line(Painted(title, Paint.STRONG), "; ", _by_kind(rows))
    for failure in report.failures:
        note(f"not synced: {shown(failure.path)}: {failure.reason}")
    for path, text in report.notes:
        note(f"{shown(path)}: {text}")
    for objection in objections(plan):
        note(f"{objection}: it will be done only with --allow-deletes {plan.digest}")
