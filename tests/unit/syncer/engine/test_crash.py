"""The process is killed at every step of a cycle; the next cycles complete and nothing is lost."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import pytest

from syncer.core.model import BaseRow
from syncer.core.planner.outcome import BaseChange
from syncer.errors import SyncerError
from syncer.local.folder import changes
from syncer.local.folder import small_files as portion
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import STRIDE, Crash, Device, assert_at_rest, devices
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

    def record(changes: list[BaseChange], settled: Collection[int] = ()) -> None:
        if killer.dead:
            raise Crash("record")
        real(changes, settled)

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
    for number in itertools.count(0, STRIDE):
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


def test_what_is_ignored_is_not_sent_whatever_step_a_cycle_ends_at(tmp_path: Path) -> None:
    """A folder that is parked when a cycle ends lies where no pattern names what is in it: a key would be sent."""
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = devices(folder, "a", "b")
        first.write(".blocksyncignore", b"/*/secret\n")
        first.write("D/in/x", b"x")
        settle(first, second)
        second.write("D/.blocksyncignore", b"*.key\n")
        second.write("D/id.key", b"ignored")
        second.write("D/in/id.key", b"ignored")
        second.write("D/secret/file", b"ignored")
        (first.path / "D/in/x").unlink()
        (first.path / "D/in").rmdir()
        (first.path / "D").rmdir()
        first.write("D", b"a file")
        first.reconcile()
        killer = Killer(number)
        if not run_killed(second, killer):
            break
        second.reconcile()  # by the rules that the folder had when it was parked
        first.reconcile()
        assert b"ignored" not in first.contents(), killer.where
        assert second.contents().count(b"ignored") == 3, killer.where
    assert number > 5


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_connection_at_any_request_is_completed_by_the_next_cycles(tmp_path: Path, when: str) -> None:
    """Requests that fail, and requests whose reply is lost after they were carried out."""
    for number in itertools.count(0, STRIDE):
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


def many_small(first: Device) -> dict[str, bytes]:
    """New small files, some of them equal, some without content, in folders of their own."""
    files = {f"folder-{n % 3}/file-{n}": b"%d" % (n % 5) * (n % 4) for n in range(7)}
    for name, data in files.items():
        first.write(name, data)
        (first.path / name).chmod(0o440)
    return files


def test_a_kill_while_many_new_files_are_made_is_completed_by_the_next_cycles(tmp_path: Path) -> None:
    """And whatever has a name by then is complete: a file that is not would be pushed as a user's."""
    where = set()
    for number in itertools.count():
        folder = tmp_path / str(number)
        folder.mkdir()
        first, second = devices(folder, "a", "b")
        files = many_small(first)
        first.reconcile()
        killer = Killer(number)
        if not run_killed(second, killer):
            break
        where.add(killer.where)
        assert second.place.visible().items() <= files.items(), killer.where
        settle(second, first)
        assert first.everything() == second.everything(), killer.where
        assert second.place.visible() == files, killer.where
        assert list((second.path / ".blocksync/tmp").iterdir()) == [], killer.where
        assert_at_rest(first, second)
    named = {"before staging", "before fetch", "staged", "synced", "created", "applied", "barrier", "before record"}
    assert named <= where, where


def test_of_many_new_files_each_is_durable_before_its_name_and_each_name_before_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between any two of these must leave neither half a file nor a row of a file that is not there."""
    first, second = devices(tmp_path, "a", "b")
    files = many_small(first)
    first.reconcile()
    events: list[tuple[str, int]] = []
    fsync, begin, rename, record = os.fsync, portion.write_back, changes.rename_noreplace, second.state.record
    complete: dict[int, tuple[int, int, int]] = {}

    def synced(descriptor: int) -> None:
        fsync(descriptor)
        found = os.fstat(descriptor)
        complete[found.st_ino] = (found.st_size, found.st_mode, found.st_mtime_ns)
        events.append(("durable", found.st_ino))

    def begun(descriptor: int, offset: int, length: int, *, wait: bool) -> None:
        begin(descriptor, offset, length, wait=wait)
        events.append(("begun", os.fstat(descriptor).st_ino))

    def renamed(source: bytes, source_dir: int, target: bytes, target_dir: int) -> None:
        rename(source, source_dir, target, target_dir)
        events.append(("named", os.stat(target, dir_fd=target_dir).st_ino))

    def recorded(rows: Sequence[BaseChange], settled: Collection[int] = ()) -> None:
        record(rows, settled)
        events.extend(("recorded", row.local.ino) for row in rows if isinstance(row, BaseRow) and row.local is not None)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(portion, "write_back", begun)
    monkeypatch.setattr(changes, "rename_noreplace", renamed)
    second.state.record = recorded  # type: ignore[method-assign] # it calls the real one
    second.reconcile()
    assert second.place.visible() == files
    for name in files:
        found = (second.path / name).stat()
        ino, folder = found.st_ino, (second.path / name).parent.stat().st_ino
        times = {what: events.index((what, ino)) for what in ("begun", "durable", "named", "recorded")}
        assert times["begun"] < times["durable"] < times["named"] < times["recorded"]
        assert complete[ino] == (found.st_size, found.st_mode, found.st_mtime_ns)
        assert ("durable", folder) in events[times["named"] : times["recorded"]]
    inos = {(second.path / name).stat().st_ino for name in files}
    order = [what for what, ino in events if ino in inos and what in {"begun", "durable"}]
    assert order == sorted(order), "the first fsync is to find all others on their way"
