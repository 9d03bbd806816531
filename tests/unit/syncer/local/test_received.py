"""What a pull fetched is there for other devices before its file is complete, and nothing is held afterwards."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import trio

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId
from syncer.core.model import RelPath
from syncer.local.received import Received
from syncer.ports.blocks import Receive
from syncer.ports.localvalues import Install
from tests.unit.syncer.local.folders import BLOCK, Elsewhere, done, new_place, noise, staged_by, wanted


def named(number: int) -> BlockId:
    return BlockId(block_id(b"%d" % number))


def opened(path: Path, data: bytes) -> int:
    path.write_bytes(data)
    return os.open(path, os.O_RDONLY)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_block_is_found_whatever_becomes_of_the_name(tmp_path: Path) -> None:
    received, file = Received(), opened(tmp_path / "temp", b"firstsecond\0\0")
    received.placed(file, [(named(1), 0, 5), (named(2), 5, 8)])
    os.close(file)
    (tmp_path / "temp").rename(tmp_path / "name")
    (tmp_path / "name").unlink()
    assert received.read(named(1)) == b"first"
    assert received.read(named(2)) == b"second"
    assert received.read(named(3)) is None
    received.clear()
    assert received.read(named(1)) is None


def test_only_so_many_files_are_held(tmp_path: Path) -> None:
    received, before = Received(), descriptors()
    for number in range(100):
        file = opened(tmp_path / str(number), b"%d" % number)
        received.placed(file, [(named(number), 0, 2)])
        os.close(file)
    assert descriptors() == before + 32
    assert received.read(named(67)) is None
    assert received.read(named(68)) == b"68"
    received.clear()
    assert descriptors() == before


def test_a_file_that_is_given_up_holds_no_space(tmp_path: Path) -> None:
    received, before = Received(), descriptors()
    file = opened(tmp_path / "temp", b"data")
    received.placed(file, [(named(1), 0, 4)])
    received.forget(file)
    received.forget(file)
    os.close(file)
    assert descriptors() == before
    assert received.read(named(1)) is None


def test_a_folder_has_what_it_fetched_until_the_cycle_is_over(tmp_path: Path) -> None:
    place, data = new_place(tmp_path), noise(1, 3 * BLOCK)
    pieces = [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]

    async def main() -> None:
        root = place.open()
        find = root.keep_received()
        seen: list[bytes | None] = []

        async def read(index: int) -> bytes | None:
            return await trio.to_thread.run_sync(find, BlockId(block_id(pieces[index])))

        async def fetch(indexes: Sequence[int], receive: Receive) -> None:
            for index in indexes:
                seen.append(await read(index))
                await receive([(BlockId(block_id(pieces[index])), pieces[index])])
                seen.append(await read(index))

        staged = await staged_by(root, wanted(b"file", data, fetch))
        assert seen == [None, pieces[0], None, pieces[1], None, pieces[2]]
        await done(root, Install(path=RelPath(b"file"), staged=staged))
        await staged.drop()
        assert await read(1) == pieces[1]
        await root.settle()
        assert await read(1) == pieces[1]  # the index for other devices does not have it yet
        before = descriptors()
        await root.close()
        assert descriptors() < before

    trio.run(main)


def test_a_folder_has_also_what_it_fetched_many_files_ago(tmp_path: Path) -> None:
    """More than are kept open: devices were told of each of them, and leave alone who lacks what it offers."""
    place = new_place(tmp_path)
    contents = [noise(number, 2 * BLOCK) for number in range(40)]

    async def main() -> None:
        root = place.open()
        read = root.keep_received()
        for number, data in enumerate(contents):
            staged = await staged_by(root, wanted(b"%d" % number, data, Elsewhere(data).fetch))
            await done(root, Install(path=RelPath(b"%d" % number), staged=staged))
        for data in contents:
            block = data[BLOCK:]
            assert await trio.to_thread.run_sync(read, BlockId(block_id(block))) == block
        await root.close()

    trio.run(main)
