"""Random histories of native mounts: files are changed in every way that there is, and must be what a model says.

A history is a seed: its steps are drawn beforehand, each with a number of its own from which it draws where and what.
So a step does the same, or nearly, if others are left out, and a history that fails can be made shorter:

    python -m tests.race.native SEED [--host btrfs] [--shorten]
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import mmap
import os
import random
import select
import shutil
import subprocess
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Final

import msgspec

from blockfs.control.client import ControlClient
from tests.kit.hostfs import REFLINKS, reflinking
from tests.system.machines import Machines

PAGE: Final = mmap.PAGESIZE
BLOCK: Final = 4 * PAGE
LENGTH: Final = 70
"""Steps of a history."""
LARGE: Final = 5 << 20
"""Bytes at most: from 4 MiB on a copy, and an open, has a file sealed first."""
MOST: Final = 5
"""Files at once; two more that have no name any more."""
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16  # linux/falloc.h
_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
_libc.sync_file_range.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]


class Step(msgspec.Struct, frozen=True):
    """One step.

    Attributes:
        name: A method of `History`.
        seed: Of what it draws.
    """

    name: str
    seed: int


WEIGHTS: Final = {"write": 14, "write_directly": 9, "store": 14, "append": 3, "read": 6, "read_directly": 4,
                  "punch": 8, "zero": 5, "allocate": 2, "cut": 5, "extend": 5,
                  "make": 4, "open_anew": 8, "close": 5, "unlink": 1, "rename_over": 3,
                  "copy": 8, "cp": 4, "clone": 5, "snapshot": 3, "restore": 2,
                  "seal": 8, "seal_beside": 5, "collect": 2, "sync": 4, "drop_pages": 5,
                  "remount": 2, "kill": 1}  # fmt: skip
"""How often each step is drawn."""


def steps_of(seed: int) -> list[Step]:
    """A history's steps. It begins with a file of one kind and one of the other."""
    chance = random.Random(seed)
    names = ["make", "make", *chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=LENGTH)]
    return [Step(name, chance.getrandbits(32)) for name in names]


class File:
    """One file, with all that a program has of it.

    Attributes:
        name: In the root of the mount; "": it has none any more.
        content: What must be in it.
        plain, direct: Descriptors, the second with O_DIRECT; -1: it is closed.
        map: A mapping, of its size when it was made.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.content = bytearray()
        self.plain = self.direct = -1
        self.map: mmap.mmap | None = None

    def open(self, root: Path) -> None:
        """Open it, if it is not."""
        if self.plain < 0:
            self.plain = os.open(root / self.name, os.O_RDWR)

    def close(self) -> None:
        """Close it wholly."""
        if self.map is not None:
            self.map.close()
        for descriptor in (self.plain, self.direct):
            if descriptor >= 0:
                os.close(descriptor)
        self.plain, self.direct, self.map = -1, -1, None

    def mapped(self, *, anew: bool) -> tuple[mmap.mmap, int]:
        """A mapping, and how much of it is within the file."""
        if self.map is None or (anew and len(self.map) != len(self.content)):
            if self.map is not None:
                self.map.close()
            self.map = mmap.mmap(self.plain, len(self.content))
        return self.map, min(len(self.map), len(self.content))

    def put(self, at: int, data: bytes) -> None:
        """Note what was written."""
        self.content.extend(bytes(max(0, at - len(self.content))))
        self.content[at : at + len(data)] = data

    def resize(self, size: int) -> None:
        """Note a new size."""
        del self.content[size:]
        self.content.extend(bytes(size - len(self.content)))

    def check(self, found: bytes, wanted: bytes, way: str, start: int = 0) -> None:
        """Compare.

        Raises:
            AssertionError: A byte differs, or the length.
        """
        if found == wanted:
            return
        assert len(found) == len(wanted), f"{way} {self.name}: {len(found)} bytes at {start}, not {len(wanted)}"
        wrong = [at for at in range(len(wanted)) if found[at] != wanted[at]]
        first, last = wrong[0], wrong[-1]
        raise AssertionError(
            f"{way} {self.name}: {len(wrong)} wrong bytes, {start + first} to {start + last}: "
            f"{found[first : first + 8]!r}, not {wanted[first : first + 8]!r}"
        )


class History:
    """One volume, and what happens on it.

    Args:
        home: An empty folder on a host with reflinks.
        seed: Of the volume's block size.

    Attributes:
        done: Step → how often it did something.
    """

    def __init__(self, home: Path, seed: int) -> None:
        self.machines = Machines(home)
        self.volume, self.root = home / "volume-m", home / "m"
        self.root.mkdir()
        self.machines.run("init", self.volume, "--block-size", random.Random(seed).choice(["16KiB", "16KiB", "64KiB"]))
        self.files: list[File] = []
        self.kept: dict[str, dict[str, bytes]] = {}
        self.done: Counter[str] = Counter()
        self.numbers = count()
        self.beside: threading.Thread | None = None
        self.failures: list[BaseException] = []
        self.chance = random.Random(0)
        self.mount("--native")

    def run(self, steps: list[Step]) -> None:
        """Do these steps, and look at everything that is left; take the mount away.

        Raises:
            AssertionError: A byte was not what it had to be.
            OSError, BlockfsError: A call failed.
        """
        try:
            for step in steps:
                self.chance = random.Random(step.seed)
                if getattr(self, step.name)() is not False:
                    self.done[step.name] += 1
            self.seal()
            self.look_at_all()
            self.mount_anew("--no-native")
            self.look_at_all()
            fsck, scrub = self.client.fsck(), self.client.scrub()
            assert (fsck.findings, fsck.lost) == ([], [])
            assert scrub.clean, scrub
        finally:
            self.end()

    def end(self) -> None:
        """Close everything, and unmount."""
        self.join()
        for file in self.files:
            file.close()
        self.client.close()
        process = os.pidfd_open(self.machines.mount_pid("m"))
        self.machines.close()
        select.select([process], [], [])  # it lets go of the host
        os.close(process)

    # --- what steps are made of

    def mount(self, *options: str) -> None:
        self.machines.remount("m", *options)
        self.client = ControlClient(os.fsencode(self.volume))
        self.is_native = "--native" in options
        assert (self.client.stats().mode == "native") == self.is_native

    def mount_anew(self, *options: str, seals: bool = False) -> None:
        self.join()
        for file in self.files:
            file.close()
        self.files = [file for file in self.files if file.name]
        self.client.close()
        self.machines.run("umount", self.root, *(["--seal"] if seals else []))
        self.mount(*options)

    def join(self) -> None:
        """Wait for the seal that goes on beside."""
        if self.beside is not None:
            self.beside.join()
            self.beside = None
        if self.failures:
            raise self.failures.pop()

    def file(self, *, named: bool = False) -> File:
        """One of the files; open, unless it may be closed."""
        choices = [file for file in self.files if file.name or not named]
        file = self.chance.choice(choices) if choices else self.new()
        if not named:
            file.open(self.root)
        return file

    def new(self) -> File:
        """A new, empty file. One goes where there are too many."""
        names = [file for file in self.files if file.name]
        if len(names) >= MOST:
            self.remove(self.chance.choice(names))
        file = File(f"file-{next(self.numbers)}")
        file.plain = os.open(self.root / file.name, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        self.files.append(file)
        return file

    def remove(self, file: File) -> None:
        """Take its name away. Some of those that are open stay so."""
        (self.root / file.name).unlink()
        self.forget(file)

    def forget(self, file: File) -> None:
        """Its name is gone."""
        file.name = ""
        nameless = [one for one in self.files if not one.name]
        if file.plain < 0 or len(nameless) > 2:
            file.close()
            self.files.remove(file)

    def place(self, size: int, *, pages: bool = False) -> tuple[int, int]:
        """Some bytes of the first `size`: few, several pages, or whole blocks. (0, 0) if there are none."""
        if not size:
            return 0, 0
        at, length = self.chance.randrange(size), self.chance.choice([300, 6 * PAGE, 6 * PAGE, 40 * PAGE])
        length = self.chance.randint(1, length)
        if not self.chance.randrange(3):
            at, length = at // BLOCK * BLOCK, self.chance.choice([1, 2, 4, 8]) * BLOCK
        if pages:
            at, length = at // PAGE * PAGE, -(-length // PAGE) * PAGE
        elif not self.chance.randrange(4):
            at = max(0, size - self.chance.randint(1, 2 * PAGE))  # near the end
        length = min(length, size - at)
        return (at, length // PAGE * PAGE) if pages else (at, length)

    def data(self, size: int) -> bytes:
        """New bytes, zeros, or what is elsewhere already."""
        kind = self.chance.randrange(4)
        if kind == 0:
            return bytes(size)
        if kind == 1:
            return (b"%c" % self.chance.randrange(1, 4)) * size
        return self.chance.randbytes(size)

    def room(self, file: File) -> int:
        """Up to where it may be written: mostly near its end, within what a history's files may have."""
        return min(LARGE, len(file.content) + self.chance.choice([0, 0, 0, PAGE, 5 * BLOCK]) + 1)

    def look(self, file: File) -> None:
        """Read all of a file, and ask for its size."""
        opened = file.plain if file.plain >= 0 else os.open(self.root / file.name, os.O_RDONLY)
        try:
            size = os.fstat(opened).st_size
            assert size == len(file.content), f"{file.name} has {size} bytes, not {len(file.content)}"
            found = os.pread(opened, 2 * LARGE, 0)
        finally:
            if opened != file.plain:
                os.close(opened)
        file.check(found, file.content, "read")

    def look_at_all(self) -> None:
        """Read everything."""
        for file in self.files:
            self.look(file)
        names = {path.name for path in self.root.iterdir()}
        assert names == {file.name for file in self.files if file.name}
        for snapshot in self.kept:
            self.look_at_snapshot(snapshot)

    def look_at_snapshot(self, snapshot: str) -> None:
        """Read all of a snapshot."""
        folder, wanted = self.root / ".snapshots" / snapshot, self.kept[snapshot]
        assert {path.name for path in folder.iterdir()} == wanted.keys()
        for name, content in wanted.items():
            File(f"{snapshot}/{name}").check((folder / name).read_bytes(), content, "read")

    # --- steps: contents

    def write(self) -> None:
        file = self.file()
        at, length = self.place(self.room(file))
        data = self.data(length)
        if at + length > len(file.content):
            self.hand_over(file.plain)
        assert os.pwrite(file.plain, data, at) == length
        file.put(at, data)
        self.look(file)

    def hand_over(self, descriptor: int) -> None:
        """Have the kernel write back what it keeps of a file that goes through us, before a write makes it longer.

        Linux 6.18 (fs/fuse/file.c, fuse_perform_write; fs/iomap/buffered-io.c, iomap_writeback_handle_eof) fills a page
        first and tells the new size after the answer. If a store has made the last page dirty, who writes it back in
        between, a seal beside say, has all bytes beyond the old size cleared. It is no fsync, and is nothing for a file
        that the kernel reads and writes itself: that one has no such pages.
        """
        if _libc.sync_file_range(descriptor, 0, 0, 7) != 0:  # wait before, write, wait after
            raise OSError(ctypes.get_errno(), "sync_file_range")

    def write_directly(self) -> bool:
        file = self.file()
        at, length = self.place(self.room(file) // PAGE * PAGE, pages=True)
        if not length or not self.opened_directly(file):
            return False
        data = self.data(length)
        with mmap.mmap(-1, length) as aligned:
            aligned.write(data)
            assert os.pwrite(file.direct, aligned, at) == length
        file.put(at, data)
        self.look(file)
        return True

    def read_directly(self) -> bool:
        file = self.file()
        at, length = self.place(len(file.content), pages=True)
        if not length or not self.opened_directly(file):
            return False
        with mmap.mmap(-1, length) as aligned:
            done = os.preadv(file.direct, [aligned], at)
            file.check(aligned[:done], file.content[at : at + length], "direct read of", at)
        return True

    def opened_directly(self, file: File) -> bool:
        if file.direct < 0 and file.name:
            file.direct = os.open(self.root / file.name, os.O_RDWR | os.O_DIRECT)
        return file.direct >= 0

    def store(self) -> bool:
        file = self.file()
        if not file.content:
            return False
        mapped, size = file.mapped(anew=bool(self.chance.randrange(2)))
        for _ in range(self.chance.randint(1, 12)):  # pages here and there
            at, length = self.place(size)
            data = self.data(length)
            mapped[at : at + length] = data
            file.put(at, data)
        if not self.chance.randrange(6):
            mapped.flush()
        self.look(file)
        return True

    def read(self) -> bool:
        file = self.file()
        if file.content:
            mapped, size = file.mapped(anew=bool(self.chance.randrange(2)))
            file.check(mapped[:size], file.content[:size], "load of")
        self.look(file)
        return bool(file.content)

    def append(self) -> None:
        file = self.file(named=True)
        data = self.data(self.chance.randint(1, 3 * BLOCK))
        descriptor = os.open(self.root / file.name, os.O_WRONLY | os.O_APPEND)
        self.hand_over(descriptor)
        assert os.write(descriptor, data) == len(data)
        os.close(descriptor)
        file.content += data
        self.look(file)

    def punch(self) -> None:
        self.hollow(PUNCH_HOLE | KEEP_SIZE)

    def zero(self) -> None:
        self.hollow(self.chance.choice([ZERO_RANGE, ZERO_RANGE | KEEP_SIZE]))

    def hollow(self, mode: int) -> None:
        file = self.file()
        at, length = self.place(self.room(file))
        self.fallocate(file, mode, at, length)
        if not mode & KEEP_SIZE:
            file.resize(max(len(file.content), at + length))
        length = max(0, min(length, len(file.content) - at))
        file.content[at : at + length] = bytes(length)
        self.look(file)

    def allocate(self) -> None:
        file = self.file()
        at, length = self.place(self.room(file))
        self.fallocate(file, 0, at, length)
        file.resize(max(len(file.content), at + length))
        self.look(file)

    def fallocate(self, file: File, mode: int, at: int, length: int) -> None:
        if _libc.fallocate(file.plain, mode, at, length) != 0:
            raise OSError(ctypes.get_errno(), f"fallocate {mode} of {length} bytes at {at}")

    def cut(self) -> None:
        file = self.file()
        self.truncate(file, self.place(len(file.content), pages=not self.chance.randrange(4))[0])

    def extend(self) -> None:
        file = self.file()
        self.truncate(file, len(file.content) + self.chance.choice([1, 77, PAGE, BLOCK, 9 * BLOCK + 5]))

    def truncate(self, file: File, size: int) -> None:
        if file.name and self.chance.randrange(2):
            os.truncate(self.root / file.name, size)
        else:
            os.ftruncate(file.plain, size)
        file.resize(size)
        self.look(file)

    # --- steps: files

    def make(self) -> None:
        """A new file, or an old one emptied as it is opened."""
        if self.files and not self.chance.randrange(4):
            file = self.file(named=True)
            os.close(os.open(self.root / file.name, os.O_WRONLY | os.O_TRUNC))
            file.content.clear()
            file.open(self.root)
        else:
            file = self.new()
        large = self.chance.randint(LARGE - 500_000, LARGE)
        size = self.chance.choice([0, self.chance.randint(1, 40 * PAGE), 60 * BLOCK, large])
        data = self.data(size)
        if size and self.chance.randrange(2):
            os.ftruncate(file.plain, size)
            file.content[:] = bytes(size)
            mapped, _ = file.mapped(anew=True)
            mapped[:] = data
        else:
            assert os.pwrite(file.plain, data, 0) == size
        file.content[:] = data
        self.look(file)

    def open_anew(self) -> None:
        file = self.file(named=True)
        file.close()
        file.open(self.root)
        self.look(file)

    def close(self) -> None:
        file = self.file(named=True)
        file.close()
        if self.chance.randrange(2):
            self.look(file)

    def unlink(self) -> None:
        self.remove(self.file(named=True))

    def rename_over(self) -> bool:
        """One file takes another's name, both open or not."""
        names = [file for file in self.files if file.name]
        if len(names) < 2:
            return False
        file, other = self.chance.sample(names, 2)
        (self.root / file.name).rename(self.root / other.name)
        file.name = other.name
        self.forget(other)
        self.look(file)
        return True

    def copy(self) -> bool:
        """copy_file_range(2) within a file, or to another one; with offsets at which blocks can be shared or not."""
        file, to = self.file(), self.file()
        at, length = self.place(len(file.content))
        there = self.chance.choice([at, at % BLOCK, at % PAGE, self.place(self.room(to))[0]])
        if file is to:
            length = min(length, abs(at - there))
        length = min(length, LARGE - there)
        if length <= 0:
            return False
        while length:
            done = os.copy_file_range(file.plain, to.plain, length, at, there)
            assert done > 0, f"{file.name} to {to.name}: nothing of {length} bytes at {at} was copied"
            to.put(there, bytes(file.content[at : at + done]))
            at, there, length = at + done, there + done, length - done
        self.look(file)
        self.look(to)
        return True

    def cp(self) -> bool:
        """cp(1), to a new file or over an old one."""
        file = self.file(named=True)
        to = self.new() if self.chance.randrange(2) else self.file(named=True)
        if to is file or not file.name:
            return False
        how = self.chance.choice(["--reflink=auto", "--sparse=always", "--sparse=never"])
        subprocess.run(["cp", how, self.root / file.name, self.root / to.name], check=True)
        to.content[:] = file.content
        self.look(to)
        return True

    def clone(self) -> None:
        file = self.file(named=True)
        clone = File(f"file-{next(self.numbers)}")
        self.client.clone(os.fsencode(file.name), os.fsencode(clone.name))
        clone.content[:] = file.content
        self.files.append(clone)
        self.look(clone)
        self.few()

    def snapshot(self) -> None:
        name = f"snapshot-{next(self.numbers)}"
        self.client.create_snapshot(b"", os.fsencode(name))
        self.kept[name] = {file.name: bytes(file.content) for file in self.files if file.name}
        self.look_at_snapshot(name)
        if len(self.kept) > 2:
            gone = self.chance.choice(list(self.kept))
            self.client.delete_snapshot(os.fsencode(gone))
            del self.kept[gone]

    def restore(self) -> bool:
        """A file of a snapshot becomes one of the mount."""
        kept = [(snapshot, name) for snapshot, contents in self.kept.items() for name in contents]
        if not kept:
            return False
        snapshot, name = self.chance.choice(kept)
        file = File(f"file-{next(self.numbers)}")
        self.client.restore_snapshot(*map(os.fsencode, (snapshot, name, file.name)))
        file.content[:] = self.kept[snapshot][name]
        self.files.append(file)
        self.look(file)
        self.few()
        return True

    def few(self) -> None:
        names = [file for file in self.files if file.name]
        if len(names) > MOST:
            self.remove(self.chance.choice(names))

    # --- steps: the mount

    def seal(self) -> None:
        self.join()
        self.client.flush()

    def seal_beside(self) -> None:
        """A seal that goes on while the next steps are done."""
        self.join()
        self.beside = threading.Thread(target=self.seal_at_once)
        self.beside.start()

    def seal_at_once(self) -> None:
        try:
            with ControlClient(os.fsencode(self.volume)) as client:
                client.flush()
        except BaseException as error:  # noqa: BLE001 - told by whoever waits for it
            self.failures.append(error)

    def collect(self) -> None:
        self.client.gc()

    def sync(self) -> None:
        file = self.file()
        self.chance.choice([os.fsync, os.fdatasync])(file.plain)

    def drop_pages(self) -> None:
        """The next read comes from the disk."""
        file = self.file()
        os.fdatasync(file.plain)
        os.posix_fadvise(file.plain, 0, 0, os.POSIX_FADV_DONTNEED)
        self.look(file)

    def remount(self) -> None:
        options = self.chance.choice(["--native", "--native", "--native", "--no-native"])
        self.mount_anew(options, seals=not self.chance.randrange(4))
        self.look_at_all()

    def kill(self) -> None:
        """SIGKILL, when all is synced, and a new mount."""
        self.join()
        for file in [file for file in self.files if not file.name]:
            file.close()
            self.files.remove(file)
        for file in self.files:
            file.open(self.root)
            os.fsync(file.plain)
            file.close()
        self.client.commit()
        self.client.close()
        assert self.machines.kill_mount("m")
        subprocess.run(["umount", "--lazy", self.root], check=True)
        self.mount(self.chance.choice(["--native", "--native", "--no-native"]))
        self.look_at_all()


def lived(host: Path, seed: int, steps: list[Step] | None = None) -> Counter[str]:
    """Live a history on a host with reflinks, which is as before afterwards; returns what was done.

    Raises:
        AssertionError: Something was not as it had to be; it says how to see that again.
    """
    home = Path(tempfile.mkdtemp(dir=host))
    try:
        history = History(home, seed)
        history.run(steps_of(seed) if steps is None else steps)
    except Exception as error:
        raise AssertionError(f"python -m tests.race.native {seed}, on {host}: {error!r}") from error
    finally:
        shutil.rmtree(home)
    return history.done


def shortened(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """Leave out what is not needed to fail."""
    size = len(steps) // 2
    while size:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fails(fewer):
                steps = fewer
            else:
                at += size
        size //= 2
    return steps


@contextlib.contextmanager
def _host(kind: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="blocksync-native-") as name, reflinking(Path(name), kind) as path:
        yield path


def main() -> None:
    """Live one history again."""
    parser = argparse.ArgumentParser(prog="python -m tests.race.native")
    parser.add_argument("seed", type=int)
    parser.add_argument("--host", choices=sorted(REFLINKS), default="xfs")
    parser.add_argument("--shorten", action="store_true", help="leave out steps as long as it fails")
    arguments = parser.parse_args()
    with _host(arguments.host) as host:

        def fails(steps: list[Step]) -> bool:
            try:
                lived(host, arguments.seed, steps)
            except AssertionError as error:
                print(f"{len(steps)} steps: {error}", flush=True)
                return True
            return False

        steps = steps_of(arguments.seed)
        if not arguments.shorten:
            print(lived(host, arguments.seed, steps))
        elif fails(steps):
            print(*shortened(steps, fails), sep="\n")


if __name__ == "__main__":
    main()
