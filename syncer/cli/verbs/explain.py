"""`blocksync explain`: why a path is as it is, and what the next cycle would do with it."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import click
import trio

from blockfs.runtime.output import JsonValue, json_line, shown, tell
from blockfs.runtime.units import counted
from syncer.cli.paths import PATH
from syncer.cli.registry.condition import holder_of
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.readonly import read_only
from syncer.core.ignore import ignore_file_in
from syncer.core.model import Kind, Plan, RelPath
from syncer.core.paths import is_private
from syncer.core.planner.explain import Change, Explanation, State, explain
from syncer.core.planner.savedplan import describe, describe_tag
from syncer.engine.cycle import Look
from syncer.errors import NotFoundError, UsageError
from syncer.remote.parallel import one_error
from syncer.state.schema import Problem
from syncer.watch import control


@click.command("explain")
@click.argument("path", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per node that has or had the path.")
def command(path: bytes, as_json: bool) -> None:
    """Explain PATH, in a linked root: what it is here, on the server, and when both last agreed; which rule applies.

    Asks the server, and changes nothing.
    """
    registry = Registry(os.environ)
    linked, inside = registry.containing(path)
    if is_private(inside):
        raise UsageError(f"{shown(path)} is in the root's private folder .blocksync, which is never synced")
    plan, look, problems = _look(linked)
    found = explain(inside, look.base, plan)
    remarks = [problem.reason for problem in look.seen.problems if problem.path == inside]
    ignored = _ignored(look, inside, path)
    failure = next((problem for problem in problems if problem.path == inside and problem.kind == "failure"), None)
    if not found and not remarks and ignored is None:
        raise NotFoundError(f"{shown(path)} is neither here nor on the server, and was not when both last agreed")
    retry = _retry(linked, registry.socket, found, failure)
    if not found:
        _tell_untracked(inside, [*remarks, *([] if ignored is None else [ignored])], as_json)
    for each in found:
        if as_json:
            json_line("explanation", _fields(linked, inside, each, plan, remarks, failure, retry))
        else:
            _show(inside, each, plan, remarks, failure, retry)


def _look(linked: LinkedRoot) -> tuple[Plan, Look, list[Problem]]:
    async def look() -> tuple[Plan, Look, list[Problem]]:
        async with read_only(linked) as session:
            plan, seen = await session.plan()
            return plan, seen, session.state.problems()

    with one_error():
        return trio.run(look)


def _ignored(look: Look, inside: RelPath, path: bytes) -> str | None:
    """Which rule ignores the path."""
    directory = os.path.isdir(path) and not os.path.islink(path)
    rules = look.seen.rules
    if not rules.hides(inside, directory=directory):
        return None
    verdict = rules.deciding(inside, directory=directory)
    by = ""
    if verdict is not None:
        place = "the root's own patterns" if verdict.source is None else shown(ignore_file_in(verdict.source))
        by = f" by {shown(verdict.pattern)} (line {verdict.line} of {place})"
    return f"it is ignored{by}: left alone on both sides"


def _retry(linked: LinkedRoot, socket: str, found: list[Explanation], failure: Problem | None) -> str | None:
    """When something that is to be done, or failed, will be tried (again)."""
    if failure is None and not any(each.actions or each.frozen for each in found):
        return None
    holder = holder_of(os.path.join(linked.state, "lock"))
    if holder is not None:
        return f"process {holder} is at work on this root: in this cycle or its next"
    daemon = control.live(socket)
    live = None if daemon is None else next((root for root in daemon.roots if root.uuid == linked.record.uuid), None)
    if live is None:
        return "in the next cycle: `blocksync reconcile`, or `blocksync watch`, which is not running for this root"
    if live.phase in {"paused", "consent", "away"}:
        return f"the daemon waits ({live.phase}{': ' + live.detail if live.detail else ''})"
    if live.next is None:
        return "in the daemon's next cycle, when something changes"
    return f"by the daemon at {_time(int(live.next * 1e9))} at the latest, or when something changes"


def _tell_untracked(inside: RelPath, remarks: list[str], as_json: bool) -> None:
    if as_json:
        json_line("explanation", {"path": shown(inside), "tracked": False, "notes": list(remarks)})
        return
    tell(shown(inside))
    for remark in remarks:
        tell(f"  note        {remark}")


def _fields(
    linked: LinkedRoot,
    inside: RelPath,
    each: Explanation,
    plan: Plan,
    remarks: list[str],
    failure: Problem | None,
    retry: str | None,
) -> dict[str, JsonValue]:
    return {
        "root": shown(linked.path),
        "path": shown(inside),
        "tracked": True,
        "local": _state_fields(each.local),
        "base": _state_fields(each.base),
        "remote": _state_fields(each.remote),
        "local_change": each.local_change.value,
        "remote_change": each.remote_change.value,
        "local_metadata_changed": each.metadata[0],
        "remote_metadata_changed": each.metadata[1],
        "rule": each.rule,
        "left_alone": each.frozen,
        "actions": [describe(action, plan) for action in each.actions],
        "notes": [*each.notes, *remarks],
        "last_failure": None if failure is None else {"text": failure.text, "since": _time(failure.since_ns)},
        "next_retry": retry,
    }


def _state_fields(state: State | None) -> JsonValue:
    if state is None:
        return None
    node = state.node
    return {
        "path": shown(state.path),
        "kind": node.kind.value,
        "size_bytes": None if node.content is None else node.content.size_bytes,
        "object_hash": None if node.content is None else node.content.object_hash.hex(),
        "target": None if node.target is None else shown(node.target),
        "mode": node.meta.full_mode,
        "mtime_ns": node.meta.mtime_ns,
        "evidence": describe_tag(state.tag),
    }


def _show(
    inside: RelPath,
    each: Explanation,
    plan: Plan,
    remarks: list[str],
    failure: Problem | None,
    retry: str | None,
) -> None:
    lines = [
        ("here", _words(each.local, each.local_change, each.metadata[0], inside)),
        ("agreed", _words(each.base, None, False, inside)),
        ("server", _words(each.remote, each.remote_change, each.metadata[1], inside)),
        ("rule", each.rule),
    ]
    if each.frozen is not None:
        lines.append(("left alone", each.frozen))
    for action in each.actions:
        described = describe(action, plan)
        moved = f" from {described['from']}" if "from" in described else ""
        lines.append(("next cycle", f"{action.side.value}: {described['action']} {shown(action.path)}{moved}"))
    if not each.actions and each.frozen is None:
        lines.append(("next cycle", "nothing to do"))
    lines += [("note", text) for text in (*each.notes, *remarks)]
    if failure is not None:
        lines.append(("failed", f"{failure.text} (since {_time(failure.since_ns)})"))
    if retry is not None:
        lines.append(("next try", retry))
    tell(shown(inside))
    for name, text in lines:
        tell(f"  {name:<10}  {text}")


def _words(state: State | None, change: Change | None, metadata: bool, inside: RelPath) -> str:
    if state is None:
        return change.value if change is not None else "never"
    node, words = state.node, []
    if change is not None:
        words.append(change.value + (", mode or time changed" if metadata else ""))
    words.append(node.kind.value)
    if node.kind is Kind.FILE:
        if node.content is None:
            words.append("content not known")
        else:
            words.append(f"{counted(node.content.size_bytes, 'byte', 'bytes')}, {node.content.object_hash.hex()[:12]}")
    if node.target is not None:
        words.append(f"-> {shown(node.target)}")
    mode = node.meta.full_mode
    if mode is not None:
        words.append(f"mode {mode:o}")
    if node.meta.mtime_ns is not None:
        words.append(f"of {_time(node.meta.mtime_ns)}")
    if state.path != inside:
        words.append(f"as {shown(state.path)}")
    return ", ".join(words)


def _time(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError):  # years that datetime does not know
        return f"{ns / 1e9:.0f} s since 1970"
