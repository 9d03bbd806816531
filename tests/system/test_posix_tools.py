"""Tools that copy, and ask for more than reads and writes: what they make is right (docs/reference/posix.md)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.posix import run

FICLONE = 0x40049409
MIB = 1 << 20


def allocated(path: Path, mount: Mounted) -> int:
    """Bytes that a file occupies once it is sealed; NUL bytes then take no room, whoever wrote them."""
    mount.run("flush", mount.path)
    return path.stat().st_blocks * 512


COPIES = {
    "cp --sparse=auto": "cp --sparse=auto {source} {copy}",
    "cp --sparse=always": "cp --sparse=always {source} {copy}",
    "cp --sparse=never": "cp --sparse=never {source} {copy}",
    "cp --reflink=auto": "cp --reflink=auto {source} {copy}",
    "dd conv=sparse": "dd if={source} of={copy} bs=64k conv=sparse",
    "rsync --sparse": "rsync --sparse {source} {copy}",
    "rsync --inplace": "rsync --inplace {source} {copy}",
    "tar -S": "sh -c 'tar -C {folder} -Scf {folder}/archive source && mkdir {folder}/x && tar -C {folder}/x -Sxf "
    "{folder}/archive && mv {folder}/x/source {copy}'",
    "qemu-img convert raw": "qemu-img convert -O raw {source} {copy}",
    "qemu-img convert qcow2": "sh -c 'qemu-img convert -O qcow2 {source} {folder}/q && qemu-img check {folder}/q && "
    "qemu-img convert -O raw {folder}/q {copy}'",
}


@pytest.mark.parametrize("command", COPIES.values(), ids=COPIES)
def test_copies_are_equal_and_holes_stay_holes(source: Path, shared_mount: Mounted, command: str) -> None:
    copy = source.with_name("copy")
    ended = run("sh", "-c", command.format(source=source, copy=copy, folder=source.parent))
    assert ended.returncode == 0, ended.stderr
    assert copy.read_bytes() == source.read_bytes()
    assert allocated(copy, shared_mount) <= MIB


def test_a_reflink_copy_that_may_not_fall_back_says_why(source: Path) -> None:
    """`blocksync clone` is how to make one; ioctl FICLONE needs a kernel interface that FUSE does not have."""
    ended = run("cp", "--reflink=always", source, source.with_name("copy"))
    assert ended.returncode == 1
    assert "Operation not supported" in ended.stderr
    copy = source.with_name("copy")
    with source.open("rb") as old, copy.open("wb") as new, pytest.raises(OSError, match="not supported"):
        fcntl.ioctl(new.fileno(), FICLONE, old.fileno())


def test_posix_fallocate_grows_the_file_and_keeps_what_is_there(source: Path) -> None:
    """The C library then writes a byte per block where the file has none: it must not touch the others."""
    before = source.read_bytes()
    with source.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 100_000, 9 * MIB)
    assert source.read_bytes() == before + bytes(MIB + 100_000)


def test_copy_file_range_copies_in_the_kernel(source: Path) -> None:
    copy = source.with_name("copy")
    with source.open("rb") as old, copy.open("wb") as new:
        left = 8 * MIB
        while left:
            left -= os.copy_file_range(old.fileno(), new.fileno(), left)
    assert copy.read_bytes() == source.read_bytes()
