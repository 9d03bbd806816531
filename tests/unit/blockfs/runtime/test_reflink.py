"""Sharing on XFS and btrfs, and what hosts without reflinks answer."""

from __future__ import annotations

import os
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from blockfs.runtime import reflink
from blockfs.runtime.fiemap import Extent, OddMapError
from blockfs.runtime.reflink import apart, clone_file, clone_range, extents, share_equal
from tests.kit.hostfs import REFLINKS, reflinking

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a filesystem")

PAGE = 4096
SIZE = 64 * PAGE


@pytest.fixture(scope="module", params=REFLINKS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A filesystem with reflinks."""
    with reflinking(tmp_path_factory.mktemp("host"), request.param) as path:
        yield path


def two(folder: Path, name: str) -> tuple[int, int]:
    """Descriptors of a file with content, and of an empty one."""
    first, second = folder / f"{name}.1", folder / f"{name}.2"
    first.write_bytes(random.Random(name).randbytes(SIZE))
    return os.open(first, os.O_RDWR), os.open(second, os.O_RDWR | os.O_CREAT)


def test_only_what_is_written_afterwards_is_not_shared(host: Path) -> None:
    """Breaks if a dirty page that was not written back yet is missed: without FIEMAP_FLAG_SYNC most of them are."""
    one, other = two(host, "written")
    assert clone_file(one, other)
    assert apart(one, other, SIZE) == []
    for page in (3, 4, 40, 63):
        os.pwrite(one, bytes(PAGE), page * PAGE)
        os.pwrite(one, b"x", page * PAGE + 7)
    assert apart(one, other, SIZE) == [(first * PAGE, end * PAGE) for first, end in ((3, 5), (40, 41), (63, 64))]
    os.close(one)
    os.close(other)


def test_a_range_is_shared_where_it_is(host: Path) -> None:
    one, other = two(host, "range")
    os.ftruncate(other, SIZE)
    assert clone_range(one, other, 8 * PAGE, 4 * PAGE)
    assert apart(one, other, SIZE) == [(0, 8 * PAGE), (12 * PAGE, SIZE)]
    assert not clone_range(one, other, 100, 50)
    os.close(one)
    os.close(other)


def test_more_extents_than_one_answer_holds_are_all_told(host: Path) -> None:
    starts = range(0, 2400 * PAGE, 2 * PAGE)
    whole, scattered = host / "whole", host / "scattered"
    with whole.open("wb+") as source, scattered.open("wb+") as target:
        source.write(bytes(2400 * PAGE))
        source.flush()
        target.truncate(2400 * PAGE)
        assert all(clone_range(source.fileno(), target.fileno(), start, PAGE) for start in starts)
        found = list(extents(target.fileno(), 2400 * PAGE))
    assert [(logical, length) for logical, _, length in found] == [(start, PAGE) for start in starts]
    whole.unlink()
    scattered.unlink()


def test_places_that_change_meanwhile_are_no_answer(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks if a block may come to lie where one of the other file was a moment ago, and counts as shared."""
    one, other = two(host, "moved")
    assert clone_file(one, other)
    real = reflink.differing

    def moved(mine: Iterable[Extent], its: Iterable[Extent], end: int) -> list[tuple[int, int]]:
        found = list(real(mine, its, end))
        os.pwrite(one, b"x", 5 * PAGE)
        return found

    assert apart(one, other, SIZE) == []
    monkeypatch.setattr(reflink, "differing", moved)
    with pytest.raises(OddMapError):
        apart(one, other, SIZE)
    os.close(one)
    os.close(other)


def test_files_of_different_filesystems_can_not_share(host: Path, tmp_path: Path) -> None:
    with (host / "here").open("wb+") as here, (tmp_path / "there").open("wb+") as there:
        here.write(bytes(PAGE))
        here.flush()
        assert not clone_file(here.fileno(), there.fileno())
        assert not clone_range(here.fileno(), there.fileno(), 0, PAGE)


def test_a_range_goes_to_another_place_of_the_target(host: Path) -> None:
    one, other = two(host, "placed")
    assert clone_range(one, other, 8 * PAGE, 4 * PAGE, to=2 * PAGE)
    assert os.pread(other, SIZE, 0) == bytes(2 * PAGE) + os.pread(one, 4 * PAGE, 8 * PAGE)
    ours = [(at - 6 * PAGE, place, length) for at, place, length in extents(one, SIZE) if at >= 8 * PAGE]
    assert len(list(extents(other, SIZE))) == 1
    assert ours == [] or ours[0][0] == 2 * PAGE
    os.close(one)
    os.close(other)


def test_equal_ranges_come_to_share_and_others_stay_as_they_are(host: Path) -> None:
    """Breaks if a byte that somebody writes just then is replaced by what we believe that is there."""
    one, other = two(host, "equal")
    os.pwrite(other, os.pread(one, SIZE, 0), 0)
    os.fdatasync(one)
    os.pwrite(other, b"!", 3 * PAGE + 1)
    before = os.fstat(other)
    assert share_equal(one, 8 * PAGE, 8 * PAGE, other, 8 * PAGE)
    assert not share_equal(one, 0, 8 * PAGE, other, 0)
    assert apart(one, other, SIZE) == [(0, 8 * PAGE), (16 * PAGE, SIZE)]
    after = os.fstat(other)
    assert (before.st_mtime_ns, before.st_ctime_ns) == (after.st_mtime_ns, after.st_ctime_ns)
    assert not share_equal(one, 100, 50, other, 100)
    os.close(one)
    os.close(other)


def test_nul_bytes_become_a_hole_by_sharing_one(host: Path) -> None:
    one, other = two(host, "nul")
    os.truncate(one, 0)
    os.truncate(one, SIZE)
    os.pwrite(other, bytes(8 * PAGE) + b"x" * PAGE, 0)
    assert share_equal(one, 0, 8 * PAGE, other, 0)
    assert not share_equal(one, 8 * PAGE, PAGE, other, 8 * PAGE)
    assert [(at, length) for at, _, length in extents(other, SIZE)] == [(8 * PAGE, PAGE)]
    os.close(one)
    os.close(other)


def test_single_pages_are_copied_on_write(host: Path) -> None:
    """Breaks if random writes take up 32 times their bytes: XFS copies 128 KiB at a time by itself."""
    one, other = two(host, "pages")
    reflink.copy_in_pages(other)
    assert clone_file(one, other)
    for page in range(0, 64, 8):
        os.pwrite(other, b"x", page * PAGE)
        os.fdatasync(other)
    assert sum(end - first for first, end in apart(one, other, SIZE)) == 8 * PAGE
    os.close(one)
    os.close(other)


def test_a_host_without_reflinks_says_so_of_all_of_it() -> None:
    for name in ("one", "other"):
        fd = os.open(f"/dev/shm/{name}.{os.getpid()}", os.O_RDWR | os.O_CREAT)
        os.unlink(f"/dev/shm/{name}.{os.getpid()}")
        os.pwrite(fd, bytes(PAGE), 0)
        assert not share_equal(fd, 0, PAGE, fd, 0)
        reflink.copy_in_pages(fd)
        os.close(fd)
