"""What a repository's format costs: cutting a content anew after an edit, and looking a chunk up among a million."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from functools import partial

from pyfastcdc import FastCDC

from benchmarks.harness import Result, interleaved, seconds
from syncer.remote.repository.format import indexes
from syncer.remote.repository.format.chunks import WINDOW_BYTES, Chunker, Old, Range, cut_window, windows_to_cut
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
            "FastCDC alone": lambda new=new: seconds(lambda: _alone(new)) * 1e3,  # type: ignore[misc]
            "full pass": lambda new=new: seconds(lambda: _Content(new)) * 1e3,  # type: ignore[misc]
            "after the edit": partial(_after, content, new, changed),
        }
        results += interleaved(f"128 MiB cut, {work}", "ms", jobs, REPETITIONS)
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
    """Milliseconds until all chunks are known."""

    def cut() -> None:
        for start in windows_to_cut(content.chunker, len(new), content.size, changed):
            here = [each for each in changed if each[0] < start + WINDOW_BYTES and start < each[1]]
            old = Old(size_bytes=content.size, chunks=content.windows.get(start, []), changed=here)
            for _ in cut_window(content.chunker, start, len(new), _reading(new), old=old):
                pass

    return seconds(cut) * 1e3


def _alone(data: bytes) -> None:
    cdc, view = FastCDC(SIZES[1], min_size=SIZES[0], max_size=SIZES[2], seed=SEED), memoryview(data)
    for start in range(0, len(data), WINDOW_BYTES):
        for _ in cdc.cut_buf(view[start : start + WINDOW_BYTES]):
            pass


def _reading(data: bytes) -> Callable[[int, int], bytes]:
    return lambda first, last: data[first:last]


def _edited(data: bytes, places: list[int], length: int) -> tuple[bytes, list[Range]]:
    new = bytearray(data)
    for at in places:
        new[at : at + length] = random.Random(at).randbytes(length)
    return bytes(new), [(at, at + length) for at in sorted(places)]


def _indexes() -> list[Result]:
    """By a process of its own: what making them takes is not to be measured."""
    command = [sys.executable, "-c", "from benchmarks.bench_chunks import child; child()"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    units = {"opened": "s", "more memory": "MB RssAnon", "a chunk found": "µs", "a chunk not found": "µs"}
    return [
        Result(work=f"a million chunks in six indexes, {work}", subject="index", unit=unit, values=[float(told[n])])
        for n, (work, unit) in enumerate(units.items())
    ]


def child() -> None:
    """Make six indexes, open them, look for chunks."""
    rng, keys, codec = random.Random(2), derive(MasterKey(bytes(32)), bytes(16)), Codec()
    made = [_made(rng, keys, codec) for _ in range(INDEXES)]
    ids = [each for _, _, some in made for each in some]
    rng.shuffle(ids)
    before, found = _anonymous_mb(), list[indexes.Section]()

    def open_all() -> None:
        found.extend(indexes.decode(keys, digest, raw, codec).files for digest, raw, _ in made)

    opened = seconds(open_all)
    more = _anonymous_mb() - before
    there = seconds(lambda: [next(filter(None, (each.find(known) for each in found))) for known in ids])
    absent = [ChunkId(each[::-1]) for each in ids]
    missing = seconds(lambda: [[each.find(other) for each in found] for other in absent])
    print(opened, more, there / len(ids) * 1e6, missing / len(ids) * 1e6)


def _made(rng: random.Random, keys: Keys, codec: Codec) -> tuple[bytes, bytes, list[ChunkId]]:
    places = [Entry(ChunkId(rng.randbytes(32)), 24 + 60 * n, 60, 100) for n in range(CHUNKS)]
    pack = Pack(PackRef(rng.randbytes(32), rng.randbytes(16)), 60 * CHUNKS + 200, places)
    digest, raw = indexes.encode(keys, rng.randbytes(16), Index(EMPTY, indexes.section([pack])), codec)
    return digest, raw, [each.id for each in places[: LOOKUPS // INDEXES]]


def _anonymous_mb() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("RssAnon")) / 1000
