"""4 KiB at random: direct by fio, through the page cache, and each with an fdatasync."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import time
from functools import partial
from typing import Final

from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import OURS, K, P, Place, Places, in_turns, share
from benchmarks.targets.sizes import Sizes
from benchmarks.targets.streams import FILE, written

PAGE: Final = 4096
ENGINES: Final = {1: "psync", 16: "libaio"}


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Random work in one file, which is in blocks before each measurement."""
    for place in places.raw.values():
        written(place, size_bytes=sizes.file_bytes, is_sealed=True)
    rows = []
    for work in ("read", "write"):
        at = {}
        for depth, least in ((1, 0.85), (16, 0.4)):
            at[depth] = in_turns(places.raw, partial(fio, work=work, depth=depth, sizes=sizes), sizes.repetitions)
            rows.append(share("pages", f"random {work} 4 KiB direct, depth {depth}", "1/s", at[depth], least))
        times = [deep / one for deep, one in zip(at[16][OURS], at[1][OURS], strict=True)]
        beside = statistics.median(at[16][K]) / statistics.median(at[1][K])
        rows.append(
            Row(
                part="pages",
                work=f"random {work} 4 KiB direct, depth 16 beside depth 1",
                unit="times",
                values=times,
                limit=2.5 if work == "read" else None,
                least=True,
                beside=f"K: {beside:.2f}",
            )
        )
    found = in_turns(places.raw, partial(buffered, sizes=sizes), sizes.repetitions)
    work = "random write 4 KiB buffered + fsync"
    rows += [share("pages", work, "1/s", found, 0.4), share("pages", work, "1/s", found, 5.0, of=P)]
    found = in_turns(places.raw, partial(synced, sizes=sizes), sizes.repetitions)
    rows.append(share("pages", "4 KiB write + fdatasync, depth 1", "1/s", found, 0.85))
    for place in places.raw.values():
        place.tidy()
    return rows


def fio(place: Place, *, work: str, depth: int, sizes: Sizes) -> float:
    """Requests per second of one job."""
    options = [f"--rw=rand{work}", f"--iodepth={depth}", f"--ioengine={ENGINES[depth]}"]
    command = ["fio", "--name=job", f"--filename={place.folder / FILE}", f"--size={sizes.file_bytes}", "--bs=4k"]
    command += ["--direct=1", "--time_based", f"--runtime={sizes.job_s}", "--allrandrepeat=1", "--refill_buffers"]
    reply = subprocess.run(
        [*command, "--output-format=json", *options], capture_output=True, text=True, check=True
    ).stdout
    return float(json.loads(reply[reply.index("{") :])["jobs"][0][work]["iops"])


def buffered(place: Place, *, sizes: Sizes) -> float:
    """Pages per second, until the fsync after the last one has returned."""
    offsets = _places(sizes, sizes.pages)
    data = os.urandom(PAGE)
    with open(place.folder / FILE, "r+b", buffering=0) as file:

        def work() -> None:
            for offset in offsets:
                os.pwrite(file.fileno(), data, offset)
            os.fsync(file.fileno())

        return sizes.pages / seconds(work)


def synced(place: Place, *, sizes: Sizes) -> float:
    """Pages per second, each on the disk before the next one."""
    offsets = _places(sizes, sizes.syncs)
    data = os.urandom(PAGE)
    with open(place.folder / FILE, "r+b", buffering=0) as file:
        os.pwrite(file.fileno(), data, 0)
        os.fdatasync(file.fileno())  # the first one after a quiet while also names what the write began
        began_s = time.perf_counter()
        for offset in offsets:
            os.pwrite(file.fileno(), data, offset)
            os.fdatasync(file.fileno())
        return sizes.syncs / (time.perf_counter() - began_s)


def _places(sizes: Sizes, count: int) -> list[int]:
    return [random.randrange(sizes.file_bytes // PAGE) * PAGE for _ in range(count)]
