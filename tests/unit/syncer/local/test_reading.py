"""What is read to be hashed is not read again to be sent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncer.local import filehash, reading
from tests.unit.syncer.engine.devices import devices
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


def test_what_does_not_fit_into_memory_is_read_again_and_arrives(
    tmp_path: Path, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "HELD_BYTES", 10 * BLOCK)
    first, second = devices(tmp_path, "a", "b")
    data = noise(1, 40 * BLOCK)
    first.write("large", data)
    assert first.reconcile().exit_code == 0
    assert sum(read) == 70 * BLOCK
    assert second.reconcile().exit_code == 0
    assert (second.path / "large").read_bytes() == data


def test_a_file_that_is_written_to_between_is_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is of the version that was planned; the next cycle brings what came after."""
    first, second = devices(tmp_path, "a", "b")
    first.write("large", noise(1, 9 * BLOCK))
    first.write("small", b"before")
    take = reading.Reading.take
    written = False

    def late(self: reading.Reading, name: bytes) -> bytes | None:
        nonlocal written
        if not written:
            written = True
            first.write("large", noise(2, 9 * BLOCK))
            first.write("small", b"after!")
        return take(self, name)  # type: ignore[arg-type]

    monkeypatch.setattr(reading.Reading, "take", late)
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
    kept: list[object] = []
    saw = reading.Reading.saw

    def watched(self: reading.Reading, size_bytes: int, block: tuple[bytes, bytes] | None = None) -> None:
        kept.append(block)
        saw(self, size_bytes, block)

    monkeypatch.setattr(reading.Reading, "saw", watched)
    assert device.reconcile().traffic["blocks_sent"] == 1
    assert kept
    assert set(kept) == {None}


def test_memory_is_bounded_by_what_the_machine_can_spare() -> None:
    assert 0 < reading.held_bytes() <= reading.HELD_BYTES
