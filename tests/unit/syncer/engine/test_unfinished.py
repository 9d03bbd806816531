"""What a cycle that was refused, or that ended half-way, leaves to the next one."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from syncer.core.model import RelPath
from syncer.errors import ConflictOnRemoteError, RemoteUnavailableError, SafetyStopError
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import Crash, Device, assert_at_rest, devices
from tests.unit.syncer.local.folders import BLOCK, noise


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    first, second = devices(tmp_path, "a", "b")
    return first, second


@pytest.mark.parametrize("partly", [True, False], ids=["part", "whole"])
def test_nothing_of_a_refused_look_is_kept(pair: tuple[Device, Device], *, partly: bool) -> None:
    """One lie about the container's version would block all later cycles."""
    first, second = pair
    first.partly = partly
    for number in range(30):
        first.write(f"f{number}", b"%d" % number)
    assert first.reconcile().exit_code == 0
    liar = copy.deepcopy(first.container)
    for path in list(liar.objects):
        del liar.objects[path]
        liar.deleted[path] = liar.last_version
    liar.last_version = 10**12
    before = first.state.container()
    for dry_run in (False, True):
        with pytest.raises(SafetyStopError):
            first.reconcile(client=MemoryClient(liar), dry_run=dry_run)
        assert first.state.container() == before
    first.write("later", b"1")
    assert first.reconcile().pushed == 1
    assert second.reconcile().pulled == 31
    assert_at_rest(first, second)


@pytest.mark.parametrize("base", [True, False], ids=["edited", "new"])
@pytest.mark.parametrize("end", ["remote changed", "created", "barrier", "refused"])
def test_a_conflict_copy_that_an_earlier_run_made_on_the_server_is_told_by_the_run_that_ends_the_conflict(
    pair: tuple[Device, Device], *, base: bool, end: str
) -> None:
    """Else a conflict is over without anybody having heard of it: the answer was lost, a 403, or a kill."""
    first, second = pair
    for device in pair:
        device.write("known", b"known")
        device.reconcile()
    if base:
        first.write("file", b"base")
        first.reconcile()
        second.reconcile()
    first.write("file", b"theirs")
    first.reconcile()
    second.write("file", b"ours")
    if end != "refused":
        reached: list[str] = []

        def die(step: str) -> None:
            reached.append(step)
            if step == end and (end != "barrier" or "remote changed" in reached):  # there is one before the push, too
                raise Crash

        with pytest.raises(Crash):
            second.reconcile(step=die)
    else:

        async def refused(operation: str, path: RelPath) -> None:
            """Does what it is asked for, and says that it did not."""
            if operation == "store":
                raise ConflictOnRemoteError(path, "403", "nothing")

        assert second.reconcile(client=MemoryClient(second.container, after=refused)).exit_code == 3
    assert len(second.container.objects) == 3
    report = second.reconcile()
    assert (report.exit_code, report.conflicts) == (4, 1)
    assert any("file (conflict b" in f"{path!r} {text}" for path, text in report.notes)
    assert first.reconcile().exit_code == 0
    assert first.contents() == second.contents() == [b"known", b"ours", b"theirs"]
    assert_at_rest(first, second)


@pytest.mark.parametrize(("operation", "size"), [("store", 10), ("send", 10 * BLOCK), ("store", 10 * BLOCK)])
def test_a_conflict_copy_counts_when_it_is_made(pair: tuple[Device, Device], operation: str, size: int) -> None:
    """A cycle that something else broke off reported a copy that it had only planned."""
    first, second = pair
    first.write("file", noise(1, size))
    second.write("file", noise(2, size))
    first.reconcile()

    async def gone(what: str, path: RelPath) -> None:
        if what == operation:
            raise RemoteUnavailableError("gone")

    with pytest.raises(RemoteUnavailableError):
        second.reconcile(client=MemoryClient(second.container, before=gone))
    assert second.report.conflicts == 0
    assert second.reconcile(dry_run=True).conflicts == 1
    assert second.reconcile().conflicts == 1
    assert second.reconcile().conflicts == 0


@pytest.mark.parametrize("after", ["edited", "deleted", "moved"])
def test_what_a_killed_run_pushed_into_a_folder_that_both_had_is_known_as_its_own(
    pair: tuple[Device, Device], after: str
) -> None:
    """Else it looks like somebody's: an edit since is a conflict, a deletion comes back, a rename is undone."""
    first, second = pair
    first.write("folder/theirs", b"theirs")
    first.reconcile()
    second.write("folder/ours", b"ours")

    reached: list[str] = []

    def die(step: str) -> None:
        reached.append(step)
        if "remote changed" in reached:  # and nothing after it: a killed process records no more
            raise Crash

    with pytest.raises(Crash):
        second.reconcile(step=die)
    assert RelPath(b"folder/ours") in second.container.objects
    ours = second.path / "folder/ours"
    if after == "edited":
        second.write("folder/ours", b"edited")
    elif after == "deleted":
        ours.unlink()
    else:
        ours.rename(second.path / "folder/moved")
    expected = second.place.visible() | {"folder/theirs": b"theirs"}
    assert second.reconcile().conflicts == 0
    first.reconcile()
    assert second.place.visible() == expected
    assert_at_rest(first, second)
