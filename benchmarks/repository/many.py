"""A volume with a million files: what a push costs in which nothing changed, and one in which a file did.

To make and push them takes a quarter of an hour. With BENCH_MILLION=DIR they stay there, and are used again.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.bench_filesystem import BLOCKSYNC
from benchmarks.bench_scale import make_files
from benchmarks.repository.devices import Share, run
from benchmarks.rows import Row

FILES: Final = int(os.environ.get("BENCH_FILES", "1000000"))
_AT_ONCE: Final = 100_000


def million(home: Path, repetitions: int) -> list[Row]:
    """Nothing has changed; then one file."""
    kept = Path(os.environ.get("BENCH_MILLION", home / "million"))
    took: list[float] = []
    changed: list[float] = []
    memory: list[float] = []
    with _mounted(kept) as mountpoint:
        share = _made(kept, mountpoint)
        for repetition in range(repetitions):
            done = share.reconcile(mountpoint)
            assert not done.figures["pushed"]
            took.append(done.seconds)
            memory.append(done.anonymous_bytes / 1e6)
            (mountpoint / "a0" / "changed").write_bytes(b"%d" % repetition)
            run(BLOCKSYNC, "flush", mountpoint)
            changed.append(share.reconcile(mountpoint).seconds)
    work = f"{FILES:,} files on a volume, push without changes"
    return [
        Row(part="million", work=work, unit="s", values=took, limit=10),
        Row(part="million", work="… RssAnon, the most that was seen", unit="MB", values=memory, limit=200),
        Row(part="million", work="… push of one changed file", unit="s", values=changed),
    ]


@contextmanager
def _mounted(kept: Path) -> Iterator[Path]:
    volume, mountpoint = kept / "volume", kept / "mounted"
    if not volume.exists():
        mountpoint.mkdir(parents=True)
        run(BLOCKSYNC, "init", volume)
    run(BLOCKSYNC, "mount", volume, mountpoint)
    try:
        yield mountpoint
    finally:
        subprocess.run([BLOCKSYNC, "umount", mountpoint], check=True)


def _made(kept: Path, mountpoint: Path) -> Share:
    """The share; files are made and pushed a hundred thousand at a time."""
    is_new = not (kept / "store").exists()
    share = Share(kept)
    if is_new:
        share.link(mountpoint)
    for number in range(FILES // _AT_ONCE):
        done = kept / f"pushed{number}"
        if not done.exists():
            make_files(mountpoint / f"a{number}", _AT_ONCE)
            run(BLOCKSYNC, "flush", mountpoint)
            first = share.reconcile(mountpoint)
            print(f"{number + 1}: {first.seconds:.0f} s, {first.anonymous_bytes / 1e6:.0f} MB", flush=True)
            done.touch()
    return share
