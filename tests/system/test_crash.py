"""kill -9 of the mount under load: what was fsynced is there, and the volume is sound."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest

from tests.conftest import Mounted
from tests.system.machines import Machines

PAGE = 4096
PAGES = 512


def assert_sound(machines: Machines, volume: Path) -> None:
    machines.run("fsck", volume)
    machines.run("scrub", volume)


class FileWriter(threading.Thread):
    """Makes files by write, fsync, rename until the mount breaks; remembers those whose rename was made durable."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self.folder = folder
        self.noise = random.Random(seed)
        self.durable: dict[str, bytes] = {}
        self.enough = threading.Event()

    def run(self) -> None:
        for number in range(100_000):
            try:
                self.write_one(f"{number % 40}")
            except OSError:
                return
            if number == 30:
                self.enough.set()

    def write_one(self, name: str) -> None:
        data = self.noise.randbytes(self.noise.choice([10, 5000, 100_000, 300_000]))
        temporary = self.folder / f"{name}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        # From here on the name may have either content, until the folder's fsync has returned.
        self.durable.pop(name, None)
        os.rename(temporary, self.folder / name)
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        self.durable[name] = data


class PageWriter(threading.Thread):
    """Rewrites pages of one file with rising versions; remembers which version of each page is durable at least."""

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__()
        self.path = path
        self.noise = random.Random(seed)
        self.written = [0] * PAGES
        self.durable = [0] * PAGES
        self.enough = threading.Event()

    def run(self) -> None:
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT)
        except OSError:
            return
        try:
            os.ftruncate(descriptor, PAGE * PAGES)
            for version in range(1, 1_000_000):
                page = self.noise.randrange(PAGES)
                self.written[page] = version
                os.pwrite(descriptor, version.to_bytes(8, "big") * (PAGE // 8), page * PAGE)
                if version % 50 == 0:
                    before = list(self.written)
                    os.fsync(descriptor)
                    self.durable = before
                if version == 1000:
                    self.enough.set()
        except OSError:
            return
        finally:
            try:
                os.close(descriptor)
            except OSError:
                return

    def check(self) -> None:
        data = self.path.read_bytes()
        assert len(data) == PAGE * PAGES
        for page in range(PAGES):
            content = data[page * PAGE : (page + 1) * PAGE]
            version = int.from_bytes(content[:8], "big")
            assert content == version.to_bytes(8, "big") * (PAGE // 8), f"page {page} is torn"
            assert self.durable[page] <= version <= self.written[page], f"page {page} went back or is made up"


@pytest.mark.parametrize("seed", range(3))
def test_what_was_fsynced_survives_kill_nine_under_load(mounted: Mounted, seed: int) -> None:
    folder = mounted.path / "files"
    folder.mkdir()
    files, pages = FileWriter(folder, seed), PageWriter(mounted.path / "image", seed)
    for writer in (files, pages):
        writer.start()
    for writer in (files, pages):
        assert writer.enough.wait(60)
    if seed == 1:
        mounted.run("flush", mounted.path, expect=None)  # the kill then hits blocks being sealed, too
    mounted.kill()
    for writer in (files, pages):
        writer.join()
    mounted.remount()
    for name, data in files.durable.items():
        assert (folder / name).read_bytes() == data, name
    pages.check()
    mounted.run("flush", mounted.path)
    pages.check()
    mounted.umount()
    assert_sound(mounted.machines, mounted.volume)


def test_kill_nine_while_sealing_loses_nothing(mounted: Mounted) -> None:
    noise = random.Random(9)
    contents = {f"f{number}": noise.randbytes(4 << 20) for number in range(6)}
    for name, data in contents.items():
        (mounted.path / name).write_bytes(data)
        descriptor = os.open(mounted.path / name, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    folder = os.open(mounted.path, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
    sealing = threading.Thread(target=mounted.run, args=("flush", mounted.path), kwargs={"expect": None})
    sealing.start()
    while not any((mounted.volume / "blocks" / "segments").glob("*.seg")):
        assert sealing.is_alive()
    mounted.kill()
    sealing.join()
    mounted.remount()
    for name, data in contents.items():
        assert (mounted.path / name).read_bytes() == data
    mounted.umount("--seal")
    assert_sound(mounted.machines, mounted.volume)
