"""What devices of this machine remember of a repository, held against what its store shows now.

A store that withholds all, or shows an older state, looks like a sound repository to who has never seen it. The
devices that are linked to it on this machine have.

Source: docs/design/repository.md, sections 14 and 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from syncer.core.model import Position
from syncer.errors import RolledBackError
from syncer.remote.repository.format.history import Vector
from syncer.remote.repository.headless import was_forgotten
from syncer.remote.repository.memory import Own, Standing, judge
from syncer.remote.repository.merge import View, last_of
from syncer.remote.repository.moments import Moment
from syncer.remote.repository.objects import Objects


class Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """What one device remembers. It was read before the store is asked: meanwhile the device may go on.

    Attributes:
        who: As people call it.
        own: Its head.
        positions: Of looks.
    """

    who: str
    own: Own
    positions: Sequence[Position]


async def see_that_nothing_was_undone(objects: Objects, remembered: Iterable[Remembered]) -> None:
    """Look at the heads, and hold what is remembered against them.

    Args:
        objects: The repository's.
        remembered: By devices; of looks at other repositories nothing is said.

    Raises:
        RolledBackError: Something that was seen is not there any more.
        SyncerError: The store can't be asked, or a commit that a head names is missing or damaged.
    """
    devices = list(remembered)
    if not devices:
        return
    heads = await objects.heads()
    commits = await objects.commits([head.commit for head in heads.values()], must=True)
    vector = Vector({}).joined(*(commit.vector for commit in commits.values()))
    view = View(heads=tuple(sorted(commits)), vector=vector, number=0, root=None, last=last_of(commits))
    now = Moment.of(objects.keys.repository, view)
    for each in devices:
        own, head = each.own, heads.get(each.own.device)
        gone = head is None and own.sequence and not await was_forgotten(objects, own, heads.values())
        if gone or judge(own, head) is Standing.UNDONE:
            found = "none" if head is None else f"head {head.sequence}"
            raise RolledBackError(f"head {own.sequence} of {each.who}", found)
        for position in each.positions:
            moment = Moment.read(position)
            if moment is not None and moment.repository == now.repository and moment.was_undone(now):
                raise RolledBackError(f"all that {each.who} has seen", "less, or something else")
