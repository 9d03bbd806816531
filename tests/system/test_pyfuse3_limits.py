"""What pyfuse3 cannot express fails as Linux documents; the tools that try it get by (docs/reference/posix.md)."""

from __future__ import annotations

import ctypes
import errno
import os
import random
import subprocess
from pathlib import Path

import pytest

from tests.system.posix import loop_mounted, run

FRONTENDS = ("pyfuse3",)
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
MIB = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)


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


def test_seek_hole_knows_one_hole_at_the_end(source: Path) -> None:
    with source.open("rb") as file:
        assert os.lseek(file.fileno(), 300_001, os.SEEK_DATA) == 300_001
        assert os.lseek(file.fileno(), 0, os.SEEK_HOLE) == 8 * MIB
        with pytest.raises(OSError, match="No such device or address"):
            os.lseek(file.fileno(), 8 * MIB, os.SEEK_DATA)


def test_unnamed_temporary_files_fall_back_to_named_ones(place: Path) -> None:
    with pytest.raises(OSError, match="not supported"):
        os.open(place, os.O_TMPFILE | os.O_RDWR)


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
