"""Several programs share one file of a mount, beside seals, collections and clones; each knows every byte of its own.

Each owns a region of the file. Regions begin and end within pages that a neighbour writes, too; but what passes the
page cache by (O_DIRECT, holes) keeps to pages of its own: a neighbour's mapping would have the kernel write the whole
page as it knows it. The last owner alone changes the file's size.

What is read must be what was written, at once and over remounts, and no call may fail.
"""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
import os
import random
import select
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import msgspec

from blockfs.control.client import ControlClient
from tests.system.machines import Machines

PAGE: Final = mmap.PAGESIZE
BLOCK: Final = 4 * PAGE
ROUND: Final = 400
"""Steps of each program on one mount."""
WAYS: Final = {
    "kernel": ("--frontend", "kernel", "--no-native"),
    "pyfuse3": ("--frontend", "pyfuse3"),
    "native": ("--frontend", "kernel", "--native"),
}
"""Options of each kind of mount."""
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # linux/falloc.h
_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.race.shared"])
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


class Region(msgspec.Struct, frozen=True, kw_only=True):
    """What one program owns.

    Attributes:
        start: First byte.
        length: Bytes.
        ways: How it reads and writes, by turns: `buffered`, `mapped`, `direct`.
        sizes: It cuts the file within the region, and lets it grow again.
    """

    start: int
    length: int
    ways: tuple[str, ...]
    sizes: bool = False


def regions() -> list[Region]:
    """One after the other. Directly is written to nobody else's pages."""
    found: list[Region] = []
    for length, ways in [
        (9 * PAGE + 123, ("buffered",)),
        (33 * PAGE, ("mapped",)),
        (17 * PAGE + 2000, ("buffered", "mapped")),
        (14 * PAGE + 1973, ("mapped",)),
        (21 * PAGE, ("direct", "buffered", "mapped")),
        (11 * PAGE, ("direct",)),
        (12 * PAGE + 77, ("mapped",)),
        (2 * PAGE, ("buffered",)),  # a page and two halves: what it copies is next to a mapping mostly
        (50, ("mapped",)),
        (PAGE, ("buffered",)),
        (40 * PAGE, ("buffered",)),
    ]:
        start = found[-1].start + found[-1].length if found else 0
        found.append(Region(start=start, length=length, ways=ways))
    found[-1] = msgspec.structs.replace(found[-1], sizes=True)
    return found


class Owner:
    """One of the programs."""

    def __init__(self, path: Path, region: Region, content: bytes, seed: int, *, holes: bool) -> None:
        self.path = path
        self.region = region
        self.content = bytearray(content)  # up to the end of the file, of the one that moves it
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.is_open = False
        self.open()
        ways: dict[str, dict[Callable[[], None], int]] = {
            "buffered": {self.write: 20, self.read: 20},
            "mapped": {self.store: 20, self.load: 20},
            "direct": {self.write_directly: 12, self.read_directly: 12},
        }
        weights: dict[Callable[[], None], int] = {self.sync: 1, self.drop_pages: 2, self.reopen: 2, self.read_all: 2}
        for way in region.ways:
            weights |= ways[way]
        if region.sizes:
            weights |= {self.cut: 5, self.grow: 5}
        if holes:
            weights |= {self.punch: 4, self.copy: 3}
        self.steps, self.weights = list(weights), list(weights.values())

    def run(self, steps: int) -> None:
        """Work for a while."""
        for step in self.random.choices(self.steps, self.weights, k=steps):
            step()
            self.done[step.__name__] += 1
        self.read_all()
        self.close()

    def open(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR)
        self.direct = os.open(self.path, os.O_RDWR | os.O_DIRECT) if "direct" in self.region.ways else -1
        first = self.region.start // PAGE * PAGE
        self.skipped = self.region.start - first
        self.map = None
        if "mapped" in self.region.ways:
            self.map = mmap.mmap(self.fd, self.skipped + self.region.length, offset=first)

    def close(self) -> None:
        if self.map is not None:
            self.map.close()
        if self.direct >= 0:
            os.close(self.direct)
        os.close(self.fd)

    def reopen(self) -> None:
        self.close()
        self.open()

    def place(self, *, pages: bool = False) -> tuple[int, int]:
        """Some bytes of the region: few, several pages, or whole blocks. (0, 0) if there are none."""
        length = len(self.content)
        if not length:
            return 0, 0
        at = self.random.randrange(length)
        size = self.random.choice([self.random.randint(1, 300), self.random.randint(1, 6 * PAGE)])
        if not self.random.randrange(4):
            at, size = max(0, -self.region.start % BLOCK + at // BLOCK * BLOCK), 2 * BLOCK
        if pages:
            at, size = at + -(self.region.start + at) % PAGE, -(-size // PAGE) * PAGE
        at = min(at, length)
        size = min(size, length - at)
        return (at, size // PAGE * PAGE) if pages else (at, size)

    def data(self, size: int) -> bytes:
        return bytes(size) if not self.random.randrange(8) else self.random.randbytes(1) * size

    def expect(self, found: bytes, at: int, size: int, way: str) -> None:
        wanted = self.content[at : at + size]
        if found == wanted:
            return
        start = self.region.start + at
        if len(found) != len(wanted):
            raise AssertionError(f"{way}: {len(found)} of {len(wanted)} bytes at {start}, size {self.size()}")
        wrong = [number for number in range(size) if found[number] != wanted[number]]
        raise AssertionError(
            f"{way}: {len(wrong)} of {size} bytes at {start} differ, {start + wrong[0]} to {start + wrong[-1]}: "
            f"{found[wrong[0]]}, not {wanted[wrong[0]]}; again {self.again(start, size) == wanted}"
        )

    def again(self, start: int, size: int) -> bytes:
        return os.pread(self.fd, size, start)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    # --- steps

    def read(self) -> None:
        at, size = self.place()
        self.expect(os.pread(self.fd, size, self.region.start + at), at, size, "read")

    def read_all(self) -> None:
        size = self.region.length
        self.expect(os.pread(self.fd, size, self.region.start), 0, size, "read of all")

    def write(self) -> None:
        at, size = self.place()
        data = self.data(size)
        assert os.pwrite(self.fd, data, self.region.start + at) == size
        self.content[at : at + size] = data

    def store(self) -> None:
        assert self.map is not None
        at, size = self.place()
        data = self.data(size)
        self.map[self.skipped + at : self.skipped + at + size] = data
        self.content[at : at + size] = data
        if not self.random.randrange(20):
            self.map.flush()

    def load(self) -> None:
        assert self.map is not None
        at, size = self.place()
        self.expect(self.map[self.skipped + at : self.skipped + at + size], at, size, "load")

    def write_directly(self) -> None:
        at, size = self.place(pages=True)
        if size:
            data = self.data(size)
            with mmap.mmap(-1, size) as aligned:
                aligned.write(data)
                assert os.pwrite(self.direct, aligned, self.region.start + at) == size
            self.content[at : at + size] = data

    def read_directly(self) -> None:
        at, size = self.place(pages=True)
        if size:
            with mmap.mmap(-1, size) as aligned:
                done = os.preadv(self.direct, [aligned], self.region.start + at)
                self.expect(aligned[:done], at, size, "direct read")

    def cut(self) -> None:
        at, _ = self.place()
        os.ftruncate(self.fd, self.region.start + at)
        del self.content[at:]

    def grow(self) -> None:
        """By a hole, or by a write behind the end."""
        size = self.random.randint(len(self.content), self.region.length)
        data = self.data(self.random.randint(0, self.region.length - size))
        if data:
            assert os.pwrite(self.fd, data, self.region.start + size) == len(data)
        else:
            os.ftruncate(self.fd, self.region.start + size)
        self.content.extend(bytes(size - len(self.content)))
        self.content[size:] = data

    def punch(self) -> None:
        at, size = self.place(pages=True)
        if size:
            mode = self.random.choice([PUNCH_HOLE | KEEP_SIZE, ZERO_RANGE, ZERO_RANGE | KEEP_SIZE])
            if _libc.fallocate(self.fd, mode, self.region.start + at, size) != 0:
                raise OSError(ctypes.get_errno(), "fallocate")
            self.content[at : at + size] = bytes(size)

    def copy(self) -> None:
        """Within the region, where blocks may be shared, and where they may not."""
        pages = bool(self.random.randrange(2))
        at, size = self.place(pages=pages)
        to, _ = self.place(pages=pages)
        size = min(size, abs(at - to), max(0, len(self.content) - to))
        while size > 0:
            start = self.region.start
            done = os.copy_file_range(self.fd, self.fd, size, start + at, start + to)
            assert done > 0, "nothing was copied"
            self.content[to : to + done] = self.content[at : at + done]
            at, to, size = at + done, to + done, size - done

    def sync(self) -> None:
        self.random.choice([os.fsync, os.fdatasync])(self.fd)

    def drop_pages(self) -> None:
        """Make the next reads come from the mount, as far as nobody has mapped or changed what they read."""
        os.fdatasync(self.fd)
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)


class Replacer:
    """Writes new files, and renames them over old ones."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)
        self.contents: dict[str, bytes] = {}
        self.done: Counter[str] = Counter()

    def run(self, steps: int) -> None:
        """Work for a while."""
        for _ in range(steps // 8):
            self.step()
            self.done["replace"] += 1
        for name in self.contents:
            self.look(name)

    def step(self) -> None:
        name, other = self.random.sample([f"file-{number}" for number in range(5)], 2)
        data = self.random.randbytes(self.random.randint(1, 6 * BLOCK))
        temp = self.folder / "new"
        with temp.open("wb+") as file:
            if self.random.randrange(2):
                file.write(data)
            else:
                file.truncate(len(data))
                with mmap.mmap(file.fileno(), len(data)) as mapped:
                    mapped[:] = data
            if self.random.randrange(2):
                temp.rename(self.folder / name)  # while it is open
        if temp.exists():
            temp.rename(self.folder / name)
        self.contents[name] = data
        if other in self.contents:
            if not self.random.randrange(4):
                (self.folder / other).rename(self.folder / name)
                self.contents[name] = self.contents.pop(other)
            else:
                self.look(other)
        self.look(name)

    def look(self, name: str) -> None:
        descriptor = os.open(self.folder / name, os.O_RDONLY)
        try:
            if not self.random.randrange(2):
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            found = os.pread(descriptor, 8 * BLOCK, 0)
        finally:
            os.close(descriptor)
        wanted = self.contents[name]
        assert found == wanted, f"{name}: {len(found)} of {len(wanted)} bytes, {found[:8]!r}, not {wanted[:8]!r}"


def _own(path: Path, region: Region, content: bytes, seed: int, steps: int, holes: bool, answer: Connection) -> None:
    try:
        owner = Owner(path, region, content, seed, holes=holes)
        owner.run(steps)
        answer.send((None, owner.done, bytes(owner.content)))
    except BaseException:  # noqa: BLE001 - told by the race
        answer.send((f"{region}: {traceback.format_exc()}", Counter(), b""))


def _replace(folder: Path, seed: int, steps: int, answer: Connection) -> None:
    try:
        replacer = Replacer(folder, seed)
        replacer.run(steps)
        answer.send((None, replacer.done, b""))
    except BaseException:  # noqa: BLE001 - likewise
        answer.send((traceback.format_exc(), Counter(), b""))


class Race:
    """One volume, and what happens on it.

    Args:
        home: Where; for native mounts on a host with reflinks.
        way: See `WAYS`.
        seed: Of what all of them do.

    Attributes:
        done: Step → how often.
        failures: What does not hold.
    """

    def __init__(self, home: Path, way: str, seed: int) -> None:
        self.machines = Machines(home)
        self.home = home
        self.way = way
        self.random = random.Random(seed)
        self.regions = regions()
        self.contents = [bytes(region.length) for region in self.regions]
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self.clones = count()

    def run(self, steps: int) -> None:
        """So many steps of each program, in rounds, each on a mount of its own; until something does not hold."""
        volume, mount = self.home / "volume-m", self.home / "m"
        mount.mkdir()
        self.machines.run("init", volume, "--block-size", "16KiB")
        try:
            for number in range(-(-steps // ROUND)):
                self.machines.remount("m", *WAYS[self.way])
                with ControlClient(os.fsencode(volume)) as client:
                    assert (client.stats().mode == "native") == (self.way == "native")
                path = mount / "shared"
                if not number:
                    path.touch()
                    os.truncate(path, sum(region.length for region in self.regions))
                self.check(path)
                if not self.failures:
                    self.round(path, ROUND)
                process = os.pidfd_open(self.machines.mount_pid("m"))
                self.machines.run("umount", mount, *(["--seal"] if number % 2 else []))
                select.select([process], [], [])  # it lets go of the host
                os.close(process)
                if self.failures:
                    return
            for command in ("fsck", "scrub"):
                self.machines.run(command, volume)
        finally:
            self.machines.close()

    @property
    def steps(self) -> int:
        """What all have done."""
        return sum(self.done.values())

    def check(self, path: Path) -> None:
        """After a remount."""
        found, wanted = path.read_bytes(), b"".join(self.contents)
        if found != wanted:
            wrong = [at for at in range(min(len(found), len(wanted))) if found[at] != wanted[at]]
            self.failures.append(f"after a remount: {len(found)} bytes, not {len(wanted)}; {wrong[:1]} to {wrong[-1:]}")

    def round(self, path: Path, steps: int) -> None:
        """All programs at once."""
        folder = path.with_name("replaced")
        folder.mkdir(exist_ok=True)
        holes = self.way != "pyfuse3"
        running = []
        for region, content in zip(self.regions, self.contents, strict=True):
            mine, theirs = _PROCESSES.Pipe()
            seed = self.random.getrandbits(32)
            arguments = (path, region, content, seed, steps, holes, theirs)
            running.append((mine, _PROCESSES.Process(target=_own, args=arguments)))
        mine, theirs = _PROCESSES.Pipe()
        running.append(
            (mine, _PROCESSES.Process(target=_replace, args=(folder, self.random.getrandbits(32), steps, theirs)))
        )
        over = threading.Event()
        operator = threading.Thread(target=self.operate, args=(path, over))
        operator.start()
        for _, process in running:
            process.start()
        answers = [mine.recv() for mine, _ in running]
        over.set()
        operator.join()
        for _, process in running:
            process.join()
        for failure, done, _ in answers:
            self.done.update(done)
            if failure is not None:
                self.failures.append(failure)
        self.contents = [content for _, _, content in answers[:-1]]

    def operate(self, path: Path, over: threading.Event) -> None:
        """Seal, collect, clone and take snapshots as fast as it goes."""
        volume = self.home / "volume-m"
        with ControlClient(os.fsencode(volume)) as client:
            while not over.is_set():
                name = self.random.choice(["flush", "flush", "gc", "clone", "snapshot"])
                try:
                    if name == "clone":
                        clone = b"clone-%d" % next(self.clones)
                        client.clone(os.fsencode(path.name), clone)
                        (path.parent / os.fsdecode(clone)).unlink()
                    elif name == "snapshot":
                        client.create_snapshot(b"", b"s")
                        client.delete_snapshot(b"s")
                    else:
                        getattr(client, name)()
                except BaseException:  # noqa: BLE001 - likewise
                    self.failures.append(f"{name}: {traceback.format_exc()}")
                    return
                self.done[name] += 1
