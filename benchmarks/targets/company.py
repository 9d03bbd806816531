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
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.bench_sync import BLOCKSYNC, serve
from benchmarks.bench_transfers import devices
from benchmarks.rows import Row, times
from benchmarks.targets.places import OURS, Place, Places, in_turns
from benchmarks.targets.sizes import MIB, Sizes
from benchmarks.targets.streams import FILE, pool_of, windows, written

CLIENTS: Final = 8
PAGE: Final = 4096
SMALL_FILE: Final = 16 << 10


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Rows about company."""
    ours = places.raw[OURS]
    rows = chores(ours, sizes, is_native=places.is_native)
    rows.append(clients(places, sizes))
    for place in places.raw.values():
        place.tidy()
    return rows


def run_applying(places: Places, sizes: Sizes) -> list[Row]:
    """The rows about requests beside a pull, a part by itself: they take as long as all others together."""
    rows = applying(places.raw[OURS], sizes, is_native=places.is_native)
    places.raw[OURS].tidy()
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
    return [
        row
        for what, found in (("sealing", sealing), ("collecting", collecting))
        for row in _rows(what, found, idle, is_native=is_native)
    ]


def applying(ours: Place, sizes: Sizes, *, is_native: bool) -> list[Row]:
    """The same while a pull makes new files in the mount.

    Everything is on this machine, the server as well. The device that pushes has a state of its own, so that each block
    is fetched from the server. Each repetition has new files; those before it stay.

    Raises:
        RuntimeError: A pull failed, or not all of its files are there.
    """
    written(ours, size_bytes=sizes.file_bytes, is_sealed=True)
    idle: list[tuple[float, float]] = []
    found = list(idle)
    notes: dict[str, float] = {}
    with devices("company") as here, serve(here.home / "server", here.environment) as url:
        first, other = here.link("first", url), here.apart()
        other.run(BLOCKSYNC, "link", ours.folder, url, "--token-file", here.home / "server/token")
        other.run(BLOCKSYNC, "ignore", ours.folder, "add", f"/{FILE}")  # which is written meanwhile
        for repetition in range(sizes.repetitions):
            name = f"applied-{repetition}"
            make_mixed(first / name, sizes.large_bytes)
            here.reconcile(first)
            ours.settle()
            idle.append(slow_ms(ours, partial(time.sleep, sizes.job_s), sizes))
            pull = Pull(ours.folder, other.environment)
            found.append(slow_ms(ours, pull.finish, sizes))
            notes = pull.applied(first / name, ours.folder / name)
            ours.settle()
        other.run(BLOCKSYNC, "unlink", ours.folder)
    return [replace(row, notes=notes) for row in _rows("applying", found, idle, part="applying", is_native=is_native)]


def make_mixed(folder: Path, size_bytes: int) -> None:
    """New files in a new folder: half of all bytes in four, three eighths in files of 1 MiB, the rest in small ones."""
    folder.mkdir()
    kinds = (
        ("large", 4, size_bytes // 8),
        ("medium", size_bytes * 3 // 8 // MIB, MIB),
        ("small", size_bytes // 8 // SMALL_FILE, SMALL_FILE),
    )
    for kind, count, each_bytes in kinds:
        for number in range(count):
            (folder / f"{kind}-{number}").write_bytes(os.urandom(each_bytes))


class Pull:
    """`blocksync reconcile` of a mount; made when it has looked at both sides, and applies."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        """Start it, and wait until the first node is made.

        Raises:
            RuntimeError: It ended before.
        """
        command = [str(BLOCKSYNC), "reconcile", str(root), "--json"]
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._told = self._process.stdout
        self._rest = ""
        self._took_s = 0.0
        for line in self._told:
            if json.loads(line)["type"] == "action":
                break
        else:
            raise RuntimeError(f"the pull made nothing, exit code {self._process.wait()}; its messages are above")

    def finish(self) -> None:
        """Wait for its end. What it tells is looked at later: that would be work beside what is measured."""
        began_s = time.perf_counter()
        self._rest = self._told.read()
        self._process.wait()
        self._took_s = time.perf_counter() - began_s

    def applied(self, source: Path, target: Path) -> dict[str, float]:
        """What it has done while it was measured.

        Args:
            source: The folder that was pushed.
            target: The same in the mount.

        Returns:
            Bytes that came from the server, files that are there, and seconds.

        Raises:
            RuntimeError: It failed, or did not fetch and make all files.
        """
        summary = json.loads(self._rest.splitlines()[-1]) if self._rest else {}
        wanted, there = _sizes(source), _sizes(target)
        received = summary.get("bytes_received", 0)
        if self._process.returncode or not wanted or wanted != there or received < sum(wanted.values()):
            raise RuntimeError(
                f"the pull made {len(there)} of {len(wanted)} files of {received} bytes that came, "
                f"exit code {self._process.returncode}: {summary}"
            )
        return {"bytes_received": received, "files": len(there), "seconds": self._took_s}


def _sizes(folder: Path) -> dict[str, int]:
    return {each.name: each.stat().st_size for each in folder.iterdir()} if folder.is_dir() else {}


def _rows(
    what: str,
    found: list[tuple[float, float]],
    idle: list[tuple[float, float]],
    *,
    part: str = "company",
    is_native: bool,
) -> list[Row]:
    """Rows about one chore: a multiple of idle, or milliseconds in a native mount."""
    p99, quiet = [each for each, _ in found], [each for each, _ in idle]
    if not is_native:
        return [times(part, f"p99 of direct requests while {what}", 3.0, p99, "idle, ms", quiet)]
    return [
        _told(f"p99 of direct requests while {what}", 20.0, p99, quiet, part),
        _told(f"slowest direct request while {what}", 300.0, [each for _, each in found], [w for _, w in idle], part),
    ]


def _told(work: str, limit_ms: float, found: list[float], quiet: list[float], part: str) -> Row:
    return Row(part=part, work=work, unit="ms", values=found, limit=limit_ms, beside="idle, ms", beside_values=quiet)


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
