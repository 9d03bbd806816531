"""Views of several heads: whoever looks sees the same tree, and nobody's version is gone."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from syncer.remote.repository.merge import EMPTY, NOBODY
from syncer.remote.repository.tree import Tree
from syncer.remote.repository.writing.draft import Draft
from tests import effort
from tests.unit.syncer.remote.repository.world import a_world, lost, paths

SEEDS = st.integers(0, 1 << 32)
SETTINGS = settings(max_examples=effort.count("repository views"), deadline=None)


@given(seed=SEEDS, devices=st.integers(2, 4))
@example(seed=1834646, devices=2)  # a lost version whose object is one with another one
@SETTINGS
def test_a_view_is_the_same_for_all_and_has_every_version(seed: int, devices: int) -> None:
    world, _ = a_world(seed, devices, 12)
    view = world.view()
    shown = paths(world, view)
    assert not lost(world, view)
    order = sorted(world.heads.values(), reverse=True)
    assert world.view(order) == view
    assert world.view([*order, *world.commits]) == view  # what heads build on says nothing
    assert paths(world, world.view(order)) == shown


@given(seed=SEEDS, devices=st.integers(2, 4))
@SETTINGS
def test_who_commits_what_they_see_changes_nothing(seed: int, devices: int) -> None:
    world, crowd = a_world(seed, devices, 10)
    shown = paths(world, world.view())
    for device in crowd:
        device.look()
    for device in crowd[:2]:  # both at the same time
        device.commit(Draft(world.nodes, device.view, device.id))
    view = world.view()
    assert paths(world, view) == shown
    crowd[0].look()
    crowd[0].commit(Draft(world.nodes, crowd[0].view, crowd[0].id))
    assert paths(world, world.view()) == shown
    assert not [
        each
        for each in Tree(world.nodes, world.view().root).entries()
        if NOBODY in {dot.device for dot in (each.entry.placed, each.entry.filled, each.entry.noted)}
    ]


@given(seed=SEEDS)
@SETTINGS
def test_devices_that_look_and_act_in_turns_lose_nothing(seed: int) -> None:
    world, crowd = a_world(seed, 3, 8)
    for device in crowd:
        device.look()
        device.act(2)
    for device in crowd:
        device.look()
    assert len({device.view.root for device in crowd}) == 1
    assert not lost(world, world.view())
    paths(world, world.view())


def test_a_repository_without_commits_is_empty() -> None:
    world, _ = a_world(0, 1, 0)
    assert world.view() == EMPTY
    assert not paths(world, EMPTY)
