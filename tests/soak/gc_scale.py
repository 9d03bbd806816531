"""A collection over an index of 1 TiB: how long it takes, how long writers wait, and how much memory it needs.

The index has 16.8 million rows (blocks of 64 KiB), made without payload; half of them are dead. The live ids come leaf
by leaf out of a real tree, as in a mount. Sizes 1/16, 1/4 and 1 show that the time is linear.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import asdict

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.index import Index, Row, SegmentRow, SegmentState
from blockfs.blocks.maintenance.gc import collect
from blockfs.blocks.segment import RAW
from blockfs.tree.schema import ROOT_INO, Inode, Kind
from blockfs.tree.store import Tree
from tests import effort
from tests.soak.report import Report

MINUTES: Final = 10
ALONE: Final = True
ROWS: Final = effort.soak("large collections")
BLOCK_SIZE: Final = 65536
ROWS_PER_SEGMENT: Final = 16384
MAX_ANON_BYTES: Final = 300 << 20
MAX_SLOWDOWN: Final = 1.5
"""Processor time per row at full size against 1/16: linear, but for caches and the index's depth. The rest is waiting
for commits, of 512 rows each whatever the size; how long one takes is the disk's, and other work's on it."""
_ROWS_PER_COMMIT: Final = 1 << 16
_LEAVES_PER_COMMIT: Final = 512
_PLACE_STEP: Final = 0x9E3779B1  # odd, so that it scatters a power of two of places over all segments


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """One collection.

    Attributes:
        rows: Rows of the index.
        removed: Those that were deleted.
        seconds: Wall-clock time of the collection.
        cpu_seconds: Processor time of the process meanwhile.
        anon_bytes: The most anonymous memory that the process had meanwhile.
        major_faults: Pages of the index that had to come from the disk: the host had dropped them.
        wait_ms_median: How long another writer waited for a transaction of the index, every 20 ms.
        wait_ms_99: The same, 99 of 100.
        wait_ms_most: The same, the longest.
    """

    rows: int
    removed: int
    seconds: float
    cpu_seconds: float
    anon_bytes: int
    major_faults: int
    wait_ms_median: float
    wait_ms_99: float
    wait_ms_most: float


def run(scale: float, report: Report) -> None:
    """Sizes 1/16, 1/4 and 1 of `ROWS * scale`.

    Raises:
        AssertionError: More memory than allowed, or more than linear time.
    """
    per_row = []
    for share in (1 / 16, 1 / 4, 1):
        figures = measure(int(ROWS * scale * share))
        report.record(f"gc of {figures.rows} rows", **asdict(figures))
        assert figures.anon_bytes <= MAX_ANON_BYTES, figures
        per_row.append(figures.cpu_seconds / figures.rows)
    assert per_row[-1] <= per_row[0] * MAX_SLOWDOWN, per_row


def measure(rows: int) -> Figures:
    """Make an index and a tree, and collect; each in a process of its own, as memory once used may stay used."""
    with tempfile.TemporaryDirectory(prefix="blocksync-soak-") as home:
        for step in ("make", "collect"):
            command = [sys.executable, "-m", "tests.soak.gc_scale", step, home, str(rows)]
            reply = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return Figures(**json.loads(reply))


def synthetic_id(number: int, rows: int) -> bytes:
    """The `number`-th id, ascending; they are spread over all ids as hashes are."""
    noise = hashlib.sha256(number.to_bytes(8, "big")).digest()
    step = (1 << 64) // rows
    return (number * step + int.from_bytes(noise[:8], "big") % step).to_bytes(8, "big") + noise[8:]


def make(home: Path, rows: int) -> None:
    """Write the index and the tree."""
    with BlockDirectory.create(str(home / "blocks"), block_size=BLOCK_SIZE) as blocks:
        fill(blocks.index, rows)
    with closing(Tree.create(os.fsencode(home / "tree"))) as tree:
        fill_tree(tree, rows)


def fill(index: Index, rows: int) -> None:
    """Rows in the order of their ids, places scattered, as random blocks have them."""
    for first in range(0, rows, _ROWS_PER_COMMIT):
        with index.writing() as txn:
            for number in range(first, min(rows, first + _ROWS_PER_COMMIT)):
                segment, slot = divmod(number * _PLACE_STEP % rows, ROWS_PER_SEGMENT)
                row = Row(segment + 1, 4096 + slot * BLOCK_SIZE, BLOCK_SIZE, BLOCK_SIZE, RAW, False, 1)
                index.put_row(txn, synthetic_id(number, rows), row)
    with index.writing() as txn:
        for segment in range(-(-rows // ROWS_PER_SEGMENT)):
            count = min(ROWS_PER_SEGMENT, rows - segment * ROWS_PER_SEGMENT)
            index.set_segment(txn, segment + 1, SegmentRow(SegmentState.SETTLED, count, count * BLOCK_SIZE))


def fill_tree(tree: Tree, rows: int) -> None:
    """One file whose leaves name every second block, scattered as those of any content are."""
    tree.begin_mount()
    ino = tree.new_ino()
    times = dict.fromkeys(("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"), 0)
    size_bytes = rows // 2 * BLOCK_SIZE
    tree.put_inode(Inode(ino=ino, kind=Kind.FILE, mode=0o600, uid=0, gid=0, nlink=1, size_bytes=size_bytes, **times))
    tree.link(ROOT_INO, b"disk.img", ino)
    live = rows // 2
    for leaf_index, first in enumerate(range(0, live, LEAF_IDS)):
        places = range(first, min(live, first + LEAF_IDS))
        ids = (synthetic_id(place * _PLACE_STEP % live * 2, rows) for place in places)
        tree.set_leaf(ino, leaf_index, b"".join(ids))
        if leaf_index % _LEAVES_PER_COMMIT == 0:
            tree.commit()
    tree.commit()


class Watch(threading.Thread):
    """Looks at the process's memory, and wants a write transaction, every 20 ms until `end`."""

    def __init__(self, index: Index) -> None:
        super().__init__()
        self._index = index
        self._ending = threading.Event()
        self.anon_bytes = 0
        self.waits_ms: list[float] = []

    def run(self) -> None:
        while not self._ending.wait(0.02):
            self.anon_bytes = max(self.anon_bytes, _anon_bytes())
            started = time.monotonic()
            with self._index.writing():
                self.waits_ms.append((time.monotonic() - started) * 1000)

    def end(self) -> None:
        """Stop, and sort what was seen."""
        self._ending.set()
        self.join()
        self.waits_ms.sort()


def collect_in(home: Path, rows: int) -> Figures:
    """Collect what `make` has made."""
    with BlockDirectory.open(str(home / "blocks")) as blocks, closing(_tree(home)) as tree:

        def live() -> Iterator[bytes]:
            with tree.committed() as view:
                yield from view.live_ids()

        watch = Watch(blocks.index)
        watch.start()
        before = resource.getrusage(resource.RUSAGE_SELF)
        started = time.monotonic()
        result = collect(blocks, live)
        seconds = time.monotonic() - started
        after = resource.getrusage(resource.RUSAGE_SELF)
        watch.end()
    waits = watch.waits_ms or [0.0]
    return Figures(
        rows=rows,
        removed=result.blocks_removed,
        seconds=round(seconds, 2),
        cpu_seconds=round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        anon_bytes=watch.anon_bytes,
        major_faults=after.ru_majflt - before.ru_majflt,
        wait_ms_median=round(waits[len(waits) // 2], 2),
        wait_ms_99=round(waits[len(waits) * 99 // 100], 2),
        wait_ms_most=round(waits[-1], 2),
    )


def _tree(home: Path) -> Tree:
    return Tree.open(os.fsencode(home / "tree"), read_only=True)


def _anon_bytes() -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


if __name__ == "__main__":
    _, step, folder, count = sys.argv
    if step == "make":
        make(Path(folder), int(count))
    else:
        print(json.dumps(asdict(collect_in(Path(folder), int(count)))))
