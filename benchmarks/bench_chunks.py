"""What a repository's format costs: cutting a content anew after an edit, and looking a chunk up among a million."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyfastcdc import FastCDC

from benchmarks.harness import Result, interleaved
from syncer.remote.repository.format import indexes
from syncer.remote.repository.format.chunks import WINDOW_BYTES, Chunker, Old, Range, Read, cut_window, windows_to_cut
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.indexes import EMPTY, Index
from syncer.remote.repository.format.keys import ChunkId, Keys, MasterKey, derive
from syncer.remote.repository.format.packs import Entry, Pack, PackRef

MIB = 1 << 20
SIZE = 128 * MIB
BLOCK = 65536
SIZES = (4096, 16384, 65536)
SEED = 12345
REPETITIONS = 9
INDEXES, CHUNKS = 6, 170_000  # as many as are merged
LOOKUPS = 20_000


def run() -> list[Result]:
    """All of it."""
    return [*_cuts(), *_indexes()]


def _cuts() -> list[Result]:
    rng = random.Random(1)
    data = rng.randbytes(SIZE)
    content = _Content(data)
    works: dict[str, tuple[bytes, list[Range]]] = {
        "a byte put before all": (b"x" + data, [(0, SIZE)]),
        "a byte changed": _edited(data, [SIZE // 3], 1),
        "100 blocks of 64 KiB changed": _edited(data, rng.sample(range(0, SIZE, BLOCK), 100), BLOCK),
        "1000 blocks of 64 KiB changed": _edited(data, rng.sample(range(0, SIZE, BLOCK), 1000), BLOCK),
    }
    results = []
    for work, (new, changed) in works.items():
        jobs: dict[str, Callable[[], float]] = {
            "FastCDC alone": lambda new=new: _milliseconds(lambda: _alone(new)),  # type: ignore[misc]
            "full pass": lambda new=new: _milliseconds(lambda: _full(content, new)),  # type: ignore[misc]
            "after the edit": partial(_after, content, new, changed),
        }
        results += interleaved(f"128 MiB cut, {work}", "ms of processor time", jobs, REPETITIONS)
    return results


class _Content:
    """A content and its chunks, by a full pass."""

    def __init__(self, data: bytes) -> None:
        self.size = len(data)
        self.chunker = Chunker(SEED, SIZES)
        self.windows = {
            start: [(each.offset, each.length) for each in cut_window(self.chunker, start, self.size, _reading(data))]
            for start in range(0, self.size, WINDOW_BYTES)
        }


def _after(content: _Content, new: bytes, changed: list[Range]) -> float:
    """Milliseconds of processor time until all chunks are known."""

    def cut() -> None:
        for start in windows_to_cut(content.chunker, len(new), content.size, changed):
            here = [each for each in changed if each[0] < start + WINDOW_BYTES and start < each[1]]
            old = Old(size_bytes=content.size, chunks=content.windows.get(start, []), changed=here)
            for _ in cut_window(content.chunker, start, len(new), _reading(new), old=old):
                pass

    return _milliseconds(cut)


def _full(content: _Content, new: bytes) -> None:
    for start in range(0, len(new), WINDOW_BYTES):
        for _ in cut_window(content.chunker, start, len(new), _reading(new)):
            pass


def _alone(data: bytes) -> None:
    cdc, view = FastCDC(SIZES[1], min_size=SIZES[0], max_size=SIZES[2], seed=SEED), memoryview(data)
    for start in range(0, len(data), WINDOW_BYTES):
        for _ in cdc.cut_buf(view[start : start + WINDOW_BYTES]):
            pass


def _reading(data: bytes) -> Read:
    return lambda ranges: [data[first:last] for first, last in ranges]


def _edited(data: bytes, places: list[int], length: int) -> tuple[bytes, list[Range]]:
    new = bytearray(data)
    for at in places:
        new[at : at + length] = random.Random(at).randbytes(length)
    return bytes(new), [(at, at + length) for at in sorted(places)]


def _indexes() -> list[Result]:
    """In a process of its own, which has not made them: for its memory."""
    rng, keys, codec = random.Random(2), _keys(), Codec()
    with tempfile.TemporaryDirectory(prefix="blocksync-bench-") as folder:
        for number in range(INDEXES):
            digest, raw, some = _made(rng, keys, codec)
            Path(folder, f"index-{number}").write_bytes(digest + raw)
            Path(folder, f"ids-{number}").write_bytes(b"".join(some))
        command = [sys.executable, "-c", "import sys; from benchmarks.bench_chunks import child; child(sys.argv[1])"]
        told = subprocess.run([*command, folder], capture_output=True, text=True, check=True).stdout.split()
    units = {"opened": "ms", "memory": "MB RssAnon more", "a chunk found": "µs", "a chunk not found": "µs"}
    return [
        Result(work=f"a million chunks in six indexes, {work}", subject="index", unit=unit, values=[float(value)])
        for (work, unit), value in zip(units.items(), told, strict=True)
    ]


def child(folder: str) -> None:
    """Open six indexes, look for chunks."""
    keys, codec, before, found = _keys(), Codec(), _anonymous_mb(), list[indexes.Section]()

    def open_all() -> None:
        for path in Path(folder).glob("index-*"):
            raw = path.read_bytes()
            found.append(indexes.decode(keys, raw[:32], raw[32:], codec).files)

    opened = _milliseconds(open_all)
    more = _anonymous_mb() - before
    told = b"".join(path.read_bytes() for path in Path(folder).glob("ids-*"))
    ids = [ChunkId(told[at : at + 32]) for at in range(0, len(told), 32)]
    random.Random(3).shuffle(ids)
    absent = [ChunkId(each[::-1]) for each in ids]
    there = _milliseconds(lambda: [next(filter(None, (each.find(known) for each in found))) for known in ids])
    missing = _milliseconds(lambda: [[each.find(other) for each in found] for other in absent])
    print(opened, more, there / len(ids) * 1e3, missing / len(ids) * 1e3)


def _keys() -> Keys:
    return derive(MasterKey(bytes(32)), bytes(16))


def _milliseconds(action: Callable[[], object]) -> float:
    """Processor time: all of this is of one thread, and other work of the machine must not count."""
    started = time.thread_time()
    action()
    return (time.thread_time() - started) * 1e3


def _made(rng: random.Random, keys: Keys, codec: Codec) -> tuple[bytes, bytes, list[ChunkId]]:
    places = [Entry(ChunkId(rng.randbytes(32)), 24 + 60 * n, 60, 100) for n in range(CHUNKS)]
    pack = Pack(PackRef(rng.randbytes(32), rng.randbytes(16)), 60 * CHUNKS + 200, places)
    digest, raw = indexes.encode(keys, rng.randbytes(16), Index(EMPTY, indexes.section([pack])), codec)
    return digest, raw, [each.id for each in places[: LOOKUPS // INDEXES]]


def _anonymous_mb() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1000
