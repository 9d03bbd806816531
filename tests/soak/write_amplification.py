"""What random 4 KiB writes cost: bytes that reach the disk per byte the guest wrote, and what stays stored.

A file like a VM's disk, random data all through, is overwritten page by page with O_DIRECT, as a guest without a host
cache does, with an fdatasync each second. Two guests: one as fast as the mount takes it, and one of 200 writes a
second. What the mount process sends to the disk is in its /proc/PID/io.
"""

from __future__ import annotations

import json
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import asdict

from tests.soak.report import Report

BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
FILE_BYTES: Final = 2 << 30
PAGE: Final = 4096
MINUTES: Final = 36  # of the part
GUEST_MINUTES: Final = 30
MIN_SCALE: Final = 1 / 8  # a file of 256 MiB: below, all that is dead is too little to be collected by itself
GUESTS: Final = {"fast": 0, "slow": 200}
"""Name → writes a second; 0: as many as the mount takes."""

FSYNC_S: Final = 1.0
MAX_AMPLIFICATION: Final = 4.0
MAX_STORED: Final = 1.2
SETTLE_S: Final = 600.0  # the mount seals 30 s after the last write and then looks for garbage, once a minute


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one guest did and what it cost.

    Attributes:
        seconds: How long it wrote.
        writes: Its writes of 4 KiB.
        disk_bytes: What the mount wrote to the disk, from its first write until all was sealed and collected.
        amplification: `disk_bytes` per byte that the guest wrote.
        stored_share: Bytes stored in the end per live byte, without a manual gc.
        settle_seconds: From its last write until then.
    """

    seconds: float
    writes: int
    disk_bytes: int
    amplification: float
    stored_share: float
    settle_seconds: float


def run(scale: float, report: Report) -> None:
    """Both guests at once, each on a volume of its own, `30 * scale` minutes, but for an eighth of 30 at least.

    The file is scaled, too: what a page costs depends on how often its block is written before it is sealed.

    Raises:
        AssertionError: A goal was missed.
    """

    share = max(scale, MIN_SCALE)

    def guest(name: str) -> Figures:
        with tempfile.TemporaryDirectory(prefix="blocksync-soak-") as home:
            figures = measure(
                Path(home),
                seconds=GUEST_MINUTES * 60 * share,
                writes_per_s=GUESTS[name],
                file_bytes=int(FILE_BYTES * share) >> 20 << 20,
            )
        report.record(name, **asdict(figures))
        return figures

    with ThreadPoolExecutor() as pool:
        for figures in pool.map(guest, GUESTS):
            assert figures.stored_share <= MAX_STORED, figures
            assert figures.amplification <= MAX_AMPLIFICATION, figures


def measure(home: Path, *, seconds: float, writes_per_s: int, file_bytes: int) -> Figures:
    """Overwrite a file's pages at random for a while.

    Args:
        home: An empty folder on a disk.
        seconds: How long.
        writes_per_s: Writes a second; 0: as many as the mount takes.
        file_bytes: Size of the file.
    """
    volume, mountpoint = home / "volume", home / "mount"
    mountpoint.mkdir()
    _blocksync("init", volume)
    _blocksync("mount", volume, mountpoint)
    try:
        disk = mountpoint / "disk.img"
        _fill(disk, file_bytes)
        _blocksync("flush", mountpoint)
        pid = int((volume / "lock").read_text().split()[0])
        before = _written_bytes(pid)
        writes, lasted = _overwrite(disk, file_bytes, seconds, writes_per_s)
        ended = time.monotonic()
        stored = _stored_when_settled(mountpoint, file_bytes)
        settle_seconds = time.monotonic() - ended
        disk_bytes = _written_bytes(pid) - before
    finally:
        _blocksync("umount", mountpoint)
    return Figures(
        seconds=lasted,
        writes=writes,
        disk_bytes=disk_bytes,
        amplification=disk_bytes / (writes * PAGE),
        stored_share=stored / file_bytes,
        settle_seconds=settle_seconds,
    )


def _fill(path: Path, file_bytes: int) -> None:
    with open(path, "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(file_bytes >> 20))


def _overwrite(path: Path, file_bytes: int, seconds: float, writes_per_s: int) -> tuple[int, float]:
    """Returns the number of writes, and how long they took."""
    page = mmap.mmap(-1, PAGE)  # aligned, as O_DIRECT wants it
    pages = file_bytes // PAGE
    rng = random.Random(1)
    writes = 0
    fd = os.open(path, os.O_WRONLY | os.O_DIRECT)
    try:
        started = time.monotonic()
        synced = started
        while (now := time.monotonic()) - started < seconds:
            if writes_per_s and writes >= (now - started) * writes_per_s:
                time.sleep(1 / writes_per_s)  # the guest's pace, not a synchronisation
                continue
            page[:] = rng.randbytes(PAGE)
            os.pwrite(fd, page, rng.randrange(pages) * PAGE)
            writes += 1
            if now - synced >= FSYNC_S:
                os.fdatasync(fd)
                synced = now
        return writes, time.monotonic() - started
    finally:
        os.close(fd)


def _stored_when_settled(mountpoint: Path, live_bytes: int) -> int:
    """Bytes stored once nothing is staged and the goal is met, or when it should have been long ago."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        stats = json.loads(_blocksync("stats", mountpoint, "--json"))
        stored = int(stats["stored_bytes"])
        settled = not stats["staged_bytes"] and stored <= live_bytes * MAX_STORED
        if settled or time.monotonic() > deadline:
            return stored
        time.sleep(5)  # between two looks at the figures


def _written_bytes(pid: int) -> int:
    """Bytes that a process sent to the disk; what was unlinked before it got there does not count."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["write_bytes"]) - int(fields["cancelled_write_bytes"])


def _blocksync(*arguments: str | Path) -> str:
    return subprocess.run([BLOCKSYNC, *arguments], check=True, capture_output=True, text=True).stdout
