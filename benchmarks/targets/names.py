"""Small files: made, looked at, listed and removed."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from benchmarks.harness import seconds
from benchmarks.rows import Row
from benchmarks.targets.places import K, Place, Places, drop_names, in_turns, share
from benchmarks.targets.sizes import Sizes


def run(places: Places, sizes: Sizes) -> list[Row]:
    """Works on names; per second."""
    rows = []
    count = sizes.names
    works = {
        "create + write 100 B + close": (create, False),
        "stat, nothing cached": (stat, True),
        "unlink": (unlink, False),
    }
    found: dict[str, dict[str, list[float]]] = {work: {name: [] for name in places.names} for work in works}
    for _ in range(sizes.repetitions):
        for work, (action, is_uncached) in works.items():
            for name, values in in_turns(
                places.names, partial(_rate, action=action, count=count, is_uncached=is_uncached), 1
            ).items():
                found[work][name] += values
    for work, each in found.items():
        rows.append(share("names", work, "1/s", each, 0.7, of=K))
    for place in places.names.values():
        create(place.folder, sizes.listing)
    listed = partial(_rate, action=look_at_all, count=sizes.listing, is_uncached=True)
    each = in_turns(places.names, listed, sizes.repetitions)
    rows.append(share("names", f"readdir + stat of {sizes.listing:,}, nothing cached", "1/s", each, 0.7, of=K))
    for place in places.names.values():
        place.tidy()
    return rows


def _rate(place: Place, *, action: object, count: int, is_uncached: bool) -> float:
    assert callable(action)
    if is_uncached:
        drop_names()
    return count / seconds(partial(action, place.folder, count))


def create(folder: Path, count: int) -> None:
    """Make small files."""
    data = b"x" * 100
    for number in range(count):
        descriptor = os.open(folder / f"small-{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        os.write(descriptor, data)
        os.close(descriptor)


def stat(folder: Path, count: int) -> None:
    """Look at each of them."""
    for number in range(count):
        os.stat(folder / f"small-{number}")


def look_at_all(folder: Path, count: int) -> None:
    """List them, and look at each."""
    with os.scandir(folder) as entries:
        seen = sum(entry.stat(follow_symlinks=False).st_size == 100 for entry in entries)
    assert seen == count, f"{seen} of {count} files"


def unlink(folder: Path, count: int) -> None:
    """Remove each of them."""
    for number in range(count):
        os.unlink(folder / f"small-{number}")
