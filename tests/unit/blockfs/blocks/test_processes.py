"""Several processes on one block directory."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
from blockfs.blocks.maintenance.gc import collect

BLOCK_SIZE = 4096
DATAS = [random.Random(number).randbytes(BLOCK_SIZE) for number in range(40)]
IDS = [block_id(data) for data in DATAS]

PRELUDE = """
import os, random, sys
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.hashing import block_id
DATAS = [random.Random(number).randbytes(4096) for number in range(40)]
IDS = [block_id(data) for data in DATAS]
blocks = BlockDirectory.open(sys.argv[1])
def say(text): print(text, flush=True)
def hear(): sys.stdin.readline()
"""


class Child:
    """Another process; both sides speak in lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def hears(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def says(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@contextmanager
def child(blocks: BlockDirectory, program: str) -> Iterator[Child]:
    with subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program, blocks.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Child(process)
        finally:
            process.kill()


def test_two_processes_that_put_the_same_blocks_store_them_once(blocks: BlockDirectory) -> None:
    program = """
order = list(DATAS)
random.Random(os.getpid()).shuffle(order)
say("ready"); hear()
for start in range(0, 40, 5):
    with blocks.hold() as hold:
        for data in order[start:start + 5]:
            blocks.put(data, hold)
        blocks.sync()
        for data in order[start:start + 5]:
            assert blocks.get(block_id(data), verify=True) == data
say("done")
"""
    with child(blocks, program) as one, child(blocks, program) as two:
        assert [one.says(), two.says()] == ["ready", "ready"]
        one.hears()
        two.hears()
        assert [one.says(), two.says()] == ["done", "done"]
    assert blocks.statistics().blocks == len(DATAS)
    assert [blocks.get(known, verify=True) for known in IDS] == DATAS
    assert collect(blocks, lambda: IDS).blocks_removed == 0
    held = sum(os.stat(blocks.layout.segment(number)).st_blocks * 512 for number in blocks.layout.segment_numbers())
    assert held <= (len(DATAS) + 2 * 4) * BLOCK_SIZE
    assert [blocks.get(known, verify=True) for known in IDS] == DATAS


def test_a_collection_waits_for_an_epoch_that_another_process_holds(blocks: BlockDirectory) -> None:
    program = """
hold = blocks.hold()
blocks.put(DATAS[0], hold)
blocks.put(DATAS[1], hold)
blocks.sync()
say("held"); hear()
hold.release()
say("released"); hear()
"""
    asked = 0
    tree: list[bytes] = []
    with child(blocks, program) as other:
        assert other.says() == "held"

        def stop() -> bool:
            nonlocal asked
            asked += 1
            if asked == 3:
                tree.append(IDS[0])  # the other process's commit
                other.hears()
                assert other.says() == "released"
            return False

        collect(blocks, lambda: tree, stop=stop)
    assert asked >= 3
    assert blocks.missing(IDS[:2]) == IDS[1:2]


def test_a_killed_holder_is_not_waited_for(blocks: BlockDirectory) -> None:
    program = """
hold = blocks.hold()
blocks.put(DATAS[0], hold)
blocks.sync()
blocks.put(DATAS[1], hold)
say("held"); hear()
"""
    with child(blocks, program) as other:
        assert other.says() == "held"
        other.kill()
    result = collect(blocks, list)
    assert result.blocks_removed == 1
    assert result.segments_removed == 1
    assert os.listdir(blocks.layout.segments) == []


def test_a_reader_in_another_process_keeps_the_payload_that_it_found(blocks: BlockDirectory) -> None:
    program = """
with blocks.index.begin() as txn:
    row = blocks.index.row(txn, IDS[0])
    say("found"); hear()
    say(str(blocks.reader.read(IDS[0], row, 0, 4096) == DATAS[0]))
say(str(blocks.missing(IDS[:1]) == IDS[:1])); hear()
"""
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)
        blocks.sync()
    answers = []
    with child(blocks, program) as other:
        assert other.says() == "found"

        def stop() -> bool:
            if blocks.missing(IDS[:1]) and not answers:  # swept: now it waits for the reader
                other.hears()
                answers.extend([other.says(), other.says()])
            return False

        result = collect(blocks, lambda: [b""], stop=stop)
    assert answers == ["True", "True"]
    assert result.bytes_freed == BLOCK_SIZE


def test_a_killed_reader_is_not_waited_for(blocks: BlockDirectory) -> None:
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)
        blocks.sync()
    with child(blocks, 'txn = blocks.index.begin(); say("reading"); hear()') as other:
        assert other.says() == "reading"
        other.kill()
    assert collect(blocks, list).bytes_freed == BLOCK_SIZE


def test_a_killed_writer_leaves_a_segment_that_the_next_one_continues(blocks: BlockDirectory) -> None:
    program = """
with blocks.hold() as hold:
    for data in DATAS[:10]:
        blocks.put(data, hold)
    blocks.sync()
    for data in DATAS[10:20]:
        blocks.put(data, hold)
    say("put"); hear()
"""
    with child(blocks, program) as other:
        assert other.says() == "put"
        other.kill()
    assert blocks.missing(IDS[:20]) == IDS[10:20]
    with blocks.hold() as hold:
        for data in DATAS[15:25]:
            blocks.put(data, hold)
        blocks.sync()
    assert blocks.layout.segment_numbers() == [1]
    known = IDS[:10] + IDS[15:25]
    assert [blocks.get(each, verify=True) for each in known] == DATAS[:10] + DATAS[15:25]
    blocks.close()
    with BlockDirectory.open(blocks.path) as again:
        assert collect(again, lambda: IDS).bytes_freed == 10 * BLOCK_SIZE
        assert [again.get(each, verify=True) for each in known] == DATAS[:10] + DATAS[15:25]


def test_a_process_killed_in_a_commit_does_not_block_the_others(blocks: BlockDirectory) -> None:
    program = """
with blocks.index.writing() as txn:
    blocks.index.set_number(txn, b"epoch", 99)
    say("writing"); hear()
"""
    with child(blocks, program) as other:
        assert other.says() == "writing"
        other.kill()
    assert blocks.index.epoch() == 1
    with blocks.hold() as hold:
        blocks.put(DATAS[0], hold)
        blocks.sync()
    assert blocks.missing(IDS[:1]) == []


def test_killing_writers_at_random_leaves_every_synced_block(blocks: BlockDirectory) -> None:
    """The child says what is synced; whatever it said must be there."""
    program = """
source = random.Random(int(sys.stdin.readline()))
while True:
    with blocks.hold() as hold:
        numbers = [source.randrange(10**6) for _ in range(source.randrange(1, 8))]
        for number in numbers:
            blocks.put(random.Random(number).randbytes(3000), hold)
        blocks.sync()
        say(" ".join(map(str, numbers)))
"""
    promised: set[int] = set()
    source = random.Random(7)
    for _ in range(5):
        with child(blocks, program) as other:
            assert other.process.stdin is not None
            other.process.stdin.write(f"{source.random()}\n".replace("0.", ""))
            other.process.stdin.flush()
            for _ in range(source.randrange(3, 30)):
                promised.update(map(int, other.says().split()))
            other.kill()
        for number in promised:
            data = random.Random(number).randbytes(3000)
            assert blocks.get(block_id(data), verify=True) == data
        keep = sorted(promised)[::2]
        collect(blocks, lambda keep=keep: [block_id(random.Random(number).randbytes(3000)) for number in keep])
        promised = set(keep)
    assert blocks.statistics().blocks - len(promised) <= 2  # a dead block may share a mark with a live one
