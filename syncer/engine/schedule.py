"""Carry out one side's ordered actions: several at once where their order does not matter.

Rules, from the planner's promises (planner/diff.py): a Move or Park needs everything before it and everything after it
needs it; so do the modes of directories, which may forbid what comes before, and the removal of directories. All else
depends only on what it names: its directory, an earlier action on the same node, the conflict copy it must wait for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from syncer.core.model import Action, Create, Kind, Mkdir, Move, Nid, Park, RelPath, SetMeta, Trash, Update


async def run_waves(
    actions: Iterable[Action],
    kind_of: Callable[[Nid], Kind | None],
    perform: Callable[[Sequence[Action]], Awaitable[None]],
) -> None:
    """Perform all actions in waves that keep the rules above.

    Args:
        actions: One side's, as planned.
        kind_of: What a node is.
        perform: Does actions that do not need each other. What concerns one of them it deals with itself; what it
            raises ends the run.
    """
    for run in runs(actions, kind_of):
        for wave in waves(run):
            await perform(wave)


def waves(run: Sequence[Action]) -> Iterator[list[Action]]:
    """Cut a run into lists of actions that do not need each other.

    Directories, and what they need, come first, level by level: a wave ends with its slowest action, so files are not
    spread over the levels.
    """
    needs = dependencies(run)
    first = {at for at, action in enumerate(run) if isinstance(action, Mkdir)}
    for at in range(len(run) - 1, -1, -1):
        if at in first:
            first.update(needs[at])
    for chosen in (sorted(first), [at for at in range(len(run)) if at not in first]):
        rank: dict[int, int] = {}
        found: list[list[Action]] = []
        for at in chosen:
            rank[at] = max((rank[need] + 1 for need in needs[at] if need in rank), default=0)
            if rank[at] == len(found):
                found.append([])
            found[rank[at]].append(run[at])
        yield from found


def runs(actions: Iterable[Action], kind_of: Callable[[Nid], Kind | None]) -> Iterator[list[Action]]:
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


def dependencies(run: Sequence[Action]) -> list[list[int]]:
    """For each action of a run the earlier ones that it needs, by position."""
    made_by: dict[Nid, int] = {}
    freed: dict[RelPath, int] = {}  # who makes something may wait for what has its name
    needs: list[list[int]] = []
    for position, action in enumerate(run):
        nids = [action.nid]
        if isinstance(action, Mkdir | Create):
            nids.append(action.parent)
        if isinstance(action, Update | Trash) and action.after is not None:
            nids.append(action.after)
        if isinstance(action, Trash) and action.absorbed_by is not None:
            nids.append(action.absorbed_by)
        needs.append([made_by[nid] for nid in nids if nid in made_by])
        if isinstance(action, Trash):
            freed[action.path] = position
        elif isinstance(action, Mkdir | Create) and action.path in freed:
            needs[-1].append(freed[action.path])
        made_by[action.nid] = position
    return needs
