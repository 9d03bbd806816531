"""How a cycle ends: what it records, what it keeps, what it sends again."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from msgspec.structs import replace

from syncer.core.model import Content, Meta, RelPath, Update, meta_of
from syncer.core.planner.outcome import Outcome
from syncer.engine.push import RemoteWorker
from syncer.local.folder.root import LocalDirectory
from syncer.ports.remote import Capabilities
from tests.unit.syncer.core.trees import Nodes, base_of, file, plan
from tests.unit.syncer.engine.devices import Device, devices


@pytest.fixture
def device(tmp_path: Path) -> Device:
    (found,) = devices(tmp_path, "first")
    return found


def test_a_root_is_told_that_a_cycle_is_not_settled(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a later observation from there would not tell again is in no row."""
    told: list[bool] = []

    async def concluded(
        self: LocalDirectory, looked: Collection[RelPath] | None, gone: Collection[Content], *, undone: bool
    ) -> None:
        told.append(undone)

    monkeypatch.setattr(LocalDirectory, "concluded", concluded)
    device.partly = False
    device.write("a", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(Outcome, "is_settled", lambda _self: False)
        assert not device.reconcile().failures
    device.reconcile()
    assert told == [True, False]


def test_a_cycle_in_doubt_of_the_server_records_what_it_did(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder could not be moved as a whole: all that was done beside is done, and must not look like a user's."""
    prepare = RemoteWorker.prepare

    async def doubting(self: RemoteWorker) -> Capabilities:
        self.doubtful = True
        return await prepare(self)

    monkeypatch.setattr(RemoteWorker, "prepare", doubting)
    device.write("a", b"1")
    device.reconcile()
    assert [row.node.name for row in device.state.rows_now.values()] == [b"a"]


def test_a_write_sends_again_the_metadata_that_it_leaves_alone() -> None:
    """It replaces all that the object has."""
    base: Nodes = {1: file("a", 1, mode=0o640, mtime=5)}
    made = plan(base, {1: file("a", 2, mode=0o640, mtime=5)}, base)
    (update,) = made.remote
    assert isinstance(update, Update)
    worker = RemoteWorker.__new__(RemoteWorker)  # its books are all that this needs
    worker._outcome = Outcome(base_of(base), made)
    assert worker._whole_meta(replace(update, meta=Meta(mtime_ns=7))) == meta_of(0o640, mtime_ns=7)
    assert worker._whole_meta(replace(update, meta=Meta())) == meta_of(0o640, mtime_ns=5)
