"""The first open of a large file on a native mount: nobody waits for long, and shared mappings work at any time."""

from __future__ import annotations

import json
import mmap
import os
import random
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockfs.fuse.kernel.native import WAITED_FOR_BYTES
from tests.conftest import Mounted
from tests.kit.hostfs import reflinking
from tests.kit.starting import PROJECT
from tests.system.machines import Machines

FRONTENDS = ("kernel",)
PAGE = 4096
SIZE = WAITED_FOR_BYTES + PAGE
DATA = random.Random(15).randbytes(8 * PAGE)


@pytest.fixture
def held(fuse: None, tmp_path: Path) -> Iterator[Mounted]:
    """A native mount with a large file `file`, that is made ready when somebody writes to the FIFO `hold`."""
    with reflinking(tmp_path, "xfs") as host:
        home = host / "home"
        home.mkdir()
        machines = Machines(home)
        try:
            path = machines.volume("m")
            with (path / "file").open("wb") as file:
                file.write(DATA)
                file.truncate(SIZE)
            machines.run("umount", path, "--seal")
            os.mkfifo(home / "hold")
            options = ["allow_other", f"hold={home / 'hold'}"]
            command = [sys.executable, "-m", "tests.system.hot_mount", home / "volume-m", path, *options]
            subprocess.run(command, check=True, cwd=PROJECT)
            process = os.pidfd_open(machines.mount_pid("m"))
            yield Mounted(machines, "m", home / "volume-m", path)
            machines.run("umount", path)
            select.select([process], [], [])  # the host is busy while it commits
            os.close(process)
            machines.run("fsck", home / "volume-m")
        finally:
            machines.close()


def let_go(held: Mounted, ino: int) -> Path:
    """Have the file made; returns it."""
    with (held.machines.home / "hold").open("w"):
        pass
    made = held.volume / "hot-files" / str(ino)
    while not made.exists():
        os.sched_yield()
    return made


def written(held: Mounted) -> int:
    told = json.loads(held.run("stats", held.path, "--json").stdout)["requests"]
    return int(told.get("write", 0))


def test_a_file_is_read_written_and_mapped_while_it_is_made_ready_and_natively_later(held: Mounted) -> None:
    """Breaks when the open waits, a mapping fails (ENODEV), an open fails (EIO), or the kernel shows old pages."""
    path, wanted = held.path / "file", bytearray(DATA)
    reader = os.open(path, os.O_RDONLY)
    assert os.pread(reader, PAGE, 0) == DATA[:PAGE]
    writer = os.open(path, os.O_RDWR)
    with mmap.mmap(writer, SIZE) as stores, mmap.mmap(reader, SIZE, prot=mmap.PROT_READ) as loads:
        stores[0:6] = wanted[0:6] = b"stored"
        os.pwrite(writer, b"written", PAGE)
        wanted[PAGE : PAGE + 7] = b"written"
        assert loads[: len(wanted)] == wanted
        stores.flush()
        made = let_go(held, path.stat().st_ino)
        late = os.open(path, os.O_RDWR)
        with mmap.mmap(late, SIZE) as more:
            more[2 * PAGE : 2 * PAGE + 4] = wanted[2 * PAGE : 2 * PAGE + 4] = b"late"
            assert loads[: len(wanted)] == wanted
        os.fsync(late)
        assert os.pread(reader, len(wanted), 0) == wanted
        os.close(late)
    os.close(writer)
    os.close(reader)
    with path.open("r+b") as file:
        assert file.read(len(wanted)) == wanted
        before = written(held)
        os.pwrite(file.fileno(), b"natively", 3 * PAGE)
        wanted[3 * PAGE : 3 * PAGE + 8] = b"natively"
        with mmap.mmap(file.fileno(), SIZE) as mapped:
            assert mapped[: len(wanted)] == wanted
            mapped[-1] = 1
        assert written(held) == before
    with made.open("rb") as found:
        assert found.read(len(wanted)) == wanted
        found.seek(-1, os.SEEK_END)
        assert found.read() == b"\1"


def test_a_mount_ends_while_files_are_made_ready(held: Mounted) -> None:
    descriptor = os.open(held.path / "file", os.O_RDONLY)
    ino = os.fstat(descriptor).st_ino
    os.close(descriptor)
    let_go(held, ino)
