"""Noticing changes on a server that tells of none: it is asked now and then, less often while nothing happens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from syncer.core.model import Position
from syncer.remote.serials import Cursor, cursor_of

MIN_POLL_S: Final = 2.0
MAX_POLL_S: Final = 60.0
_SLOWER: Final = 1.5

_SETTLE_S: Final = 1.0
_SETTLE_TRIES: Final = 10
"""A container that never rests is looked at all the same, and again when it does."""


async def poll(look: Callable[[], Awaitable[Cursor]], seen: Position | None) -> Position:
    """See `CloudClient.wait`.

    Args:
        look: Looks at the container once.
        seen: See there.
    """
    known = None if seen is None else cursor_of(seen)
    pause_s = MIN_POLL_S
    if known is not None:
        await trio.sleep(pause_s)
    # Without evidence it was left while it still might change within its second: then everything counts as a change.
    while (found := await look()) == known and found.evidence:
        pause_s = min(pause_s * _SLOWER, MAX_POLL_S)
        await trio.sleep(pause_s)
    for _ in range(_SETTLE_TRIES):
        if found.evidence:
            break
        # Another change within the same second would look like this one: whoever lists now must list again.
        await trio.sleep(_SETTLE_S)
        found = await look()
    return found.position
