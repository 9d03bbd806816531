"""The process is killed at every step of a cycle; the next cycles complete and nothing is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from syncer.core.ledger import BaseChange
from syncer.errors import SyncerError
from syncer.remote.memory import MemoryClient
from tests.unit.syncer.engine.devices import Crash, Device, assert_at_rest, devices
from tests.unit.syncer.local.folders import BLOCK, noise


class Killer:
    """Counts steps, and from the n-th on nothing more happens: neither a file operation nor a record."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.dead = False
        self.where = ""

    def __call__(self, step: str) -> None:
        self.left -= 1
        if self.left < 0:
            self.where = self.where or step
            self.dead = True
        if self.dead:
            raise Crash(step)


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def run_killed(device: Device, killer: Killer) -> bool:
    """One cycle that ends at a step; False if it had fewer steps."""
    state = device.state
    real = state.record

    def record(changes: list[BaseChange]) -> None:
        if killer.dead:
            raise Crash("record")
        real(changes)

    state.record = record  # type: ignore[method-assign, assignment]  # a dead process writes nothing
    try:
        device.reconcile(step=killer)
    except BaseException as error:
        if not any(isinstance(leaf, Crash) for leaf in leaves(error)):
            raise
        return True
    finally:
        del state.record
    return killer.dead


def settle(*all_devices: Device) -> None:
    """Cycles until all is quiet."""
    for _ in range(8):
        if not sum([bool(device.reconcile() and device.ears.actions) for device in all_devices]):
            return
    raise AssertionError("never quiet")


def everything_local(first: Device, second: Device) -> None:
    """What the second device has to carry out on its own side: every kind of action."""
    first.write("swap-a", b"a")
    first.write("swap-b", b"b")
    first.write("image", noise(1, 6 * BLOCK))
    first.write("folder/inner/deep", b"deep")
    first.write("gone", b"gone")
    first.write("bye/file", b"bye")
    first.write("both.txt", b"base")
    settle(first, second)
    (first.path / "swap-a").rename(first.path / "t")
    (first.path / "swap-b").rename(first.path / "swap-a")
    (first.path / "t").rename(first.path / "swap-b")
    first.write("image", noise(1, 3 * BLOCK) + noise(2, 4 * BLOCK))
    (first.path / "folder").rename(first.path / "moved")
    (first.path / "gone").unlink()
    (first.path / "bye/file").unlink()
    (first.path / "bye").rmdir()
    first.write("new/file", noise(3, 2 * BLOCK))
    (first.path / "link").symlink_to("image")
    first.write("both.txt", b"first's")
    second.write("both.txt", b"second's")


def everything_remote(first: Device, second: Device) -> None:
    """The same for the other direction: the second device has the changes, the conflict included."""
    everything_local(second, first)
    first.reconcile()


EXPECTED = sorted(
    [b"a", b"b", noise(1, 3 * BLOCK) + noise(2, 4 * BLOCK), b"deep", noise(3, 2 * BLOCK), b"first's", b"second's"]
)


@pytest.mark.parametrize("prepare", [everything_local, everything_remote])
def test_a_kill_at_any_step_is_completed_by_the_next_cycles(
    tmp_path: Path, prepare: Callable[[Device, Device], None]
) -> None:
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = devices(folder, "a", "b")
        prepare(first, second)
        if prepare is everything_local:
            first.reconcile()
        killer = Killer(number)
        if not run_killed(second, killer):
            break
        settle(second, first)
        assert first.contents() == second.contents() == EXPECTED, killer.where
        assert first.everything() == second.everything(), killer.where
        names = set(first.everything())
        assert len([name for name in names if "conflict" in name]) == 1, (killer.where, names)
        assert {"swap-a", "swap-b", "moved/inner/deep", "link", "new/file"} <= names, killer.where
        assert_at_rest(first, second)
    assert number > 20


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_at_any_request_is_completed_by_the_next_cycles(tmp_path: Path, when: str) -> None:
    """Requests that fail, and requests whose reply is lost after they were carried out."""
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = devices(folder, "a", "b")
        everything_remote(first, second)
        left = [number]

        async def hook(operation: str, path: bytes, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise SyncerError("gone")

        client = MemoryClient(second.container, **{when: hook})
        try:
            second.reconcile(client=client)
        except SyncerError:
            pass
        else:
            break
        settle(second, first)
        assert first.contents() == second.contents() == EXPECTED, number
        assert first.everything() == second.everything(), number
        assert_at_rest(first, second)
    assert number > 10
