"""A large sparse image copied by `cp` and by a clone; and the memory of a mount with many of them open."""

from __future__ import annotations

import os
import random
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import OURS, Place, Places, drop_names
from benchmarks.targets.sizes import MIB, Sizes
from benchmarks.targets.streams import pool_of, windows

IMAGE, FULL, SCATTERED = "image", "full", "scattered"
_READ_BYTES: Final = 64 << 10


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Rows about images."""
    ours, host = places.raw[OURS], places.host
    for place in (ours, host):
        make_image(place.folder / IMAGE, sizes)
        place.settle()
    make_full(ours, ours.folder / FULL, sizes.image_bytes, sizes)
    make_scattered(ours, sizes)
    found: dict[str, list[float]] = {"cp": [], "sparse": [], "host": [], "clone": [], "first": [], "scattered": []}
    for _ in range(sizes.repetitions):
        found["cp"].append(1000 * copied(ours, FULL))
        found["sparse"].append(1000 * copied(ours, IMAGE))
        found["host"].append(1000 * copied(host, IMAGE))
        found["clone"].append(1000 * cloned(ours))
        found["first"].append(1000 * first_read(ours, IMAGE, sizes))
        found["scattered"].append(1000 * first_read(ours, SCATTERED, sizes))
    gib, mib = sizes.image_bytes / (1 << 30), sizes.image_data_bytes >> 20
    sparse = Row(
        part="copies",
        work=f"cp of a sparse {gib:g} GiB image with {mib} MiB of data, which cp 9.1 reads and writes",
        unit="ms",
        values=found["sparse"],
        beside="cp on the host, ms",
        beside_values=found["host"],
    )
    rows = [
        Row(part="copies", work=f"cp of a {gib:g} GiB image", unit="ms", values=found["cp"], limit=50.0),
        sparse,
        Row(part="copies", work=f"clone of a {gib:g} GiB image", unit="ms", values=found["clone"], limit=20.0),
        Row(
            part="copies",
            work=f"first open of a sparse {gib:g} GiB image in pieces of 1 MiB, with its first read",
            unit="ms",
            values=found["first"],
            limit=50.0,
        ),
        Row(
            part="copies",
            work=f"first open of a {gib:g} GiB image without holes, each block elsewhere, with its first read",
            unit="ms",
            values=found["scattered"],
            limit=50.0,
        ),
    ]
    for place in (ours, host):
        place.tidy()
    return rows


def make_image(path: Path, sizes: Sizes) -> None:
    """A sparse file with a MiB of data here and there."""
    count = sizes.image_data_bytes // MIB
    with open(path, "wb", buffering=0) as file:
        for number, piece in enumerate(windows(pool_of(random.randrange(1 << 62)), sizes.image_data_bytes)):
            os.pwrite(file.fileno(), piece, number * (sizes.image_bytes // count) // 4096 * 4096)
        os.ftruncate(file.fileno(), sizes.image_bytes)


def make_full(ours: Place, path: Path, size_bytes: int, sizes: Sizes) -> None:
    """A file without holes. What is on the disk of it is a little that comes again and again."""
    with open(path, "wb", buffering=0) as file:
        file.writelines(windows(pool_of(random.randrange(1 << 62)), min(sizes.image_data_bytes, size_bytes)))
        os.fsync(file.fileno())
    ours.seal()
    _fill(path, size_bytes)


def make_scattered(ours: Place, sizes: Sizes) -> None:
    """The full image's blocks in another order, so that each lies elsewhere than the one before it."""
    with open(ours.folder / FULL, "rb", buffering=0) as source, open(ours.folder / SCATTERED, "wb") as file:
        places = list(range(0, min(sizes.image_data_bytes, sizes.image_bytes), _READ_BYTES))
        random.shuffle(places)
        file.writelines(os.pread(source.fileno(), _READ_BYTES, place) for place in places)
    ours.seal()
    _fill(ours.folder / SCATTERED, sizes.image_bytes)
    ours.seal()


def copied(place: Place, name: str) -> float:
    """Seconds of the command, which is `cp` without options."""
    target = place.folder / "copy"
    elapsed_s = seconds(lambda: subprocess.run(["cp", place.folder / name, target], check=True))
    target.unlink()
    place.settle()
    return elapsed_s


def cloned(place: Place) -> float:
    """Seconds of the request; the command's start, which is a Python's, comes on top."""
    with place.client() as client:
        elapsed_s = seconds(lambda: client.clone(IMAGE.encode(), b"clone"))
    (place.folder / "clone").unlink()
    return elapsed_s


def first_read(place: Place, name: str, sizes: Sizes) -> float:
    """Seconds until a file is open and a page of it is there: a new clone, which nobody has had open."""
    path = place.folder / "first"
    with place.client() as client:
        client.clone(name.encode(), b"first")
    drop_names()

    def work() -> None:
        with open(path, "rb", buffering=0) as file:
            os.pread(file.fileno(), 4096, random.randrange(sizes.image_bytes // 4096) * 4096)

    elapsed_s = seconds(work)
    path.unlink()
    return elapsed_s


def memory(places: Places, sizes: Sizes) -> list[Row]:
    """Anonymous memory of the mount while full images are open that share their blocks, and are read and written in."""
    ours = places.raw[OURS]
    each = sizes.logical_bytes // sizes.open_files // MIB * MIB
    first = ours.folder / "full-0"
    make_full(ours, first, each, sizes)
    with ours.client() as client, ExitStack() as stack:
        for number in range(1, sizes.open_files):
            client.clone(first.name.encode(), f"full-{number}".encode())
        paths = [ours.folder / f"full-{number}" for number in range(sizes.open_files)]
        files = [stack.enter_context(open(path, "r+b", buffering=0)) for path in paths]
        pid = client.status().pid
        values = []
        for _ in range(sizes.repetitions):
            for file in files:
                for _ in range(10):
                    offset = random.randrange(each - _READ_BYTES) // 4096 * 4096
                    os.pread(file.fileno(), _READ_BYTES, offset)
                    os.pwrite(file.fileno(), os.urandom(4096), offset)
            client.flush()
            time.sleep(0)
            values.append(_anonymous_mib(pid))
        notes = {"logical bytes": float(sum(path.stat().st_size for path in paths))}
    ours.tidy()
    work = f"RssAnon, {sizes.logical_bytes >> 30:,} GiB logical, {sizes.open_files} open files"
    return [Row(part="memory", work=work, unit="MB", values=values, limit=300.0, notes=notes)]


def _fill(path: Path, size_bytes: int) -> None:
    """Repeat what a file has until it is that long, by sharing its blocks."""
    with open(path, "r+b", buffering=0) as file:
        done = os.fstat(file.fileno()).st_size
        while done < size_bytes:
            done += os.copy_file_range(file.fileno(), file.fileno(), min(done, size_bytes - done), 0, done)


def _anonymous_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"process {pid} is gone")
