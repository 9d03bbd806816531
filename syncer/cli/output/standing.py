"""How roots stand, as `blocksync status` prints it: all of them in a screen, or one in full."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from blockfs.exitcodes import ExitCode
from blockfs.runtime.output import shown
from blockfs.runtime.terminal import Paint, Painted, fitting, size_of
from blockfs.runtime.units import counted, format_size
from syncer.cli.output import columns
from syncer.cli.registry.roots import BadRecord, LinkedRoot
from syncer.core.model import RelPath
from syncer.engine.root_state import LastCycle
from syncer.local.twins.held import Held
from syncer.state.schema import Problem
from syncer.watch.cyclewords import FOLLOWING, SOURCES, TO_PEERS, standing
from syncer.watch.live import RootLive

_STATES: Final = {
    "safety stop": Paint.BAD,
    "damaged": Paint.BAD,
    "away": Paint.WARN,
    "degraded": Paint.WARN,
    "retrying": Paint.WARN,
    "never": Paint.WARN,
    "conflicts": Paint.WARN,
    "running": Paint.BUSY,
    "paused": Paint.FAINT,
    "ok": Paint.GOOD,
}
"""How a root stands, in a word; what concerns a person most comes first."""

_RANKS: Final = {state: rank for rank, state in enumerate(_STATES)}
_ABOUT: Final = 4  # lines of the screen that are no root: what is said above, the headings, and the next prompt
_LEAST: Final = 3  # of a list that is cut so many lines are shown, however small the screen is


class RootStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one root without asking the server.

    Attributes:
        condition: "ok"; "running"; "never" reconciled; "degraded": the last cycle left something undone or broke off;
            "away": the folder or mount that was linked is not there.
        detail: Why it is degraded or away.
        shared: The last cycle in which blocks came from elsewhere than the server, or went to peers.
        conflicts: Paths of conflict copies that nobody has dealt with.
        live: What the daemon says of it; None: it is not watched.
        lan_off: Why devices on the LAN are neither asked nor answered; empty if they may be.
        lan_passphrase: Their key is made from a passphrase, not the one on the server.
        twins: Copies of large files by which the next look finds what has changed.
    """

    root: LinkedRoot
    condition: str
    detail: str
    last: LastCycle | None
    shared: LastCycle | None
    problems: list[Problem]
    conflicts: list[RelPath]
    live: RootLive | None
    lan_off: str = ""
    lan_passphrase: bool = False
    twins: Held = Held(files=0, bytes=0)


def state_of(status: RootStatus) -> Painted:
    """How a root stands, in a word of `_STATES`."""
    state = standing(
        status.condition,
        None if status.live is None else status.live.phase,
        is_paused=status.root.paused,
        was_stopped=_was_stopped(status),
        has_conflicts=bool(status.conflicts),
    )
    return Painted(state, _STATES[state])


def _was_stopped(status: RootStatus) -> bool:
    return status.last is not None and status.last.exit_code == ExitCode.SAFETY_STOP


def overview(statuses: Sequence[RootStatus], *, watched: bool, now_s: float) -> None:
    """Print a line for each root, and below what is the matter with those that are not in step.

    On a terminal it fits the screen: roots that are in step are left out first, and counted.

    Args:
        statuses: Of all roots.
        watched: The daemon runs.
        now_s: Seconds since the epoch.
    """
    states = {id(status): state_of(status) for status in statuses}
    size = size_of(sys.stdout)
    room = len(statuses) if size is None else max(_LEAST, size[1] - _ABOUT)
    urgent = sorted(statuses, key=lambda status: _RANKS[states[id(status)].text])
    kept = {id(status) for status in urgent[: room if room >= len(statuses) else room - 1]}
    rows = [
        (
            states[id(each)],
            _number(_failures(each)),
            _number(len(each.conflicts)),
            _ago(each, now_s),
            shown(each.root.path),
        )
        for each in statuses
        if id(each) in kept
    ]
    columns.show(
        _title(list(states.values()), watched=watched), ("state", ">pending", ">conflicts", "last cycle", "root"), rows
    )
    if len(rows) < len(statuses):
        columns.line(f"  … and {len(statuses) - len(rows)} more; `blocksync status ROOT` shows one")
    remarks = [text for each in urgent if (text := _remark(each, states[id(each)].text))]
    if sum(len(each.conflicts) for each in statuses):
        remarks.append("`blocksync conflicts` lists the conflict copies, `blocksync resolve` settles one")
    _tell_some(remarks, None if size is None else (size[0], size[1] - _ABOUT - len(rows)))


def _title(states: Sequence[Painted], *, watched: bool) -> Painted:
    counts = Counter(state.text for state in states)
    told = ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state])
    daemon = "watched" if watched else "not watched: `blocksync watch` is not running"
    return Painted(f"{counted(len(states), 'root', 'roots')}: {told}; {daemon}", Paint.STRONG)


def _number(count: int) -> Painted:
    return Painted(str(count), Paint.WARN) if count else Painted("-", Paint.FAINT)


def _failures(status: RootStatus) -> int:
    return sum(problem.kind == "failure" for problem in status.problems)


def _ago(status: RootStatus, now_s: float) -> str:
    """When the last cycle ended; a clock that was set back makes no negative times."""
    if status.last is None:
        return "never"
    seconds = max(0.0, now_s - status.last.ended_ns / 1e9)
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)} {name} ago"
    return f"{int(seconds)} s ago"


def _remark(status: RootStatus, state: str) -> str:
    """What is the matter with a root that is not in step; empty: nothing."""
    detail = status.detail
    if status.live is not None and status.live.phase in {"consent", "away", "retrying"}:
        detail = status.live.detail or detail
    failures = [problem for problem in status.problems if problem.kind == "failure"]
    if failures and state == "degraded" and status.last is not None and status.last.error is None:
        one = f"{shown(failures[0].path)}: {failures[0].text}"
        detail = f"not synced: {one}" if len(failures) == 1 else f"{len(failures)} not synced; one of them: {one}"
    if not detail or (state in {"running", "paused"}):
        return ""
    return f"{shown(status.root.path)}: {detail}"


def _tell_some(lines: Sequence[str], room: tuple[int, int] | None) -> None:
    """Print lines; on a terminal as many as its columns and remaining rows have room for, and how many are left."""
    kept = len(lines) if room is None else fitting(lines, room[0], max(_LEAST, room[1]))
    for text in lines[:kept]:
        columns.line(text)
    if kept < len(lines):
        columns.line(f"… and {len(lines) - kept} more; `blocksync status ROOT` says what is the matter with one")


def show(status: RootStatus) -> None:
    """Print all that is known of one root. On a terminal lists are cut to a screen; `--json` has all of them."""
    record, last, state = status.root.record, status.last, state_of(status)
    told = f"{status.condition}: {status.detail}" if status.detail else status.condition
    rows: list[tuple[str, columns.Cell]] = [
        ("linked to", record.url),
        ("condition", Painted(told, state.paint)),
        ("watched", _watched(status)),
    ]
    if last is not None:
        done = ", ".join(f"{last.counts.get(key, 0)} {key}" for key in ("pushed", "pulled", "moved", "deleted"))
        rows.append(("last cycle", f"{time_text(last.ended_ns)}, exit code {last.exit_code}: {done}"))
    if status.shared is not None:
        rows.append(("blocks", f"{time_text(status.shared.ended_ns)}: {_blocks(status.shared.counts)}"))
    if status.lan_off:
        rows.append(("LAN", f"off: {status.lan_off}"))
    elif status.lan_passphrase:
        rows.append(("LAN", "by passphrase: devices without it, or with another one, are no peers"))
    if status.twins.files:
        what = f"{status.twins.files}, to find what changes in large files; room they hold:"
        rows.append(("twins", f"{what} {format_size(status.twins.bytes)}"))
    columns.pairs(Painted(shown(status.root.path), Paint.STRONG), [*rows, *_lists(status, len(rows))])


def _lists(status: RootStatus, above: int) -> list[tuple[str, columns.Cell]]:
    """What is pending, then remarks, then conflict copies: these have half of what is left of a screen, if need be."""
    failures = [problem for problem in status.problems if problem.kind == "failure"]
    others = [problem for problem in status.problems if problem.kind != "failure"]
    pending = [("pending", f"{shown(each.path)}: {each.text}") for each in failures]
    pending += [("note", f"{shown(each.path)}: {each.text}") for each in others]
    copies = [("conflict copy", shown(path)) for path in status.conflicts]
    size = size_of(sys.stdout)
    room = len(pending) + len(copies) if size is None else max(2 * _LEAST, size[1] - _ABOUT - above)
    for_copies = min(len(copies), max(room // 2, room - len(pending)))
    return [
        *_cut(pending, room - for_copies, Paint.WARN, "`blocksync status --json` has all"),
        *_cut(copies, for_copies, Paint.WARN, "`blocksync conflicts` lists all"),
    ]


def _cut(rows: Sequence[tuple[str, str]], most: int, paint: Paint, where: str) -> list[tuple[str, columns.Cell]]:
    painted: list[tuple[str, columns.Cell]] = [(name, Painted(text, paint)) for name, text in rows]
    if len(painted) <= most:
        return painted
    return [*painted[: most - 1], ("", f"… and {len(rows) - most + 1} more; {where}")]


def show_bad(bad: BadRecord, *, watched: bool) -> None:
    """Print a root of which nothing is known, not even where it is."""
    told = "no: the daemon waits for the record" if watched else "no"
    columns.pairs(
        Painted(bad.path, Paint.STRONG),
        [("condition", Painted(f"damaged: {bad.error}", Paint.BAD)), ("watched", told)],
    )


def _blocks(counts: Mapping[str, int | float]) -> str:
    """Where blocks came from, and how many went to other devices."""
    return ", ".join(f"{counts.get(key, 0)} {text}" for key, text in (*SOURCES.items(), ("blocks_to_peers", TO_PEERS)))


def _watched(status: RootStatus) -> str:
    live = status.live
    if live is None:
        return "no: paused" if status.root.paused else "no: `blocksync watch` is not running"
    how: list[str] = [live.phase]
    if live.following and live.phase != "paused":
        how += [f"changes here by {live.watching}", FOLLOWING.get(live.following, live.following)]
    return "; ".join([*how, *(text for text in (live.detail, *live.degraded) if text)])


def time_text(ns: int) -> str:
    """A time in UTC."""
    return datetime.fromtimestamp(ns / 1e9, UTC).isoformat(timespec="seconds")
