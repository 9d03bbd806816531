"""Carry out one side's ordered actions: several at once where their order does not matter.

Rules, from the planner's promises (core/diff.py): a Move or Park needs everything before it and everything after it
needs it; so do the modes of directories, which may forbid what comes before, and the removal of directories. All else
depends only on what it names: its directory, an earlier action on the same node, the conflict copy it must wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

import trio

from syncer.core.model import Action, Create, Kind, Mkdir, Move, Nid, Park, SetMeta, Trash, Update
from syncer.remote.parallel import for_each

Perform = Callable[[Action], Awaitable[None]]


async def run_actions(
    actions: Iterable[Action], kind_of: Callable[[Nid], Kind | None], perform: Perform, workers: int
) -> None:
    """Perform all actions in an order that keeps the rules above.

    Args:
        actions: One side's, as planned.
        kind_of: What a node is.
        perform: Does one action. What concerns only that action it deals with itself; what it raises ends the run.
        workers: How many at once.
    """
    for batch in batches(actions, kind_of):
        await _run_batch(batch, perform, workers)


def batches(actions: Iterable[Action], kind_of: Callable[[Nid], Kind | None]) -> Iterator[list[Action]]:
    """Cut the actions into runs between barriers; a barrier is a run of its own."""
    run: list[Action] = []
    for action in actions:
        if is_barrier(action, kind_of):
            if run:
                yield run
            yield [action]
            run = []
        else:
            run.append(action)
    if run:
        yield run


def is_barrier(action: Action, kind_of: Callable[[Nid], Kind | None]) -> bool:
    """Whether everything before must be done first, and everything after must wait."""
    if isinstance(action, Trash):
        return action.kind is Kind.DIRECTORY
    if isinstance(action, SetMeta):
        return kind_of(action.nid) is Kind.DIRECTORY
    return isinstance(action, Move | Park)


def dependencies(batch: Sequence[Action]) -> list[list[int]]:
    """For each action of a run the earlier ones that it needs, by position."""
    made_by: dict[Nid, int] = {}
    needs: list[list[int]] = []
    for position, action in enumerate(batch):
        nids = [action.nid]
        if isinstance(action, Mkdir | Create):
            nids.append(action.parent)
        if isinstance(action, Update) and action.after is not None:
            nids.append(action.after)
        needs.append([made_by[nid] for nid in nids if nid in made_by])
        made_by[action.nid] = position
    return needs


async def _run_batch(batch: Sequence[Action], perform: Perform, workers: int) -> None:
    needs = dependencies(batch)
    finished = [trio.Event() for _ in batch]

    async def work(position: int) -> None:
        # Workers take positions in order, so what is needed has been taken already: no deadlock.
        for earlier in needs[position]:
            await finished[earlier].wait()
        await perform(batch[position])
        finished[position].set()

    await for_each(iter(range(len(batch))), work, max(1, min(workers, len(batch))))
