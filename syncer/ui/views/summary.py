"""How all roots stand together: who waits for a person, what needs a look and why. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec

from syncer.ui.views.roots import NOT_ALL, WITH_CONFLICTS, RootView
from syncer.ui.words import counted, number


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why roots need a look.

    Attributes:
        text: In words.
        target: The page that shows it; empty: their cards do.
    """

    text: str
    target: str


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All roots in a line or two.

    Attributes:
        text: What there is to say first; empty: only that some need a look.
        looks: How many need a look, in words; empty: none.
        reasons: Why they do.
    """

    text: str
    looks: str
    reasons: tuple[Reason, ...]


def view_summary(roots: Sequence[RootView]) -> Summary:
    """What is to be told of all roots.

    A root with conflicts needs a look whatever it does meanwhile: nobody but a person settles them.
    """
    waiting = sum(root.tone == "bad" for root in roots)
    busy = sum(root.tone == "busy" for root in roots)
    looks = [root for root in roots if root.tone == "warn" or root.conflict_count]
    if not roots:
        text = "Nothing is linked."
    elif waiting:
        text = _some(waiting, len(roots), "waits for you.", "wait for you.")
    elif looks:
        text = ""
    elif busy:
        text = _some(busy, len(roots), "is syncing.", "are syncing.")
    else:
        text = "All is as it should be."
    return Summary(
        text=text,
        looks=_some(len(looks), len(roots), "needs a look", "need a look") if looks else "",
        reasons=tuple(_reasons(looks)),
    )


def _reasons(roots: Sequence[RootView]) -> Iterator[Reason]:
    torn = [root for root in roots if root.conflict_count]
    if torn:
        count = sum(root.conflict_count for root in torn)
        text = f"{_have(torn)} {counted(count, 'conflict', 'conflicts')} to settle"
        yield Reason(text=text, target=f"/root/{torn[0].uuid}/conflicts" if len(torn) == 1 else "/conflicts")
    partly = [root for root in roots if root.state == NOT_ALL]
    if partly:
        count = sum(len(root.failures) for root in partly)
        text = f"{_have(partly)} {counted(count, 'path that is', 'paths that are')} not synced"
        yield Reason(text=text, target=f"/root/{partly[0].uuid}" if len(partly) == 1 else "")
    others = Counter(
        root.state for root in roots if root.tone == "warn" and root.state not in {NOT_ALL, WITH_CONFLICTS}
    )
    for state, count in others.items():
        yield Reason(text=f"{counted(count, 'root is', 'roots are')} {state.lower()}", target="")


def _have(roots: Sequence[RootView]) -> str:
    return counted(len(roots), "root has", "roots have")


def _some(count: int, total: int, one: str, many: str) -> str:
    return f"{number(count)} of {number(total)} {one if count == 1 else many}"
