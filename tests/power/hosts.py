"""Small host filesystems on loop devices, to be filled to the last byte."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tests.kit.hostfs import MIB, mounted_file, run


@contextlib.contextmanager
def small_ext4(home: Path) -> Iterator[Path]:
    """48 MiB, with nothing kept for root: it can be filled to 0 bytes."""
    with mounted_file(home, 48 * MIB, "mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard") as path:
        yield path


@contextlib.contextmanager
def btrfs_with_quota(home: Path, limit_bytes: int) -> Iterator[Path]:
    """A subvolume that may hold so many bytes, on a btrfs with plenty of room."""
    with mounted_file(home, 256 * MIB, "mkfs.btrfs", "-q") as path:
        run("btrfs", "quota", "enable", path)
        run("btrfs", "subvolume", "create", path / "limited")
        run("btrfs", "qgroup", "limit", str(limit_bytes), path / "limited")
        yield path / "limited"


def fill(path: Path) -> None:
    """Take all the room there is, as another program may: down to the last block."""
    fd = os.open(path / "filler", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for size in (MIB, 4096, 1):
            with contextlib.suppress(OSError):
                while os.write(fd, bytes(size)):
                    pass
        with contextlib.suppress(OSError):
            os.fsync(fd)
    finally:
        os.close(fd)
