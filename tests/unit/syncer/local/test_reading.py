"""What is read to be hashed is not read again to be sent."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio

from blockfs.blocks.ids import BlockId
from syncer.core.model import RelPath
from syncer.engine.ahead import Ahead
from syncer.errors import OverQuotaError, RemoteUnavailableError
from syncer.local.folder import filehash, held
from tests.fakes.memory import MemoryClient
from tests.unit.syncer.engine.devices import Device, devices
from tests.unit.syncer.local.folders import BLOCK, noise


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes that each pread of a root's files asked for and got."""
    sizes: list[int] = []
    pread = os.pread

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        data = pread(descriptor, length, offset)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(filehash.os, "pread", counted)
    return sizes


def test_a_first_push_reads_each_byte_once(tmp_path: Path, read: list[int]) -> None:
    (device,) = devices(tmp_path, "a")
    device.write("large", noise(1, 40 * BLOCK + 17))
    device.write("with/zeros", noise(2, BLOCK) + bytes(5 * BLOCK) + noise(3, BLOCK))
    for number in range(50):
        device.write(f"small/{number}", noise(number, 100 + number))
    everything = sum(path.stat().st_size for path in device.path.rglob("*") if path.is_file())
    report = device.reconcile()
    assert report.exit_code == 0
    assert report.pushed >= 52
    assert report.bytes_read_local == sum(read)
    assert sum(read) <= everything


LIMIT = 10 * BLOCK


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for ten blocks, of which four go at once."""
    monkeypatch.setattr(held, "HELD_BYTES", LIMIT)
    monkeypatch.setattr(held, "STAY_BYTES", BLOCK // 4)
    monkeypatch.setattr(held, "_SPILL_BYTES", 4 * BLOCK)


def photos(device: Device, count: int = 30) -> None:
    """Files of less than a block, and not tiny."""
    for number in range(count):
        device.write(f"photos/{number}", noise(1000 + number, BLOCK - number))


@pytest.mark.usefixtures("little_memory")
def test_a_first_push_of_more_than_memory_holds_reads_each_byte_once(tmp_path: Path, read: list[int]) -> None:
    first, second = devices(tmp_path, "a", "b")
    first.write("large", noise(1, 40 * BLOCK + 17))
    first.write("other/large", noise(2, 25 * BLOCK) + bytes(5 * BLOCK))
    photos(first)
    first.write("tiny", b"tiny")
    everything = sum(path.stat().st_size for path in first.path.rglob("*") if path.is_file())
    report = first.reconcile()
    assert (report.exit_code, report.failures) == (0, [])
    assert report.bytes_read_local == sum(read) <= everything
    sent = report.traffic["blocks_sent"]
    assert sent <= 41 + 26 + 30 + 2  # no block travels twice
    assert second.reconcile().exit_code == 0
    assert second.everything() == first.everything()


@pytest.mark.usefixtures("little_memory")
def test_what_is_not_a_first_push_is_read_again_and_arrives(tmp_path: Path, read: list[int]) -> None:
    """Whether a file is to be sent at all is not known before there is a plan."""
    first, second = devices(tmp_path, "a", "b")
    first.write("one", b"one")
    assert first.reconcile().exit_code == 0
    read.clear()
    data = noise(1, 40 * BLOCK)
    first.write("large", data)
    assert first.reconcile().exit_code == 0
    assert 70 * BLOCK <= sum(read) <= 70 * BLOCK + len(b"one")
    assert second.reconcile().exit_code == 0
    assert (second.path / "large").read_bytes() == data


@pytest.mark.usefixtures("little_memory")
def test_a_container_with_something_in_it_gets_nothing_before_the_plan(tmp_path: Path) -> None:
    """What both sides have, or what is in conflict, need not travel."""
    first, second = devices(tmp_path, "a", "b")
    for device in (first, second):
        device.write("large", noise(1, 40 * BLOCK))
    first.reconcile()
    report = second.reconcile()
    assert (report.exit_code, report.traffic["blocks_sent"], report.mutating_requests) == (0, 0, 0)


@pytest.mark.usefixtures("little_memory")
def test_what_is_not_sent_early_is_held_for_the_push(tmp_path: Path, read: list[int]) -> None:
    first, second = devices(tmp_path, "a", "b")
    first.write("one", b"")
    first.reconcile()
    second.write("large", noise(1, 40 * BLOCK))
    second.reconcile()
    assert sum(read) == 70 * BLOCK


@pytest.mark.usefixtures("little_memory")
def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    (device,) = devices(tmp_path, "a")
    device.write("large", noise(1, 40 * BLOCK))
    report = device.reconcile(dry_run=True)
    assert (report.traffic["blocks_sent"], report.mutating_requests, report.bytes_read_local) == (0, 0, 40 * BLOCK)


@pytest.mark.usefixtures("little_memory")
def test_a_first_push_sends_while_it_reads_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for all of it. Who reads waits here for what is sent, so it can't be sent afterwards."""
    monkeypatch.setattr(held, "HELD_BYTES", 1000 * BLOCK)
    first, second = devices(tmp_path, "a", "b")
    for number in range(3):
        first.write(f"large/{number}", noise(number, 8 * BLOCK))
    sent, read = threading.Event(), 0
    pread = os.pread

    def patient(descriptor: int, length: int, offset: int) -> bytes:
        nonlocal read
        if read == 16 * BLOCK:
            assert sent.wait(30)
        data = pread(descriptor, length, offset)
        read += len(data)
        return data

    async def noted(operation: str, path: RelPath) -> None:
        if operation == "send":
            sent.set()

    monkeypatch.setattr(filehash.os, "pread", patient)
    report = first.reconcile(client=MemoryClient(first.container, before=noted))
    assert (report.exit_code, report.traffic["blocks_sent"], read) == (0, 24, 24 * BLOCK)
    assert second.reconcile().exit_code == 0
    assert second.everything() == first.everything()


@pytest.mark.usefixtures("little_memory")
def test_what_the_server_has_already_does_not_travel(tmp_path: Path) -> None:
    """As after a kill, or where another container of the account has the same files."""
    (device,) = devices(tmp_path, "a")
    device.write("large", noise(1, 40 * BLOCK))
    photos(device)
    device.container.store_all(noise(1, 40 * BLOCK))
    report = device.reconcile()
    assert (report.exit_code, report.traffic["blocks_sent"]) == (0, 30)


@pytest.mark.usefixtures("little_memory")
def test_blocks_that_were_collected_meanwhile_are_read_and_sent_again(tmp_path: Path, read: list[int]) -> None:
    first, second = devices(tmp_path, "a", "b")
    first.write("large", noise(1, 40 * BLOCK))
    photos(first)

    async def forgetful(operation: str, path: RelPath) -> None:
        if operation == "send" and not first.container.objects:
            first.container.data.clear()

    client = MemoryClient(first.container, after=forgetful)
    assert first.reconcile(client=client).exit_code == 0
    assert sum(read) > 40 * BLOCK
    assert second.reconcile().exit_code == 0
    assert second.everything() == first.everything()


@pytest.mark.usefixtures("little_memory")
def test_a_server_that_refuses_blocks_before_the_plan_gets_them_afterwards(tmp_path: Path) -> None:
    first, second = devices(tmp_path, "a", "b")
    first.write("large", noise(1, 40 * BLOCK))
    photos(first)
    asked: list[str] = []

    async def refusing(operation: str, path: RelPath) -> None:
        asked.append(operation)
        if operation == "send" and asked.count("send") == 1:
            raise OverQuotaError("not so early")

    assert first.reconcile(client=MemoryClient(first.container, before=refusing)).exit_code == 0
    assert second.reconcile().exit_code == 0
    assert second.everything() == first.everything()


@pytest.mark.usefixtures("little_memory")
def test_a_first_push_without_a_server_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads wait for room that nobody will make: they must not wait for ever."""
    (device,) = devices(tmp_path, "a")
    device.write("large", noise(1, 40 * BLOCK))
    waiting = trio.Event()
    spill = Ahead.spill

    async def noticed(self: Ahead, blocks: Mapping[BlockId, held.HeldBlock]) -> bool:
        waiting.set()
        return await spill(self, blocks)

    async def gone(self: MemoryClient) -> object:
        await waiting.wait()
        raise RemoteUnavailableError("gone")

    monkeypatch.setattr(Ahead, "spill", noticed)
    monkeypatch.setattr(MemoryClient, "list_objects", gone)
    with pytest.raises(RemoteUnavailableError):
        device.reconcile()


def test_a_file_that_is_written_to_between_is_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is of the version that was planned; the next cycle brings what came after."""
    first, second = devices(tmp_path, "a", "b")
    first.write("large", noise(1, 9 * BLOCK))
    first.write("small", b"before")
    take = held.HeldBlocks.take
    written = False

    def late(self: held.HeldBlocks, name: BlockId) -> bytes | None:
        nonlocal written
        if not written:
            written = True
            first.write("large", noise(2, 9 * BLOCK))
            first.write("small", b"after!")
        return take(self, name)

    monkeypatch.setattr(held.HeldBlocks, "take", late)
    first.reconcile()
    assert written
    first.reconcile()
    second.reconcile()
    assert second.everything() == first.everything()
    assert (second.path / "small").read_bytes() == b"after!"


def test_a_change_of_a_known_file_holds_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of a large file that changed in one place is on the server: to keep it would be of no use."""
    (device,) = devices(tmp_path, "a")
    device.write("image", noise(1, 20 * BLOCK))
    device.reconcile()
    with (device.path / "image").open("r+b") as file:
        file.write(b"changed")
    kept: list[bytes] = []
    keep = held.HeldBlocks.keep

    def watched(self: held.HeldBlocks, name: BlockId, data: bytes, *, file_bytes: int) -> None:
        kept.append(name)
        keep(self, name, data, file_bytes=file_bytes)

    monkeypatch.setattr(held.HeldBlocks, "keep", watched)
    assert device.reconcile().traffic["blocks_sent"] == 1
    assert not kept


def test_memory_is_bounded_by_what_the_machine_can_spare() -> None:
    assert 0 < held.held_bytes() <= held.HELD_BYTES
