from __future__ import annotations

import trio
import trio.testing

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK
from syncer.engine.lanes import Lanes
from tests.unit.syncer.local.folders import BLOCK


def block_list(*contents: bytes) -> BlockList:
    ids = b"".join(block_id(content) for content in contents)
    return BlockList(block_size=BLOCK, size_bytes=BLOCK * len(contents), ids=ids)


def order(*files: BlockList) -> list[str]:
    """Start a transfer of each file at once, each taking a second; when each begins and ends."""
    log: list[str] = []

    async def transfer(lanes: Lanes, number: int, blocks: BlockList) -> None:
        async with lanes.lane(blocks):
            log.append(f"+{number}")
            await trio.sleep(1)
            log.append(f"-{number}")

    async def run() -> None:
        lanes = Lanes()
        async with trio.open_nursery() as nursery:
            for number, blocks in enumerate(files):
                nursery.start_soon(transfer, lanes, number, blocks)
                await trio.testing.wait_all_tasks_blocked()

    trio.run(run, clock=trio.testing.MockClock(autojump_threshold=0.01))
    return log


def test_files_with_a_common_block_go_one_after_the_other() -> None:
    assert order(block_list(b"a", b"b"), block_list(b"b", b"c")) == ["+0", "-0", "+1", "-1"]


def test_files_without_a_common_block_go_side_by_side() -> None:
    assert order(block_list(b"a"), block_list(b"b"))[:2] == ["+0", "+1"]


def test_holes_are_no_common_blocks() -> None:
    assert block_list(b"").ids == ZERO_BLOCK
    assert order(block_list(b"a", b""), block_list(b"b", b""))[:2] == ["+0", "+1"]
