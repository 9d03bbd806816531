"""What a mount cannot do fails as Linux documents; the tools that try it get by (docs/reference/posix.md)."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import random
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Mounted

FICLONE = 0x40049409
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
MIB = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def source(place: Path) -> Path:
    """8 MiB with data at both ends of a large hole, and a hole at the end."""
    noise = random.Random(3)
    path = place / "source"
    with path.open("wb") as file:
        file.write(noise.randbytes(300_000))
        file.seek(5 * MIB)
        file.write(noise.randbytes(100_000))
        file.truncate(8 * MIB)
    return path


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


@pytest.mark.parametrize("mode", [0, KEEP_SIZE, KEEP_SIZE | PUNCH_HOLE, COLLAPSE, ZERO, INSERT])
def test_fallocate_is_not_supported_and_changes_nothing(source: Path, mode: int) -> None:
    before = source.read_bytes()
    with source.open("r+b") as file:
        result = _libc.fallocate(file.fileno(), mode, ctypes.c_long(0), ctypes.c_long(9 * MIB))
        assert (result, ctypes.get_errno()) == (-1, errno.EOPNOTSUPP)
    assert source.read_bytes() == before


@pytest.mark.parametrize("option", ["--dig-holes", "--punch-hole -o 0 -l 4096", "-l 16M"])
def test_the_fallocate_command_says_so(source: Path, option: str) -> None:
    before = source.read_bytes()
    ended = run("fallocate", *option.split(), source)
    assert ended.returncode == 1
    assert "unsupported" in ended.stderr or "not supported" in ended.stderr
    assert source.read_bytes() == before


def test_posix_fallocate_grows_the_file_and_keeps_what_is_there(source: Path) -> None:
    """The C library then writes a byte per block where the file has none: it must not touch the others."""
    before = source.read_bytes()
    with source.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 100_000, 9 * MIB)
    assert source.read_bytes() == before + bytes(MIB + 100_000)


def test_seek_hole_knows_one_hole_at_the_end(source: Path) -> None:
    with source.open("rb") as file:
        assert os.lseek(file.fileno(), 300_001, os.SEEK_DATA) == 300_001
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 8 * MIB
        with pytest.raises(OSError, match="No such device or address"):
            os.lseek(file.fileno(), 8 * MIB, os.SEEK_DATA)


def test_copy_file_range_copies_in_the_kernel(source: Path) -> None:
    copy = source.with_name("copy")
    with source.open("rb") as old, copy.open("wb") as new:
        left = 8 * MIB
        while left:
            left -= os.copy_file_range(old.fileno(), new.fileno(), left)
    assert copy.read_bytes() == source.read_bytes()


def test_unnamed_temporary_files_fall_back_to_named_ones(place: Path) -> None:
    with pytest.raises(OSError, match="not supported"):
        os.open(place, os.O_TMPFILE | os.O_RDWR)


@contextmanager
def loop_mounted(image: Path, mountpoint: Path, options: str = "loop") -> Iterator[Path]:
    mountpoint.mkdir(exist_ok=True)
    ended = run("mount", "-o", options, image, mountpoint)
    assert ended.returncode == 0, ended.stderr
    try:
        yield mountpoint
    finally:
        subprocess.run(["umount", mountpoint], check=True)


def test_fstrim_of_an_image_trims_nothing_and_harms_nothing(place: Path, tmp_path: Path) -> None:
    """The loop device can't punch holes into the image, the mount having no fallocate. Written zeros free space."""
    image = place / "image"
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", image], check=True)
    data = random.Random(5).randbytes(MIB)
    with loop_mounted(image, tmp_path / "inside") as inside:
        (inside / "kept").write_bytes(data)
        (inside / "gone").write_bytes(data)
        (inside / "gone").unlink()
        run("fstrim", inside)  # whether it says that nothing was trimmed depends on the kernel
        assert (inside / "kept").read_bytes() == data
    assert run("e2fsck", "-fn", image).returncode == 0
    with loop_mounted(image, tmp_path / "inside", "loop,ro") as inside:
        assert (inside / "kept").read_bytes() == data
