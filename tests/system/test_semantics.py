"""What calls mean, without a kernel and by each way through one: on `Calls`, on both front-ends, natively."""

from __future__ import annotations

import os
import random
import stat

from tests.system.conftest import ALONE
from tests.system.posix import EXCHANGE, NOREPLACE, answer
from tests.system.worlds import World, got, put

FRONTENDS = (ALONE, "kernel", "pyfuse3")
"""And native mounts: tests/system/conftest.py."""
BLOCK = 1 << 16


def test_names_are_made_found_listed_and_removed(world: World) -> None:
    world.mkdir("d", 0o750)
    put(world, "d/f", b"content")
    world.symlink("d/f", "s")
    assert (world.names(""), world.names("d")) == (["d", "s"], ["f"])
    assert world.stat("d")[:2] == (stat.S_IFDIR | 0o750, 2)
    assert world.stat("d/f")[:3] == (stat.S_IFREG | 0o644, 1, 7)
    assert (world.readlink("s"), world.stat("s")[2]) == ("d/f", 3)
    assert answer(world.mkdir, "d") == "EEXIST"
    assert answer(world.rmdir, "d") == "ENOTEMPTY"
    assert answer(world.rmdir, "d/f") == "ENOTDIR"
    assert answer(world.unlink, "d") == "EISDIR"
    assert answer(world.stat, "d/missing") == "ENOENT"
    assert answer(world.stat, "d/" + "n" * 256) == "ENAMETOOLONG"
    assert answer(world.open, "d/f", os.O_CREAT | os.O_EXCL | os.O_WRONLY) == "EEXIST"
    world.unlink("d/f")
    world.rmdir("d")
    world.unlink("s")
    assert world.names("") == []


def test_a_link_is_another_name_of_the_same_file(world: World) -> None:
    put(world, "a", b"one")
    world.link("a", "b")
    assert world.stat("a") == world.stat("b")
    assert world.stat("a")[1] == 2
    fd = world.open("b", os.O_WRONLY)
    world.pwrite(fd, b"two", 0)
    world.close(fd)
    assert got(world, "a") == b"two"
    world.unlink("a")
    assert (got(world, "b"), world.stat("b")[1]) == (b"two", 1)
    world.mkdir("d")
    assert answer(world.link, "b", "d") == "EEXIST"
    assert answer(world.link, "d", "e") == "EPERM"


def test_a_rename_replaces_refuses_or_exchanges(world: World) -> None:
    put(world, "a", b"a")
    put(world, "b", b"b")
    world.mkdir("d")
    put(world, "d/f")
    assert answer(world.rename, "a", "b", NOREPLACE) == "EEXIST"
    world.rename("a", "b", EXCHANGE)
    assert (got(world, "a"), got(world, "b")) == (b"b", b"a")
    world.rename("a", "b")
    assert (world.names(""), got(world, "b")) == (["b", "d"], b"b")
    assert answer(world.rename, "missing", "b") == "ENOENT"
    assert answer(world.rename, "b", "d") == "EISDIR"
    assert answer(world.rename, "d", "b") == "ENOTDIR"
    assert answer(world.rename, "d", "d/below") == "EINVAL"
    world.mkdir("e")
    world.rename("d", "e")
    assert (world.names(""), world.names("e")) == (["b", "e"], ["f"])


def test_an_open_file_outlives_its_name(world: World) -> None:
    put(world, "f", b"content")
    fd = world.open("f", os.O_RDWR)
    world.unlink("f")
    assert world.pwrite(fd, b"more", 7) == 4
    put(world, "f", b"another")
    assert world.pread(fd, 100, 0) == b"contentmore"
    world.fsync(fd)
    world.close(fd)
    assert got(world, "f") == b"another"


def test_bytes_are_what_was_written_last_also_when_they_are_blocks(world: World) -> None:
    """At odd places, over holes, beyond the end, before and after a flush; beside it a string of bytes."""
    chance = random.Random(15)
    expected = bytearray()
    fd = world.open("f", os.O_CREAT | os.O_RDWR)
    for turn in range(60):
        at, data = chance.randrange(4 * BLOCK), chance.randbytes(chance.choice([1, 100, 4096, BLOCK, 100_000]))
        assert world.pwrite(fd, data, at) == len(data)
        expected.extend(bytes(max(0, at + len(data) - len(expected))))
        expected[at : at + len(data)] = data
        if turn % 10 == 9:
            size = chance.randrange(6 * BLOCK)
            world.truncate("f", size)
            del expected[size:]
            expected.extend(bytes(size - len(expected)))
        if turn % 15 == 14:
            world.flush()
        assert world.pread(fd, 1 << 24, 0) == expected
    world.close(fd)
    assert world.stat("f")[2] == len(expected)
    world.flush()
    assert got(world, "f") == expected


def test_a_cut_file_grows_by_zeros_only(world: World) -> None:
    put(world, "f", b"x" * 100_000)
    world.flush()
    world.truncate("f", 70_001)
    world.truncate("f", 100_000)
    assert got(world, "f") == b"x" * 70_001 + bytes(29_999)
    fd = world.open("f", os.O_WRONLY | os.O_TRUNC)
    assert world.stat("f")[2] == 0
    world.pwrite(fd, b"y", 10)
    world.close(fd)
    assert got(world, "f") == bytes(10) + b"y"
    assert answer(world.truncate, "missing", 0) == "ENOENT"


def test_reads_end_with_the_file(world: World) -> None:
    put(world, "f", b"0123456789")
    fd = world.open("f", os.O_RDONLY)
    assert [world.pread(fd, 4, at) for at in (0, 8, 10, 1 << 40)] == [b"0123", b"89", b"", b""]
    world.close(fd)


def test_permissions_owners_and_times_are_kept(world: World) -> None:
    put(world, "f", b"x")
    world.chmod("f", 0o4751)
    assert world.stat("f")[0] == stat.S_IFREG | 0o4751
    world.chown("f", 4001, 4002)
    assert world.stat("f")[3:5] == (4001, 4002)
    world.utime("f", 1_234_567_890_123_456_789)
    assert world.stat("f")[5] == 1_234_567_890_123_456_789
    world.flush()
    assert world.stat("f")[5] == 1_234_567_890_123_456_789
    fd = world.open("f", os.O_WRONLY)
    world.pwrite(fd, b"y", 0)
    world.fsync(fd)
    world.close(fd)
    assert world.stat("f")[5] > 1_234_567_890_123_456_789


def test_extended_attributes_are_set_told_and_removed(world: World) -> None:
    put(world, "f")
    world.setxattr("f", "user.a", b"1", os.XATTR_CREATE)
    world.setxattr("f", "user.b", b"")
    assert answer(world.setxattr, "f", "user.a", b"2", os.XATTR_CREATE) == "EEXIST"
    assert answer(world.setxattr, "f", "user.c", b"2", os.XATTR_REPLACE) == "ENODATA"
    world.setxattr("f", "user.a", b"2" * 1000, os.XATTR_REPLACE)
    assert world.listxattr("f") == ["user.a", "user.b"]
    assert (world.getxattr("f", "user.a"), world.getxattr("f", "user.b")) == (b"2" * 1000, b"")
    world.removexattr("f", "user.a")
    assert answer(world.getxattr, "f", "user.a") == "ENODATA"
    assert answer(world.removexattr, "f", "user.a") == "ENODATA"
