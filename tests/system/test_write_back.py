"""What programs have written and only the kernel has: who promises to have it waits for it, also on a slow disk.

syncfs(2) alone does not with newer kernels (Linux 6.18.44): it only begins to write the pages of a FUSE mount back.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.kit import deep
from tests.system.machines import Machines, signal_and_wait

PROJECT = Path(__file__).parents[2]
DATA = b"in the kernel's cache" * 1000


@pytest.fixture
def slow(machines: Machines) -> Mounted:
    volume, mountpoint = machines.home / "volume-m", machines.home / "m"
    machines.run("init", volume)
    mountpoint.mkdir()
    subprocess.run([sys.executable, "-m", "tests.system.slow_mount", volume, mountpoint], cwd=PROJECT, check=True)
    machines.mounts["m"] = mountpoint
    return Mounted(machines, "m", volume, mountpoint)


WRITER = """
import mmap, os, sys
path, kind = sys.argv[1:]
data = b"in the kernel's cache" * 1000
folder = os.path.dirname(path)
os.mkdir(folder)
descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
if kind == "mapped":
    os.truncate(descriptor, len(data))
    mapped = mmap.mmap(descriptor, len(data))
    mapped[:] = data
else:
    os.write(descriptor, data)
if kind == "renamed":
    os.rename(folder, folder + "-new")
    os.rename(folder + "-new", folder)
if kind == "linked":
    os.link(path, path + "-new")
    os.unlink(path)
    os.rename(path + "-new", path)
print("written", flush=True)
sys.stdin.read()
"""
"""A process of its own keeps the file open: who inherits a descriptor closes it, and closing waits for the pages."""


DEEP_WRITER = """
import os, sys
from pathlib import Path
from tests.kit import deep
folder = deep.open_last(Path(sys.argv[1]))
os.write(os.open("file", os.O_RDWR | os.O_CREAT, 0o644, dir_fd=folder), b"in the kernel's cache" * 1000)
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def kind() -> str:
    """How it is written, unless a test tries all."""
    return "written"


@pytest.fixture
def file(slow: Mounted, kind: str) -> Iterator[Path]:
    """A file of that content, open for writing, none of which may have reached the mount yet."""
    path = slow.path / "folder" / "file"
    command = [sys.executable, "-c", WRITER, path, kind]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        yield path
        writer.kill()


@pytest.mark.parametrize("kind", ["written", "mapped", "renamed", "linked"])
def test_a_flush_has_all_that_was_written_before(slow: Mounted, file: Path) -> None:
    slow.run("flush", slow.path)
    slow.kill()
    slow.remount()
    assert file.read_bytes() == DATA


@pytest.mark.parametrize("command", [("flush",), ("snapshot", "create")])
def test_a_file_below_very_many_folders_is_flushed_too(slow: Mounted, command: tuple[str, ...]) -> None:
    """Breaks as the end of the mount, which any user can bring about, or as data that are not there."""
    deep.make(slow.path)
    program = [sys.executable, "-c", DEEP_WRITER, slow.path]
    with subprocess.Popen(
        program, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        slow.run(*command, slow.path, *["kept"][: len(command) - 1])
        slow.kill()
        writer.kill()
    slow.remount()
    folder = deep.open_last(slow.path / ".snapshots" / "kept" if len(command) > 1 else slow.path)
    with open(os.open("file", os.O_RDONLY, dir_fd=folder), "rb") as file:
        assert file.read() == DATA
    os.close(folder)


def test_a_snapshot_has_all_that_was_written_before(slow: Mounted, file: Path) -> None:
    slow.run("snapshot", "create", slow.path, "kept")
    assert (slow.path / ".snapshots" / "kept" / "folder" / "file").read_bytes() == DATA


def test_a_clone_has_all_that_was_written_before(slow: Mounted, file: Path) -> None:
    slow.run("clone", file, slow.path / "clone")
    assert (slow.path / "clone").read_bytes() == DATA


def test_a_signal_that_ends_a_busy_mount_loses_nothing_that_was_written(slow: Mounted, file: Path) -> None:
    signal_and_wait(slow.pid, signal.SIGTERM)
    slow.remount()
    assert file.read_bytes() == DATA
