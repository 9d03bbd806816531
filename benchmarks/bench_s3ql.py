"""S3QL on a backend in a folder, beside volumes without and with compression, and the host's own folder; one disk.

S3QL is in Debian 13, not in Debian 12, nor does pip find it: it runs in a tree of Debian 13, which debootstrap makes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import bench_filesystem, harness, rows
from benchmarks.bench_filesystem import BLOCKSYNC, NAMES, blockfs
from benchmarks.harness import Result, on_disk, seconds
from benchmarks.rows import Row
from benchmarks.targets import pages
from benchmarks.targets.places import Place, drop_all, drop_names
from benchmarks.targets.sizes import FULL, MIB, QUICK, Sizes
from benchmarks.targets.streams import FILE, pool_of, windows
from tests.kit.debian import debian_tree, done

PROJECT: Final = Path(__file__).parent.parent
PAGE: Final = PROJECT / "docs/reference/benchmarks.md"
README: Final = PROJECT / "README.md"
COMMAND: Final = "python -m benchmarks s3ql"
SAVED: Final = harness.RESULTS / "s3ql.jsonl"

HOST, RAW, ZSTD, S3QL, LZMA = "host", "blocksync", "blocksync, zstd", "S3QL, none", "S3QL, lzma"
STREAM_BYTES: Final = 1 << 30
DISKS: Final = ("base", "py", "web", "web-d1")
"""Of `scripts/vm-images`; the last one is the next day of the one before it."""

NEW, NEW_DURABLE = "1 GiB of new data, in order, until it is stored", "… until it is on the disk, too"
AGAIN, ADDED = "the same data under another name, until stored", "bytes that this adds on the host"
READ, READ_KEPT = "read in order, nothing cached", "… S3QL's own cache kept"
COPY, START = "a copy of the image of 1 GiB, whole command", "… of this the start of the command alone"
RANDOM: Final = {work: f"random {work} 4 KiB direct, depth 1" for work in ("read", "write")}
BUFFERED: Final = "random write 4 KiB buffered + fsync"
TAKEN, STORED, NEXT_DAY = "3 disks of 1 GiB, taken in", "… stored on the host", "a next day's disk adds"

README_ROWS: Final = (NEW, AGAIN, ADDED, READ, RANDOM["read"], RANDOM["write"], COPY, TAKEN, STORED, NEXT_DAY)
README_COLUMNS: Final = (HOST, RAW, ZSTD, S3QL, LZMA)

Found = dict[str, dict[str, list[float]]]
"""For each work, by subject: a value per repetition."""

UNITS: Final = {
    NEW: "MB/s", NEW_DURABLE: "MB/s", AGAIN: "MB/s", ADDED: "MB", READ: "MB/s", READ_KEPT: "MB/s", COPY: "ms",
    START: "ms", TAKEN: "s", STORED: "MB", NEXT_DAY: "MB",
}  # fmt: skip
"""All others are a number per second."""


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """Who is measured.

    Attributes:
        place: Where the work is done.
        below: What the host keeps for it.
        copy: The command that makes a copy of the file in a folder at another path; `s3qlcp` takes the folder.
        started: The same command, doing nothing.
    """

    place: Place
    below: Path
    copy: Callable[[Path, Path], Sequence[str | Path]]
    started: Sequence[str | Path]


class S3qlPlace(Place, frozen=True, kw_only=True):
    """A folder on a mounted S3QL. What `s3qlctrl` asks for is asked for as it does, without the start of a command."""

    def seal(self) -> None:
        """Wait until all is on the backend."""
        self.ask(b"s3ql_flushcache!")

    def forget(self) -> None:
        """Have it drop the cache that it keeps in files."""
        self.ask(b"s3ql_dropcache!")

    def ask(self, what: bytes) -> None:
        """Say something to the mount."""
        os.setxattr(self.folder / ".__s3ql__ctrl__", what, b"dummy")


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """A Debian 13 with S3QL. `bound`: the folder of it that is the benchmark's own."""

    path: Path
    bound: Path

    def command(self, *command: str | Path) -> list[str]:
        """One that runs in the tree; paths are given as they are outside."""
        return ["chroot", str(self.path), *(str(self.inside(part)) for part in command)]

    def inside(self, part: str | Path) -> str | Path:
        """A path as it is called in the tree."""
        return Path("/", part.relative_to(self.path)) if isinstance(part, Path) else part


def main(arguments: Sequence[str]) -> None:
    """Run the named parts, or all, save, make the tables."""
    asked = _parser().parse_args(arguments)
    if asked.table:
        tell()
        return
    if os.geteuid():
        sys.exit("run it as root: it makes a tree of Debian 13, mounts, and drops caches")
    apart = "BENCH_S3QL_APART"
    if apart not in os.environ:
        # Its mounts are its own and go with it; a `umount` by somebody else is one here, too.
        command = ["unshare", "--mount", "--propagation", "slave", sys.executable, "-m", "benchmarks", "s3ql"]
        os.execvpe(command[0], [*command, *arguments], os.environ | {apart: "1"})
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # unmount after `kill`, too
    sizes = QUICK if asked.quick else FULL
    repetitions = asked.repetitions or (1 if asked.quick else 3)
    # A quick look is no result: it goes elsewhere.
    results = PROJECT / "build/benchmarks" / SAVED.name if asked.quick else SAVED
    try:
        measure(asked.part or list(PARTS), sizes, repetitions, results)
    except KeyboardInterrupt:
        sys.exit("interrupted; all of it is unmounted, and parts that were complete are saved")
    if not asked.quick:
        tell()
    print(results.relative_to(PROJECT))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("part", nargs="*", choices=[*PARTS, []], help="all of them, if none is named")
    parser.add_argument("--quick", action="store_true", help="a little of everything; writes to build/benchmarks")
    parser.add_argument("--repetitions", type=int, help="of each measurement (3)")
    parser.add_argument("--table", action="store_true", help="only make the tables of what is saved")
    return parser


def measure(parts: Sequence[str], sizes: Sizes, repetitions: int, results: Path) -> None:
    """Run these parts; each is saved when it is complete."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blocksync-s3ql-")))
        tree = stack.enter_context(debian_13(home))
        version = done(*tree.command("dpkg-query", "--show", "--showformat=${Version}", "s3ql"))
        for name in parts:
            began_s = time.monotonic()
            found = PARTS[name](tree, sizes, repetitions)
            made = [made_row(name, work, each) for work, each in found.items()]
            took_s = round(time.monotonic() - began_s)
            rows.save(results, name, made, seconds=took_s, s3ql=version)
            print(f"## {name} ({took_s} s) {harness.busy()}\n\n{table(made)}", flush=True)


def tell() -> None:
    """Put the tables of all that is saved into their places."""
    every = saved()
    rows.put_into_page(PAGE, COMMAND, page_text(every))
    rows.put_into_page(README, COMMAND, readme_table(every))
    print(table(every))


def saved() -> list[Row]:
    """All rows of the results."""
    return rows.read(SAVED, list(PARTS))


def page_text(found: Sequence[Row]) -> str:
    """For the page of benchmarks: when, and the table."""
    return f"{rows.circumstances(SAVED)}\n{table(found)}"


def table(found: Sequence[Row]) -> str:
    """A column for each subject, medians."""
    return harness.markdown(results_of(found))


def readme_table(found: Sequence[Row]) -> str:
    """For the README: what is most asked for."""
    results = {(each.work, each.subject): each for each in results_of(found)}
    lines = [f"| what (`s3ql`) | {' | '.join(README_COLUMNS)} |", f"| --- |{' ---: |' * len(README_COLUMNS)}"]
    for work in README_ROWS:
        each = [results.get((work, name)) for name in README_COLUMNS]
        if not any(each):
            continue  # a part that was not measured yet
        cells = [f"{harness.figure(one.median)} {one.unit}".replace(" 1/s", "/s") if one else "-" for one in each]
        lines.append(f"| {work} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def results_of(found: Sequence[Row]) -> list[Result]:
    """A result for each subject of each row."""
    return [
        Result(work=row.work, subject=name, unit=row.unit, values=values)
        for row in found
        for name, values in row.subjects.items()
    ]


def made_row(part: str, work: str, subjects: Mapping[str, list[float]]) -> Row:
    """A row to be saved; its values are ours, if we were measured."""
    unit = UNITS.get(work, "1/s")
    values = subjects.get(RAW) or next(iter(subjects.values()))
    return Row(part=part, work=work, unit=unit, values=values, subjects=dict(subjects), subjects_unit=unit)


@contextmanager
def debian_13(home: Path) -> Iterator[Tree]:
    """A tree with S3QL: the one that BENCH_S3QL names, made if it is not there, or one that goes afterwards."""
    path = Path(os.environ.get("BENCH_S3QL") or home / "debian").absolute()
    if not (path / "usr/bin/mount.s3ql").exists():
        if not shutil.which("debootstrap"):
            sys.exit("it wants debootstrap (`make bench` installs it)")
        print(f"making a Debian 13 in {path}", file=sys.stderr)
        debian_tree(path, suite="trixie")
        install = ("apt-get", "-q", "install", "--yes", "--no-install-recommends", "s3ql")
        done("chroot", path, "apt-get", "-q", "update")
        done("chroot", path, *install, DEBIAN_FRONTEND="noninteractive")
    if not (path / "dev/fuse").exists():
        os.mknod(path / "dev/fuse", 0o20600, os.makedev(10, 229))
    (home / "bound").mkdir()
    with mounted(path / "proc", "-t", "proc", "proc"), mounted(path / "mnt", "--bind", home / "bound"):
        yield Tree(path=path, bound=path / "mnt")


@contextmanager
def mounted(at: Path, *what: str | Path) -> Iterator[None]:
    """Something of the tree's surroundings."""
    done("mount", *what, at)
    try:
        yield
    finally:
        done("umount", at)


@contextmanager
def subjects(tree: Tree, *names: str) -> Iterator[dict[str, Subject]]:
    """Those that are named, new and empty."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=tree.bound)))
        made: dict[str, Subject] = {}
        for name in names:
            here = home / str(len(made))
            here.mkdir()
            made[name] = stack.enter_context(MAKERS[name](tree, here))
        yield made


@contextmanager
def on_host(_tree: Tree, home: Path) -> Iterator[Subject]:
    """An ordinary folder."""
    yield Subject(
        place=Place(folder=home), below=home, copy=lambda a, b: ("cp", a / FILE, b), started=("cp", "--version")
    )


@contextmanager
def in_volume(_tree: Tree, home: Path, *options: str) -> Iterator[Subject]:
    """A volume of ours, on a writeback mount."""
    with blockfs(home, *options, frontend="kernel") as folder:
        yield Subject(
            place=Place(folder=folder, volume=os.fsencode(home / "volume")),
            below=home / "volume",
            copy=lambda a, b: (BLOCKSYNC, "clone", a / FILE, b),
            started=(BLOCKSYNC, "--version"),
        )


@contextmanager
def in_s3ql(tree: Tree, home: Path, compress: str) -> Iterator[Subject]:
    """An S3QL that is not encrypted, with a cache that holds all; blocks as it makes them if nothing is said: 1 MiB."""
    backend, cache, mountpoint = home / "backend", home / "cache", home / "mounted"
    for folder in (backend, cache, mountpoint):
        folder.mkdir()
    url = f"local://{tree.inside(backend)}"
    done(*tree.command("mkfs.s3ql", "--plain", "--cachedir", cache, url))
    large = ("--cachesize", str(8 * MIB), "--max-cache-entries", "16384")  # KiB; a descriptor for each entry
    options = ("--cachedir", cache, "--log", home / "log", "--compress", compress, *large)
    done("prlimit", "--nofile=20000:20000", *tree.command("mount.s3ql", *options, url, mountpoint))
    try:
        (mountpoint / "work").mkdir()
        yield Subject(
            place=S3qlPlace(folder=mountpoint / "work"),
            below=backend,
            copy=lambda a, b: tree.command("s3qlcp", a, b),
            started=tree.command("s3qlcp", "--version"),
        )
    finally:
        done(*tree.command("umount.s3ql", mountpoint))  # returns when its process has ended


MAKERS: Final[dict[str, Callable[[Tree, Path], AbstractContextManager[Subject]]]] = {
    HOST: on_host,
    RAW: in_volume,
    ZSTD: lambda tree, home: in_volume(tree, home, "--compression", "zstd"),
    S3QL: lambda tree, home: in_s3ql(tree, home, "none"),
    LZMA: lambda tree, home: in_s3ql(tree, home, "lzma-6"),
}


def streams(tree: Tree, sizes: Sizes, repetitions: int) -> Found:
    """Data in order: new, the same again, read; and a copy of a whole file."""
    found: Found = {}
    size_bytes = STREAM_BYTES if sizes is FULL else sizes.stream_bytes
    with subjects(tree, HOST, RAW, ZSTD, S3QL) as each:
        for _ in range(repetitions):
            pieces = list(windows(pool_of(random.randrange(1 << 62), halves=True), size_bytes))
            for name, subject in each.items():
                note = partial(_note, found, name)
                place, first = subject.place, subject.place.folder / "first"
                place.settle()
                stored_s, durable_s = written(subject, first, pieces)
                note(NEW, size_bytes / 1e6 / stored_s)
                note(NEW_DURABLE, size_bytes / 1e6 / durable_s)
                before = on_disk(subject.below)
                stored_s, _ = written(subject, place.folder / "again", pieces)
                note(AGAIN, size_bytes / 1e6 / stored_s)
                note(ADDED, (on_disk(subject.below) - before) / 1e6)
                if isinstance(place, S3qlPlace):
                    place.forget()
                note(READ, size_bytes / 1e6 / read(first))
                if isinstance(place, S3qlPlace):
                    note(READ_KEPT, size_bytes / 1e6 / read(first))
                note(COPY, 1000 * seconds(partial(done, *subject.copy(first, place.folder / "copy"))))
                note(START, 1000 * seconds(partial(done, *subject.started)))
                place.tidy()
    return {work: found[work] for work in (NEW, NEW_DURABLE, AGAIN, ADDED, READ, READ_KEPT, COPY, START)}


def written(subject: Subject, folder: Path, pieces: Sequence[memoryview]) -> tuple[float, float]:
    """Seconds until a file is stored, and until that is on the disk."""
    folder.mkdir()
    began_s = time.perf_counter()
    with open(folder / FILE, "wb", buffering=0) as file:
        file.writelines(pieces)  # one write(2) each
        os.fsync(file.fileno())
    subject.place.seal()
    stored_s = time.perf_counter() - began_s
    done("sync", "--file-system", subject.below)
    return stored_s, time.perf_counter() - began_s


def read(folder: Path) -> float:
    """Seconds to read a file of which the kernel has no page, neither in front of a mount nor behind it."""
    drop_all(folder)
    buffer = bytearray(MIB)
    began_s = time.perf_counter()
    with open(folder / FILE, "rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began_s


def random_pages(tree: Tree, sizes: Sizes, repetitions: int) -> Found:
    """4 KiB at random in a file that is stored; S3QL has all of it in its own cache."""
    found: Found = {}
    works: dict[str, Callable[[Place], float]] = {
        RANDOM[work]: partial(pages.fio, work=work, depth=1, sizes=sizes) for work in ("read", "write")
    }
    works[BUFFERED] = partial(pages.buffered, sizes=sizes)
    with subjects(tree, HOST, RAW, ZSTD, S3QL) as each:
        pieces = list(windows(pool_of(random.randrange(1 << 62), halves=True), sizes.file_bytes))
        for subject in each.values():
            written(subject, subject.place.folder / "first", pieces)
            (subject.place.folder / "first" / FILE).rename(subject.place.folder / FILE)
        for _ in range(repetitions):
            for work, action in works.items():
                for name, subject in each.items():
                    subject.place.settle()
                    _note(found, name, work, action(subject.place))
    return found


def names(tree: Tree, _sizes: Sizes, repetitions: int) -> Found:
    """Many small files: made, looked at, removed."""
    found: Found = {}
    works = {
        f"create + write 1 KiB + close, of {NAMES:,}": bench_filesystem.create,
        "stat, nothing cached": bench_filesystem.stat,
        "unlink": bench_filesystem.unlink,
    }
    with subjects(tree, HOST, RAW, ZSTD, S3QL) as each:
        for _ in range(repetitions):
            for work, action in works.items():
                for name, subject in each.items():
                    subject.place.settle()
                    if action is bench_filesystem.stat:
                        drop_names()
                    _note(found, name, work, NAMES / seconds(partial(action, subject.place.folder)))
    return found


def disks(tree: Tree, sizes: Sizes, repetitions: int) -> Found:
    """Disks of machines, one after the other, into something new; by lzma once only, for it takes minutes."""
    is_full = sizes is FULL
    folder = os.environ.get("BENCH_IMAGES")
    if folder is None:
        sys.exit("with BENCH_IMAGES=DIR, where `scripts/vm-images DIR` has made the disks")
    found: Found = {}
    paths = [Path(folder, f"{disk}.img") for disk in (DISKS if is_full else DISKS[-2:])]
    for repetition in range(repetitions):
        for name in (HOST, RAW, ZSTD, S3QL, *([LZMA] if is_full and not repetition else [])):
            with subjects(tree, name) as each:
                times_s, stored = taken(each[name], paths)
            _note(found, name, TAKEN, sum(times_s[:-1]))
            _note(found, name, STORED, stored[-2] / 1e6)
            _note(found, name, NEXT_DAY, (stored[-1] - stored[-2]) / 1e6)
    return found


def taken(subject: Subject, paths: Sequence[Path]) -> tuple[list[float], list[int]]:
    """For each disk how long it took until it was stored, and what is stored then."""
    times_s, stored = [], [on_disk(subject.below)]
    subject.place.settle()
    for path in paths:
        began_s = time.perf_counter()
        done("cp", "--sparse=always", path, subject.place.folder)
        with open(subject.place.folder / path.name, "rb") as file:
            os.fsync(file.fileno())
        subject.place.seal()
        times_s.append(time.perf_counter() - began_s)
        stored.append(on_disk(subject.below))
    return times_s, stored


def _note(found: Found, name: str, work: str, value: float) -> None:
    found.setdefault(work, {}).setdefault(name, []).append(value)


PARTS: Final[dict[str, Callable[[Tree, Sizes, int], Found]]] = {
    "streams": streams,
    "pages": random_pages,
    "names": names,
    "disks": disks,
}
