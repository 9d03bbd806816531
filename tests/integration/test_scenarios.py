"""Ring R3: random histories on real folders and real mounts, with a real server and SIGKILL.

Two devices of one share. Users act, cycles run, one of them is killed at some fsync; then all comes to rest. A failure
names its seed and the command that runs it again, and shows the fewest of its steps that still fail, with what both
roots hold then.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from syncer.core.model import Action, Trash
from syncer.engine.push import RemoteWorker
from tests import effort
from tests.integration.histories import Anew, failure_of, report, shortened, shrink

PLANTED = 5
SEEDS = effort.count("ring R3")  # on folders, and as many on volumes
OF_REPOSITORIES = effort.count("ring R3 on repositories")


@pytest.mark.timeout(1800)  # a failing one is run many times, to shrink it
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_history_comes_to_rest_and_loses_nothing(anew: Anew, seed: int, request: pytest.FixtureRequest) -> None:
    found = failure_of(seed, anew)
    if found is not None:
        pytest.fail(report(request.node.nodeid, seed, found, shrink(seed, anew, found)), pytrace=False)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "anew", ["folder of a directory", "folder of a swift", "volume of a directory"], indirect=True, ids=str
)
@pytest.mark.parametrize("seed", range(OF_REPOSITORIES))
def test_a_history_of_a_repository_comes_to_rest_and_loses_nothing(
    anew: Anew, seed: int, request: pytest.FixtureRequest
) -> None:
    """The same histories; the server is a directory, or a real Swift."""
    found = failure_of(seed, anew)
    if found is not None:
        pytest.fail(report(request.node.nodeid, seed, found, shrink(seed, anew, found)), pytrace=False)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("anew", ["folder"], indirect=True)
def test_a_failing_history_is_shrunk_and_shown(anew: Anew, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an engine that can't delete on the server: a file or folder, a cycle, its deletion, and the next cycle."""

    whole = RemoteWorker._order

    async def broken(self: RemoteWorker, action: Action) -> object:
        if isinstance(action, Trash):
            raise AssertionError(f"planted at {action.path!r}")  # noqa: TRY004
        return await whole(self, action)

    monkeypatch.setattr(RemoteWorker, "_order", broken)
    found = failure_of(PLANTED, anew)
    assert found is not None
    smallest = shrink(PLANTED, anew, found)
    assert smallest is not None
    assert smallest.kind == found.kind == "I2 termination"
    assert len(smallest.steps) <= 4 < len(found.steps)
    text = report("NAME", PLANTED, found, smallest)
    assert f"seed {PLANTED}, again by: pytest 'NAME'" in text
    assert "planted at" in text
    shown = text.partition("Shrunk to")[2].splitlines()[1:]
    assert shown[: len(smallest.steps)] == list(map(str, smallest.steps))
    assert smallest.trees[-1].startswith("second: ")
    assert set(smallest.trees) <= set(shown)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_shortened_still_fails_and_lacks_nothing(seed: int) -> None:
    """Nothing more can be left out of it; with few tries it is only shorter."""
    rng = random.Random(seed)
    items = list(range(rng.randrange(1, 30)))
    needed = set(rng.sample(items, rng.randrange(1, min(len(items), 5) + 1)))
    asked = 0

    def fails(some: Sequence[int]) -> bool:
        nonlocal asked
        asked += 1
        return needed <= set(some)

    assert shortened(items, fails, 1000) == sorted(needed)
    asked = 0
    assert needed <= set(shortened(items, fails, 5))
    assert asked <= 5
