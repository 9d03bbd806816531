"""Several workers over one stream of jobs, with one plain error at the end, not a group of them; and its lists."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

import trio

from syncer.errors import ConflictOnRemoteError, CorruptionError, SyncerError, UnsafeNameError

T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R")

LISTS_AT_ONCE: Final = 4  # one is read while others are on their way
_LEAST_SHARE: Final = 4  # so that the last ones come back together, and little is to be done when they are back
_FIRST_SHARES: Final = (8, 4, 2, 2)  # so that the first is soon on its way, and they don't all come back together


def cut_into_lists(jobs: Sequence[T], size: int, most_bytes: int, bytes_of: Callable[[T], int]) -> list[list[T]]:
    """Cut small jobs into lists; the first ones only shares of a full one, the last ones only of what is left.

    Args:
        jobs: That are done by many.
        size: How many at a time.
        most_bytes: At a time, except that one is always allowed: they are in memory meanwhile.
        bytes_of: What a job takes of them.
    """
    found: list[list[T]] = []
    room = most = 0
    for at, job in enumerate(jobs):
        cost = bytes_of(job)
        if not found or len(found[-1]) == most or cost > room:
            share = _FIRST_SHARES[len(found)] if len(found) < len(_FIRST_SHARES) else 1
            left = max(size // _LEAST_SHARE, (len(jobs) - at) // LISTS_AT_ONCE)
            most = max(1, min(size // share, left))
            found.append([])
            room = most_bytes
        found[-1].append(job)
        room -= cost
    return found


async def for_each(jobs: Iterator[T], work: Callable[[T], Awaitable[None]], workers: int) -> None:
    """Do all jobs, `workers` at once; each worker takes its next job only when it has done its last.

    Args:
        jobs: Taken one by one, so a generator is not run ahead of the work: memory stays bounded.
        work: Does one.
        workers: At least 1.

    Raises:
        Exception: The first error; the other workers are cancelled.
    """

    async def worker() -> None:
        for job in jobs:  # no await inside the generator: taking a job is atomic
            await work(job)

    with one_error():
        async with trio.open_nursery() as nursery:
            for _ in range(workers):
                nursery.start_soon(worker)


async def outcomes(jobs: Sequence[J], work: Callable[[J], Awaitable[R]], workers: int) -> list[R | SyncerError]:
    """What becomes of each job. What is wrong with one object takes no other along.

    Raises:
        SyncerError: Something that is not one object's.
    """
    done: dict[int, R | SyncerError] = {}

    async def one(at: int) -> None:
        try:
            done[at] = await work(jobs[at])
        except (CorruptionError, ConflictOnRemoteError, UnsafeNameError) as error:
            done[at] = error

    if len(jobs) == 1:
        await one(0)
    elif jobs:
        await for_each(iter(range(len(jobs))), one, min(workers, len(jobs)))
    return [done[at] for at in range(len(jobs))]


@contextmanager
def one_error() -> Iterator[None]:
    """Of several errors at once, such as an interrupt among them, the one that tells most."""
    try:
        yield
    except BaseExceptionGroup as group:
        raise first_error(group) from group


def first_error(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that tells most: not a mere cancellation, if there is another."""
    leaves: list[BaseException] = []
    pending: list[BaseException] = [group]
    while pending:
        error = pending.pop()
        if isinstance(error, BaseExceptionGroup):
            pending.extend(reversed(error.exceptions))
        else:
            leaves.append(error)
    return next((leaf for leaf in leaves if not isinstance(leaf, trio.Cancelled)), leaves[0])
