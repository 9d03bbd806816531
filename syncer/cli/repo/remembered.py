"""What roots of this machine that are linked to a repository have seen of it."""

from __future__ import annotations

import contextlib
import os

from blockfs.runtime.output import shown
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.repo.place import Place
from syncer.engine.root_state import RootState
from syncer.errors import EXPECTED
from syncer.remote.repository.access import Access
from syncer.remote.repository.format.history import DeviceId
from syncer.remote.repository.maintenance.remembered import Remembered
from syncer.remote.repository.memory import MemoryFile
from syncer.state.statedb import StateDB


def remembered_of(place: Place, repository: bytes) -> list[Remembered]:
    """What they remember now. A root whose state can't be read says nothing.

    Args:
        place: Where the repository is.
        repository: Its id.
    """
    url, found = place.canonical_url, list[Remembered]()
    for root in Registry(os.environ).look().roots:
        if root.record.url == url:
            with contextlib.suppress(*EXPECTED):
                found += _of(root, repository)
    return found


def _of(root: LinkedRoot, repository: bytes) -> list[Remembered]:
    kept = Access.read(root.secret()).kept
    if kept.repository != repository:
        return []
    with StateDB.open(root.state, read_only=True) as database:
        state = RootState(database)
        cursor, container = state.cursor(), state.container()
    positions = [each for each in (cursor, None if container is None else container.seen) if each is not None]
    own = MemoryFile(root.head, DeviceId(kept.device)).read()
    return [Remembered(who=shown(root.path), own=own, positions=positions)]
