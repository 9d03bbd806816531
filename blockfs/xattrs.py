"""Which extended attributes travel with a node: those of users, as many as fit. Pure.

One rule for the mount and for the syncer: what one of them leaves out, the other must not take for removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

PREFIX: Final = b"user."
"""The only namespace that means the same on every machine: ACLs name users by number, the others are root's."""

OVERHEAD: Final = 3  # bytes of a packed attribute beside its name and value: two lengths

Carried: TypeAlias = tuple[tuple[bytes, bytes | None], ...]
"""Names without the prefix, ascending, and values; None: it is there, and does not fit."""


def carried(attributes: Iterable[tuple[bytes, bytes]], limit: int) -> Carried:
    """What of a node's attributes travels.

    Args:
        attributes: Full names and values, of any namespace.
        limit: Packed bytes in all. The smallest go first, so that a large one costs no other its place.
    """
    own = {name.removeprefix(PREFIX): value for name, value in attributes if name.startswith(PREFIX)}
    found: dict[bytes, bytes | None] = {}
    for name in sorted(own, key=lambda name: (len(name) + len(own[name]), name)):
        limit -= OVERHEAD + len(name) + len(own[name])
        found[name] = own[name] if limit >= 0 else None
    return tuple(sorted(found.items()))


def to_change(have: Carried, want: Carried, seen: Carried | None = None) -> dict[bytes, bytes | None]:
    """What to set, and (None) to remove, by full name.

    Args:
        have: What is there now. What does not fit, here or in the others, stays as it is.
        want: What is to be there.
        seen: What was there when that was decided: what somebody did since stays, but where it is to change anyway.
    """
    kept = {name for name, value in (*have, *want, *(seen or ())) if value is None}
    now, then = dict(have), dict(want)
    was = now if seen is None else dict(seen)
    names = [
        name
        for name in sorted(now.keys() | then.keys())
        if name not in kept and now.get(name) != then.get(name) != was.get(name)
    ]
    return {PREFIX + name: then.get(name) for name in names}
