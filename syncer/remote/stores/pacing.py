"""Waiting for changes by looking again and again, slower and slower."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio
from msgspec.structs import replace


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How often to look.

    Attributes:
        first_s: Before the second look.
        most_s: No pause is longer.
        slower: Each pause is longer than the one before by this factor.
    """

    first_s: float
    most_s: float
    slower: float = 1.5


REMOTE: Final = Pace(first_s=2.0, most_s=60.0)  # as the polling of containers: one small request each
LOCAL: Final = Pace(first_s=1.0, most_s=5.0)  # a directory of a few files costs some 50 µs


def paced(usual: Pace, most_s: float | None) -> Pace:
    """A pace whose longest pause somebody has chosen; None: nobody has. Pure."""
    return usual if most_s is None else replace(usual, first_s=min(usual.first_s, most_s), most_s=most_s)


async def poll(look: Callable[[], Awaitable[object]], seen: object, pace: Pace) -> object:
    """Look until it is something else than what was seen before.

    Args:
        look: Looks once; its values can be compared.
        seen: What it told before; None: one look is enough.
        pace: How often.
    """
    pause_s = pace.first_s
    if seen is not None:
        await trio.sleep(pause_s)  # what has just been seen need not be looked at at once
    while (now := await look()) == seen:
        pause_s = min(pause_s * pace.slower, pace.most_s)
        await trio.sleep(pause_s)
    return now
