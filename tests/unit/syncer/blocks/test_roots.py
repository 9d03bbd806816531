"""Blocks of other roots of this machine: used where they are right, and no failure where they are not."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
import trio

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.roots import OtherRoots
from syncer.ports.blocks import Priority, SourceStats, Want
from tests.unit.syncer.blocks.scripted import Holding

SIZE = 4096


def made(count: int) -> dict[BlockId, bytes]:
    contents = [hashlib.shake_128(b"%d" % number).digest(3000) for number in range(count)]
    return {BlockId(hashlib.sha256(data).digest()): data for data in contents}


def directory(path: Path, blocks: Iterable[bytes], block_size: int = SIZE) -> str:
    with BlockDirectory.create(str(path), block_size=block_size) as found, found.hold() as hold:
        found.put_all(blocks, hold)
        found.sync()
    return str(path)


def fetched(
    source: OtherRoots, remote: Holding, blocks: Iterable[BlockId]
) -> tuple[set[BlockId], dict[str, SourceStats]]:
    got: set[BlockId] = set()

    async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
        got.update(block for block, _ in batch)

    async def main() -> dict[str, SourceStats]:
        board = Blocks([source, remote], budget_bytes=40_000)
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(board.run)
                wants = [Want(id=block, length=SIZE) for block in blocks]
                for half in (wants[::2], wants[1::2]):
                    assert not await board.fetch(half, receive, priority=Priority.LARGE)
                board.end()
            return dict(board.stats)

    return got, trio.run(main)


def test_where_there_is_no_other_root_nothing_is_looked_up() -> None:
    """Who has nothing ends as a source: no want passes through it."""
    blocks, remote = made(60), Holding("remote", made(60))
    got, stats = fetched(OtherRoots(list, SIZE), remote, blocks)
    assert got == set(blocks)
    assert (stats["roots"].lacked, stats["remote"].blocks) == (0, 60)


def test_what_another_root_has_is_not_asked_of_the_server(tmp_path: Path) -> None:
    blocks = made(60)
    names = list(blocks)
    paths = [
        directory(tmp_path / "one", [blocks[name] for name in names[:20]]),
        str(tmp_path / "gone"),
        directory(tmp_path / "two", [blocks[name] for name in names[10:40]]),
    ]
    remote = Holding("remote", blocks)
    got, stats = fetched(OtherRoots(lambda: paths, SIZE), remote, names)
    assert got == set(names)
    assert (stats["roots"].blocks, stats["remote"].blocks) == (40, 20)
    assert {name for asked in remote.asked for name in asked} == set(names[40:])


@pytest.mark.parametrize("kind", ["none", "another block size"])
def test_without_such_a_root_everything_comes_from_the_server(tmp_path: Path, kind: str) -> None:
    blocks = made(5)
    paths = [] if kind == "none" else [directory(tmp_path / "one", blocks.values(), 2 * SIZE)]
    got, stats = fetched(OtherRoots(lambda: paths, SIZE), Holding("remote", blocks), blocks)
    assert got == set(blocks)
    assert stats["remote"].blocks == 5


def test_roots_that_can_not_be_looked_up_are_no_failure() -> None:
    def find() -> Iterable[str]:
        raise OSError(5, "the records can't be read")

    blocks = made(5)
    got, stats = fetched(OtherRoots(find, SIZE), Holding("remote", blocks), blocks)
    assert got == set(blocks)
    assert stats["remote"].blocks == 5


def test_a_damaged_block_comes_from_the_server(tmp_path: Path) -> None:
    blocks = made(8)
    path = directory(tmp_path / "one", blocks.values())
    segments = [each for each in Path(path).rglob("*") if each.is_file() and each.stat().st_size > 8 * 3000 // 2]
    for segment in segments:
        data = segment.read_bytes()
        victim = next(iter(blocks.values()))
        if victim in data:
            segment.write_bytes(data.replace(victim, b"x" * len(victim)))
            break
    else:
        raise AssertionError(segments)
    got, stats = fetched(OtherRoots(lambda: [path], SIZE), Holding("remote", blocks), blocks)
    assert got == set(blocks)
    assert (stats["roots"].blocks, stats["remote"].blocks) == (7, 1)
