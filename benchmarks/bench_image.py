"""4 KiB changed in a large image on a mounted volume: until the server has it, and until other devices have it."""

from __future__ import annotations

import os
import random
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.bench_filesystem import blockfs
from benchmarks.bench_sync import BLOCKSYNC, serve
from benchmarks.bench_transfers import FOLDER, REPETITIONS, VOLUME, devices
from benchmarks.harness import Result, seconds

IMAGE_GIB = float(os.environ.get("BENCH_IMAGE_GIB", "10"))
BLOCK = 65536
DATA_BLOCKS = 4096
"""256 MiB of data all over the image, the rest holes: a cycle's costs go with the 163,840 ids or with the change."""


def run() -> list[Result]:
    """Three devices: two volumes and an ordinary folder."""
    size = int(IMAGE_GIB * (1 << 30))
    steps = ("changed 4 KiB, until the server has it", "arriving on another volume", "arriving in an ordinary folder")
    rows = [
        Result(work=f"{IMAGE_GIB:g} GiB image: {step}", subject=subject, unit="s", values=[])
        for step, subject in zip(steps, (VOLUME, VOLUME, FOLDER), strict=True)
    ]
    with devices("image") as here, ExitStack() as stack:
        url = stack.enter_context(serve(here.home / "server", here.environment))
        roots = []
        for name in ("first", "second"):
            (here.home / f"at-{name}").mkdir()
            mounted = stack.enter_context(blockfs(here.home / f"at-{name}"))
            here.run(BLOCKSYNC, "link", mounted, url, "--token-file", here.home / "server" / "token")
            roots.append(mounted)
        roots.append(here.link("folder", url))
        make_image(roots[0] / "image", size)
        for root in roots:
            here.reconcile(root)
        for repetition in range(REPETITIONS):
            change(roots[0] / "image", size, repetition)
            for root, row in zip(roots, rows, strict=True):
                summary: dict[str, Any] = {}
                row.values.append(seconds(lambda: summary.update(here.reconcile(root))))  # noqa: B023 - called at once
                for key in (
                    "seconds",
                    "requests",
                    "bytes_sent",
                    "bytes_received",
                    "blocks_sent",
                    "blocks_received",
                    "bytes_read_local",
                ):
                    row.notes[key] = float(summary[key])
    return rows


def make_image(path: Path, size: int) -> None:
    """Blocks of data at even distances."""
    rng = random.Random(7)
    with path.open("wb") as file:
        file.truncate(size)
        for number in range(DATA_BLOCKS):
            file.seek(size // DATA_BLOCKS * number // BLOCK * BLOCK)
            file.write(rng.randbytes(BLOCK))
        os.fsync(file.fileno())


def change(path: Path, size: int, repetition: int) -> None:
    """Overwrite 4 KiB, each time elsewhere."""
    with path.open("r+b") as file:
        file.seek(size // DATA_BLOCKS * (1000 + repetition) // BLOCK * BLOCK + 8192)
        file.write(os.urandom(4096))
        os.fsync(file.fileno())


def available() -> bool:
    """Whether a volume can be mounted."""
    return shutil.which("fusermount3") is not None
