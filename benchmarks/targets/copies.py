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
from benchmarks.targets.places import HOST, OURS, Place, Places, drop_names, drop_pages
from benchmarks.targets.sizes import MIB, Sizes
from benchmarks.targets.streams import pool_of, windows

IMAGE: Final = "image"
_READ_BYTES: Final = 64 << 10


FULL: Final = "full"


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Rows about images."""
    ours, host = places.raw[OURS], places.raw[HOST]
    for place in (ours, host):
        make_image(place.folder / IMAGE, sizes)
        place.settle()
    make_full(ours, ours.folder / FULL, sizes.image_bytes, sizes)
    found: dict[str, list[float]] = {"cp": [], "sparse": [], "host": [], "clone": [], "first": []}
    for _ in range(sizes.repetitions):
        found["cp"].append(1000 * copied(ours, FULL))
        found["sparse"].append(1000 * copied(ours, IMAGE))
        found["host"].append(1000 * copied(host, IMAGE))
        found["clone"].append(1000 * cloned(ours))
        found["first"].append(1000 * first_read(ours, sizes))
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
            work=f"first open of a scattered {gib:g} GiB image, with its first read",
            unit="ms",
            values=found["first"],
            limit=50.0,
        ),
        memory(ours, sizes),
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


def first_read(place: Place, sizes: Sizes) -> float:
    """Seconds until a file is open and a page of it is there, when the kernel knows nothing of it any more."""
    path = place.folder / IMAGE
    drop_pages(path)
    drop_names()

    def work() -> None:
        with open(path, "rb", buffering=0) as file:
            os.pread(file.fileno(), 4096, random.randrange(sizes.image_bytes // 4096) * 4096)

    return seconds(work)


def memory(ours: Place, sizes: Sizes) -> Row:
    """Anonymous memory of the mount while full images are open that share their blocks, and are read and written in."""
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
    return Row(
        part="copies",
        work=f"RssAnon, {sizes.logical_bytes >> 30:,} GiB logical, {sizes.open_files} open files",
        unit="MB",
        values=values,
        limit=300.0,
        notes=notes,
    )


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
