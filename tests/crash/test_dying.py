"""A mount that is killed while it tells the kernel to forget a name, in a directory that somebody else holds locked."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from blockfs.control.client import ConnectionLostError, ControlClient
from tests.conftest import Mounted
from tests.system.machines import Machines

PROJECT = Path(__file__).parents[2]
PTRACE_SEIZE, PTRACE_INTERRUPT = 0x4206, 0x4207  # linux/ptrace.h

_libc = ctypes.CDLL(None, use_errno=True)


def stop_event_loop(pid: int) -> None:
    """Stop the thread that answers requests, and only that."""
    for request in (PTRACE_SEIZE, PTRACE_INTERRUPT):
        assert _libc.ptrace(request, pid, None, None) == 0, os.strerror(ctypes.get_errno())


def wait_until_a_thread_is_in(function: str, task: Path) -> None:
    """Return as soon as a thread waits in this function of the kernel."""
    while not any(function in (thread / "wchan").read_text() for thread in task.iterdir()):
        pass


def clone_until_lost(volume: Path) -> None:
    with ControlClient(os.fsencode(volume)) as client, pytest.raises(ConnectionLostError):
        client.clone(b"file", b"copy")


@pytest.mark.parametrize("command", ["mount", "umount"])
def test_a_killed_mount_that_can_not_die_is_ended(mounted: Mounted, nothing_left: None, command: str) -> None:
    """Else all who use it wait for ever, and the volume stays locked."""
    (mounted.path / "file").write_bytes(b"x")
    mounted.run("flush", mounted.path)
    process = Path(f"/proc/{mounted.pid}")
    cloning = threading.Thread(target=clone_until_lost, args=(mounted.volume,))
    stop_event_loop(mounted.pid)
    make = [sys.executable, "-c", "import os, sys; os.mkdir(sys.argv[1])", mounted.path / "directory"]
    with subprocess.Popen(make, stderr=subprocess.DEVNULL) as maker:  # it locks the directory, and waits for the mount
        wait_until_a_thread_is_in("request_wait_answer", Path(f"/proc/{maker.pid}/task"))
        cloning.start()
        wait_until_a_thread_is_in("fuse_reverse_inval_entry", process / "task")
        os.kill(mounted.pid, signal.SIGKILL)
        while (process / "stat").read_text().rpartition(") ")[2][0] != "Z":
            pass
        assert maker.poll() is None, "the mount is gone: there is nothing to be ended"
        if command == "umount":
            mounted.umount()
        mounted.remount()
        assert maker.wait() != 0
    cloning.join()
    assert (mounted.path / "file").read_bytes() == b"x"
    mounted.umount()
    mounted.run("fsck", mounted.volume)


WRITER = """
import os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.write(descriptor, b"x" * 100000)
print("written", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("command", ["mount", "umount"])
def test_a_mount_that_is_killed_with_a_file_of_its_own_open_is_ended(
    machines: Machines, tmp_path: Path, nothing_left: None, command: str
) -> None:
    """The kernel closes that file before the connection, and waits for pages that nobody takes any more."""
    volume, path, told = machines.home / "volume-m", machines.home / "m", tmp_path / "told"
    machines.run("init", volume)
    path.mkdir()
    start = [sys.executable, "-m", "tests.system.waiting_mount", volume, path, told]
    subprocess.run(start, cwd=PROJECT, check=True)
    machines.mounts["m"] = path
    mounted = Mounted(machines, "m", volume, path)
    writing = [sys.executable, "-c", WRITER, path / "file"]
    with subprocess.Popen(writing, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        with subprocess.Popen([*machines.command, "flush", path], stderr=subprocess.DEVNULL) as flush:
            while not told.exists():
                assert flush.poll() is None
            assert not machines.kill_mount("m", patience_s=0.2), "the mount is gone: there is nothing to be ended"
            if command == "umount":
                mounted.umount()
            mounted.remount()
            assert flush.wait() != 0
        writer.kill()
    mounted.umount()
    mounted.run("fsck", volume)
