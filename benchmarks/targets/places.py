"""Where each work is done: folders of the host, passthroughs and volumes on one disk, mounted all the time."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec
from msgspec.structs import replace

from benchmarks.bench_filesystem import blockfs, passthrough
from benchmarks.harness import interleaved
from benchmarks.rows import Row
from blockfs.control.client import ControlClient
from tests.kit.hostfs import MIB, mounted_file

HOST, P, K, X, OURS = "host", "P", "K", "X", "blockfs"
XFS_MIB = 24 << 10


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A folder to work in. `volume`: what is mounted there, if it is one of ours."""

    folder: Path
    volume: bytes = b""

    def client(self) -> ControlClient:
        """A conversation with our mount."""
        return ControlClient(self.volume)

    def seal(self) -> None:
        """Wait until all is in blocks, if it is ours."""
        if self.volume:
            with self.client() as client:
                client.flush()

    def settle(self) -> None:
        """As after a quiet while: nothing is left that would be done beside the next work."""
        self.seal()
        os.sync()

    def tidy(self) -> None:
        """Remove everything."""
        for each in list(self.folder.iterdir()):
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        self.collect()

    def collect(self) -> None:
        """Give back what was removed."""
        if self.volume:
            with self.client() as client:
                client.gc()
        self.settle()


class Places(msgspec.Struct, frozen=True, kw_only=True):
    """All of them, by name.

    Attributes:
        raw: What is compared.
        names: What is compared in work on names.
        zstd: With a compressed volume as ours; a native mount has none.
        host: A folder of the host's own.
        is_native: Ours is a native mount, and X, the host's XFS, what it is compared with; else K is.
    """

    raw: Mapping[str, Place]
    names: Mapping[str, Place]
    zstd: Mapping[str, Place]
    host: Place
    is_native: bool = False


@contextmanager
def opened() -> Iterator[Places]:
    """Everything mounted. Needs root."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blocksync-bench-")))
        (home / "host").mkdir()
        pyfuse3 = stack.enter_context(passthrough(home / "p", "--xattrs"))
        kernel = stack.enter_context(passthrough(home / "k", program="kernel_passthrough"))
        raw, zstd = (_ours(stack, home / name, name) for name in ("raw", "zstd"))
        host = Place(folder=home / "host")
        others = {HOST: host, K: Place(folder=kernel), P: Place(folder=pyfuse3)}
        compared = others | {OURS: raw}
        yield Places(raw=compared, names=compared, zstd={HOST: host, K: others[K], OURS: zstd}, host=host)


@contextmanager
def opened_native() -> Iterator[Places]:
    """An XFS in a file, a native mount of a volume on it, and K there. Needs root."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blocksync-bench-")))
        xfs = stack.enter_context(mounted_file(home, XFS_MIB * MIB, "mkfs.xfs", "-q"))
        (xfs / "folder").mkdir()
        host = Place(folder=xfs / "folder")
        kernel = Place(folder=stack.enter_context(passthrough(xfs / "k", program="kernel_passthrough")))
        ours = stack.enter_context(_native(xfs / "native"))
        raw = {X: host, OURS: ours}
        yield Places(raw=raw, names={X: host, K: kernel, OURS: ours}, zstd={}, host=host, is_native=True)


@contextmanager
def _native(home: Path) -> Iterator[Place]:
    home.mkdir()
    with ExitStack() as stack:
        place = Place(
            folder=stack.enter_context(blockfs(home, frontend="kernel", is_native=True)),
            volume=os.fsencode(home / "volume"),
        )
        with place.client() as client:
            process = os.pidfd_open(client.status().pid)
            told = client.stats()
        if told.mode != "native":
            raise RuntimeError(f"the mount is not native: {told.mode_reason}")
        yield place
    select.select([process], [], [])  # until it ends the host's filesystem is busy
    os.close(process)


def _ours(stack: ExitStack, home: Path, name: str) -> Place:
    home.mkdir()
    options = ["--compression", "zstd"] if name == "zstd" else []
    folder = stack.enter_context(blockfs(home, *options, frontend="kernel"))
    return Place(folder=folder, volume=os.fsencode(home / "volume"))


def in_turns(places: Mapping[str, Place], action: Callable[[Place], float], repetitions: int) -> dict[str, list[float]]:
    """One figure per repetition of each place; before each measurement everything is quiet."""

    def measured(place: Place) -> float:
        place.settle()
        return action(place)

    jobs: dict[str, Callable[[], float]] = {name: partial(measured, place) for name, place in places.items()}
    return {each.subject: each.values for each in interleaved("", "", jobs, repetitions)}


def share(
    part: str, work: str, unit: str, found: Mapping[str, Sequence[float]], least: float | None, *, of: str = ""
) -> Row:
    """Our part of another one's speed: of X where it was measured, else of K, if nobody is named."""
    of = of or (X if X in found else K)
    values = [own / base for own, base in zip(found[OURS], found[of], strict=True)]
    subjects = {name: list(each) for name, each in found.items()}
    row = Row(part=part, work=work, unit=of, values=values, limit=least, least=True)
    return replace(row, subjects=subjects, subjects_unit=unit)


def drop_names() -> None:
    """Have the kernel forget what it knows of names and attributes, everywhere."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("2")


def drop_all(_path: Path) -> None:
    """Have the kernel forget all pages of all files: behind a mount, too."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3")


def keep_pages(_path: Path) -> None:
    """Have the kernel forget nothing."""


def drop_pages(path: Path) -> None:
    """Have the kernel forget the pages of one file, on this mount only: what is behind it stays warm."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
