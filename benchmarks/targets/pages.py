"""4 KiB at random: direct by fio, through the page cache, and each with an fdatasync."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import OURS, K, P, Place, Places, X, in_turns, share
from benchmarks.targets.sizes import Sizes
from benchmarks.targets.streams import FILE, written

PAGE: Final = 4096
Action = Callable[[Place], float]
ENGINES: Final = {1: "psync", 16: "libaio"}


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Random work in one file, which is in blocks before each measurement; with a native mount where it says so."""
    for place in places.raw.values():
        written(place, size_bytes=sizes.file_bytes, is_sealed=True)
    rows = []
    # Blocks share the pages of a sealed file with a native mount's: the host's share nothing, so both begin anew.
    fresh: Callable[[Action], Action] = partial(anew, sizes=sizes) if places.is_native else _as_it_is
    base = X if places.is_native else K
    for work in ("read", "write"):
        at = {}
        for depth, least in ((1, 0.85), (16, 0.4)):
            action: Action = partial(fio, work=work, depth=depth, sizes=sizes)
            at[depth] = in_turns(places.raw, fresh(action) if work == "write" else action, sizes.repetitions)
            told = 0.9 if places.is_native else least
            rows.append(share("pages", f"random {work} 4 KiB direct, depth {depth}", "1/s", at[depth], told))
        times = [deep / one for deep, one in zip(at[16][OURS], at[1][OURS], strict=True)]
        beside = statistics.median(at[16][base]) / statistics.median(at[1][base])
        rows.append(
            Row(
                part="pages",
                work=f"random {work} 4 KiB direct, depth 16 beside depth 1",
                unit="times",
                values=times,
                limit=2.5 if work == "read" and not places.is_native else None,
                least=True,
                beside=f"{base}: {beside:.2f}",
            )
        )
    if places.is_native:
        rows += first_touches(places, sizes)
    found = in_turns(places.raw, fresh(partial(buffered, sizes=sizes)), sizes.repetitions)
    work = "random write 4 KiB buffered + fsync"
    rows.append(share("pages", work, "1/s", found, 0.9 if places.is_native else 0.4))
    if P in found:
        rows.append(share("pages", work, "1/s", found, 5.0, of=P))
    found = in_turns(places.raw, fresh(partial(synced, sizes=sizes)), sizes.repetitions)
    rows.append(share("pages", "4 KiB write + fdatasync, depth 1", "1/s", found, 0.6 if places.is_native else 0.85))
    for place in places.raw.values():
        place.tidy()
    return rows


def first_touches(places: Places, sizes: Sizes) -> list[Row]:
    """Each page is written once after a seal: beside a file of which the host has just made a reflinked copy."""
    rows = []
    for depth in ENGINES:
        action = partial(_shared, action=partial(fio, work="write", depth=depth, sizes=sizes), sizes=sizes)
        found = in_turns(places.raw, action, sizes.repetitions)
        work = f"random write 4 KiB direct, depth {depth}, first touch after a seal (X: of a reflinked copy)"
        rows.append(share("pages", work, "1/s", found, 0.8))
    return rows


def anew(action: Action, *, sizes: Sizes) -> Action:
    """The same work in a file that was just written, and not sealed."""

    def work(place: Place) -> float:
        written(place, size_bytes=sizes.file_bytes, is_sealed=False)
        return action(place)

    return work


def _as_it_is(action: Action) -> Action:
    return action


def _shared(place: Place, *, action: Action, sizes: Sizes) -> float:
    written(place, size_bytes=sizes.file_bytes, is_sealed=True)
    if not place.volume:
        subprocess.run(["cp", "--reflink=always", place.folder / FILE, place.folder / "copy"], check=True)
    return action(place)


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
