"""Our own writes among the server's changes: they need not come back.

A cycle keeps the cursor of its look, so the next one is told all that was written after it, by whomever. Of a first
push of 100,000 files that is 54 MB of rows. So a cycle that wrote much asks once more when all of it is in the base,
for what others changed meanwhile: nothing, mostly, and then the next question begins behind our writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from syncer.errors import SyncerError
from syncer.ports.remote import Cursor
from syncer.protocol.extensions.changes import MAX_RANGES
from syncer.remote.client import CloudClient

LEAST: Final = 256
"""Own versions from which on the question pays: a row costs about 540 bytes and 66 µs, the question a round trip."""


async def behind_own_writes(remote: CloudClient, cursor: Cursor, recorded: Iterable[int]) -> Cursor:
    """Where the next question begins, after a cycle that left nothing undone.

    Args:
        remote: The server.
        cursor: Of this cycle's look.
        recorded: Versions that the base has rows of, in any order.

    Returns:
        A later cursor, if all that the container got since then is in the base; else `cursor`.
    """
    own = ranges_of(version for version in recorded if version > cursor.version)
    if sum(map(len, own)) < LEAST or len(own) > MAX_RANGES or not cursor.identity:
        return cursor
    try:
        found = await remote.changes(cursor, without=own)
    except SyncerError:
        return cursor  # everything is done: whoever can't say so now is asked by the next cycle
    if found is None or found.objects or found.deleted or found.refused or found.lan_key is not None:
        return cursor
    return found.cursor


def ranges_of(versions: Iterable[int]) -> list[range]:
    """Numbers as ranges without gaps, ascending."""
    found: list[range] = []
    for version in sorted(set(versions)):
        if found and found[-1].stop == version:
            found[-1] = range(found[-1].start, version + 1)
        else:
            found.append(range(version, version + 1))
    return found
