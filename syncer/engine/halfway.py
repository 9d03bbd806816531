"""Moves of directories that ended in the middle are moved to their end before anything is planned.

Only those that this device was ended in, where the server moves one object at a time: `planner.bookings.halfway`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import trio

from syncer.core.model import Kind
from syncer.core.planner.bookings import Step, halfway
from syncer.core.planner.outcome import Booking
from syncer.errors import ONE_NODE
from syncer.ports.orders import Move, write_one
from syncer.ports.remote import Listing, Remote
from syncer.ports.state import State


def may_be_halfway(state: State) -> list[Booking]:
    """What earlier cycles booked, if a move of a directory is among it."""
    booked = list(chain.from_iterable(state.orders().values()))
    moves = any(each.node is not None and each.node.kind is Kind.DIRECTORY and each.uuid for each in booked)
    return booked if moves else []


async def finish_moves(remote: Remote, state: State, booked: Sequence[Booking], listing: Listing) -> None:
    """Move on what is between two places. What is refused stays, and the plan sees it as it is."""
    steps = await trio.to_thread.run_sync(lambda: halfway(booked, state.base(), listing.objects))
    for step in steps:
        if not await _move(remote, step):
            return
    if steps:
        await remote.commit()


async def _move(remote: Remote, step: Step) -> bool:
    stat, target = step
    try:
        await write_one(remote, Move(source=stat.path, target=target, expect=stat.tag))
    except ONE_NODE:
        return False
    return True
