"""A worker that writes one file page by page, in one of several manners; and what a crash may have left of it."""

from __future__ import annotations

import mmap
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from blockfs.control.client import ControlClient
from tests.crash.histories import PagedHistory
from tests.crash.log import Log, Record
from tests.crash.pages import PAGE, make_pages

FILE_PAGES: Final = 384
CLONES: Final = 20  # then the oldest goes


class Manner(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker works: flags of open(2), and how often it does what."""

    flags: int = 0
    grow: int = 0
    overwrite: int = 0
    truncate: int = 0
    fsync: int = 0
    fdatasync: int = 0
    clone: int = 0
    mapped: bool = False

    @property
    def weights(self) -> dict[str, int]:
        """Operation → weight."""
        names = ("grow", "overwrite", "truncate", "fsync", "fdatasync", "clone")
        return {name: weight for name in names if (weight := getattr(self, name))}


MANNERS: Final = {
    "sequential": Manner(grow=40, fsync=1),
    "appended": Manner(grow=1, fsync=1),
    "random": Manner(overwrite=60, fsync=1),
    "synced": Manner(overwrite=2, fdatasync=1),
    "direct": Manner(flags=os.O_DIRECT, overwrite=20, grow=1, fdatasync=1),
    "mapped": Manner(mapped=True, overwrite=20, fsync=1),
    "cut": Manner(truncate=4, grow=3, overwrite=4, fsync=1),
    "cloned": Manner(grow=4, overwrite=10, truncate=1, clone=2),
}


class PagedWorker:
    """Works on `folder/MANNER` until the mount is gone."""

    def __init__(self, manner: str, number: int, mount: Path, volume: Path, folder: Path, seed: int) -> None:
        self.manner = MANNERS[manner]
        self.number = number
        self.mount = mount
        self.volume = volume
        self.path = folder / manner
        self.noise = random.Random(seed)
        self.version = 0
        self.clones = 0
        self.size = 0

    def run(self, log: Log) -> None:
        """Work for ever."""
        with log.step("open"):
            # Opened again, it goes natively where that can be: see blockfs.fuse.kernel.native.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT))
            self.fd = os.open(self.path, os.O_RDWR | self.manner.flags)
        if self.manner.mapped or self.manner.overwrite > self.manner.grow:
            with log.step("truncate", FILE_PAGES * PAGE):
                os.ftruncate(self.fd, FILE_PAGES * PAGE)
            self.size = FILE_PAGES * PAGE
        self.map = mmap.mmap(self.fd, FILE_PAGES * PAGE) if self.manner.mapped else None
        operations: dict[str, Callable[[Log], None]] = {
            "grow": self.grow,
            "overwrite": self.overwrite,
            "truncate": self.truncate,
            "fsync": self.fsync,
            "fdatasync": self.fdatasync,
            "clone": self.clone,
        }
        weights = self.manner.weights
        while True:
            (name,) = self.noise.choices(list(weights), list(weights.values()))
            operations[name](log)

    def grow(self, log: Log) -> None:
        first = -(-self.size // PAGE)
        if first >= FILE_PAGES:
            with log.step("truncate", 0):
                os.ftruncate(self.fd, 0)
            self.size = first = 0
        self.write(log, first, min(self.noise.choice([1, 1, 3, 32]), FILE_PAGES - first))

    def overwrite(self, log: Log) -> None:
        pages = -(-self.size // PAGE)
        if not pages:
            return self.grow(log)
        first = self.noise.randrange(pages)
        return self.write(log, first, min(self.noise.choice([1, 1, 1, 16]), pages - first))

    def write(self, log: Log, first: int, count: int) -> None:
        self.version += 1
        data = make_pages(self.number, first, count, self.version)
        with log.step("write", first, count, self.version):
            if self.map is not None:
                self.map[first * PAGE : (first + count) * PAGE] = data
            elif self.manner.flags & os.O_DIRECT:
                with mmap.mmap(-1, len(data)) as aligned:
                    aligned.write(data)
                    assert os.pwrite(self.fd, aligned, first * PAGE) == len(data)
            else:
                assert os.pwrite(self.fd, data, first * PAGE) == len(data)
        self.size = max(self.size, (first + count) * PAGE)

    def truncate(self, log: Log) -> None:
        size = self.noise.randrange(FILE_PAGES * PAGE)
        if self.noise.random() < 0.5:
            size = size // PAGE * PAGE
        with log.step("truncate", size):
            os.ftruncate(self.fd, size)
        self.size = size

    def fsync(self, log: Log) -> None:
        with log.step("fsync"):
            if self.map is None:
                os.fsync(self.fd)
            else:
                self.map.flush()

    def fdatasync(self, log: Log) -> None:
        with log.step("fdatasync"):
            os.fdatasync(self.fd)

    def clone(self, log: Log) -> None:
        """As `blocksync clone` does: the kernel's pages go to the mount first."""
        self.fsync(log)
        self.clones += 1
        target = self.path.with_name(f"{self.path.name}.{self.clones}")
        with log.step("clone", target.name), ControlClient(os.fsencode(self.volume)) as client:
            client.clone(*(os.fsencode(path.relative_to(self.mount)) for path in (self.path, target)))
        if self.noise.random() < 0.5:
            with log.step("fsync-clones"):
                fsync_folder(self.path.parent)
        if self.clones > CLONES:
            oldest = self.path.with_name(f"{self.path.name}.{self.clones - CLONES}")
            with log.step("unlink-clone", oldest.name):
                oldest.unlink()


def fsync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def problems(manner: str, number: int, record: Record, folder: Path) -> Iterable[str]:
    """What is wrong with a worker's file, and its clones, after a crash."""
    history = PagedHistory(number, may_tear=MANNERS[manner].mapped)
    clones: dict[str, PagedHistory] = {}
    going: set[str] = set()
    gone: set[str] = set()
    for (name, *arguments), is_done in record.steps:
        if name == "write":
            history.write(*arguments)
        elif name == "truncate":
            history.truncate(*arguments)
        elif name in {"fsync", "fdatasync"} and is_done:
            history.synced()
        elif name == "clone":
            clones[arguments[0]] = history.frozen()
        elif name == "unlink-clone":
            clones[arguments[0]].must_exist = False
            going.add(arguments[0])
        elif name == "fsync-clones" and is_done:
            for clone_name, clone in clones.items():
                clone.must_exist = clone_name not in going
            gone |= going
    yield from (f"{file} came back" for file in gone if (folder / file).exists())
    for file, expected in {manner: history, **clones}.items():
        path = folder / file
        for problem in expected.problems(path.read_bytes() if path.exists() else None):
            yield f"{file}: {problem}"
