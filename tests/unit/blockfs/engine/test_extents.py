"""Where a file has data: beside a sparse file of the host, which has seen the same."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.engine.content import extents
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import WouldBlock
from blockfs.runtime.linux import punch_hole
from tests import effort
from tests.unit.blockfs.engine.volumes import config, create, make

PAGE = 4096
BLOCK = 2 * PAGE
FAR = 1 << 45


@pytest.fixture
def filesystem(tmp_path: Path) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config())
    yield opened
    opened.abandon()


def runs(data: Callable[[int], int | None], hole: Callable[[int], int | None]) -> list[tuple[int, int]]:
    """What a program that copies data only would copy, as (first byte, the next one)."""
    found: list[tuple[int, int]] = []
    start = data(0)
    while start is not None:
        end = hole(start)
        assert end is not None
        assert end > start
        found.append((start, end))
        start = data(end)
    return found


def runs_of(filesystem: Filesystem, ino: int) -> list[tuple[int, int]]:
    return runs(lambda at: filesystem.files.next_data(ino, at), lambda at: filesystem.files.next_hole(ino, at))


def host_runs(descriptor: int) -> list[tuple[int, int]]:
    return runs(lambda at: sought(descriptor, at, os.SEEK_DATA), lambda at: sought(descriptor, at, os.SEEK_HOLE))


def sought(descriptor: int, at: int, whence: int) -> int | None:
    try:
        return os.lseek(descriptor, at, whence)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write", "zeros", "punch", "truncate", "seal"]),
        st.integers(0, 40 * PAGE),
        st.integers(1, 6 * PAGE),
    ),
    min_size=1,
    max_size=12,
)


@given(steps=STEPS)
@settings(
    max_examples=effort.count("properties"), suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_all_bytes_that_are_not_nul_are_in_data_as_on_the_host(
    filesystem: Filesystem, tmp_path: Path, steps: list[tuple[str, int, int]]
) -> None:
    """What is told to be a hole and is none is lost in a copy."""
    ino = create(filesystem, os.urandom(8).hex().encode())
    descriptor = os.open(tmp_path / "host", os.O_CREAT | os.O_TRUNC | os.O_RDWR)
    try:
        for step, offset, length in steps:
            match step:
                case "write" | "zeros":
                    data = bytes(length) if step == "zeros" else b"x" * length
                    filesystem.files.write(ino, offset, data, may_block=True)
                    os.pwrite(descriptor, data, offset)
                case "punch":
                    filesystem.files.zero(ino, offset, length, keeps_size=True)
                    punch_hole(descriptor, offset, length)
                case "truncate":
                    filesystem.files.truncate(ino, offset, may_block=True)
                    os.ftruncate(descriptor, offset)
                case _:
                    filesystem.files.flush(ino)
        size = os.fstat(descriptor).st_size
        expected = os.pread(descriptor, size, 0)
        assert filesystem.files.read(ino, 0, size + 1, may_block=True) == expected
        for found in (runs_of(filesystem, ino), host_runs(descriptor)):
            copied = bytearray(size)
            for start, end in found:
                copied[start:end] = expected[start:end]
            assert copied == expected
        for at in range(0, size, PAGE // 2):
            data_at, hole_at = filesystem.files.next_data(ino, at), filesystem.files.next_hole(ino, at)
            inside = [start <= at < end for start, end in runs_of(filesystem, ino)]
            assert (data_at == at) is any(inside)
            assert (hole_at == at) is not any(inside)
    finally:
        os.close(descriptor)


def test_staged_data_are_known_to_the_page_and_sealed_ones_to_the_block(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 3 * PAGE, b"x" * PAGE)
    filesystem.files.write(ino, 9 * PAGE, b"x")
    filesystem.files.truncate(ino, 20 * PAGE)
    assert runs_of(filesystem, ino) == [(3 * PAGE, 4 * PAGE), (9 * PAGE, 10 * PAGE)]
    filesystem.files.flush()
    assert runs_of(filesystem, ino) == [(2 * PAGE, 4 * PAGE), (8 * PAGE, 10 * PAGE)]
    filesystem.files.write(ino, 4 * PAGE, b"x" * PAGE)
    assert runs_of(filesystem, ino) == [(2 * PAGE, 5 * PAGE), (8 * PAGE, 10 * PAGE)]
    filesystem.files.write(ino, 15 * PAGE, b"x" * PAGE)
    assert runs_of(filesystem, ino) == [(2 * PAGE, 5 * PAGE), (8 * PAGE, 10 * PAGE), (15 * PAGE, 16 * PAGE)]


@pytest.mark.parametrize("sealed", [False, True], ids=["staged", "sealed"])
def test_the_end_of_the_file_is_a_hole_and_ends_its_last_data(filesystem: Filesystem, sealed: bool) -> None:
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * 100)
    if sealed:
        filesystem.files.flush()
    assert runs_of(filesystem, ino) == [(0, 100)]
    assert (filesystem.files.next_data(ino, 99), filesystem.files.next_hole(ino, 99)) == (99, 100)
    assert (filesystem.files.next_data(ino, 100), filesystem.files.next_hole(ino, 100)) == (None, None)
    filesystem.files.truncate(ino, 50 * BLOCK)
    after = {False: PAGE, True: BLOCK}[sealed]
    assert runs_of(filesystem, ino) == [(0, after)]
    assert (filesystem.files.next_data(ino, after), filesystem.files.next_hole(ino, after)) == (None, after)


@pytest.mark.parametrize("sealed", [False, True], ids=["staged", "sealed"])
def test_holes_cost_nothing_however_wide_they_are(filesystem: Filesystem, sealed: bool) -> None:
    """Breaks by taking hours."""
    ino = create(filesystem, b"f")
    places = [0, LEAF_IDS * BLOCK - 1, (1 << 40) - 1, FAR]
    for place in places:
        filesystem.files.write(ino, place, b"xy")
    if sealed:
        filesystem.files.flush()
    found = runs_of(filesystem, ino)
    assert len(found) == len(places)
    for place, (start, end) in zip(places, found, strict=True):
        assert start <= place < place + 2 <= end <= start + 2 * BLOCK


def test_who_must_not_wait_looks_at_a_part_of_a_large_file(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * 3 * LEAF_IDS * BLOCK)
    filesystem.files.flush()
    monkeypatch.setattr(extents, "_LEAVES_PER_HOLD", 2)
    end = 3 * LEAF_IDS * BLOCK
    assert filesystem.files.next_data(ino, 0, may_block=False) == 0
    with pytest.raises(WouldBlock):
        filesystem.files.next_hole(ino, 0, may_block=False)
    assert filesystem.files.next_hole(ino, 0) == end
    assert filesystem.files.next_hole(ino, 2 * LEAF_IDS * BLOCK, may_block=False) == end
    assert filesystem.files.next_hole(ino, end, may_block=False) is None


def test_a_file_of_several_leaves_without_a_hole_is_one_run(filesystem: Filesystem) -> None:
    ino = create(filesystem, b"f")
    size = (LEAF_IDS + 3) * BLOCK + 5
    filesystem.files.write(ino, 0, b"x" * size)
    assert runs_of(filesystem, ino) == [(0, size)]
    filesystem.files.flush()
    filesystem.files.write(ino, 5 * BLOCK, b"y" * BLOCK)
    assert runs_of(filesystem, ino) == [(0, size)]
