"""What the server is asked for while there may be devices that have it, and that alone it is asked for all at once."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.meter import LEAST_SEEN_S, STALL_S, Meter
from syncer.blocks.policy import (
    AHEAD_BYTES,
    AHEAD_S,
    AHEAD_SHARE,
    ANSWERS_S,
    EARLY_S,
    FEW_BYTES,
    FIRST_BYTES,
    GRACE_S,
    HEARD_S,
    HOLD_S,
    SMALL_LEFT,
    SMALL_WANT,
    ServerPolicy,
    Turn,
)
from syncer.ports.blocks import BlockSource, Board, Priority, Want
from tests.unit.syncer.blocks.scripted import Seat, blocks_of, ids, want

MIB = 1 << 20
BLOCK = 64 << 10


def run(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test, clock=MockClock(autojump_threshold=0))


async def ignore(_: Sequence[tuple[BlockId, bytes]]) -> None:
    """Receive."""


@asynccontextmanager
async def wanted(wants: Sequence[Want], *sources: BlockSource, heard: bool = False) -> Any:
    """A board on which somebody wants these."""
    board = Blocks(sources, draw=random.Random(0).randrange)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        await wait_all_tasks_blocked()
        if heard:
            sources[0].board.heard(trio.current_time())  # type: ignore[attr-defined]
        nursery.start_soon(lambda: board.fetch(wants, ignore, priority=Priority.SMALL))
        await wait_all_tasks_blocked()
        yield board
        nursery.cancel_scope.cancel()


async def drained(board: Board, blocks: Mapping[BlockId, bytes]) -> list[Want]:
    """All that the server is given now, when it brings each at once."""
    found: list[Want] = []
    while taken := board.take(1 << 30):
        found += taken
        await board.give([(each, blocks[each.id]) for each in taken])
    return found


async def nothing_new(board: Board, seconds: float = 1000) -> bool:
    """Whether `more` waits until something happens."""
    with trio.move_on_after(seconds) as scope:
        await board.more()
    return scope.cancelled_caught


def test_without_devices_the_server_gets_everything_at_once_and_in_order() -> None:
    async def test() -> None:
        blocks = blocks_of(1000)
        remote = Seat("remote")
        async with wanted(list(map(want, blocks)), remote):
            assert ids(remote.board.take(1 << 30)) == list(blocks)

    run(test)


def test_the_first_window_is_random_and_the_rest_waits_for_its_answer_or_four_milliseconds() -> None:
    async def test() -> None:
        blocks = blocks_of(320)
        peers, remote = Seat("peers"), Seat("remote")
        for give in (True, False):
            async with wanted([want(block, length=2000) for block in blocks], peers, remote):
                began = trio.current_time()
                first = remote.board.take(1 << 30)
                assert len(first) == 10
                assert ids(first) != list(blocks)[:10]
                assert not remote.board.take(1 << 30)
                if give:
                    await remote.board.give([(first[0], blocks[first[0].id])])
                assert await remote.board.more()
                assert trio.current_time() - began == (0 if give else GRACE_S)
                rest = [block for block in blocks if block not in ids(first)]
                assert ids(remote.board.take(1 << 30)) == rest

    run(test)


def test_while_it_is_found_out_who_is_there_the_server_has_the_first_window_alone() -> None:
    """Breaks as a server that has sent all before a neighbour could say that it is there."""

    async def test() -> None:
        blocks = blocks_of(320)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote):
            peers.board.seek()
            first = remote.board.take(1 << 30)
            await remote.board.give([(first[0], blocks[first[0].id])])
            assert not remote.board.take(1 << 30)
            with trio.move_on_after(3600):
                await remote.board.more()
                raise AssertionError("it was not over")
            peers.board.seek(over=True)
            assert await remote.board.more()
            assert len(remote.board.take(1 << 30)) == 310

    run(test)


def test_where_nobody_is_for_sure_the_server_gets_all_at_once() -> None:
    """Breaks as a daemon that knows that it is alone, and has the server send two megabytes at a time."""

    async def test() -> None:
        blocks = blocks_of(28)
        for sure in (False, True):
            peers, remote = Seat("peers"), Seat("remote")
            async with wanted([want(block, length=MIB) for block in blocks], peers, remote):
                peers.board.seek()
                first = remote.board.take(1 << 30)
                await remote.board.give([(each, blocks[each.id]) for each in first])
                peers.board.seek(over=True, sure=sure)
                taken = len(remote.board.take(1 << 30))
                assert taken == 28 - len(first) if sure else taken <= FEW_BYTES // MIB
                if sure:
                    peers.board.heard(trio.current_time())
                    assert remote.board.take(1 << 30) == []

    run(test)


def test_where_nobody_is_for_sure_the_server_goes_on_before_it_has_answered() -> None:
    async def test() -> None:
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks_of(320)], peers, remote):
            peers.board.seek()
            assert len(remote.board.take(1 << 30)) == 10
            peers.board.seek(over=True, sure=True)
            assert len(remote.board.take(1 << 30)) == 310

    run(test)


def test_how_long_the_idle_server_was_kept_waiting_is_told() -> None:
    async def test() -> None:
        blocks = blocks_of(320)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote) as board:
            peers.board.seek()
            first = remote.board.take(1 << 30)
            assert await nothing_new(remote.board, 0.25)
            assert board.stats["remote"].held_s == 0  # it is busy
            await remote.board.give([(each, blocks[each.id]) for each in first])
            assert not remote.board.take(1 << 30)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(remote.board.more)
                await trio.sleep(0.25)
                peers.board.seek(over=True, sure=True)
            assert board.stats["remote"].held_s == 0.25

    run(test)


def test_who_is_heard_meanwhile_is_waited_for_as_always() -> None:
    async def test() -> None:
        blocks = blocks_of(320)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote):
            peers.board.seek()
            remote.board.take(1 << 30)
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(remote.board.more)
                await trio.sleep(HOLD_S / 2)
                peers.board.heard(trio.current_time())
            assert trio.current_time() - began == HOLD_S / 2 + HOLD_S

    run(test)


def test_a_source_of_devices_that_ends_seeks_nobody_any_more() -> None:
    async def test() -> None:
        class Seeking(Seat):
            async def run(self, board: Board) -> None:
                board.seek()
                self._board = board
                await trio.sleep(0.1)

        blocks = blocks_of(320)
        peers, remote = Seeking("peers"), Seat("remote")
        async with wanted([want(block, length=MIB) for block in blocks], peers, remote):
            remote.board.take(1 << 30)
            began = trio.current_time()
            assert await remote.board.more()
            assert trio.current_time() - began == 0.1
            assert len(remote.board.take(28 << 20)) == 28  # and it may have as much as there is room for

    run(test)


def test_where_nobody_was_heard_the_server_has_little_at_a_time_at_first() -> None:
    """Breaks as an answer that comes a little late, when the server has been asked for everything."""

    async def test() -> None:
        blocks = blocks_of(320)
        length = FEW_BYTES // 16
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=length) for block in blocks], peers, remote):
            first = remote.board.take(1 << 30)
            assert len(first) == 10
            await trio.sleep(GRACE_S)
            assert len(remote.board.take(1 << 30)) == 6
            began = trio.current_time()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(remote.board.more)
                await trio.sleep(0.1)
                await remote.board.give([(each, blocks[each.id]) for each in first])
            assert trio.current_time() - began == 0.1
            assert [len(remote.board.take(1 << 30)) for _ in range(3)] == [8, 2, 0]  # half of it in one request
            assert await remote.board.more()
            assert trio.current_time() - began == EARLY_S - GRACE_S
            assert remote.board.take(1 << 30)

    run(test)


def test_of_one_want_the_first_window_is_all() -> None:
    async def test() -> None:
        (block,) = blocks_of(1)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block)], peers, remote, heard=True):
            assert ids(remote.board.take(1)) == [block]

    run(test)


def test_where_a_device_was_heard_a_want_waits_twenty_milliseconds_and_offered_ones_are_left() -> None:
    async def test() -> None:
        blocks = blocks_of(100)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote, heard=True):
            first = remote.board.take(1 << 30)
            assert len(first) == 3
            began = trio.current_time()
            offered = [each for each in peers.board.peek(1000) if each.id not in ids(first)][:50]
            peers.board.offer(offered)
            assert await remote.board.more()
            assert trio.current_time() - began == HOLD_S
            await remote.board.give([(each, blocks[each.id]) for each in first])
            spare = await drained(remote.board, blocks)
            assert len(spare) == 100 - 3 - 50
            assert not {*ids(spare)} & {*ids(offered)}
            assert ids(spare) != [block for block in blocks if block in ids(spare)]
            peers.board.lack(offered[:7])
            await remote.board.more()
            assert sorted(ids(await drained(remote.board, blocks))) == sorted(ids(offered[:7]))

    run(test)


def test_what_all_devices_lack_is_not_held() -> None:
    async def test() -> None:
        blocks = blocks_of(100)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote, heard=True):
            first = remote.board.take(1 << 30)
            began = trio.current_time()
            lacked = [each for each in peers.board.peek(1000) if each.id not in ids(first)][:60]
            peers.board.lack(lacked)
            await remote.board.give([(each, blocks[each.id]) for each in first])
            assert await remote.board.more()
            assert trio.current_time() == began
            assert sorted(ids(await drained(remote.board, blocks))) == sorted(ids(lacked))

    run(test)


def test_while_a_device_is_there_little_of_what_nobody_offers_is_on_its_way_in_two_requests() -> None:
    """Breaks as eight devices that begin together, each of which asks the server for everything."""

    async def test() -> None:
        blocks = blocks_of(1024)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=BLOCK) for block in blocks], peers, remote, heard=True):
            first = remote.board.take(1 << 30)
            peers.board.peek(2000)
            await trio.sleep(10)  # it is slow: no rate makes it more
            await remote.board.give([(each, blocks[each.id]) for each in first])
            while not (taken := remote.board.take(1 << 30)):
                assert await remote.board.more()
            more = remote.board.take(1 << 30)
            assert (len(taken), len(more)) == (2, 2)
            assert 4 * BLOCK == 1024 * BLOCK // AHEAD_SHARE
            assert not remote.board.take(1 << 30)
            assert await nothing_new(remote.board, 1)
            await remote.board.give([(taken[0], blocks[taken[0].id])])
            assert await remote.board.more()
            assert len(remote.board.take(1 << 30)) == 1

    run(test)


def test_on_its_way_is_what_the_server_brings_in_a_quarter_of_a_second() -> None:
    policy = ServerPolicy()
    policy.wanted(64 * MIB)
    assert policy.ahead_bytes(0) == 64 * MIB // AHEAD_SHARE
    policy.wanted(1024 * MIB)
    assert policy.ahead_bytes(0) == AHEAD_BYTES
    policy.server.run(0)
    policy.server.count(100 * MIB, 1)
    assert policy.ahead_bytes(1) == AHEAD_S * 100 * MIB


def test_while_connected_devices_answer_the_server_waits_half_a_second_at_most() -> None:
    async def test() -> None:
        blocks = blocks_of(100)
        for answered_s in (0.1, None):
            peers, remote = Seat("peers"), Seat("remote")
            async with wanted([want(block, length=2000) for block in blocks], peers, remote, heard=True):
                began = trio.current_time()
                peers.board.answering()
                first = remote.board.take(1 << 30)
                await remote.board.give([(each, blocks[each.id]) for each in first])
                if answered_s is not None:
                    await trio.sleep(answered_s)
                    assert not remote.board.take(1 << 30)
                    peers.board.answering(over=True)
                while not remote.board.take(1 << 30):
                    assert await remote.board.more()
                assert trio.current_time() - began == (answered_s or ANSWERS_S)

    run(test)


def test_what_devices_offer_and_do_not_bring_is_the_servers_when_they_stall() -> None:
    async def test() -> None:
        blocks = blocks_of(20)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted(list(map(want, blocks)), peers, remote, heard=True):
            (first,) = remote.board.take(1 << 30)
            peers.board.offer(peers.board.peek(1000))
            claimed = peers.board.take(10_000, among=list(blocks))
            began = trio.current_time()
            assert await remote.board.more()
            assert trio.current_time() - began == STALL_S
            late = ids(remote.board.take(1 << 30))
            # What the devices have claimed comes last: those are fetched twice.
            assert sorted(late) == sorted(block for block in blocks if block != first.id)
            assert sorted(late[-len(claimed) :]) == sorted(ids(claimed))

    run(test)


async def _until_the_server_has_what_slow_devices_offer(count: int, length: int) -> float:
    """Seconds."""
    blocks = blocks_of(count)
    peers, remote = Seat("peers"), Seat("remote")
    async with wanted([want(block, length=length) for block in blocks], peers, remote, heard=True):
        first = remote.board.take(1 << 30)
        await trio.sleep(0.001)
        await remote.board.give([(each, blocks[each.id]) for each in first])
        peers.board.offer(peers.board.peek(10_000))
        began = trio.current_time()
        while await remote.board.more():
            if remote.board.take(1 << 30):
                break
        return trio.current_time() - began


def test_slow_devices_do_not_slow_the_whole() -> None:
    async def test() -> None:
        assert await _until_the_server_has_what_slow_devices_offer(200, SMALL_WANT + 1) < 2 * LEAST_SEEN_S
        assert await _until_the_server_has_what_slow_devices_offer(SMALL_LEFT // 1000, 2000) < 2 * LEAST_SEEN_S

    run(test)


def test_a_few_small_ones_are_left_to_slow_devices_until_they_stall() -> None:
    """Else eight busy machines have the server send every small file to each of them."""

    async def test() -> None:
        assert await _until_the_server_has_what_slow_devices_offer(200, 2000) == STALL_S

    run(test)


def test_devices_that_are_fast_keep_what_they_offer() -> None:
    async def test() -> None:
        blocks = blocks_of(200)
        peers, remote = Seat("peers"), Seat("remote")
        async with wanted([want(block, length=2000) for block in blocks], peers, remote, heard=True):
            first = remote.board.take(1 << 30)
            await trio.sleep(0.01)
            await remote.board.give([(each, blocks[each.id]) for each in first])
            peers.board.offer(peers.board.peek(1000))
            while claimed := peers.board.take(8000, among=list(blocks)):
                await trio.sleep(0.008)
                await peers.board.give([(each, blocks[each.id]) for each in claimed])
                assert not remote.board.take(1 << 30)
            assert await nothing_new(remote.board)

    run(test)


def test_the_first_window_is_a_part_of_what_is_wanted_and_bounded() -> None:
    policy = ServerPolicy()
    policy.wanted(MIB)
    assert policy.fits_first(MIB, 0.0)
    policy.asked_first(MIB, 0.0)
    policy.wanted(63 * MIB)
    assert policy.fits_first(MIB, 0.0)
    assert not policy.fits_first(MIB + 1, 0.0)
    policy.wanted(1 << 40)
    assert policy.fits_first(FIRST_BYTES - MIB, 0.0)
    assert not policy.fits_first(FIRST_BYTES - MIB + 1, 0.0)
    assert policy.fits_first(1, EARLY_S - 0.001)
    assert not policy.fits_first(1, EARLY_S)  # what is wanted later in a cycle is not of its first window


def test_a_device_counts_as_there_for_a_minute() -> None:
    policy = ServerPolicy()
    policy.asked_first(1, 0.0)
    assert policy.turn(0.0) is Turn.NONE
    assert policy.turn(GRACE_S) is Turn.ALL
    policy.heard(10.0)
    policy.heard(5.0)
    assert policy.is_anyone(10.0 + HEARD_S - 1)
    assert policy.turn(10.0 + HEARD_S - 1) is Turn.SPARE
    assert not policy.is_anyone(10.0 + HEARD_S)
    assert policy.turn(10.0 + HEARD_S) is Turn.ALL


def test_a_meter_counts_only_the_time_in_which_it_runs_and_forgets() -> None:
    meter = Meter()
    meter.run(0.0)
    meter.count(100, 1.0)
    meter.stop(1.0)
    assert meter.rate(50.0) == 100
    assert meter.stalls_at() is None
    assert meter.slower_than(10, 0) is None
    meter.run(50.0)
    assert meter.seconds(51.0) == 2.0
    assert meter.stalls_at() == 50.0 + STALL_S
    for second in range(51, 90):
        meter.count(10, second)
    rate = meter.rate(89.0)
    assert rate is not None
    assert rate < 11
    assert meter.seconds(89.0) == 40.0
