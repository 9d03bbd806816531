"""Host filesystems in files, on loop devices: what tests fill to the last byte, and those with reflinks."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20

REFLINKS = {"xfs": (320, "mkfs.xfs", "-q", "-m", "reflink=1"), "btrfs": (1024, "mkfs.btrfs", "-q")}
"""Of each filesystem with reflinks the size in MiB and what makes it. Nearly nothing of it is written; a smaller btrfs
says that it is full while a third of it is free, and one that is full kills who touches a mapped page:
docs/guide/full-disk.md."""

APART = Path(tempfile.gettempdir(), "blocksync-tests-mounts.lock")
"""Locked by who makes a mount namespace, until it has let go of others' mounts, and by who unmounts a host."""

LET_GO = r"""
umount --lazy --all --types fuse.blocksync  # whatever they are called
findmnt -rno TARGET | awk '/\/pytest-of-/' | tac | while read -r target; do umount --lazy "$target"; done
flock --unlock 9
"""
"""For a shell in a new mount namespace, first of all: its copies of mounts keep alive what other tests have ended."""


def apart(*command: str) -> list[str]:
    """A command that makes a mount namespace, `unshare`, of which the first to run is a shell with `LET_GO`."""
    return ["sh", "-c", f'exec 9>"{APART}"; flock 9; exec "$@"', "sh", *command]


@contextlib.contextmanager
def mounted_file(home: Path, size_bytes: int, *mkfs: str, options: str = "loop") -> Iterator[Path]:
    """A filesystem in a file, made by `mkfs` and mounted."""
    image, path = home / "host.img", home / "host"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    run(*mkfs, image)
    run("mount", "-o", options, image, path)
    try:
        yield path
    finally:
        umount(path)


@contextlib.contextmanager
def reflinking(home: Path, kind: str, options: str = "loop") -> Iterator[Path]:
    """A filesystem with reflinks: see `REFLINKS`."""
    size, *mkfs = REFLINKS[kind]
    with mounted_file(home, int(size) * MIB, *map(str, mkfs), options=options) as path:
        yield path


def umount(path: Path) -> None:
    """Unmount a filesystem for good: nobody's namespace has it any more, its loop device and file are free."""
    with APART.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run("umount", path)


def run(*command: str | Path) -> None:
    """Run a command that must succeed."""
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
