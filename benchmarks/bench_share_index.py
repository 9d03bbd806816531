"""The index of what a share has: made of a million blocks, after a change, and asked."""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Result
from blockfs.blocks.blocklist import BlockList
from syncer.core.model import BaseRow, Content, Kind, Nid, Node, RemoteTag
from syncer.state.shareindex import IdIndex, follow
from syncer.state.statedb import StateDB

BLOCKS = int(os.environ.get("BENCH_BLOCKS", "1000000"))
BLOCK_SIZE = 64 << 10
ASKED = 10_000
REPETITIONS = 5
SHAPES = {"one file": 1, "10,000 files": 10_000}


def run() -> list[Result]:
    """Both shapes."""
    return [result for name, files in SHAPES.items() for result in measure(name, files, BLOCKS, REPETITIONS)]


def measure(name: str, files: int, blocks: int, repetitions: int) -> list[Result]:
    """So many blocks in so many files: made, after a change, asked."""
    made: list[float] = []
    changed: list[float] = []
    asked: list[float] = []
    size_bytes = 0
    for repetition in range(repetitions):
        with tempfile.TemporaryDirectory(prefix="blocksync-index-") as home, StateDB.create(f"{home}/state") as state:
            noise = random.Random(repetition)
            lists = {Nid(nid): _list(noise.randbytes(32 * (blocks // files))) for nid in range(1, files + 1)}
            contents = {nid: _content(each) for nid, each in lists.items()}
            state.record([_row(nid, contents[nid]) for nid in lists])
            with IdIndex.make(f"{home}/state/share-index") as index:
                made.append(_follow(index, state, lists, None))
                size_bytes = Path(index.folder, "data.mdb").stat().st_size
                first = Nid(1)
                lists[first] = _list(noise.randbytes(32) + lists[first].ids[32:])
                state.record([_row(first, _content(lists[first]))])
                changed.append(_follow(index, state, lists, [first]))
                ids = [each[noise.randrange(len(each))] for each in noise.choices(list(lists.values()), k=ASKED)]
                began_s = time.perf_counter()
                with state.rows() as rows:
                    index.match([each[:8] for each in ids], rows)
                asked.append(time.perf_counter() - began_s)
    about = f"{blocks:,} blocks in {name}"
    notes: dict[str, float] = {"bytes": size_bytes, "bytes_per_block": round(size_bytes / blocks)}
    return [
        Result(work=f"made: {about}", subject="index", unit="s", values=made, notes=notes),
        Result(work=f"one block changed: {about}", subject="index", unit="s", values=changed),
        Result(work=f"{ASKED:,} ids asked: {about}", subject="index", unit="s", values=asked),
    ]


def _list(ids: bytes) -> BlockList:
    return BlockList(block_size=BLOCK_SIZE, size_bytes=len(ids) // 32 * BLOCK_SIZE, ids=ids)


def _content(blocks: BlockList) -> Content:
    return Content(size_bytes=blocks.size_bytes, object_hash=blocks.object_hash)


def _row(nid: Nid, content: Content) -> BaseRow:
    node = Node(parent=Nid(0), name=b"%d" % nid, kind=Kind.FILE, content=content)
    return BaseRow(nid=nid, node=node, local=None, remote=RemoteTag(uuid=f"{nid}", version=nid, etag="", size_bytes=0))


def _follow(index: IdIndex, state: StateDB, lists: dict[Nid, BlockList], changed: Sequence[Nid] | None) -> float:
    """Seconds until the index is what the rows say."""
    began_s = time.perf_counter()
    for _ in follow(index, state.rows, lambda nid, _: lists[nid], BLOCK_SIZE, changed):
        pass
    return time.perf_counter() - began_s
