"""Carry out one side's ordered actions: several at once where their order does not matter.

Rules, from the planner's promises (planner/diff.py): a Move or Park needs everything before it and everything after it
needs it; so do the modes of directories, which may forbid what comes before, and the removal of directories. All else
depends only on what it names: its directory, an earlier action on the same node, the conflict copy it must wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec
import trio

from syncer.core.model import Action, Create, Kind, Mkdir, Move, Nid, Park, RelPath, SetMeta, Trash, Update
from syncer.remote.parallel import for_each

Perform = Callable[[Action], Awaitable[None]]

_PORTIONS_AT_ONCE: Final = 4  # one is read while others are on their way
_LEAST_SHARE: Final = 4  # so that the last ones come back together, and little is to be done when they are back
_FIRST_SHARES: Final = (8, 4, 2, 2)  # so that the first is soon on its way, and they don't all come back together


class Together(msgspec.Struct, frozen=True, kw_only=True):
    """How many small things are made at once.

    Attributes:
        takes: Whether an action is small: a directory, or a file that needs nothing but its directory.
        perform: Does some that do not need each other.
        size: How many at a time.
        bytes_of: What of an action's content is in memory meanwhile.
        most_bytes: Of one time, except that one action is always allowed.
    """

    takes: Callable[[Action], bool]
    perform: Callable[[Sequence[Action]], Awaitable[None]]
    size: int
    bytes_of: Callable[[Action], int]
    most_bytes: int


async def run_actions(
    actions: Iterable[Action],
    kind_of: Callable[[Nid], Kind | None],
    perform: Perform,
    workers: int,
    together: Together | None = None,
) -> None:
    """Perform all actions in an order that keeps the rules above.

    Args:
        actions: One side's, as planned.
        kind_of: What a node is.
        perform: Does one action. What concerns only that action it deals with itself; what it raises ends the run.
        workers: How many at once.
        together: What is done by many.
    """
    for batch in batches(actions, kind_of):
        if together is None:
            await _run_batch(batch, perform, workers)
        else:
            await _run_together(batch, perform, workers, together)


def portions(
    batch: Sequence[Action], together: Together
) -> tuple[list[list[Action]], list[list[Action]], list[Action]]:
    """Take from a run what is made by many.

    Returns:
        Directories, to be made portion after portion; files, in any order after them; and the rest.
    """
    uses = Counter(action.nid for action in batch)
    uses.update(action.after for action in batch if isinstance(action, Update) and action.after is not None)
    freed = {action.path for action in batch if isinstance(action, Trash)}
    small = [
        action for action in batch if uses[action.nid] == 1 and together.takes(action) and action.path not in freed
    ]
    levels: dict[int, list[Action]] = {}
    for action in small:
        if isinstance(action, Mkdir):
            levels.setdefault(action.path.count(b"/"), []).append(action)
    folders = [part for level in sorted(levels) for part in _cut(levels[level], together)]
    files = _cut([action for action in small if not isinstance(action, Mkdir)], together, _FIRST_SHARES)
    taken = {action.nid for action in small}
    return folders, files, [action for action in batch if action.nid not in taken]


def _cut(actions: Sequence[Action], together: Together, shares: Sequence[int] = (1,)) -> list[list[Action]]:
    """Portions; the first ones only shares of a full one, and the last ones only of what is left."""
    found: list[list[Action]] = []
    room = most = 0
    for at, action in enumerate(actions):
        cost = together.bytes_of(action)
        if not found or len(found[-1]) == most or cost > room:
            least, full = (max(1, together.size // share) for share in (_LEAST_SHARE, 1))
            left = (len(actions) - at) // _PORTIONS_AT_ONCE
            first = together.size // shares[len(found)] if len(found) < len(shares) else full
            most = max(1, min(first, max(least, left)))
            found.append([])
            room = together.most_bytes
        found[-1].append(action)
        room -= cost
    return found


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
    for batch in batches(actions, kind_of):
        for wave in waves(batch):
            await perform(wave)


def waves(batch: Sequence[Action]) -> Iterator[list[Action]]:
    """Cut a run into lists of actions that do not need each other.

    Directories, and what they need, come first, level by level: a wave ends with its slowest action, so files are not
    spread over the levels.
    """
    needs = dependencies(batch)
    first = {at for at, action in enumerate(batch) if isinstance(action, Mkdir)}
    for at in range(len(batch) - 1, -1, -1):
        if at in first:
            first.update(needs[at])
    for chosen in (sorted(first), [at for at in range(len(batch)) if at not in first]):
        rank: dict[int, int] = {}
        found: list[list[Action]] = []
        for at in chosen:
            rank[at] = max((rank[need] + 1 for need in needs[at] if need in rank), default=0)
            if rank[at] == len(found):
                found.append([])
            found[rank[at]].append(batch[at])
        yield from found


async def _run_together(batch: Sequence[Action], perform: Perform, workers: int, together: Together) -> None:
    folders, files, rest = portions(batch, together)
    # A directory that is made the plain way would be needed by others of these: then all is done the plain way.
    if not files or any(isinstance(action, Mkdir) for action in rest):
        await _run_batch(batch, perform, workers)
        return
    for portion in folders:
        await together.perform(portion)
    await for_each(iter(files), together.perform, min(_PORTIONS_AT_ONCE, len(files)))
    if rest:
        await _run_batch(rest, perform, workers)


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
    freed: dict[RelPath, int] = {}  # on the server a directory may wait for the object that has its name
    needs: list[list[int]] = []
    for position, action in enumerate(batch):
        nids = [action.nid]
        if isinstance(action, Mkdir | Create):
            nids.append(action.parent)
        if isinstance(action, Update) and action.after is not None:
            nids.append(action.after)
        if isinstance(action, Trash) and action.absorbed_by is not None:
            nids.append(action.absorbed_by)
        needs.append([made_by[nid] for nid in nids if nid in made_by])
        if isinstance(action, Trash):
            freed[action.path] = position
        elif isinstance(action, Mkdir) and action.path in freed:
            needs[-1].append(freed[action.path])
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
