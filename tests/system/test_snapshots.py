"""Snapshots on real mounts: one instant under load, read-only browsing, space given back, and the commands."""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Mounted, mounted_below
from tests.system.machines import Machines
from tests.system.namespaces import passed


def counters(folder: Path) -> tuple[int, int]:
    first, second = (int((folder / name).read_bytes() or b"0") for name in ("a", "b"))
    return first, second


class PairWriter(threading.Thread):
    """Writes a number to one file, makes it durable, then to the other: at each moment a is b or b + 1."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self.stopping = threading.Event()
        self.rounds = 0

    def run(self) -> None:
        files = [os.open(self._folder / name, os.O_RDWR | os.O_CREAT) for name in ("a", "b")]
        while not self.stopping.is_set():
            self.rounds += 1
            for file in files:
                os.pwrite(file, b"%020d" % self.rounds, 0)
                os.fsync(file)
        for file in files:
            os.close(file)


def test_two_files_written_in_turns_are_of_one_instant(fuse: None, home: Path) -> None:
    """A disk and its nvram, a qcow2 and its backing file: of two instants they do not fit together.

    On a native mount that is so for who syncs one before the other: `test_hot_instants.py`.
    """
    for mounted in mounted_below(home, "--no-native"):
        check_instants(mounted)


def check_instants(mounted: Mounted) -> None:
    writer = PairWriter(mounted.path)
    writer.start()
    try:
        seen = []
        for number in range(6):
            mounted.run("snapshot", mounted.path, f"s{number}")
            seen.append(counters(mounted.path / ".snapshots" / f"s{number}"))
    finally:
        writer.stopping.set()
        writer.join()
    assert all(first - second in {0, 1} for first, second in seen), seen
    assert seen[-1][0] > seen[0][0]
    assert [counters(mounted.path / ".snapshots" / f"s{number}") for number in range(6)] == seen
    mounted.run("fsck", mounted.path)


def test_all_that_was_written_before_the_command_is_in_it(mounted: Mounted) -> None:
    """Also what is in the kernel's cache only: plain writes, mmap, and the time of change."""
    file = os.open(mounted.path / "f", os.O_RDWR | os.O_CREAT)
    os.pwrite(file, b"written", 0)
    os.ftruncate(file, 8192)
    with mmap.mmap(file, 8192) as memory:
        memory[4096:4102] = b"mapped"
        os.utime(file, ns=(1, 123_456_789))
        mounted.run("snapshot", mounted.path, "s")
        memory[4096:4102] = b"latest"
    os.close(file)
    kept = mounted.path / ".snapshots/s/f"
    assert kept.read_bytes() == b"written".ljust(4096, b"\0") + b"mapped".ljust(4096, b"\0")
    assert kept.stat().st_mtime_ns == 123_456_789
    assert kept.stat().st_size == 8192


def test_a_copy_of_a_snapshot_equals_what_was_there(mounted: Mounted, tmp_path: Path) -> None:
    folder = mounted.path / "d"
    (folder / "sub").mkdir(parents=True)
    (folder / "file").write_bytes(os.urandom(300_000))
    os.link(folder / "file", folder / "sub/hard")
    os.symlink("../file", folder / "sub/soft")
    os.mkfifo(folder / "pipe")
    os.setxattr(folder / "file", b"user.colour", b"blue")
    with open(folder / "sparse", "wb") as sparse:
        sparse.truncate(1 << 20)
    subprocess.run(["cp", "-a", folder, tmp_path / "before"], check=True)
    mounted.run("snapshot", folder, "s")
    subprocess.run(["rm", "-r", folder], check=True)
    subprocess.run(["cp", "-a", mounted.path / ".snapshots/s", tmp_path / "after"], check=True)
    listing = ["find", ".", "-printf", "%p %y %m %n %s %T@ %l\n"]
    before, after = (
        sorted(subprocess.run(listing, cwd=tmp_path / name, capture_output=True, check=True).stdout.splitlines())
        for name in ("before", "after")
    )
    assert before == after
    assert (tmp_path / "after/file").read_bytes() == (tmp_path / "before/file").read_bytes()
    assert os.getxattr(tmp_path / "after/file", b"user.colour") == b"blue"
    assert os.stat(tmp_path / "after/file").st_ino == os.stat(tmp_path / "after/sub/hard").st_ino


def test_browsing_is_read_only_and_hidden_from_listings(mounted: Mounted) -> None:
    (mounted.path / "f").write_bytes(b"x")
    with open(mounted.path / "f", "rb"):
        assert not (mounted.path / ".snapshots/s").exists()  # the kernel remembers that; it must be told
        mounted.run("snapshot", mounted.path, "s")
    kept = mounted.path / ".snapshots/s/f"
    assert os.listdir(mounted.path) == ["f"]
    assert os.listdir(mounted.path / ".snapshots") == ["s"]
    assert os.listdir(mounted.path / ".snapshots/s") == ["f"]
    before = os.stat(kept)
    assert kept.read_bytes() == b"x"
    attempts: list[tuple[int, Callable[[], object]]] = [
        (errno.EROFS, lambda: os.open(kept, os.O_WRONLY)),
        (errno.EROFS, lambda: os.open(kept, os.O_RDWR | os.O_TRUNC)),
        (errno.EROFS, lambda: os.truncate(kept, 0)),
        (errno.EROFS, lambda: os.chmod(kept, 0)),
        (errno.EROFS, lambda: os.utime(kept)),
        (errno.EROFS, lambda: os.setxattr(kept, b"user.a", b"1")),
        (errno.EROFS, lambda: os.unlink(kept)),
        (errno.EROFS, lambda: os.rename(kept, mounted.path / "g")),
        (errno.EROFS, lambda: os.rename(mounted.path / "f", kept.with_name("g"))),
        (errno.EROFS, lambda: os.mkdir(kept.with_name("g"))),
        (errno.EROFS, lambda: os.symlink("x", kept.with_name("g"))),
        (errno.EROFS, lambda: os.rmdir(kept.parent)),
        (errno.EROFS, lambda: os.mkdir(mounted.path / ".snapshots/t")),
        (errno.EXDEV, lambda: os.link(kept, mounted.path / "g")),
        (errno.EEXIST, lambda: os.mkdir(mounted.path / ".snapshots")),
        (errno.EBUSY, lambda: os.rmdir(mounted.path / ".snapshots")),
        (errno.EBUSY, lambda: os.rename(mounted.path / ".snapshots", mounted.path / "g")),
    ]
    for code, attempt in attempts:
        with pytest.raises(OSError, match=os.strerror(code)):
            attempt()
    assert os.stat(kept) == before
    assert os.statvfs(kept).f_namemax == 255


def test_snapshots_and_their_inode_numbers_survive_a_remount(machines: Machines) -> None:
    mount = machines.volume("v")
    (mount / "d").mkdir()
    (mount / "d/f").write_bytes(b"kept")
    machines.run("snapshot", mount / "d", "s")
    before = [os.stat(mount / ".snapshots" / path).st_ino for path in ("", "s", "s/f")]
    machines.kill_mount("v")
    machines.run("umount", mount)
    machines.remount("v")
    assert [os.stat(mount / ".snapshots" / path).st_ino for path in ("", "s", "s/f")] == before
    assert (mount / ".snapshots/s/f").read_bytes() == b"kept"


def test_a_deleted_snapshot_gives_its_space_back_and_open_files_stay(mounted: Mounted) -> None:
    data = os.urandom(8 << 20)
    (mounted.path / "f").write_bytes(data)
    mounted.run("snapshot", mounted.path, "s")
    (mounted.path / "f").write_bytes(b"")
    assert mounted.run("gc", "--json", mounted.path).lines[0]["blocks_removed"] == 0
    with open(mounted.path / ".snapshots/s/f", "rb") as file:
        mounted.run("snapshot", "delete", mounted.path, "s")
        assert not (mounted.path / ".snapshots/s").exists()
        assert file.read() == data
    for _ in range(10):
        os.statvfs(mounted.path)  # with its answer the mount has also read that the kernel has forgotten the file
    mounted.run("flush", mounted.path)
    collected = mounted.run("gc", "--json", mounted.path).lines[0]
    assert collected["blocks_removed"] == 128
    assert collected["bytes_freed"] >= 8 << 20
    mounted.run("fsck", mounted.path)


def test_a_restored_folder_is_an_ordinary_one(mounted: Mounted) -> None:
    (mounted.path / "d").mkdir()
    (mounted.path / "d/f").write_bytes(b"old")
    mounted.run("snapshot", mounted.path, "s")
    (mounted.path / "d/f").write_bytes(b"new")
    mounted.run("snapshot", "restore", mounted.path, "s", mounted.path / "back")
    mounted.run("snapshot", "restore", mounted.path, "s", mounted.path / "back/f2", "--path", "d/f")
    assert (mounted.path / "back/d/f").read_bytes() == (mounted.path / "back/f2").read_bytes() == b"old"
    (mounted.path / "back/d/f").write_bytes(b"changed")
    assert (mounted.path / ".snapshots/s/d/f").read_bytes() == b"old"
    mounted.run("fsck", mounted.path)


def test_the_commands_say_what_is_wrong(machines: Machines, tmp_path: Path) -> None:
    mount = machines.volume("v")
    (mount / "f").write_bytes(b"12345")
    made = machines.run("snapshot", "create", mount / "f", "s", "--json").lines[0]
    assert (made["type"], made["name"], made["source"], made["files"], made["logical_bytes"]) == (
        *("snapshot", "s", "f"),
        *(1, 5),
    )
    volume = machines.home / "volume-v"
    assert machines.run("snapshot", "list", mount, "--json").lines == [made]
    assert machines.run("snapshot", "list", volume, "--json").lines == [made]
    refusals = [
        (2, ("create", mount, "s"), "there is a snapshot s"),
        (2, ("create", mount, "a/b"), "can't name a snapshot"),
        (2, ("create", mount / ".snapshots/s", "t"), "lies in a snapshot"),
        (10, ("create", mount / "none", "t"), "does not exist"),
        (10, ("create", tmp_path, "t"), "neither a blocksync volume nor on a blocksync mount"),
        (10, ("delete", mount, "t"), "no snapshot t"),
        (10, ("restore", mount, "t", mount / "new"), "no snapshot"),
        (2, ("restore", mount, "s", mount / "f"), "exists"),
        (10, ("restore", mount, "s", tmp_path / "new"), "blocksync"),
    ]
    for code, arguments, words in refusals:
        assert words in machines.run("snapshot", *arguments, expect=code).stderr, arguments


def test_snapshots_of_a_volume_that_is_not_mounted(machines: Machines) -> None:
    mount = machines.volume("v")
    (mount / "f").write_bytes(b"staged only")
    machines.run("umount", mount)
    volume = machines.home / "volume-v"
    machines.run("snapshot", volume, "off")
    assert [line["name"] for line in machines.run("snapshot", "list", volume, "--json").lines] == ["off"]
    machines.remount("v")
    assert (mount / ".snapshots/off/f").read_bytes() == b"staged only"
    machines.run("umount", mount)
    machines.run("snapshot", "delete", volume, "off")
    assert machines.run("snapshot", "list", volume).stdout == ""
    machines.run("snapshot", "delete", volume, "off", expect=10)
    machines.run("fsck", volume)


def test_what_a_closed_folder_hides_a_snapshot_hides_too() -> None:
    shown = passed("""
        blocksync init /mnt/v
        blocksync mount --allow-other /mnt/v /mnt/m
        trap 'blocksync umount /mnt/m' EXIT
        mkdir -m 700 /mnt/m/private
        mkdir -m 755 /mnt/m/private/docs
        echo secret >/mnt/m/private/docs/s
        chmod 644 /mnt/m/private/docs/s
        refused as_nobody cat /mnt/m/private/docs/s
        blocksync snapshot create /mnt/m/private/docs closed
        refused as_nobody cat /mnt/m/.snapshots/closed/s
        cat /mnt/m/.snapshots/closed/s
        blocksync snapshot restore /mnt/m closed /mnt/m/back
        stat -c %a /mnt/m/back
        as_nobody cat /mnt/m/back/s
        blocksync snapshot create /mnt/m/back open
        as_nobody cat /mnt/m/.snapshots/open/s
    """)
    assert [line for line in shown.splitlines() if line in {"secret", "755"}] == ["secret", "755", "secret", "secret"]
