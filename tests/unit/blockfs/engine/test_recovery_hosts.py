"""What recovery believes of the host: room that it took ahead, and that somebody has read, is no data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.engine.content.hostfile import data_extents, written_extents
from blockfs.engine.filesystem import Filesystem
from tests.kit.hostfs import REFLINKS, reflinking
from tests.unit.blockfs.engine.volumes import config, content, create, make

PAGE = 4096
PAGES = 1500


def scattered(fd: int) -> set[int]:
    """Write pages further and further behind: XFS takes room ahead, and what lies between stays unwritten."""
    written = set(range(0, PAGES, 13))
    for page in sorted(written):
        os.pwrite(fd, b"%04095d\n" % page, page * PAGE)
    os.fsync(fd)
    return written


def read_all(path: Path | str) -> None:
    """As a backup does: of what was never written, the host keeps pages of zeros."""
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass


@pytest.mark.parametrize("kind", sorted(REFLINKS))
def test_room_that_was_taken_ahead_and_read_is_no_data(tmp_path: Path, kind: str) -> None:
    with reflinking(tmp_path, kind) as host:
        fd = os.open(host / "file", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            written = scattered(fd)
            read_all(host / "file")
            found = {at // PAGE for first, length in written_extents(fd) for at in range(first, first + length, PAGE)}
            assert found == written
            seen = {at // PAGE for first, length in data_extents(fd) for at in range(first, first + length, PAGE)}
            assert written <= seen  # on XFS it is more: SEEK_DATA alone would not do
            os.pwrite(fd, bytes(PAGE), 5 * PAGE)  # zeros that were written are data, also before they are on the disk
            found = {first // PAGE for first, length in written_extents(fd) if first == 5 * PAGE}
            assert found == {5}
        finally:
            os.close(fd)


@pytest.mark.parametrize("kind", sorted(REFLINKS))
def test_a_sealed_file_is_not_covered_by_zeros_that_the_host_made_up(tmp_path: Path, kind: str) -> None:
    """Breaks when recovery asks SEEK_DATA alone: pages between those that were written came back as zeros."""
    with reflinking(tmp_path, kind) as host:
        path = make(host / "volume")
        filesystem = Filesystem.open(path, config())
        ino = create(filesystem, b"f")
        filesystem.files.write(ino, 0, b"sealed".ljust(PAGE, b".") * PAGES)
        filesystem.close(seal=True)
        expected = bytearray(b"sealed".ljust(PAGE, b".") * PAGES)
        filesystem = Filesystem.open(path, config())
        for page in range(0, PAGES, 13):
            filesystem.files.write(ino, page * PAGE, b"%04095d\n" % page)
            expected[page * PAGE : (page + 1) * PAGE] = b"%04095d\n" % page
        filesystem.files.fsync(ino)
        for name in os.listdir(os.path.join(path, b"staging")):
            read_all(os.fsdecode(os.path.join(path, b"staging", name)))
        filesystem.close()
        filesystem = Filesystem.open(path, config())
        try:
            assert content(filesystem, b"f") == expected
        finally:
            filesystem.close()
