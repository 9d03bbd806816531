"""4 KiB changed in a large file of an ordinary folder on XFS: what one `reconcile` reads there, and how long it takes.

The filesystem is in a file on a loop device of its own, so the kernel's counter of that device is what was read of it:
contents, extents, directories, by whomever. Programs, the root's state and the server lie elsewhere.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.bench_sync import serve
from benchmarks.bench_transfers import Devices
from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import XFS_MIB, drop_all
from tests.kit.hostfs import MIB, mounted_file

FILE_BYTES: Final = 10 << 30
PAGE: Final = 4096
POOL_BYTES: Final = 64 << 20
SECTOR: Final = 512  # of the kernel's counters, whatever the device has
WORK: Final = "4 KiB changed in 10 GiB in a folder on XFS, nothing cached"
WARM: Final = "4 KiB changed in 10 GiB in a folder on XFS, cached: reconcile"


def run(repetitions: int) -> list[Row]:
    """Two changes for each repetition: one after all caches were dropped, one as after any edit. Needs root.

    Raises:
        RuntimeError: Another block than the changed one was sent, or none.
    """
    read: list[float] = []
    cold, warm = list(read), list(read)
    notes: dict[str, float] = {}
    with TemporaryDirectory(prefix="blocksync-plain-") as name, ExitStack() as stack:
        home = Path(name)
        xfs = stack.enter_context(mounted_file(home, XFS_MIB * MIB, "mkfs.xfs", "-q"))
        here = Devices(home)
        url = stack.enter_context(serve(home / "server", here.environment))
        root = here.link("host/folder", url)
        fill(root / "file")
        took = seconds(lambda: here.reconcile(root))
        print(f"plain: the first push took {took:.1f} s", file=sys.stderr)
        for _ in range(repetitions):
            change_page(root / "file")
            drop_all(root)
            before = bytes_read(xfs)
            told: dict[str, Any] = {}
            cold.append(seconds(lambda: told.update(here.reconcile(root))))  # noqa: B023 - called at once
            read.append((bytes_read(xfs) - before) / MIB)
            notes = {key: float(told[key]) for key in ("bytes_read_local", "bytes_sent", "blocks_sent", "seconds")}
            change_page(root / "file")
            warm.append(seconds(lambda: told.update(here.reconcile(root))))  # noqa: B023 - called at once
            if not notes["blocks_sent"] == told["blocks_sent"] == 1:
                raise RuntimeError(f"one block was changed, {notes['blocks_sent']} and {told['blocks_sent']} were sent")
    return [
        Row(part="plain", work=f"{WORK}: read there", unit="MiB", values=read, limit=1.0, notes=notes),
        Row(part="plain", work=f"{WORK}: reconcile", unit="s", values=cold),
        Row(part="plain", work=WARM, unit="s", values=warm),
    ]


def fill(path: Path) -> None:
    """All of it data on the disk, without holes; its blocks come again and again, so that the server keeps few."""
    pool = random.Random(1).randbytes(POOL_BYTES)
    with path.open("wb", buffering=0) as file:
        for _ in range(FILE_BYTES // POOL_BYTES):
            file.write(pool)
        os.fsync(file.fileno())


def change_page(path: Path) -> None:
    """Overwrite a page anywhere, and see that it is on the disk."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, os.urandom(PAGE), random.randrange(FILE_BYTES // PAGE) * PAGE)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def bytes_read(mounted: Path) -> int:
    """What was read of a mounted filesystem's device since that was made."""
    command = ["findmnt", "--noheadings", "--output", "SOURCE", "--mountpoint", str(mounted)]
    device = Path(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    return int(Path("/sys/class/block", device.name, "stat").read_text().split()[2]) * SECTOR
