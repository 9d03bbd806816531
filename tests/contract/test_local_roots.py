"""What `LocalRoot` promises, on every kind of root."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from blockfs.blocks.hashing import block_id
from syncer.core.model import FileStat
from syncer.errors import LocalChangedError
from syncer.ports.local import LocalRoot
from syncer.ports.localvalues import Piece
from tests.contract.roots import KINDS, Subject
from tests.simulation.disk import content, data_of
from tests.unit.syncer.local.folders import NO_BASE, by_path

ONE, TWO, THREE = 1, 2, 3  # contents of one block, see `data_of`
LONG, OTHER = 4, 8  # contents of two blocks where these have 4 KiB; they share the first


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__)
def subject(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Subject]:
    for payload in (ONE, TWO, THREE, LONG, OTHER):
        content(payload)  # the simulation's contents are known once they were asked for
    with request.param(tmp_path) as made:
        yield made


def with_root(subject: Subject, work: Callable[[LocalRoot], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        root = subject.open()
        try:
            await work(root)
        finally:
            await root.close()

    trio.run(main)


async def seen(root: LocalRoot) -> dict[bytes, FileStat]:
    return by_path(await root.observe(NO_BASE))


async def pieces_of(root: LocalRoot, *stats: FileStat) -> list[Piece]:
    found = []
    for stat, blocks in zip(stats, await root.block_lists(stats), strict=True):
        assert not isinstance(blocks, Exception), blocks
        found += [Piece(stat=stat, blocks=blocks, index=index) for index in range(len(blocks))]
    return found


def test_a_reader_gives_each_block_of_several_files(subject: Subject) -> None:
    subject.put("d/long", LONG)
    subject.put("one", ONE)

    async def work(root: LocalRoot) -> None:
        found = await seen(root)
        stats = found[b"d/long"], found[b"one"]
        pieces = await pieces_of(root, *stats)
        blocks = await root.reader().read(pieces)
        assert [block_id(each) for each in blocks if isinstance(each, bytes)] == [piece.id for piece in pieces]
        assert b"".join(each for each in blocks if isinstance(each, bytes)) == data_of(LONG) + data_of(ONE)

    with_root(subject, work)


def test_a_file_that_was_written_to_gives_no_bytes_and_takes_no_other_with_it(subject: Subject) -> None:
    """L1, L9. Breaks when a mixture of two versions, or one that nobody decided on, can be sent."""
    for name, payload in (("long", LONG), ("one", ONE), ("two", TWO)):
        subject.put(name, payload)

    async def work(root: LocalRoot) -> None:
        found = await seen(root)
        pieces = await pieces_of(root, found[b"long"], found[b"one"], found[b"two"])
        subject.put("long", OTHER)
        subject.put("one", THREE)
        blocks = await root.reader().read(pieces)
        for piece, block in zip(pieces, blocks, strict=True):
            whole = isinstance(block, bytes) and block_id(block) == piece.id
            assert whole or isinstance(block, LocalChangedError)
        assert blocks[-1] == data_of(TWO)

    with_root(subject, work)


def test_an_ordinary_files_first_block_is_not_read_once_another_was_written(subject: Subject) -> None:
    """What changed since it was observed costs no traffic, though its first block is the same."""
    subject.put("long", LONG)

    async def work(root: LocalRoot) -> None:
        pieces = await pieces_of(root, (await seen(root))[b"long"])
        subject.put("long", OTHER)
        blocks = await root.reader().read(pieces)
        versions = {LONG: data_of(LONG), None: b""}
        assert b"".join(each for each in blocks if isinstance(each, bytes)) in versions.values()

    with_root(subject, work)
