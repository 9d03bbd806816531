"""Symlinks whose text somebody else chose: one that can't be is one failure, and the rest goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from syncer.core.model import Kind, Meta, RelPath, RemoteStat
from syncer.errors import CorruptionError, SyncerError
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import Device, devices


@pytest.fixture
def device(tmp_path: Path) -> Device:
    (only,) = devices(tmp_path, "a")
    return only


def put_link(device: Device, path: bytes, target: bytes) -> None:
    box = device.container
    box.put(RelPath(path), kind=Kind.SYMLINK, blocks=box.store_all(target), meta=Meta())


@pytest.mark.parametrize(
    "target", [b"a\0b", b"\0", b"a\0", b"x" * 4096, b""], ids=["nul", "only", "end", "long", "empty"]
)
@pytest.mark.parametrize("known", [False, True], ids=["new", "changed"])
def test_a_target_that_no_symlink_can_have_is_named_and_the_rest_is_synced(
    device: Device, target: bytes, *, known: bool
) -> None:
    """Any writer of the share could end every cycle of all devices."""
    if known:
        put_link(device, b"folder/link", b"fine")
        assert device.reconcile().exit_code == 0
    put_link(device, b"folder/link", target)
    put_link(device, b"folder/other", b"fine")
    device.write("mine", b"1")
    for _ in range(2):
        report = device.reconcile()
        assert (report.exit_code, [failure.path for failure in report.failures]) == (3, [b"folder/link"])
        assert "target" in report.failures[0].reason
    link = device.path / "folder/link"
    assert (link.readlink() == Path("fine")) if known else not link.is_symlink()
    assert (device.path / "folder/other").readlink() == Path("fine")
    assert RelPath(b"mine") in device.container.objects
    put_link(device, b"folder/link", b"good")
    assert device.reconcile().exit_code == 0
    assert link.readlink() == Path("good")


def test_a_link_whose_text_can_not_be_read_takes_no_other_along(device: Device) -> None:
    """Damaged data of one object on the server ended the cycle."""

    class Damaged(MemoryClient):
        async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
            damaged = CorruptionError("link: block 0 is not what it is called")
            found = await super().resolve(stats)
            return [damaged if stat.path == b"link" else full for stat, full in zip(stats, found, strict=True)]

    device.container.lists_meta = False  # targets are read one by one, as always from a plain Pithos
    put_link(device, b"link", b"fine")
    put_link(device, b"other", b"fine")
    device.write("mine", b"1")
    report = device.reconcile(client=Damaged(device.container))
    assert (report.exit_code, [failure.path for failure in report.failures]) == (15, [b"link"])
    assert (device.path / "other").is_symlink()
    assert RelPath(b"mine") in device.container.objects
    assert device.reconcile().exit_code == 0
    assert (device.path / "link").readlink() == Path("fine")
