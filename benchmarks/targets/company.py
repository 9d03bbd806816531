"""Work beside other work: what a mount's own chores cost those who wait, and whether clients have equal parts."""

from __future__ import annotations

import json
import mmap
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.rows import Row, times
from benchmarks.targets.places import OURS, Place, Places, in_turns
from benchmarks.targets.sizes import Sizes
from benchmarks.targets.streams import FILE, pool_of, windows, written

CLIENTS: Final = 8
PAGE: Final = 4096


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Rows about company."""
    ours = places.raw[OURS]
    rows = [*chores(ours, sizes, is_native=places.is_native), clients(places, sizes)]
    for place in places.raw.values():
        place.tidy()
    return rows


def chores(ours: Place, sizes: Sizes, *, is_native: bool) -> list[Row]:
    """The slowest hundredth of direct requests of 4 KiB, reads and writes in turns, while the mount has much to do."""
    written(ours, size_bytes=sizes.file_bytes, is_sealed=True)
    ours.settle()
    idle: list[tuple[float, float]] = []
    sealing, collecting = list(idle), list(idle)
    for _ in range(sizes.repetitions):
        idle.append(slow_ms(ours, partial(time.sleep, sizes.job_s), sizes))
        with open(ours.folder / "other", "wb", buffering=0) as file:
            file.writelines(windows(pool_of(random.randrange(1 << 62)), sizes.large_bytes))
            os.fsync(file.fileno())
        sealing.append(slow_ms(ours, ours.seal, sizes))
        (ours.folder / "other").unlink()
        ours.seal()

        def collect() -> None:
            with ours.client() as client:
                client.gc()

        collecting.append(slow_ms(ours, collect, sizes))
    rows = []
    for what, found in (("sealing", sealing), ("collecting", collecting)):
        p99, quiet = [each for each, _ in found], [each for each, _ in idle]
        if is_native:
            rows += [
                _told(f"p99 of direct requests while {what}", 20.0, p99, quiet),
                _told(f"slowest direct request while {what}", 300.0, [each for _, each in found], [w for _, w in idle]),
            ]
        else:
            rows.append(times("company", f"p99 of direct requests while {what}", 3.0, p99, "idle, ms", quiet))
    return rows


def _told(work: str, limit_ms: float, found: list[float], quiet: list[float]) -> Row:
    return Row(
        part="company", work=work, unit="ms", values=found, limit=limit_ms, beside="idle, ms", beside_values=quiet
    )


def slow_ms(place: Place, chore: Callable[[], object], sizes: Sizes) -> tuple[float, float]:
    """The slowest hundredth and the slowest of requests that are sent one after the other while a chore is done."""
    thread = threading.Thread(target=chore)
    taken: list[float] = []
    descriptor = os.open(place.folder / FILE, os.O_RDWR | os.O_DIRECT)
    page = mmap.mmap(-1, PAGE)  # aligned, as O_DIRECT has it
    page.write(os.urandom(PAGE))
    try:
        thread.start()
        while thread.is_alive():
            offset = random.randrange(sizes.file_bytes // PAGE) * PAGE
            began_s = time.perf_counter()
            if len(taken) % 2:
                os.pwritev(descriptor, [page], offset)
            else:
                os.preadv(descriptor, [page], offset)
            taken.append(time.perf_counter() - began_s)
    finally:
        thread.join()
        os.close(descriptor)
    taken.sort()
    return taken[len(taken) * 99 // 100] * 1000, taken[-1] * 1000


def clients(places: Places, sizes: Sizes) -> Row:
    """Several processes, each with a file of its own: the slowest one's part of the mean."""
    found = in_turns(places.raw, partial(_slowest, sizes=sizes), sizes.repetitions)
    return Row(
        part="company",
        work=f"{CLIENTS} clients, 4 KiB direct: the slowest",
        unit="of the mean",
        values=found[OURS],
        limit=0.5,
        least=True,
        subjects=found,
        subjects_unit="part",
    )


def _slowest(place: Place, *, sizes: Sizes) -> float:
    size = sizes.file_bytes // CLIENTS
    command = ["fio", "--name=client", f"--directory={place.folder}", f"--size={size}", f"--numjobs={CLIENTS}"]
    command += ["--rw=randrw", "--bs=4k", "--direct=1", "--ioengine=psync", "--time_based", f"--runtime={sizes.job_s}"]
    reply = subprocess.run([*command, "--output-format=json"], capture_output=True, text=True, check=True).stdout
    jobs = json.loads(reply[reply.index("{") :])["jobs"]
    rates = [job["read"]["iops"] + job["write"]["iops"] for job in jobs]
    return float(min(rates) * len(rates) / sum(rates))
