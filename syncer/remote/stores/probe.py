"""What a store does and what it only says: looked at once, when a repository is made, and kept in its config."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final

import trio

from syncer.remote.stores.port import BlobStore, Probe

_ROUNDS: Final = 4
_WRITERS: Final = 8
FOLDER: Final = "probe/"


async def probe(store: BlobStore, clock_ns: Callable[[], int] = time.time_ns) -> Probe:
    """Try a store, and leave nothing in it.

    Args:
        store: Opened, and one that tries again.
        clock_ns: Ours.
    """
    prefix = f"{FOLDER}{secrets.token_hex(8)}/"
    written = [f"{prefix}{number}" for number in range(_ROUNDS)]
    try:
        winners = [await _race(store, name) for name in written]
        found = {blob.name for blob in await store.listing(prefix)}
        for name in written[1:]:
            await store.delete(name)
        left = {blob.name for blob in await store.listing(prefix)}
        before = clock_ns()
        theirs = await store.now_ns()
        ours = (before + clock_ns()) // 2
    finally:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 60):
            for name in written:
                await store.delete(name)
    return Probe(
        most_winners=max(winners),
        lists_at_once=found == set(written) and left == {written[0]},
        clock_ahead_ms=(theirs - ours) // 10**6,
    )


async def _race(store: BlobStore, name: str) -> int:
    """How many of several writers at once, each with another content, are told that they wrote a name."""
    told: list[bool] = []

    async def write(number: int) -> None:
        told.append(await store.put(name, b"%d" % number, absent=True))

    async with trio.open_nursery() as nursery:
        for number in range(_WRITERS):
            nursery.start_soon(write, number)
    return sum(told)
