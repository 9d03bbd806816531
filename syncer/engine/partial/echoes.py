"""Our own writes among the server's changes: they need not come back.

A cycle keeps the moment of its look, so the next one is told all that was written after it, by whomever. Of a first
push of 100,000 files that is 54 MB of rows. So a cycle that wrote much asks once more when all of it is in the base,
for what others changed meanwhile: nothing, mostly, and then the next question begins behind our writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncer.core.model import Position, RemoteTag
from syncer.errors import SyncerError
from syncer.ports.remote import Remote

LEAST: Final = 256
"""Own versions from which on the question pays: a row costs about 540 bytes and 66 µs, the question a round trip."""


async def behind_own_writes(remote: Remote, since: Position, recorded: Iterable[RemoteTag]) -> Position:
    """Where the next question begins, after a cycle that left nothing undone.

    Args:
        remote: The server.
        since: The moment of this cycle's look.
        recorded: Versions that the base has rows of, in any order.

    Returns:
        A later one, if all that the container got since then is in the base; else `since`.
    """
    own = [tag for tag in recorded if remote.ages.is_later(tag, since)]
    if len(own) < LEAST:
        return since
    try:
        found = await remote.changes(since, own=own)
    except SyncerError:
        return since  # everything is done: whoever can't say so now is asked by the next cycle
    if found is None or found.objects or found.deleted or found.refused or found.lan_key is not None:
        return since
    return found.position
