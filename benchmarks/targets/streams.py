"""Data in order: written, written again, sealed, and read."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import OURS, K, Place, Places, X, drop_all, drop_pages, in_turns, keep_pages, share
from benchmarks.targets.sizes import MIB, Sizes

_POOL_BYTES: Final = 16 * MIB
FILE: Final = "stream"


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Sequential work."""
    return [*writing(places, sizes), *reading(places, sizes)]


def writing(places: Places, sizes: Sizes) -> list[Row]:
    """New data with an fsync, and data that are blocks already until they are that again."""
    times = sizes.repetitions
    found = in_turns(places.raw, partial(written, size_bytes=sizes.stream_bytes, is_sealed=False), times)
    rows = [share("streams", "sequential write 1 MiB of new data + fsync", "MB/s", found, 0.85)]
    _tidy(places)
    for place in places.raw.values():
        written(place, size_bytes=sizes.stream_bytes, is_sealed=True, seed=1)
    before = {name: stored(place) for name, place in places.raw.items() if place.volume}
    again = partial(written, size_bytes=sizes.stream_bytes, is_sealed=True, seed=1, name="again")
    found = in_turns(places.raw, again, times)
    rows.append(share("streams", "writing data the volume already has, incl. flush", "MB/s", found, 0.6))
    added = [(stored(places.raw[name]) - was) / 1e6 for name, was in before.items()]
    rows.append(Row(part="streams", work="segment bytes that this adds", unit="MB", values=added, limit=0.0))
    _tidy(places)
    return rows


def sealed(places: Places, sizes: Sizes) -> list[Row]:
    """Much new data until they are blocks, beside whom they are compared with alone: it takes long."""
    base = X if places.is_native else K
    compared = {name: places.raw[name] for name in (base, OURS)}
    work = f"{sizes.sealed_bytes / (1 << 30):g} GiB of new data incl. flush (sealed)"
    action = partial(written, size_bytes=sizes.sealed_bytes, is_sealed=True)
    found = in_turns(compared, action, sizes.sealed_repetitions)
    _tidy(places)
    return [share("sealed", work, "MB/s", found, 0.6 if places.is_native else 0.7)]


def reading(places: Places, sizes: Sizes) -> list[Row]:
    """Sealed data, pages of the mount dropped; what is behind the mount is warm, but for the host's own file.

    A native mount has no pages of its own: all are dropped, behind it as well, or none.
    """
    rows = []
    kinds = (
        (("pages dropped: raw", drop_pages, places.raw, 0.85), ("pages dropped: zstd", drop_pages, places.zstd, 0.3))
        if not places.is_native
        else (("nothing cached", drop_all, places.raw, 0.9), ("cached", keep_pages, places.raw, 0.9))
    )
    for name, drop, group, least in kinds:
        for place in group.values():
            written(place, size_bytes=sizes.stream_bytes, is_sealed=True, halves=True)
        found = in_turns(group, partial(read, drop=drop), sizes.repetitions)
        rows.append(share("streams", f"sequential read of sealed data, {name}", "MB/s", found, least))
        for place in group.values():
            place.tidy()
    return rows


def _tidy(places: Places) -> None:
    for place in places.raw.values():
        place.tidy()


def written(
    place: Place,
    *,
    size_bytes: int,
    is_sealed: bool,
    seed: int | None = None,
    halves: bool = False,
    name: str = FILE,
) -> float:
    """Write a file anew; MB/s until fsync has returned, or until it is blocks, if it is ours."""
    pool = pool_of(random.randrange(1 << 62) if seed is None else seed, halves=halves)
    path = place.folder / name
    if path.exists():
        path.unlink()
        place.collect()  # else that is done beside the work
    pieces = list(windows(pool, size_bytes))
    began_s = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        file.writelines(pieces)  # one write(2) each
        os.fsync(file.fileno())
    if is_sealed:
        place.seal()
    return size_bytes / 1e6 / (time.perf_counter() - began_s)


def read(place: Place, *, drop: Callable[[Path], None]) -> float:
    """Read the file; MB/s. Once before, so that all are warm alike."""
    path = place.folder / FILE
    buffer = bytearray(MIB)
    for _ in range(2):
        drop(path)
        elapsed_s = seconds(partial(_read_all, path, buffer))
    return path.stat().st_size / 1e6 / elapsed_s


def _read_all(path: Path, buffer: bytearray) -> None:
    with open(path, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def stored(place: Place) -> int:
    """Allocated bytes of a volume's segments. What a native mount's hot files share with them is not counted again."""
    segments = Path(os.fsdecode(place.volume)) / "blocks/segments"
    return sum(each.stat().st_blocks * 512 for each in segments.iterdir())


def pool_of(seed: int, *, halves: bool = False) -> bytes:
    """Random bytes; `halves`: every second KiB is zeros, so that zstd halves it."""
    pool = random.Random(seed).randbytes(_POOL_BYTES)
    if not halves:
        return pool
    return b"".join(pool[start : start + 1024] + bytes(1024) for start in range(0, _POOL_BYTES, 2048))


def windows(pool: bytes, size_bytes: int) -> Iterator[memoryview]:
    """Pieces of 1 MiB of a pool at odd places: no block of them comes twice, and nothing is computed meanwhile."""
    view = memoryview(pool)
    for number in range(size_bytes // MIB):
        start = number * 1_000_003 % (len(pool) - MIB)
        yield view[start : start + MIB]
