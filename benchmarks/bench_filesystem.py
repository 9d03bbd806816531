"""The filesystem next to the host's ext4 and to a pyfuse3 passthrough: fio, names, clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.harness import Result, interleaved, seconds

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
FILE_MIB = 256
NAMES = 2000
REPETITIONS = 3
HOST, BARE, PASSTHROUGH, BLOCKFS = "host", "passthrough without xattrs", "pyfuse3 passthrough", "blockfs"

# fio's default invalidate=1 drops the file's page cache first: a read reaches the filesystem, not the kernel's cache.
FIO_JOBS = {
    "sequential write 1 MiB + fsync": ("MB/s", "write", ["--rw=write", "--bs=1M", "--end_fsync=1"]),
    "sequential read 1 MiB": ("MB/s", "read", ["--rw=read", "--bs=1M"]),
    "random read 4 KiB direct": (
        "1/s",
        "read",
        ["--rw=randread", "--bs=4k", "--direct=1", "--runtime=3", "--time_based"],
    ),
    "random write 4 KiB direct": (
        "1/s",
        "write",
        ["--rw=randwrite", "--bs=4k", "--direct=1", "--runtime=3", "--time_based"],
    ),
    "random write 4 KiB buffered": ("1/s", "write", ["--rw=randwrite", "--bs=4k", "--runtime=3", "--time_based"]),
}


def run() -> list[Result]:
    """All works on all subjects."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blocksync-bench-")))
        folders = {
            HOST: home / "host",
            BARE: stack.enter_context(passthrough(home / "bare")),
            PASSTHROUGH: stack.enter_context(passthrough(home / "same", "--xattrs")),
            BLOCKFS: stack.enter_context(blockfs(home)),
        }
        folders[HOST].mkdir()
        results = []
        for work, (unit, direction, options) in FIO_JOBS.items():
            jobs: dict[str, Callable[[], float]] = {
                name: partial(fio, folder, unit, direction, options) for name, folder in folders.items()
            }
            results += interleaved(work, unit, jobs, REPETITIONS)
        results += names(folders)
        results += clones(folders)
        return results


@contextmanager
def passthrough(home: Path, *flags: str, program: str = "passthrough") -> Iterator[Path]:
    """A mounted passthrough of a folder on the host, by a module of this package."""
    source, mountpoint = home / "source", home / "mount"
    source.mkdir(parents=True)
    mountpoint.mkdir()
    command = [sys.executable, "-m", f"benchmarks.{program}", *flags, str(source), str(mountpoint)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if process.stdout.readline().strip() != "ready":
        raise RuntimeError("the passthrough did not start; its messages are above")
    try:
        yield mountpoint
    finally:
        subprocess.run(["fusermount3", "-u", str(mountpoint)], check=True)
        process.wait(30)


@contextmanager
def blockfs(home: Path, *options: str, frontend: str = "auto", is_native: bool = False) -> Iterator[Path]:
    """A mounted volume; with default settings, but for the options of `init` and the front-end."""
    volume, mountpoint = home / "volume", home / "blockfs"
    mountpoint.mkdir()
    subprocess.run([BLOCKSYNC, "init", *options, volume], check=True)
    native = "--native" if is_native else "--no-native"
    subprocess.run([BLOCKSYNC, "mount", native, "--frontend", frontend, volume, mountpoint], check=True)
    try:
        yield mountpoint
    finally:
        subprocess.run([BLOCKSYNC, "umount", mountpoint], check=True)


def fio(folder: Path, unit: str, direction: str, options: list[str]) -> float:
    """One fio job on one file; MB/s or operations per second."""
    if BLOCKFS in folder.name:
        subprocess.run([BLOCKSYNC, "flush", folder], check=True)  # as after a quiet while: what is read is sealed
    command = ["fio", "--name=job", f"--filename={folder}/fio.dat", f"--size={FILE_MIB}M", "--ioengine=psync"]
    command += ["--output-format=json", "--allrandrepeat=1", "--refill_buffers", *options]
    reply = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    side = json.loads(reply[reply.index("{") :])["jobs"][0][direction]
    return float(side["bw_bytes"] / 1e6 if unit == "MB/s" else side["iops"])


def names(folders: dict[str, Path]) -> list[Result]:
    """Create + write + close, stat, unlink of many small files; per second."""
    actions = {"create + write 1 KiB + close": create, "stat": stat, "unlink": unlink}
    rows = {(w, name): Result(work=w, subject=name, unit="1/s", values=[]) for w in actions for name in folders}
    for _ in range(REPETITIONS):
        for name, folder in folders.items():
            for work, action in actions.items():
                rows[work, name].values.append(NAMES / seconds(partial(action, folder)))
    return list(rows.values())


def create(folder: Path) -> None:
    """Make the small files."""
    for number in range(NAMES):
        with open(folder / f"small-{number}", "wb") as file:
            file.write(b"x" * 1024)


def stat(folder: Path) -> None:
    """Look at each of them."""
    for number in range(NAMES):
        os.stat(folder / f"small-{number}")


def unlink(folder: Path) -> None:
    """Remove each of them."""
    for number in range(NAMES):
        os.unlink(folder / f"small-{number}")


def clones(folders: dict[str, Path]) -> list[Result]:
    """A second copy of the fio file: `blocksync clone` next to what `cp` does on the baselines."""

    def copy(folder: Path) -> float:
        source, target = folder / "fio.dat", folder / "copy.dat"
        if BLOCKFS in folder.name:
            subprocess.run([BLOCKSYNC, "flush", folder], check=True)
            command: list[object] = [BLOCKSYNC, "clone", source, target]
        else:
            command = ["cp", source, target]
        started = time.perf_counter()
        subprocess.run([str(part) for part in command], check=True)
        elapsed = time.perf_counter() - started
        target.unlink()
        return elapsed

    subjects: dict[str, Callable[[], float]] = {name: partial(copy, folder) for name, folder in folders.items()}
    return interleaved(f"copy a {FILE_MIB} MiB file (blockfs: clone)", "s", subjects, REPETITIONS)
