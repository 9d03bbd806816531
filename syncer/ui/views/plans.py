"""A plan, as `plan --json` prints it, and an explanation: what the page shows of them. Pure."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED
from syncer.ui.words import counted, plain, size

PER_PAGE: Final = 200

_VERBS: Final = {
    "mkdir": "make the folder",
    "create": "create",
    "update": "replace",
    "setmeta": "set mode or time of",
    "move": "move",
    "park": "put aside, to be moved,",
    "trash": "delete (to the trash)",
}
_SIDES: Final = {"local": "here", "remote": "on the server"}


class _Content(msgspec.Struct):
    size_bytes: int = 0


class _Action(msgspec.Struct, rename={"source": "from"}):
    side: str
    action: str
    path: str = ""
    source: str = ""
    kind: str = ""
    content: _Content | None = None
    absorbed: bool = False


class _Note(msgspec.Struct):
    path: str
    text: str


class _Plan(msgspec.Struct):
    """Of the line only what is shown: a plan of 100,000 actions has tens of megabytes."""

    digest: str
    created: str
    needs_consent: list[str]
    actions: list[_Action]
    not_synced: list[_Note]
    notes: list[_Note]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One action.

    Attributes:
        side: Where.
        verb: What is done.
        path: With what.
        source: From where, of a move.
        size: Of a file; empty: not known, or none.
        is_deletion: It takes something away.
    """

    side: str
    verb: str
    path: str
    source: str
    size: str
    is_deletion: bool


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan.

    Attributes:
        digest: Names its deletions.
        reasons: Why it needs consent; empty: it does not.
        summary: What it does, in words.
        deletions: How much it deletes, in words; empty: nothing.
        steps: Those of one page, deletions first.
        total: Of all pages.
        page: Which one, from 1.
        pages: How many.
        not_synced: What it leaves alone, path and reason.
        notes: Remarks, path and text.
    """

    digest: str
    reasons: tuple[str, ...]
    summary: str
    deletions: str
    steps: tuple[Step, ...]
    total: int
    page: int
    pages: int
    not_synced: tuple[tuple[str, str], ...]
    notes: tuple[tuple[str, str], ...]


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """One line of an explanation: a heading and a text."""

    heading: str
    text: str


def view_plan(line: bytes, page: int) -> PlanView:
    """A page of a plan.

    Args:
        line: As `plan --json` printed it.
        page: From 1; another one is the nearest there is.

    Raises:
        ValueError: It is no plan.
    """
    try:
        plan = msgspec.json.decode(line, type=_Plan)
    except MALFORMED as error:
        raise ValueError(str(error)) from error
    actions = [each for each in plan.actions if not each.absorbed]
    actions.sort(key=lambda each: each.action != "trash")  # stable: else in the order in which they are done
    pages = max(1, -(-len(actions) // PER_PAGE))
    page = min(max(1, page), pages)
    counts = Counter(each.action for each in actions)
    deleted = Counter(each.side for each in actions if each.action == "trash")
    return PlanView(
        digest=plan.digest,
        reasons=tuple(map(plain, plan.needs_consent)),
        summary=", ".join(_count(action, count) for action, count in counts.most_common()) or "nothing to do",
        deletions=", ".join(
            f"{counted(count, 'deletion', 'deletions')} {_SIDES[side]}" for side, count in deleted.items()
        ),
        steps=tuple(_step(each) for each in actions[(page - 1) * PER_PAGE : page * PER_PAGE]),
        total=len(actions),
        page=page,
        pages=pages,
        not_synced=tuple((plain(each.path), plain(each.text)) for each in plan.not_synced[:PER_PAGE]),
        notes=tuple((plain(each.path), plain(each.text)) for each in plan.notes[:PER_PAGE]),
    )


def view_explanation(line: bytes) -> tuple[Told, ...]:
    """What `explain --json` prints, in the words of `explain`.

    Raises:
        ValueError: It is no such line.
    """
    try:
        told = msgspec.json.decode(line, type=_Explanation)
    except MALFORMED as error:
        raise ValueError(str(error)) from error
    rows: list[tuple[str, str]] = []
    if told.tracked:
        rows += [
            ("here", _state(told.local, told.local_change, told.path)),
            ("agreed", _state(told.base, "", told.path)),
            ("server", _state(told.remote, told.remote_change, told.path)),
            ("rule", told.rule),
        ]
    if told.left_alone:
        rows.append(("left alone", told.left_alone))
    for action in told.actions:
        moved = f" from {action.source}" if action.source else ""
        rows.append(("next cycle", f"{_SIDES.get(action.side, action.side)}: {action.action} {action.path}{moved}"))
    if told.tracked and not told.actions and not told.left_alone:
        rows.append(("next cycle", "nothing to do"))
    rows += [("note", note) for note in told.notes]
    if told.last_failure is not None:
        rows.append(("failed", f"{told.last_failure.text} (since {told.last_failure.since})"))
    if told.next_retry:
        rows.append(("next try", told.next_retry))
    return tuple(Told(heading=heading, text=plain(text)) for heading, text in rows)


class _State(msgspec.Struct):
    path: str
    kind: str
    size_bytes: int | None = None
    object_hash: str | None = None
    target: str | None = None
    mode: int | None = None


class _Failure(msgspec.Struct):
    text: str
    since: str


class _Explanation(msgspec.Struct):
    path: str
    tracked: bool
    local: _State | None = None
    base: _State | None = None
    remote: _State | None = None
    local_change: str = ""
    remote_change: str = ""
    rule: str = ""
    left_alone: str | None = None
    actions: list[_Action] = []
    notes: list[str] = []
    last_failure: _Failure | None = None
    next_retry: str | None = None


def _state(state: _State | None, change: str, path: str) -> str:
    if state is None:
        return change or "never"
    words = [change] if change else []
    words.append(state.kind)
    if state.size_bytes is not None:
        words.append(size(state.size_bytes))
    if state.object_hash:
        words.append(state.object_hash[:12])
    if state.target is not None:
        words.append(f"-> {state.target}")
    if state.mode is not None:
        words.append(f"mode {state.mode:o}")
    if state.path != path:
        words.append(f"as {state.path}")
    return ", ".join(words)


def _count(action: str, count: int) -> str:
    words = {
        "mkdir": ("new folder", "new folders"),
        "create": ("new file", "new files"),
        "update": ("changed file", "changed files"),
        "setmeta": ("changed mode or time", "changed modes or times"),
        "move": ("move", "moves"),
        "park": ("name put aside", "names put aside"),
        "trash": ("deletion", "deletions"),
    }
    return counted(count, *words.get(action, (action, action)))


def _step(action: _Action) -> Step:
    return Step(
        side=_SIDES.get(action.side, action.side),
        verb=_VERBS.get(action.action, action.action),
        path=plain(action.path),
        source=plain(action.source),
        size="" if action.content is None else size(action.content.size_bytes),
        is_deletion=action.action == "trash",
    )
