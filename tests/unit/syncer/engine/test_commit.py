"""A remote that holds back what is written until it is committed: no row speaks of what a crash takes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncer.core.model import RelPath
from syncer.engine import push, record
from syncer.errors import RemoteUnavailableError
from tests.fakes.memory import MemoryClient, MemoryContainer
from tests.unit.syncer.engine.devices import STRIDE, Crash, Device, assert_at_rest
from tests.unit.syncer.local.folders import BLOCK, new_place, noise


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    container = MemoryContainer(holds_back=True)
    return Device("a", new_place(tmp_path, "a"), container), Device("b", new_place(tmp_path, "b"), container)


def edit(device: Device, number: int) -> None:
    device.write(f"folder-{number}/small", b"%d" % number)
    device.write("large", noise(number, 6 * BLOCK))
    if number:
        (device.path / f"folder-{number - 1}").rename(device.path / f"moved-{number}")


def test_devices_that_take_turns_come_to_rest(pair: tuple[Device, Device]) -> None:
    for number in range(3):
        edit(pair[number % 2], number)
        for device in (*pair, *pair):
            assert not device.reconcile().failures
    assert_at_rest(*pair)
    assert pair[0].everything() == pair[1].everything()


def test_a_cycle_commits_once_however_much_it_writes(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "GROUP_CHANGES", 10)
    first, _ = pair
    for number in range(60):
        first.write(f"{number % 7}/{number}", b"%d" % number)
    asked: list[str] = []

    async def before(operation: str, path: RelPath) -> None:
        asked.append(operation)

    first.reconcile(client=MemoryClient(first.container, before=before))
    assert asked.count("commit") == 1
    assert "store" not in asked[asked.index("commit") :]


def test_a_push_that_takes_long_commits_meanwhile_and_what_was_committed_is_not_sent_again(
    pair: tuple[Device, Device], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record, "COMMIT_S", 0.0)
    monkeypatch.setattr(push, "_HELD_AT_ONCE", 10)
    first, second = pair
    for number in range(60):
        first.write(f"{number}", b"%d" % number)
    asked: list[str] = []

    async def die(operation: str, path: RelPath) -> None:
        asked.append(operation)
        if asked.count("commit") == 4:
            raise Crash

    with pytest.raises(Crash):
        first.reconcile(client=MemoryClient(first.container, before=die))
    there = len(first.container.objects)
    assert 0 < there < 60
    assert len(first.state.rows_now) <= there
    for device in (first, second):
        assert not device.reconcile().failures
    assert len(second.contents()) == 60
    assert_at_rest(*pair)


@pytest.mark.parametrize("done", [False, True], ids=["not done", "reply lost"])
def test_of_what_could_not_be_committed_no_row_is_kept(pair: tuple[Device, Device], *, done: bool) -> None:
    first, second = pair
    first.write("file", b"1")

    async def lose(operation: str, path: RelPath) -> None:
        if operation == "commit":
            raise RemoteUnavailableError("gone")

    client = MemoryClient(first.container, **{"after" if done else "before": lose})
    with pytest.raises(RemoteUnavailableError):
        first.reconcile(client=client)
    assert not first.state.rows_now
    assert bool(first.container.objects) is done
    for device in (first, second):
        assert not device.reconcile().failures
    assert second.contents() == [b"1"]
    assert_at_rest(*pair)


def test_a_death_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Breaks when rows are written before the commit: the next cycle would take what is missing for deleted."""
    at = 0
    while True:
        container = MemoryContainer(holds_back=True)
        home = tmp_path / f"{at}"
        home.mkdir()
        devices = [Device(name, new_place(home, name), container) for name in ("a", "b")]
        first, second = devices
        for number in range(2):
            edit(first, number)
            for device in devices if not number else ():
                device.reconcile()
        whole, left = first.everything(), at

        async def die(operation: str, path: RelPath) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash

        def step(name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Crash

        try:
            first.reconcile(client=MemoryClient(container, before=die, after=die), step=step)
        except (Crash, BaseExceptionGroup):
            for device in (first, second, first):
                assert not device.reconcile().failures
            assert first.everything() == second.everything() == whole
            assert_at_rest(*devices)
        else:
            break
        at += STRIDE
