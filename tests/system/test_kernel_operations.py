"""What only the kernel front-end can express: copies, holes, files without a name, the time of birth."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import random
import select
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.posix import ALICE, Pair, answer, loop_mounted, run, run_as

FRONTENDS = ("kernel",)
KEEP_SIZE, PUNCH_HOLE, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
MIB = 1 << 20
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    if _libc.fallocate(fd, mode, offset, length) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def pieces(fd: int) -> list[tuple[int, int]]:
    """Where data are, by SEEK_DATA and SEEK_HOLE."""
    found: list[tuple[int, int]] = []
    at = 0
    while (start := answer(os.lseek, fd, at, os.SEEK_DATA)) != "ENXIO":
        assert isinstance(start, int)
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append((start, at))
    return found


RANGES = [(0, 4096), (4096, 8192), (5000, 10_000), (0, 1 << 18), (100_000, 1 << 20), (1 << 18, 4096), (1 << 21, 1)]
MODES = [0, KEEP_SIZE, PUNCH_HOLE | KEEP_SIZE, ZERO, ZERO | KEEP_SIZE]


def _allocations() -> dict[object, object]:
    told: dict[object, object] = {}
    for mode in MODES:
        for offset, length in [*RANGES, (0, 0), (-1, 5), (0, -1)]:
            name = f"{mode}-{offset}-{length}"
            with open(name, "w+b") as file:
                file.write(b"x" * 200_000)
                file.flush()
                done = answer(fallocate, file.fileno(), mode, offset, length)
                file.seek(0)
                told[mode, offset, length] = (done, os.fstat(file.fileno()).st_size, file.read())
            os.unlink(name)
    return told


def test_fallocate_does_what_it_does_on_ext4(pair: Pair) -> None:
    pair.same(_allocations)


@pytest.mark.parametrize("mode", [COLLAPSE, INSERT, PUNCH_HOLE])
def test_other_modes_are_refused_and_change_nothing(source: Path, mode: int) -> None:
    before = source.read_bytes()
    with source.open("r+b") as file, pytest.raises(OSError, match="not supported"):
        fallocate(file.fileno(), mode, 0, 1 << 16)
    assert source.read_bytes() == before


def test_a_punched_hole_gives_its_room_back(source: Path, shared_mount: Mounted) -> None:
    shared_mount.run("flush", shared_mount.path)
    before = source.stat().st_blocks
    with source.open("r+b") as file:
        fallocate(file.fileno(), PUNCH_HOLE | KEEP_SIZE, 0, 1 << 18)
    shared_mount.run("flush", shared_mount.path)
    assert source.stat().st_blocks <= before - (3 << 16) // 512
    assert source.read_bytes()[: 1 << 18] == bytes(1 << 18)


def test_holes_are_dug_by_the_tool(place: Path) -> None:
    path = place / "file"
    path.write_bytes(b"x" * 4096 + bytes(MIB) + b"y")
    ended = run("fallocate", "--dig-holes", path)
    assert ended.returncode == 0, ended.stderr
    assert path.read_bytes() == b"x" * 4096 + bytes(MIB) + b"y"


def test_seek_finds_data_that_only_the_kernel_has_yet(place: Path) -> None:
    """Breaks when a tool that copies what is no hole loses what was written a moment ago."""
    path = place / "file"
    with path.open("w+b") as file:
        file.truncate(4 * MIB)
        os.pwrite(file.fileno(), b"new", 2 * MIB)
        [(start, end)] = pieces(file.fileno())
        assert start <= 2 * MIB < end
        assert end <= 3 * MIB


@pytest.mark.parametrize("flags", [os.O_TMPFILE, os.O_CREAT])
def test_seek_finds_data_of_a_file_without_a_name(place: Path, flags: int) -> None:
    path = place if flags == os.O_TMPFILE else place / "file"
    fd = os.open(path, flags | os.O_RDWR, 0o600)
    try:
        if path != place:
            path.unlink()
        os.ftruncate(fd, 4 * MIB)
        os.pwrite(fd, b"new", 2 * MIB)
        [(start, end)] = pieces(fd)
        assert start <= 2 * MIB < end
        assert os.pread(fd, 3, 2 * MIB) == b"new"
    finally:
        os.close(fd)


@pytest.mark.parametrize("opened", ["file", "folder/file"])
def test_seek_looks_up_no_names(mounted: Mounted, opened: str) -> None:
    """The file's inode is locked meanwhile, and a lookup of its other name would wait for a directory: for link(2)."""
    path = mounted.path / "file"
    (mounted.path / "folder").mkdir()
    path.touch()
    os.truncate(path, 4 * MIB)
    os.link(path, mounted.path / "folder/file")
    mounted.umount()
    mounted.remount()
    with (mounted.path / opened).open("r+b") as file:
        before = requests(mounted)
        os.pwrite(file.fileno(), b"new", 2 * MIB)
        [(start, end)] = pieces(file.fileno())
        assert start <= 2 * MIB < end
        after = requests(mounted)
        assert after["lseek"] > before.get("lseek", 0)
        assert after["lookup"] == before["lookup"]


def test_seek_finds_data_of_a_mount_whose_mountpoint_is_gone(mounted: Mounted) -> None:
    """A program goes on after `umount -l`, and the pages that only the kernel has can't be asked for by name."""
    process = os.pidfd_open(mounted.pid)
    with (mounted.path / "file").open("w+b") as file:
        file.truncate(4 * MIB)
        subprocess.run(["umount", "-l", mounted.path], check=True)
        mounted.path.rmdir()
        os.pwrite(file.fileno(), b"new", 2 * MIB)
        [(start, end)] = pieces(file.fileno())
        assert start <= 2 * MIB < end
    ended, _, _ = select.select([process], [], [], 120)
    os.close(process)
    assert ended
    mounted.path.mkdir()
    mounted.remount()
    with (mounted.path / "file").open("rb") as file:
        assert os.pread(file.fileno(), 3, 2 * MIB) == b"new"


def test_seek_skips_the_holes_of_sealed_files(source: Path, shared_mount: Mounted) -> None:
    shared_mount.run("flush", shared_mount.path)
    with source.open("rb") as file:
        found = pieces(file.fileno())
        assert [start for start, _ in found] == [0, 5 * MIB // (1 << 16) * (1 << 16)]
        assert all(end - start < MIB for start, end in found)
        with pytest.raises(OSError, match="No such device or address"):
            os.lseek(file.fileno(), 8 * MIB, os.SEEK_DATA)


def test_a_plain_copy_of_an_image_is_a_clone(place: Path, shared_mount: Mounted) -> None:
    """`cp` asks for copy_file_range(2): no byte is read or written, and no block is stored twice."""
    image, copy = place / "image", place / "copy"
    image.write_bytes(random.Random(7).randbytes(24 * MIB))
    shared_mount.run("flush", shared_mount.path)
    before = requests(shared_mount)
    ended = run("cp", image, copy)
    assert ended.returncode == 0, ended.stderr
    after = requests(shared_mount)
    assert after["copy_file_range"] > before.get("copy_file_range", 0)
    assert after.get("write", 0) == before.get("write", 0)
    assert after.get("read", 0) == before.get("read", 0)
    assert copy.read_bytes() == image.read_bytes()
    assert json.loads(shared_mount.run("stats", shared_mount.path, "--json").stdout)["staged_bytes"] < MIB


def test_requests_are_of_1_mib(mounted: Mounted) -> None:
    """Eight of them for what a program writes and reads by two calls; on a native mount none."""
    path = mounted.path / "file"
    path.touch()
    mode = json.loads(mounted.run("stats", mounted.path, "--json").stdout)["mode"]
    expected = 0 if mode == "native" else 4
    fd = os.open(path, os.O_RDWR | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4 * MIB) as buffer:
            before = requests(mounted)
            assert os.pwritev(fd, [buffer], 0) == 4 * MIB
            assert os.preadv(fd, [buffer], 0) == 4 * MIB
            after = requests(mounted)
    finally:
        os.close(fd)
    assert [after.get(kind, 0) - before.get(kind, 0) for kind in ("write", "read")] == [expected, expected]


def requests(mount: Mounted) -> dict[str, int]:
    return dict(json.loads(mount.run("stats", mount.path, "--json").stdout)["requests"])


def _copies() -> dict[object, object]:
    told: dict[object, object] = {}
    for at, to, length in [
        (0, 0, 1 << 18),
        (5, 100, 70_000),
        (65_536, 131_072, 65_536),
        (1 << 20, 0, 1),
        (0, 1 << 18, 9),
    ]:
        with open("from", "w+b") as source, open("to", "w+b") as target:
            source.write(bytes(range(256)) * 1000)
            target.write(b"t" * 200_000)
            source.flush()
            target.flush()
            done = answer(os.copy_file_range, source.fileno(), target.fileno(), length, at, to)
            target.seek(0)
            told[at, to, length] = (done, target.read())
            within = answer(os.copy_file_range, source.fileno(), source.fileno(), 70_000, at, at + 10)
            source.seek(0)
            told[at, to, length, "within"] = (within, source.read()) if within == "EINVAL" else source.read()
    return told


def test_copies_of_ranges_answer_as_on_ext4(pair: Pair) -> None:
    """What was written a moment ago is copied too, and what the kernel had of the target is gone."""
    pair.same(_copies)


def test_a_copy_to_a_part_of_a_page_leaves_what_is_mapped_there_to_the_kernel(
    place: Path, shared_mount: Mounted
) -> None:
    """It drops the pages of a copy that we made, and a store into the rest of such a page was lost with them."""
    (place / "from").write_bytes(b"f" * 8192)
    (place / "to").write_bytes(b"t" * 8192)
    before = requests(shared_mount)
    with open(place / "from", "rb") as source, open(place / "to", "r+b") as target:
        with mmap.mmap(target.fileno(), 8192) as mapped:
            for at in (100, 4196):
                mapped[at - 100] = ord("m")
                assert os.copy_file_range(source.fileno(), target.fileno(), 200, 0, at) == 200
                mapped[at - 99] = ord("m")
            assert mapped[:] == (b"mm" + b"t" * 98 + b"f" * 200 + b"t" * 3796) * 2
        assert requests(shared_mount)["copy_file_range"] == before.get("copy_file_range", 0) + 2


def test_a_file_without_a_name_can_be_given_one(place: Path, shared_mount: Mounted) -> None:
    fd = os.open(place, os.O_TMPFILE | os.O_RDWR, 0o640)
    try:
        os.write(fd, b"content")
        assert list(place.iterdir()) == []
        assert os.fstat(fd).st_nlink == 0
        os.link(f"/proc/self/fd/{fd}", place / "named", src_dir_fd=fd)  # linkat(2) with AT_SYMLINK_FOLLOW
    finally:
        os.close(fd)
    assert (place / "named").read_bytes() == b"content"
    assert (place / "named").stat().st_mode & 0o777 == 0o640
    shared_mount.run("fsck", shared_mount.path)


def test_the_time_of_birth_stays(mounted: Mounted) -> None:
    path = mounted.path / "file"
    path.write_bytes(b"a")
    born = run("stat", "-c", "%w", path).stdout
    assert born.strip() not in {"", "-"}
    path.write_bytes(b"longer")
    os.utime(path, (1, 1))
    mounted.umount()
    mounted.remount()
    assert run("stat", "-c", "%w", path).stdout == born


def _allocate() -> None:
    fd = os.open("program", os.O_WRONLY)
    fallocate(fd, 0, 0, 8192)
    os.close(fd)


def test_privileges_are_gone_after_a_hole_by_somebody_else(open_mount: Mounted) -> None:
    path = open_mount.path / "program"
    path.write_bytes(b"program")
    path.chmod(0o6777)
    run_as(ALICE, open_mount.path, _allocate)
    assert run("stat", "-c", "%a", path).stdout == "777\n"  # asks for the mode only: it is what the kernel keeps
    assert os.stat(path).st_mode & 0o7777 == 0o777


def test_fstrim_frees_what_a_guest_has_removed(place: Path, shared_mount: Mounted, tmp_path: Path) -> None:
    image = place / "image"
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-E", "nodiscard", image], check=True)
    data = random.Random(5).randbytes(4 * MIB)
    with loop_mounted(image, tmp_path / "inside") as inside:
        (inside / "kept").write_bytes(data)
        (inside / "gone").write_bytes(data[::-1])
        run("sync", "-f", inside)
        shared_mount.run("flush", shared_mount.path)
        full = image.stat().st_blocks
        (inside / "gone").unlink()
        run("sync", "-f", inside)
        ended = run("fstrim", inside)
        assert ended.returncode == 0, ended.stderr
        assert (inside / "kept").read_bytes() == data
    shared_mount.run("flush", shared_mount.path)
    assert image.stat().st_blocks <= full - 3 * MIB // 512
    assert run("e2fsck", "-fn", image).returncode == 0
