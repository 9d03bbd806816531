"""Repositories that are broken on purpose, each in one way. Ring R2 or the four devices must notice every one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Final
from unittest import mock

import msgspec

from syncer.remote.repository import client, objects
from syncer.remote.repository.format.history import Commit, Vector
from syncer.remote.repository.format.indexes import Found
from syncer.remote.repository.format.keys import Content
from syncer.remote.repository.format.packs import Pack
from syncer.remote.repository.maintenance import run as maintenance
from syncer.remote.repository.maintenance.marking import Marker, Sight, look
from syncer.remote.repository.writing import draft
from tests.simulation.engine_scenario import violation
from tests.simulation.repository_scenario import run_crowd, run_seed

Broken = Callable[[], AbstractContextManager[object]]
"""Breaks all clients and collections as long as it is entered."""

SEEDS: Final = 150
"""Of ring R2, and of four devices, at most, for each."""
_FIRST: Final = (134,)  # has killed what takes longest: a collection that ignores a head

_view_of, _put_index, _needed = client.view_of, objects.Objects.put_index, Marker.needed


def _in(place: object, name: str, broken: object) -> Broken:
    return lambda: mock.patch.object(place, name, broken)


def _of_the_newest(nodes: Any, shape: Any, commits: Iterable[tuple[Any, Any]], root_of: Any) -> Any:
    """The view of one head: whoever commits next replaces the others."""
    return _view_of(nodes, shape, sorted(commits, key=lambda each: each[1].number)[-1:], root_of)


async def _without_a_head(*args: Any, **kwargs: Any) -> Sight:
    """What is seen, but for the commit that is the newest one."""
    sight = await look(*args, **kwargs)
    newest = max(sight.kept, key=lambda each: sight.kept[each].number, default=None)
    return msgspec.structs.replace(sight, kept={name: each for name, each in sight.kept.items() if name != newest})


async def _without_a_pack(
    self: objects.Objects, trees: Sequence[Pack], files: Sequence[Pack], check: Callable[[], None]
) -> None:
    await _put_index(self, trees[:-1], files, check)


def _trees_alone(self: Marker, commit: Commit) -> Iterator[tuple[Content, Found]]:
    return (each for each in _needed(self, commit) if each[0] is Content.TREES)


def _own_past(self: draft.Draft) -> Vector:
    """What a commit says it has seen: nothing but what its device wrote."""
    seen = self._view.vector.adding(self.dot).numbers
    return Vector({device: number for device, number in seen.items() if device == self.dot.device})


MUTANTS: Final[dict[str, Broken]] = {
    "the newest head replaces the others instead of being merged": _in(client, "view_of", _of_the_newest),
    "a collection ignores a head": _in(maintenance, "look", _without_a_head),
    "a commit forgets the index of a pack": _in(objects.Objects, "put_index", _without_a_pack),
    "a collection asks for trees alone": _in(Marker, "needed", _trees_alone),
    "a commit says it has seen its own device alone": _in(draft.Draft, "vector", property(_own_past)),
}


def killer(broken: Broken) -> str | None:
    """Which ring and seed notices it, and as what; None: none does."""
    with broken():
        for seed in (*_FIRST, *range(SEEDS)):
            for ring, run in (("R2", run_seed), ("four", run_crowd)):
                found = violation(partial(run, seed))
                if found is not None:
                    return f"{ring} {seed} {found[:200]}"
    return None


def report(first: int, step: int) -> None:
    """Print a line for each of some mutants."""
    for name in list(MUTANTS)[first::step]:
        found = killer(MUTANTS[name])
        print(f"survived {name}" if found is None else f"killed {name}: {found}".replace("\n", " "), flush=True)
