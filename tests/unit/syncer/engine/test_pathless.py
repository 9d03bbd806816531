"""Base rows must not outlive the rows of the directories above them: no cycle that looks at a part would find them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from syncer.core.base import BaseIndex
from syncer.core.model import RelPath
from syncer.errors import RemoteUnavailableError
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import Device, devices


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Device, Device]:
    first, second = devices(tmp_path, "first", "second")
    first.write("folder/below/file", b"content" * 1000)
    first.write("beside", b"stays" * 1000)
    for device in (first, second, first):
        device.reconcile()
    return first, second


def break_off(device: Device) -> None:
    """A cycle that does all but fetch a content."""

    async def before(operation: str, path: RelPath) -> None:
        if operation.startswith(("block", "read", "fetch", "bulk_read")):
            raise RemoteUnavailableError("gone")

    with pytest.raises((RemoteUnavailableError, BaseExceptionGroup)):
        device.reconcile(client=MemoryClient(device.container, before=before))


def paths(device: Device) -> list[bytes]:
    index = BaseIndex(device.state.rows_now.values())
    assert len(index.paths) == len(index) or device.state.kept_cursor is None
    return sorted(index.paths.values())


def test_what_left_a_directory_that_is_gone_is_found_when_it_is_gone_too(pair: tuple[Device, Device]) -> None:
    first, second = pair
    (second.path / "folder" / "below" / "file").rename(second.path / "moved")
    second.reconcile()
    shutil.rmtree(first.path / "folder")
    break_off(first)  # the folder goes on the server, and the file is not here yet
    assert not (first.path / "moved").exists()
    assert b"folder/below/file" in paths(first)
    (second.path / "moved").unlink()
    second.reconcile()
    first.reconcile()
    assert paths(first) == [b"beside"]
    assert len(first.state.rows_now) == 1


def test_after_rows_lost_their_directory_everything_is_looked_at(pair: tuple[Device, Device]) -> None:
    first, second = pair
    (second.path / "folder").rename(second.path / "renamed")
    second.write("renamed/below/file", b"edited" * 1000)
    second.reconcile()
    shutil.rmtree(first.path / "folder")
    break_off(first)  # what is deleted here and moved there is kept: it is made anew, with rows of its own
    assert first.state.kept_cursor is None
    shutil.rmtree(second.path / "renamed")
    second.reconcile()
    first.reconcile()
    assert paths(first) == [b"beside"]
    assert len(first.state.rows_now) == 1
