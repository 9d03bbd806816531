"""How a cycle ends: what it records, what it keeps, what it sends again."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from syncer.core.base import BaseIndex
from syncer.core.model import Meta, Update, meta_of
from syncer.core.planner.outcome import Ledger
from syncer.engine.push import RemoteWorker
from syncer.local.folder.held import Spill
from syncer.local.folder.root import LocalDirectory
from syncer.local.root import Observation
from tests.unit.syncer.core.trees import Nodes, base_of, file, plan
from tests.unit.syncer.engine.devices import Device, devices


@pytest.fixture
def device(tmp_path: Path) -> Device:
    (found,) = devices(tmp_path, "first")
    return found


def test_the_checkpoint_of_a_cycle_that_is_not_settled_is_not_kept(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a later observation from there would not tell again is in no row."""
    observe = LocalDirectory.observe

    async def marked(
        self: LocalDirectory, base: BaseIndex, checkpoint: bytes | None, spill: Spill | None
    ) -> Observation:
        return replace(await observe(self, base, checkpoint, spill), checkpoint=b"here")

    monkeypatch.setattr(LocalDirectory, "observe", marked)
    device.partly = False
    device.write("a", b"1")
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "is_settled", lambda _self: False)
        assert not device.reconcile().failures
    assert device.state.memory("checkpoint") is None
    device.reconcile()
    assert device.state.memory("checkpoint") == b"here"


def test_a_cycle_in_doubt_of_the_server_records_what_it_did(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder could not be moved as a whole: all that was done beside is done, and must not look like a user's."""
    prepare = RemoteWorker.prepare

    async def doubting(self: RemoteWorker) -> None:
        await prepare(self)
        self.doubtful = True

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
    worker._ledger = Ledger(base_of(base), made)
    assert worker._whole_meta(replace(update, meta=Meta(mtime_ns=7))) == meta_of(0o640, mtime_ns=7)
    assert worker._whole_meta(replace(update, meta=Meta())) == meta_of(0o640, mtime_ns=5)
