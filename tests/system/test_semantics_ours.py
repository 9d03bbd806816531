"""The rest of test_semantics.py: requests for which pyfuse3 has no handler (test_pyfuse3_limits.py)."""

from __future__ import annotations

import os
import random
import stat

from tests.system.conftest import ALONE
from tests.system.posix import WHITEOUT, answer
from tests.system.worlds import World, got, put

FRONTENDS = (ALONE, "kernel")
"""And native mounts: tests/system/conftest.py."""
KEEP_SIZE, PUNCH_HOLE, ZERO = 1, 2, 16
BLOCK = 1 << 16


def test_a_rename_leaves_a_whiteout(world: World) -> None:
    put(world, "a", b"a")
    world.rename("a", "b", WHITEOUT)
    assert stat.S_ISCHR(world.stat("a")[0])
    assert got(world, "b") == b"a"


def test_holes_are_made_and_found(world: World) -> None:
    fd = world.open("f", os.O_CREAT | os.O_RDWR)
    world.pwrite(fd, b"x" * (4 * BLOCK), 0)
    world.fsync(fd)
    world.flush()
    world.fallocate(fd, PUNCH_HOLE | KEEP_SIZE, BLOCK, 2 * BLOCK)
    world.fsync(fd)
    world.flush()
    assert world.pread(fd, 8 * BLOCK, 0) == b"x" * BLOCK + bytes(2 * BLOCK) + b"x" * BLOCK
    ends = [(0, os.SEEK_HOLE), (BLOCK, os.SEEK_DATA), (3 * BLOCK, os.SEEK_HOLE)]
    assert [world.lseek(fd, *end) for end in ends] == [BLOCK, 3 * BLOCK, 4 * BLOCK]
    assert answer(world.lseek, fd, 4 * BLOCK, os.SEEK_DATA) == "ENXIO"
    world.fallocate(fd, ZERO, 100, 200)
    assert world.pread(fd, 400, 0) == b"x" * 100 + bytes(200) + b"x" * 100
    world.fallocate(fd, KEEP_SIZE, 4 * BLOCK, BLOCK)
    assert world.stat("f")[2] == 4 * BLOCK
    world.fallocate(fd, 0, 4 * BLOCK, BLOCK)
    assert world.stat("f")[2] == 5 * BLOCK
    assert answer(world.fallocate, fd, PUNCH_HOLE, 0, BLOCK) == "ENOTSUP"
    world.close(fd)


def test_a_copied_range_is_equal_and_its_own(world: World) -> None:
    noise = random.Random(4).randbytes(5 * BLOCK)
    put(world, "from", noise)
    world.flush()
    source, target = world.open("from", os.O_RDWR), world.open("to", os.O_CREAT | os.O_RDWR)
    assert world.copy_file_range(source, target, 10 * BLOCK, BLOCK, 0) == 4 * BLOCK
    world.pwrite(source, b"changed", BLOCK)
    assert world.pread(target, 10 * BLOCK, 0) == noise[BLOCK:]
    assert world.copy_file_range(source, target, BLOCK, 5 * BLOCK, 0) == 0
    assert answer(world.copy_file_range, source, source, 2 * BLOCK, 0, BLOCK) == "EINVAL"
    world.close(source)
    world.close(target)


def test_a_file_without_a_name_gets_one_or_goes(world: World) -> None:
    lost, kept = world.tmpfile(""), world.tmpfile("")
    for fd in (lost, kept):
        world.pwrite(fd, b"content", 0)
    assert world.names("") == []
    world.link_open(kept, "named")
    world.close(lost)
    world.close(kept)
    assert world.names("") == ["named"]
    assert (got(world, "named"), world.stat("named")[1]) == (b"content", 1)
