"""What `doctor --json` found. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from syncer.ui.views.roots import Tone
from syncer.ui.words import plain

_LEVELS: Final[dict[str, tuple[str, Tone]]] = {
    "ok": ("OK", "good"),
    "warn": ("A look", "warn"),
    "fail": ("Fails", "bad"),
}


class CheckView(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was looked at, how it is, what was found, and what to do."""

    subject: str
    state: str
    tone: Tone
    text: str
    remedy: str


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Checks of this computer, or of one root; those that need a look first."""

    name: str
    is_root: bool
    checks: tuple[CheckView, ...]


class _Check(msgspec.Struct):
    root: str | None
    subject: str
    level: str
    text: str
    remedy: str


def view_checks(lines: Sequence[bytes]) -> tuple[Place, ...]:
    """All of them, by place."""
    found: dict[str | None, list[CheckView]] = {}
    for each in (msgspec.json.decode(line, type=_Check) for line in lines):
        state, tone = _LEVELS[each.level]
        view = CheckView(
            subject=plain(each.subject), state=state, tone=tone, text=plain(each.text), remedy=plain(each.remedy)
        )
        found.setdefault(each.root, []).append(view)
    order = ("bad", "warn", "good")
    return tuple(
        Place(
            name="This computer" if root is None else plain(root),
            is_root=root is not None,
            checks=tuple(sorted(checks, key=lambda check: order.index(check.tone))),
        )
        for root, checks in found.items()
    )
