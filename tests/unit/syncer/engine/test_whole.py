"""A folder that moved with all that is in it: one request, one rename, and nothing of it is looked at one by one."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.core.model import Move, RelPath
from syncer.engine.partial.subtree_moves import _at
from syncer.protocol.pithos.headers import EXTENSION_CHANGES
from tests.fakes.memory import MemoryClient
from tests.kit.rows import MemoryRows
from tests.unit.syncer.core.trees import deep_tree
from tests.unit.syncer.engine.devices import Crash, Device, assert_at_rest, devices

INSIDE = ["a", "a-b", "ü", "deep/er/file", "deep/er-", "empty/"]


def fill(device: Device, root: str = "folder") -> None:
    for name in INSIDE:
        if name.endswith("/"):
            (device.path / root / name).mkdir(parents=True, exist_ok=True)
        else:
            device.write(f"{root}/{name}", name.encode() * 50)
    device.write("beside", b"stays")


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    first, second = devices(tmp_path, "first", "second")
    fill(first)
    for _ in range(2):
        first.reconcile()
        second.reconcile()
    assert_at_rest(first, second)
    return first, second


def called(device: Device, container_calls: list[str]) -> MemoryClient:
    async def before(operation: str, path: RelPath) -> None:
        container_calls.append(operation)

    return MemoryClient(device.container, before=before)


def cycle(device: Device) -> list[str]:
    calls: list[str] = []
    report = device.reconcile(client=called(device, calls))
    assert not report.failures
    return calls


def settle(*all_devices: Device) -> None:
    for _ in range(2):
        for device in all_devices:
            device.reconcile()
    assert_at_rest(*all_devices)
    assert all(device.everything() == all_devices[0].everything() for device in all_devices)


def test_a_moved_folder_is_one_request_and_one_rename(pair: tuple[Device, Device]) -> None:
    first, second = pair
    inodes = {path.name: path.stat().st_ino for path in (second.path / "folder").rglob("*")}
    (first.path / "new").mkdir()
    (first.path / "folder").rename(first.path / "new" / "name")
    calls = cycle(first)
    assert calls.count("move_tree") == calls.count("store") == 1
    assert not {"move", "list_objects", "delete"} & set(calls)
    calls = cycle(second)
    assert not {"list_objects", "block_list", "read_block", "move", "secret"} & set(calls)
    assert [type(action) for action in second.ears.actions].count(Move) == 1
    assert len(second.ears.actions) == 2  # the new folder, and the move
    assert {path.name: path.stat().st_ino for path in (second.path / "new" / "name").rglob("*")} == inodes
    assert_at_rest(first, second)
    assert second.everything() == first.everything()


def test_under_watch_the_two_names_are_enough(pair: tuple[Device, Device]) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    calls: list[str] = []
    assert not first.reconcile(client=called(first, calls), entries=[b"folder", b"renamed"]).failures
    assert "move_tree" in calls
    calls.clear()
    assert not second.reconcile(client=called(second, calls), entries=[]).failures
    assert "list_objects" not in calls
    assert (second.path / "renamed" / "deep" / "er" / "file").exists()
    settle(first, second)


def test_the_cursor_goes_on_behind_it_and_later_changes_travel(pair: tuple[Device, Device]) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    cycle(first)
    cycle(second)
    second.write("renamed/deep/er/file", b"edited in its new place")
    (second.path / "renamed" / "a").unlink()
    calls = cycle(second)
    assert "list_objects" not in calls
    calls = cycle(first)
    assert "list_objects" not in calls
    settle(first, second)
    assert (first.path / "renamed" / "deep" / "er" / "file").read_bytes() == b"edited in its new place"
    assert not (first.path / "renamed" / "a").exists()


def edit(device: Device, root: str) -> None:
    device.write(f"{root}/deep/er/file", b"edited")


def add(device: Device, root: str) -> None:
    device.write(f"{root}/deep/added", b"added")


def remove(device: Device, root: str) -> None:
    (device.path / root / "deep" / "er" / "file").unlink()


def swap(device: Device, root: str) -> None:
    deep = device.path / root / "deep" / "er"
    (deep / "file").rename(deep / "x")
    (deep / "er-").write_bytes(b"new") if (deep / "er-").exists() else None
    (device.path / root / "deep").rename(device.path / root / "shallow")


def pull_out(device: Device, root: str) -> None:
    (device.path / root / "deep" / "er").rename(device.path / "er")


def mode(device: Device, root: str) -> None:
    (device.path / root / "deep" / "er").chmod(0o700)


def refill(device: Device, root: str) -> None:
    fill(device, "folder")


def nothing(device: Device, root: str) -> None:
    pass


CHANGES: list[Callable[[Device, str], None]] = [nothing, edit, add, remove, swap, pull_out, mode, refill]


@pytest.mark.parametrize("here", CHANGES)
@pytest.mark.parametrize("there", CHANGES)
def test_whatever_else_happens_both_come_to_one_state_and_lose_nothing(
    pair: tuple[Device, Device], here: Callable[[Device, str], None], there: Callable[[Device, str], None]
) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    here(first, "renamed")
    there(second, "folder")
    written = {*first.contents(), *second.contents()} & {b"edited", b"added"}
    settle(first, second)
    assert written <= set(first.contents())


@pytest.mark.parametrize("there", CHANGES)
def test_what_the_server_has_got_meanwhile_is_not_moved_unseen(
    pair: tuple[Device, Device], there: Callable[[Device, str], None]
) -> None:
    """The other device's change comes between the look and the move: the move is refused, or comes first."""
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    there(second, "folder")
    done: list[str] = []

    async def before(operation: str, path: RelPath) -> None:
        if operation == "move_tree" and not done:
            done.append(operation)
            await second_cycle()

    async def second_cycle() -> None:
        await run_inside(second)

    report = first.reconcile(client=MemoryClient(first.container, before=before))
    assert done
    assert bool(report.failures) == (there is not nothing)
    settle(first, second)


async def run_inside(device: Device) -> None:
    """A cycle of another device in this event loop."""
    await device.cycle()


@pytest.mark.parametrize("target", ["renamed", "elsewhere"])
def test_both_renamed_it(pair: tuple[Device, Device], target: str) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    (second.path / "folder").rename(second.path / target)
    cycle(first)
    settle(first, second)
    assert (second.path / "renamed" / "a").exists()
    assert not (second.path / "elsewhere").exists()


def test_renamed_back_and_forth_before_the_other_looks(pair: tuple[Device, Device]) -> None:
    first, second = pair
    for old, new in (("folder", "b"), ("b", "c"), ("c", "folder"), ("folder", "d")):
        (first.path / old).rename(first.path / new)
        assert "move_tree" in cycle(first)
    settle(first, second)
    assert (second.path / "d" / "deep" / "er" / "file").exists()


def test_swapped_folders(pair: tuple[Device, Device]) -> None:
    first, second = pair
    fill(first, "other")
    settle(first, second)
    (first.path / "folder").rename(first.path / "t")
    (first.path / "other").rename(first.path / "folder")
    (first.path / "t").rename(first.path / "other")
    settle(first, second)


def test_two_folders_move_at_once(pair: tuple[Device, Device]) -> None:
    first, second = pair
    fill(first, "other")
    settle(first, second)
    (first.path / "folder").rename(first.path / "x")
    (first.path / "other").rename(first.path / "y")
    assert cycle(first).count("move_tree") == 2
    assert "list_objects" not in cycle(second)
    settle(first, second)


@pytest.fixture
def leaving(tmp_path: Path) -> tuple[Device, Device]:
    """An empty folder moves out of one that is renamed, into a new one in it."""
    first, second = devices(tmp_path, "first", "second")
    first.write("folder/file", b"a file")
    (first.path / "folder" / "empty").mkdir()
    (first.path / "folder" / "stays").mkdir()
    settle(first, second)
    (first.path / "folder").rename(first.path / "renamed")
    (first.path / "renamed" / "new").mkdir()
    (first.path / "renamed" / "empty").rename(first.path / "renamed" / "new" / "empty")
    return first, second


def test_a_folder_that_leaves_a_folder_that_moves_is_no_whole(leaving: tuple[Device, Device]) -> None:
    """The move of the upper one gives the lower one a new version: a guard from before would be refused."""
    first, second = leaving
    calls = cycle(first)
    assert not {"move_tree", "list_objects"} & set(calls)
    assert "list_objects" not in cycle(second)
    settle(first, second)
    assert (second.path / "renamed" / "new" / "empty").is_dir()


@pytest.mark.parametrize("place", range(6))
def test_a_crash_while_a_folder_leaves_a_folder_that_moves_is_made_good(
    leaving: tuple[Device, Device], place: int
) -> None:
    first, second = leaving
    writes = 0

    async def before(operation: str, path: RelPath) -> None:
        nonlocal writes
        writes += operation in {"store", "move", "move_tree"}
        if writes > place:
            raise Crash(operation)

    with pytest.raises(Crash):
        first.reconcile(client=MemoryClient(first.container, before=before))
    settle(first, second)
    assert (second.path / "renamed" / "file").read_bytes() == b"a file"


def test_a_move_into_each_other_on_the_two_devices(pair: tuple[Device, Device]) -> None:
    first, second = pair
    fill(first, "other")
    settle(first, second)
    (first.path / "folder").rename(first.path / "other" / "folder")
    (second.path / "other").rename(second.path / "folder" / "other")
    settle(first, second)


def test_a_server_without_the_extension_moves_one_by_one(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.container.extensions = frozenset({EXTENSION_CHANGES})
    (first.path / "folder").rename(first.path / "renamed")
    calls = cycle(first)
    assert "move_tree" not in calls
    assert calls.count("move") > len(INSIDE)
    settle(first, second)


def test_with_rules_of_what_is_ignored_things_move_one_by_one(pair: tuple[Device, Device]) -> None:
    first, second = pair
    first.write(".blocksyncignore", b"renamed/a\n")
    settle(first, second)
    (first.path / "folder").rename(first.path / "renamed")
    assert "move_tree" not in cycle(first)
    first.reconcile()
    second.reconcile()
    assert (first.path / "renamed" / "a").exists()


def steps_of(device: Device) -> list[str]:
    steps: list[str] = []
    device.reconcile(step=steps.append)
    return steps


@pytest.mark.parametrize("place", range(12))
@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_a_crash_anywhere_is_made_good_by_the_next_cycle(pair: tuple[Device, Device], who: str, place: int) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    count = 0

    def step(name: str) -> None:
        nonlocal count
        count += 1
        if count == place + 1:
            raise Crash(name)

    victim = first if who == "sender" else second
    if victim is second:
        first.reconcile()
    with_crash = False
    try:
        victim.reconcile(step=step)
    except Crash:
        with_crash = True
    assert with_crash == (count > place)
    settle(first, second)
    assert (second.path / "renamed" / "deep" / "er" / "file").exists()
    assert len(first.contents()) == len(second.contents())


def test_a_file_that_is_written_through_an_open_descriptor_meanwhile_is_found(pair: tuple[Device, Device]) -> None:
    first, second = pair
    descriptor = os.open(second.path / "folder" / "a", os.O_WRONLY)
    (first.path / "folder").rename(first.path / "renamed")
    cycle(first)
    cycle(second)
    os.write(descriptor, b"late")
    os.close(descriptor)
    settle(first, second)
    assert (first.path / "renamed" / "a").read_bytes().startswith(b"late")


def until_the_clock_ticks(device: Device) -> None:
    """A write from now on has a later time stamp than those before."""
    probe = device.path.parent / "probe"
    probe.touch()
    before = probe.stat().st_ctime_ns
    while probe.stat().st_ctime_ns == before:
        probe.touch()


def test_what_came_into_a_folder_before_does_not_keep_it_from_moving_as_a_whole(pair: tuple[Device, Device]) -> None:
    """Changes that were made here by the sync leave other time stamps of directories than the digests know."""
    first, second = pair
    for old, new in (("folder", "b"), ("b", "c"), ("c", "d")):
        first.write(f"{old}/deep/er/file", old.encode())
        until_the_clock_ticks(first)
        first.reconcile()
        until_the_clock_ticks(second)
        second.reconcile()
        until_the_clock_ticks(second)  # what was pulled must not look racily clean either
        (first.path / old).rename(first.path / new)
        assert "move_tree" in cycle(first)
        calls = cycle(second)
        assert not {"list_objects", "block_list", "read_block", "move"} & set(calls)
        assert [type(action) for action in second.ears.actions].count(Move) == 1
    assert_at_rest(first, second)


def test_what_an_arriving_folder_was_told_of_under_watch_is_looked_at(pair: tuple[Device, Device]) -> None:
    first, second = pair
    (first.path / "folder").rename(first.path / "renamed")
    cycle(first)
    calls: list[str] = []
    told = [b"folder/deep/er/file", b"folder/a"]  # as events of our own doing are, when they come late
    assert not second.reconcile(client=called(second, calls), entries=told).failures
    assert "list_objects" not in calls
    assert (second.path / "renamed" / "deep" / "er" / "file").exists()
    settle(first, second)


def test_a_name_of_any_depth_is_found() -> None:
    rows, path = deep_tree(1100)
    assert [row.nid for row in _at(MemoryRows(rows), path)] == [1100]
    assert _at(MemoryRows(rows), RelPath(path + b"/none/none")) == []
