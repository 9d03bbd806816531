"""What compression costs and saves: blocks of real disk images stored raw and with zstd of three levels."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

from benchmarks.harness import Result, interleaved, seconds
from blockfs.blocks import codec
from blockfs.blocks.codec import Compression
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from scripts import images

BLOCK_SIZE = 65536
PAGE = 4096
REPETITIONS = 3
RANDOM_READS = 5000
SEALERS = 2  # threads, as many as seal in a mount
LEVELS: dict[str, int | None] = {"none": None, "zstd -1": -1, "zstd 1": 1, "zstd 3": 3}


def run() -> list[Result]:
    """All works on all codecs."""
    with tempfile.TemporaryDirectory(prefix="blocksync-bench-") as folder:
        home = Path(folder)
        blocks = _blocks_of(images.build_family(home))
        subjects = {name: _Subject(home, name, level, blocks) for name, level in LEVELS.items()}
        works: dict[str, tuple[str, Callable[[_Subject], float]]] = {
            "put and sync": ("MB/s", _Subject.put_all),
            "read 64 KiB in order": ("MB/s", _Subject.read_all),
            "read 4 KiB in order": ("MB/s", _Subject.read_pages),
            "read 4 KiB at random": ("1/s", _Subject.read_random),
            "stored": ("MB", _Subject.stored),
        }
        results = []
        for work, (unit, measure) in works.items():
            jobs = {name: partial(measure, subject) for name, subject in subjects.items()}
            results += interleaved(work, unit, jobs, 1 if work == "stored" else REPETITIONS)
        for subject in subjects.values():
            subject.close()
        return results


def _blocks_of(paths: list[Path]) -> list[bytes]:
    """The distinct blocks of the images, without holes, in their order."""
    found: dict[bytes, None] = {}
    for path in paths:
        with open(path, "rb") as file:
            while data := file.read(BLOCK_SIZE):
                if data.strip(b"\0"):
                    found[data] = None
    return list(found)


class _Subject:
    """A block directory of one codec, filled again by each `put_all`."""

    def __init__(self, home: Path, name: str, level: int | None, blocks: list[bytes]) -> None:
        self._home = home / name.replace(" ", "_")
        self._home.mkdir()
        self._level = level
        self._data = blocks
        self._bytes = sum(map(len, blocks))
        self._open: BlockDirectory | None = None
        self._ids: list[BlockId] = []
        self._round = 0

    @property
    def _directory(self) -> BlockDirectory:
        assert self._open is not None
        return self._open

    def put_all(self) -> float:
        """MB/s of two threads that put, and one sync, into a new directory."""
        self.close()
        self._round += 1
        compression = Compression.NONE if self._level is None else Compression.ZSTD
        path = str(self._home / str(self._round))
        self._open = BlockDirectory.create(path, block_size=BLOCK_SIZE, compression=compression)

        def put_and_sync() -> None:
            with self._directory.hold() as hold, ThreadPoolExecutor(SEALERS) as pool:
                self._ids = list(pool.map(lambda data: self._directory.put(data, hold), self._data))
                self._directory.sync()

        with mock.patch.object(codec, "_contexts", codec.ZstdContexts(self._level or codec.ZSTD_LEVEL)):
            return self._bytes / seconds(put_and_sync) / 1e6

    def read_all(self) -> float:
        """MB/s of whole blocks."""
        return self._bytes / seconds(lambda: [self._directory.get(known) for known in self._ids]) / 1e6

    def read_pages(self) -> float:
        """MB/s of all pages of a quarter of the blocks, one by one."""
        some = self._ids[: len(self._ids) // 4]

        def read() -> None:
            for known in some:
                for at in range(0, BLOCK_SIZE, PAGE):
                    self._directory.read(known, at, PAGE)

        return len(some) * BLOCK_SIZE / seconds(read) / 1e6

    def read_random(self) -> float:
        """Reads of one page of any block, per second."""
        chance = random.Random(1)
        places = [(chance.choice(self._ids), chance.randrange(16) * PAGE) for _ in range(RANDOM_READS)]
        return RANDOM_READS / seconds(lambda: [self._directory.read(known, at, PAGE) for known, at in places])

    def stored(self) -> float:
        """MB on the host, index included."""
        return self._directory.statistics().stored_bytes / 1e6

    def close(self) -> None:
        """Let go of the directory."""
        if self._open is not None:
            self._open.close()
