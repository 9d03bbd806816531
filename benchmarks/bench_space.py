"""What a family of VM disks takes, and how fast it is taken in; next to btrfs with duperemove, borg and restic.

The disks are made once by `scripts/vm-images DIR` (root, two minutes, a Debian mirror): `BENCH_IMAGES=DIR`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from benchmarks import harness, rows
from benchmarks.bench_filesystem import BLOCKSYNC, blockfs
from benchmarks.harness import on_disk
from benchmarks.plots import PLOTS, plt
from benchmarks.rows import Row

BLOCK: Final = 65536
IMAGES: Final = ("base", "py", "web", "dev", *(f"{name}-d{day}" for name in ("py", "web", "dev") for day in (1, 2)))
REBUILT: Final = ("py-rebuilt", "web-rebuilt")
REPETITIONS: Final = int(os.environ.get("BENCH_REPETITIONS", "5"))
RAW, ZSTD = "blocksync", "blocksync, zstd"
BTRFS, BORG, RESTIC = "btrfs zstd:1, then duperemove", "borg zstd,1", "restic zstd"
PAGE: Final = Path(__file__).parent.parent / "docs/reference/benchmarks.md"
TARGETS: Final = {RAW: (1.04, 700.0), ZSTD: (0.39, 500.0)}
"""Stored per distinct byte at most; logical MB/s at least."""
STORED: Final = ": stored, of the distinct bytes"
DAY_LIMIT: Final = 1.1  # stored per changed byte of a next day's image, at most


class Taken(msgspec.Struct, kw_only=True):
    """What one subject did with the disks, in one repetition.

    Attributes:
        seconds: To take all of them in, durably, and to find what they share.
        stored: Bytes on the disk below, after each disk.
        end: The same when everything is done.
    """

    seconds: float = 0.0
    stored: list[int] = msgspec.field(default_factory=list)
    end: int = 0


class Corpus(msgspec.Struct, frozen=True, kw_only=True):
    """The disks, in the order in which they are taken in.

    Attributes:
        paths: Of the disks.
        logical: Bytes, holes included.
        distinct: Bytes of different blocks of 64 KiB, all-zero ones left out.
        changed: For each next day's disk, bytes of blocks that differ from the day before.
    """

    paths: list[Path]
    logical: int
    distinct: int
    changed: dict[str, int]


def main(arguments: Sequence[str]) -> None:
    """Measure, save, put table and plot in their places.

    Args:
        arguments: `--more` adds to the repetitions that were saved: one takes some minutes.
    """
    folder = os.environ.get("BENCH_IMAGES")
    if folder is None or os.geteuid():
        sys.exit("as root, with BENCH_IMAGES=DIR, where `scripts/vm-images DIR` has made the disks")
    corpus = look_at(Path(folder))
    taken: dict[str, list[Taken]] = {name: [] for name in SUBJECTS}
    for repetition in range(REPETITIONS):
        for name, take in SUBJECTS.items():
            with tempfile.TemporaryDirectory(prefix="blocksync-space-") as home:
                taken[name].append(take(Path(home), corpus))
            subprocess.run(["sync"], check=True)
            done = taken[name][-1]
            print(f"{repetition + 1}/{REPETITIONS} {name}: {done.seconds:.1f} s, {done.end / 1e6:,.0f} MB", flush=True)
    found = figures(corpus, taken)
    path = harness.RESULTS / "space.jsonl"
    if "--more" in arguments:
        found = [joined(old, new) for old, new in zip(rows.read(path, ["space"]), found, strict=True)]
    rows.save(path, "space", found, distinct_bytes=corpus.distinct, logical_bytes=corpus.logical)
    draw(found)
    logical, distinct = corpus.logical / 1e6, corpus.distinct / 1e6
    times = len(found[0].values)
    sizes = f"{times} repetitions. {len(corpus.paths)} disks, {logical:,.0f} MB, of which {distinct:,.0f} MB distinct."
    text = f"{rows.circumstances(path)}{sizes}\n\n{rows.table(found)}\n![space](plots/space.svg)\n"
    rows.put_into_page(PAGE, "python -m benchmarks space", text)
    print(rows.table(found))


def look_at(folder: Path) -> Corpus:
    """Hash the disks."""
    paths = [folder / f"{name}.img" for name in (*IMAGES, *REBUILT)]
    names: dict[str, list[bytes]] = {path.stem: list(ids(path)) for path in paths}
    distinct = {block for blocks in names.values() for block in blocks if block}
    changed: dict[str, int] = {}
    for name in IMAGES:
        before = {"d1": name.removesuffix("-d1"), "d2": f"{name.removesuffix('-d2')}-d1"}.get(name[-2:])
        if before is not None:
            pairs = zip(names[name], names[before], strict=True)
            changed[name] = sum(BLOCK for new, old in pairs if new and new != old)
    logical = sum(path.stat().st_size for path in paths)
    return Corpus(paths=paths, logical=logical, distinct=len(distinct) * BLOCK, changed=changed)


def ids(path: Path) -> Iterator[bytes]:
    """SHA-256 of each block, b"" for zeros."""
    zeros = bytes(BLOCK)
    with path.open("rb") as file:
        while data := file.read(BLOCK):
            yield hashlib.sha256(data).digest() if data != zeros else b""


def in_volume(home: Path, corpus: Corpus, *options: str) -> Taken:
    """`cp --sparse=always` of each into a mounted volume, and a flush."""
    taken = Taken()
    with blockfs(home, *options) as mountpoint:
        for path in corpus.paths:
            began = time.perf_counter()
            run("cp", "--sparse=always", path, mountpoint)
            run(BLOCKSYNC, "flush", mountpoint)
            taken.seconds += time.perf_counter() - began
            taken.stored.append(on_disk(home / "volume"))
    taken.end = on_disk(home / "volume")
    return taken


def on_btrfs(home: Path, corpus: Corpus) -> Taken:
    """The same into btrfs that compresses, in a file of its own; then duperemove looks for equal blocks."""
    taken = Taken()
    with btrfs(home) as mountpoint:
        empty = used(mountpoint)
        for path in corpus.paths:
            began = time.perf_counter()
            run("cp", "--sparse=always", path, mountpoint)
            run("sync", "--file-system", mountpoint)
            taken.seconds += time.perf_counter() - began
            taken.stored.append(used(mountpoint) - empty)
        began = time.perf_counter()
        run("duperemove", "-dr", "-b", "64K", f"--hashfile={home}/hashes", mountpoint)
        run("sync", "--file-system", mountpoint)
        taken.seconds += time.perf_counter() - began
        taken.end = used(mountpoint) - empty
    return taken


@contextmanager
def btrfs(home: Path) -> Iterator[Path]:
    """An empty btrfs."""
    file, mountpoint = home / "btrfs", home / "mounted"
    mountpoint.mkdir()
    with file.open("wb") as made:
        made.truncate(24 << 30)
    run("mkfs.btrfs", "--quiet", file)
    run("mount", "-o", "loop,compress=zstd:1", file, mountpoint)
    try:
        yield mountpoint
    finally:
        run("umount", mountpoint)


def by_borg(home: Path, corpus: Corpus) -> Taken:
    """An archive for each disk, not encrypted."""
    environment = {"BORG_BASE_DIR": str(home), "BORG_UNKNOWN_UNENCRYPTED_REPO_ACCESS_IS_OK": "yes"}
    run("borg", "init", "--encryption=none", home / "repository", **environment)

    def take(path: Path) -> None:
        run("borg", "create", "--compression=zstd,1", f"{home}/repository::{path.stem}", path, **environment)

    return by_archive(home / "repository", corpus, take)


def by_restic(home: Path, corpus: Corpus) -> Taken:
    """A snapshot for each disk; restic always encrypts."""
    environment = {"RESTIC_REPOSITORY": str(home / "repository"), "RESTIC_PASSWORD": "x", "HOME": str(home)}
    run("restic", "init", "--repository-version=2", **environment)

    def take(path: Path) -> None:
        run("restic", "backup", path, **environment)

    return by_archive(home / "repository", corpus, take)


def by_archive(repository: Path, corpus: Corpus, take: Callable[[Path], None]) -> Taken:
    """One disk after the other, and what is on the disk below is written before the next one."""
    taken = Taken()
    for path in corpus.paths:
        began = time.perf_counter()
        take(path)
        run("sync", "--file-system", repository)
        taken.seconds += time.perf_counter() - began
        taken.stored.append(on_disk(repository))
    taken.end = on_disk(repository)
    return taken


SUBJECTS: Final[dict[str, Callable[[Path, Corpus], Taken]]] = {
    RAW: in_volume,
    ZSTD: lambda home, corpus: in_volume(home, corpus, "--compression", "zstd"),
    BTRFS: on_btrfs,
    BORG: by_borg,
    RESTIC: by_restic,
}


def figures(corpus: Corpus, taken: dict[str, list[Taken]]) -> list[Row]:
    """Rows of the table."""
    found = []
    for name, each in taken.items():
        space, speed = TARGETS.get(name, (None, None))
        values = [one.end / corpus.distinct for one in each]
        megabytes = [one.end / 1e6 for one in each]
        found.append(row(name + STORED, "times", values, space, beside="MB", beside_values=megabytes))
        values = [corpus.logical / 1e6 / one.seconds for one in each]
        found.append(row(f"{name}: taken in, holes included", "MB/s", values, speed, least=True))
        worst = [max(days(corpus, one).values()) for one in each]
        typical = [statistics.median(days(corpus, one).values()) for one in each]
        limit = None if space is None else DAY_LIMIT
        work = f"{name}: a next day's disk adds, of its changed blocks, the worst of six"
        found.append(row(work, "times", worst, limit, beside="median of the six", beside_values=typical))
    return found


def row(work: str, unit: str, values: list[float], limit: float | None, **more: Any) -> Row:
    """One of them."""
    return Row(part="space", work=work, unit=unit, values=values, limit=limit, **more)


def joined(old: Row, new: Row) -> Row:
    """A row of all repetitions."""
    assert old.work == new.work, "saved by another version of this benchmark"
    return replace(new, values=old.values + new.values, beside_values=old.beside_values + new.beside_values)


def days(corpus: Corpus, one: Taken) -> dict[str, float]:
    """For each next day's disk: what it added to what is stored, of what had changed."""
    added = [after - before for before, after in pairwise([0, *one.stored])]
    by_name = dict(zip([path.stem for path in corpus.paths], added, strict=True))
    return {name: by_name[name] / changed for name, changed in corpus.changed.items()}


def draw(found: list[Row]) -> None:
    """Bars: what is stored of the distinct bytes."""
    stored = [one for one in found if one.work.endswith(STORED)][::-1]
    picture, axes = plt.subplots(figsize=(6.4, 2.4))
    names = [one.work.removesuffix(STORED) for one in stored]
    axes.barh(names, [one.median for one in stored], color="#2a7f62")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xlabel("stored, of the distinct bytes at 64 KiB")
    axes.grid(alpha=0.3, axis="x")
    picture.tight_layout()
    PLOTS.mkdir(exist_ok=True)
    picture.savefig(PLOTS / "space.svg", metadata={"Date": None})
    plt.close(picture)


def used(mountpoint: Path) -> int:
    """Bytes of a filesystem that are in use."""
    found = os.statvfs(mountpoint)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def run(*command: str | Path, **environment: str) -> None:
    """A command that must not fail."""
    full = os.environ | environment
    done = subprocess.run([*map(str, command)], env=full, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (command, done.stderr[-2000:])


def available() -> bool:
    """Whether the other tools are there (Debian packages btrfs-progs, duperemove, borgbackup, restic)."""
    return all(shutil.which(name) for name in ("mkfs.btrfs", "duperemove", "borg", "restic"))
