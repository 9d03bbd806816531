"""A subtree that moves as one, on the wire: our extension `subtree-moves`. Pure. `subtrees` says what it means."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from syncer.core.subtrees import Guard, SubtreeMove

MAX_OBJECTS: Final = 1 << 18  # of one move: what others have to wait for, some seconds

_DIGEST_CHARACTERS: Final = 64
_MAX_SERIAL: Final = (1 << 63) - 1


class SubtreeError(ValueError):
    """Not a guard, or not a move of a subtree. The message fits into a fault."""


def parse_guard(text: str) -> Guard:
    """Read a header's value.

    Raises:
        SubtreeError: Not a guard, or one of more objects than may move at once.
    """
    count, dash, digest = text.partition("-")
    plain = count.isascii() and count.isdecimal() and len(count) <= len(str(MAX_OBJECTS))
    if not dash or not plain or len(digest) != _DIGEST_CHARACTERS or not set(digest) <= set("0123456789abcdef"):
        raise SubtreeError("expected COUNT-DIGEST, a decimal number and 64 hex digits in lower case")
    if not 0 < int(count) <= MAX_OBJECTS:
        raise SubtreeError(f"a subtree of {count} objects; expected 1 to {MAX_OBJECTS}")
    return Guard(count=int(count), digest=digest)


def checked_move(source: str, target: str, first: int, guard: str) -> SubtreeMove:
    """A move as a server told it.

    Raises:
        SubtreeError: It contradicts itself.
    """
    move = SubtreeMove(source=source, target=target, first=first, guard=parse_guard(guard))
    if not 0 < first <= move.last <= _MAX_SERIAL:
        raise SubtreeError(f"a move with the serials {first} to {move.last}")
    if not source or not target or inside(target, source) or inside(source, target):
        raise SubtreeError("a move of a subtree into itself")
    return move


def inside(name: str, root: str) -> bool:
    """Whether a name belongs to a subtree."""
    return name == root or name.startswith(root + "/")


def disjoint(roots: Sequence[str]) -> bool:
    """Whether no two of some subtrees have a name in common."""
    # With the slash behind them a root sorts right before what is inside it.
    ordered = sorted(root + "/" for root in roots)
    return not any(after.startswith(before) for before, after in pairwise(ordered))
