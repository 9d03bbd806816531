"""What the board promises to sources and to whoever wants blocks, one thing at a time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.errors import ConflictOnRemoteError, CorruptionError, NotFoundError, RemoteUnavailableError
from syncer.ports.blocks import BlockSource, Board, Given, Priority, Receive, Want
from tests.kit.steps import steps_of
from tests.unit.syncer.blocks.scripted import MOST, Holding, Scripted, Seat, blocks_of, ids, place, want

Got = list[tuple[BlockId, bytes]]


def run(test: Callable[[], Awaitable[None]]) -> None:
    trio.run(test, clock=MockClock(autojump_threshold=0))


@asynccontextmanager
async def serving(*sources: BlockSource, **options: Any) -> Any:
    """A board on which these serve."""
    board = Blocks(sources, **options)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        with trio.fail_after(60):
            yield board
        nursery.cancel_scope.cancel()


def into(got: Got) -> Receive:
    async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
        got.extend(batch)

    return receive


def fetching(board: Blocks, wants: Sequence[Want], got: Got) -> AbstractAsyncContextManager[list[Any]]:
    """Somebody fetches in the background; its outcome, when it has one, is in the list."""

    @asynccontextmanager
    async def context() -> Any:
        outcome: list[Any] = []

        async def fetch() -> None:
            outcome.append(await board.fetch(wants, into(got), priority=Priority.LARGE))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await wait_all_tasks_blocked()
            yield outcome
            nursery.cancel_scope.cancel()

    return context()


def test_a_block_that_two_want_is_taken_once_and_delivered_to_both() -> None:
    async def test() -> None:
        blocks = blocks_of(3)
        source = Holding("remote", blocks)
        first: Got = []
        second: Got = []
        async with serving(source) as board, trio.open_nursery() as both:
            for got in (first, second):
                both.start_soon(lambda got=got: board.fetch(list(map(want, blocks)), into(got), priority=1))
        assert dict(first) == dict(second) == blocks
        assert sum(map(len, source.asked)) == 3

    run(test)


def test_who_asks_while_a_block_is_delivered_gets_it_too() -> None:
    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        source = Holding("remote", {block: data})
        late: Got = []
        async with serving(source) as board:

            async def slow(_: Sequence[tuple[BlockId, bytes]]) -> None:
                assert not await board.fetch([want(block)], into(late), priority=Priority.LARGE)

            assert not await board.fetch([want(block)], slow, priority=Priority.LARGE)
        assert late == [(block, data)]
        assert source.asked == [[block]]

    run(test)


def test_a_wrong_block_reaches_nobody_and_is_open_again() -> None:
    """B2 of docs/design/board.md."""

    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        seat, got = Seat(), Got()
        async with serving(seat) as board, fetching(board, [want(block)], got):
            (claimed,) = seat.board.take(1 << 20)
            assert await seat.board.give([(claimed, data + b"!")]) == [Given.WRONG]
            assert not got
            assert ids(seat.board.peek(9)) == [block]
            (claimed,) = seat.board.take(1 << 20)
            assert await seat.board.give([(claimed, data)]) == [Given.RIGHT]
            assert got == [(block, data)]

    run(test)


def test_a_wrong_block_that_is_held_is_nobody_else_s_until_it_is_given_or_lacked() -> None:
    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        seat, got = Seat(), Got()
        async with serving(seat) as board, fetching(board, [want(block)], got):
            (claimed,) = seat.board.take(1 << 20)
            assert await seat.board.give([(claimed, data + b"!")], hold=True) == [Given.WRONG]
            assert not got
            assert not seat.board.take(1 << 20)
            assert await seat.board.give([(claimed, data)]) == [Given.RIGHT]
            assert got == [(block, data)]

    run(test)


def test_more_bytes_than_the_block_may_have_are_wrong_and_nuls_at_its_end_do_not_count() -> None:
    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        seat, got = Seat(), Got()
        async with serving(seat) as board, fetching(board, [want(block, length=len(data))], got):
            assert await seat.board.give([(want(block), data + b"\0" * 9)]) == [Given.RIGHT]
            assert got == [(block, data)]
        async with serving(seat) as board, fetching(board, [want(block, length=len(data) - 1)], got):
            assert await seat.board.give([(want(block), data)]) == [Given.WRONG]

    run(test)


def test_a_near_source_may_have_more_of_a_block_that_was_cut() -> None:
    """Breaks when an object that was cut on a plain Pithos can't be had from the file that it was cut from."""

    async def test() -> None:
        ((block, data),) = blocks_of(1).items()
        board, got = Blocks([Holding("own", {block: data}, near=True), Holding("remote", {})]), dict[BlockId, bytes]()

        async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
            got.update(batch)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.run)
            assert not await board.fetch([want(block, length=3)], receive, priority=Priority.LARGE)
            nursery.cancel_scope.cancel()
        assert got == {block: data}

    trio.run(test)


def test_far_sources_see_only_what_all_near_ones_lack() -> None:
    """B5 of docs/design/board.md."""

    async def test() -> None:
        blocks = blocks_of(9)
        mine = dict(list(blocks.items())[:3])
        other = dict(list(blocks.items())[3:6])
        own, roots = Holding("own", mine, near=True), Holding("roots", {**mine, **other}, near=True)
        remote = Holding("remote", blocks)
        got: Got = []
        async with serving(own, roots, remote) as board:
            assert not await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
            counts = {name: stats.blocks for name, stats in board.stats.items()}
        assert dict(got) == blocks
        assert {block for asked in remote.asked for block in asked} == set(blocks) - set(mine) - set(other)
        assert {block for asked in roots.asked for block in asked} == set(blocks) - set(mine)
        assert counts == {"own": 3, "roots": 3, "remote": 3}

    run(test)


def test_what_all_sources_lack_fails_with_the_last_reason() -> None:
    """B1 of docs/design/board.md."""

    async def test() -> None:
        block, other = blocks_of(2)
        own, remote = Seat("own", near=True), Seat()
        why = CorruptionError("damaged")
        got: Got = []
        async with serving(own, remote) as board, fetching(board, [want(block), want(other)], got) as outcome:
            own.board.lack(own.board.take(1 << 20))
            first, second = remote.board.take(1 << 20)
            remote.board.lack([first], why)
            remote.board.lack([second])
            await wait_all_tasks_blocked()
            (failed,) = outcome
            assert failed[block] is why
            assert isinstance(failed[other], NotFoundError)

    run(test)


def test_a_place_that_is_gone_takes_no_other_file_with_it() -> None:
    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        seat = Seat()
        lost, there = Got(), Got()
        gone = ConflictOnRemoteError(b"a", "a version", "none")
        async with (
            serving(seat) as board,
            fetching(board, [want(block, place(b"a", block))], lost) as failed,
            fetching(board, [want(block, place(b"b", block))], there) as served,
        ):
            (claimed,) = seat.board.take(1 << 20)
            seat.board.lack([claimed], gone)
            await wait_all_tasks_blocked()
            assert failed == [{block: gone}]
            (claimed,) = seat.board.take(1 << 20)
            assert claimed.places[0].version.path == b"b"
            await seat.board.give([(claimed, data)])
            await wait_all_tasks_blocked()
            assert served == [{}]
        assert (lost, there) == ([], [(block, data)])

    run(test)


def test_a_server_that_is_away_is_not_asked_again_for_each_place() -> None:
    async def test() -> None:
        block, *_ = blocks_of(1)
        seat = Seat()
        async with (
            serving(seat) as board,
            fetching(board, [want(block, place(b"a", block))], []) as one,
            fetching(board, [want(block, place(b"b", block))], []) as two,
        ):
            seat.board.lack(seat.board.take(1 << 20), RemoteUnavailableError("away"))
            await wait_all_tasks_blocked()
            assert len(one) == len(two) == 1

    run(test)


@pytest.mark.parametrize("error", [None, RemoteUnavailableError("it died")])
def test_a_source_that_ends_lacks_everything_also_what_it_had_claimed(error: RemoteUnavailableError | None) -> None:
    async def test() -> None:
        blocks = blocks_of(3)
        got: Got = []

        async def die(board: Board) -> None:
            while not board.take(1 << 20):
                await board.more()
            if error is not None:
                raise error

        class Dying(Scripted):
            async def run(self, board: Board) -> None:
                await self.serve(board)

        async with serving(Dying("own", die, near=True), Holding("remote", blocks)) as board:
            assert not await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
            assert dict(got) == blocks
        async with serving(Dying("remote", die)) as board:
            failed = await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
            assert set(failed) == set(blocks)
            again = await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
            assert set(again) == set(blocks)
            assert error is None or set(again.values()) == {error}

    run(test)


def test_no_source_holds_more_than_half_of_the_budget_and_a_block_is_always_allowed() -> None:
    """B3 of docs/design/board.md."""

    async def test() -> None:
        blocks = blocks_of(9)
        one, two = Seat("peers"), Seat("other")
        wants = [want(block, length=1000) for block in blocks]
        async with serving(one, two, budget_bytes=5000) as board, fetching(board, wants, []):
            assert len(one.board.take(1 << 20)) == 2
            assert len(two.board.take(1 << 20)) == 2
            assert not one.board.take(1 << 20)
            assert board.claimed_bytes == 4000
        huge = [want(block, length=9000) for block in blocks]
        async with serving(one, two, budget_bytes=5000) as board, fetching(board, huge, []):
            assert len(one.board.take(1)) == 1
            assert not two.board.take(1 << 20)

    run(test)


def test_who_found_the_budget_used_up_is_told_when_there_is_room() -> None:
    async def test() -> None:
        blocks = blocks_of(9)
        seat, got = Seat(), Got()
        wants = [want(block, length=2000) for block in blocks]
        async with serving(seat) as board, fetching(board, wants, got):
            pass
        async with serving(seat, budget_bytes=2000) as board, fetching(board, wants, got):
            for number in range(9):
                (claimed,) = seat.board.take(1 << 20)
                assert not seat.board.take(1 << 20)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(seat.board.give, [(claimed, blocks[claimed.id])])
                    assert number == 8 or await seat.board.more()
        assert dict(got) == blocks

    run(test)


def test_a_slow_receiver_slows_the_source_and_its_blocks_count_until_it_has_them() -> None:
    async def test() -> None:
        blocks = blocks_of(2)
        go = trio.Event()
        seat = Seat()

        async def slow(_: Sequence[tuple[BlockId, bytes]]) -> None:
            await go.wait()

        async with serving(seat) as board, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: board.fetch(list(map(want, blocks)), slow, priority=Priority.LARGE))
            await wait_all_tasks_blocked()
            claimed = seat.board.take(1 << 20)
            given: list[list[Given]] = []

            async def give() -> None:
                given.append(await seat.board.give([(each, blocks[each.id]) for each in claimed]))

            nursery.start_soon(give)
            await wait_all_tasks_blocked()
            assert not given
            assert board.claimed_bytes == sum(each.length for each in claimed)
            assert not seat.board.is_open(claimed[0])
            go.set()
            await wait_all_tasks_blocked()
            assert given == [[Given.RIGHT, Given.RIGHT]]
            assert board.claimed_bytes == 0

    run(test)


def test_a_receiver_that_fails_fails_its_own_fetch_only() -> None:
    async def test() -> None:
        blocks = blocks_of(2)
        got: Got = []

        async def full(_: Sequence[tuple[BlockId, bytes]]) -> None:
            raise OSError(28, "full")

        async with serving(Holding("remote", blocks, delay_s=1)) as board, trio.open_nursery() as nursery:
            nursery.start_soon(lambda: board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE))
            with pytest.raises(OSError, match="full"):
                await board.fetch(list(map(want, blocks)), full, priority=Priority.LARGE)
        assert dict(got) == blocks

    run(test)


@pytest.mark.parametrize("while_delivered", [False, True])
def test_a_cancelled_caller_frees_its_claims_and_loses_nobody_elses_block(while_delivered: bool) -> None:
    """B7 of docs/design/board.md."""

    async def test() -> None:
        blocks = blocks_of(4)
        shared = list(blocks)[:2]
        got: Got = []
        seat = Seat()

        async def never(_: Sequence[tuple[BlockId, bytes]]) -> None:
            await trio.sleep_forever()

        async with serving(seat) as board, fetching(board, list(map(want, shared)), got):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: board.fetch(list(map(want, blocks)), never, priority=Priority.LARGE))
                await wait_all_tasks_blocked()
                claimed = seat.board.take(1 << 20)
                assert len(claimed) == 4
                if while_delivered:
                    pairs = [(each, blocks[each.id]) for each in claimed]
                    async with trio.open_nursery() as giving:
                        giving.start_soon(seat.board.give, pairs)
                        await wait_all_tasks_blocked()
                        giving.cancel_scope.cancel()
                nursery.cancel_scope.cancel()
            if not while_delivered:
                assert board.claimed_bytes == sum(each.length for each in claimed[:2])
                outcomes = await seat.board.give([(each, blocks[each.id]) for each in claimed])
                assert outcomes == [Given.RIGHT, Given.RIGHT, Given.LATE, Given.LATE]
            assert board.claimed_bytes == 0
        assert sorted(ids_of(got)) == sorted(shared)

    run(test)


def ids_of(got: Got) -> list[BlockId]:
    return [block for block, _ in got]


def test_a_claimed_want_is_nobody_elses_but_once_more_in_the_end_game() -> None:
    """B6 of docs/design/board.md."""

    async def test() -> None:
        (block, data), *_ = blocks_of(1).items()
        seats = [Seat("peers"), Seat("other"), Seat("third")]
        got: Got = []
        async with serving(*seats) as board, fetching(board, [want(block)], got):
            one, two, three = (seat.board for seat in seats)
            (first,) = one.take(1 << 20)
            assert not two.take(1 << 20)
            assert not one.take(1 << 20, again=True)
            (second,) = two.take(1 << 20, again=True)
            assert not three.take(1 << 20, again=True)
            assert await two.give([(second, data)]) == [Given.RIGHT]
            assert not one.is_open(first)
            assert await one.give([(first, data)]) == [Given.LATE]
            assert board.claimed_bytes == 0
            assert board.stats["peers"].late == 1
        assert got == [(block, data)]

    run(test)


def test_what_another_one_offers_is_not_spare_until_it_lacks_it() -> None:
    async def test() -> None:
        blocks = blocks_of(4)
        peers, other = Seat("peers"), Seat("other")
        async with serving(peers, other) as board, fetching(board, list(map(want, blocks)), []):
            shown = peers.board.peek(2)
            peers.board.offer(shown)
            spare = other.board.take(1 << 20, spare=True)
            assert ids(spare) == list(blocks)[2:]
            peers.board.lack(shown[:1])
            assert ids(other.board.take(1 << 20, spare=True)) == ids(shown[:1])
            assert not peers.board.take(1 << 20, among=ids(shown[:1]))
            assert ids(peers.board.take(1 << 20, among=ids(shown))) == ids(shown[1:])
            other.board.lack(spare)
            peers.board.offer(shown[:1])
            assert ids(peers.board.peek(9)) == list(blocks)[2:]

    run(test)


def test_take_among_follows_its_order_and_passes_over_what_is_not_to_be_had() -> None:
    async def test() -> None:
        first, second, third, fourth = blocks_of(4)
        peers, other = Seat("peers"), Seat("other")
        wants = [want(block, length=10) for block in (first, second, third)]
        async with serving(peers, other) as board, fetching(board, wants, []):
            other.board.take(1 << 20, among=[second])
            assert ids(peers.board.take(15, among=[fourth, third, second, first])) == [third]
            assert ids(peers.board.take(15, among=[fourth, third, second, first])) == [first]

    run(test)


def test_what_was_glanced_at_is_not_shown_again_unless_it_was_given_wrongly() -> None:
    async def test() -> None:
        blocks = blocks_of(5)
        seat, remote = Seat("peers"), Seat("remote")
        async with serving(seat, remote) as board, fetching(board, list(map(want, blocks)), Got()):
            glanced = seat.board.glance(2)
            assert len(glanced) == 2
            assert await seat.board.give([(glanced[0], b"another")]) == [Given.WRONG]
            rest = [block for block in blocks if block != glanced[1].id]
            assert sorted(ids(seat.board.peek(9))) == sorted(rest)
            assert not seat.board.glance(9)
            (claimed,) = remote.board.take(1)
            assert await remote.board.give([(claimed, b"another")]) == [Given.WRONG]
            assert not seat.board.glance(9)

    run(test)


def test_peek_shows_each_want_once_claimed_or_not_the_urgent_ones_first() -> None:
    async def test() -> None:
        large, small, read, extra = blocks_of(4)
        peers, other = Seat("peers"), Seat("other")
        async with serving(peers, other) as board, trio.open_nursery() as nursery:
            for block, priority in ((large, Priority.LARGE), (small, Priority.SMALL), (read, Priority.READ)):
                nursery.start_soon(
                    lambda block=block, priority=priority: board.fetch([want(block)], into([]), priority=priority)
                )
                await wait_all_tasks_blocked()
            assert ids(other.board.take(1)) == [read]
            assert ids(peers.board.peek(2)) == [read, small]
            assert ids(peers.board.peek(2)) == [large]
            assert not peers.board.peek(2)
            async with trio.open_nursery() as waiting:
                waiting.start_soon(peers.board.more)
                nursery.start_soon(lambda: board.fetch([want(extra)], into([]), priority=Priority.LARGE))
            assert ids(peers.board.peek(2)) == [extra]
            nursery.cancel_scope.cancel()

    run(test)


def test_a_want_that_becomes_urgent_comes_first() -> None:
    async def test() -> None:
        first, second = blocks_of(2)
        seat = Seat()
        async with (
            serving(seat) as board,
            fetching(board, [want(first), want(second)], []),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(lambda: board.fetch([want(second)], into([]), priority=Priority.READ))
            await wait_all_tasks_blocked()
            assert ids(seat.board.take(1)) == [second]
            nursery.cancel_scope.cancel()

    run(test)


def test_news_between_the_look_and_the_wait_are_not_lost() -> None:
    async def test() -> None:
        first, second = blocks_of(2)
        seat = Seat()
        async with serving(seat) as board, fetching(board, [want(first)], []):
            assert len(seat.board.peek(9)) == 1
            async with fetching(board, [want(second)], []):
                assert await seat.board.more()
                assert ids(seat.board.peek(9)) == [second]

    run(test)


def test_more_tells_the_end() -> None:
    async def test() -> None:
        board = Blocks([Holding("own", {}, near=True), Holding("remote", {})])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.run)
            await wait_all_tasks_blocked()
            board.end()

    run(test)


def test_the_figures_of_the_sources_add_up_to_what_was_received() -> None:
    """B9 of docs/design/board.md."""

    async def test() -> None:
        blocks = blocks_of(50)
        own = Holding("own", dict(list(blocks.items())[::5]), near=True)
        remote = Holding("remote", blocks, delay_s=1.0, most_bytes=8000)
        got: Got = []
        async with serving(own, remote) as board:
            await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
            stats = board.stats
        assert sum(each.blocks for each in stats.values()) == len(got) == 50
        assert sum(each.bytes for each in stats.values()) == sum(len(data) for _, data in got)
        assert stats["own"].lacked == 40
        assert stats["remote"].seconds == pytest.approx(len(remote.asked))

    run(test)


def test_a_source_that_begins_late_to_look_or_to_take_gets_all_in_order() -> None:
    async def test() -> None:
        blocks, got = blocks_of(20), Got()
        first, last = Seat("peers"), Seat("remote")
        async with serving(first, last) as board, fetching(board, list(map(want, blocks)), got):
            named = first.board.take(2 * MOST, among=list(blocks)[3:5])
            assert ids(named) == list(blocks)[3:5]
            assert ids(first.board.peek(100)) == [each for each in blocks if each not in ids(named)]
            first.board.lack(named[:1])
            assert ids(first.board.take(1 << 20)) == [*list(blocks)[:3], *list(blocks)[5:]]
            assert first.board.take(1 << 20) == last.board.peek(0) == []
            assert ids(last.board.peek(100)) == list(blocks)

    run(test)


@pytest.mark.parametrize("with_peers", [False, True])
def test_a_block_costs_the_same_however_many_are_wanted(with_peers: bool) -> None:
    """B8 of docs/design/board.md."""

    def work(count: int) -> Callable[[], Awaitable[None]]:
        blocks = blocks_of(count)
        has = dict(list(blocks.items())[::2])

        async def offer(board: Board) -> None:
            board.heard(trio.current_time())
            while await board.more():
                board.offer([each for each in board.peek(16) if each.id in has])
                taken = board.take(4000, among=[each.id for each in board.peek(16)])
                taken = taken or board.take(4000, among=list(has)[:8])
                await board.give([(each, has[each.id]) for each in taken if each.id in has])
                board.lack([each for each in taken if each.id not in has])

        async def test() -> None:
            own = Holding("own", dict(list(blocks.items())[::7]), near=True, most_bytes=8000)
            peers = [Scripted("peers", offer)] if with_peers else []
            async with serving(own, *peers, Holding("remote", blocks, most_bytes=8000)) as board:
                got: Got = []
                await board.fetch(list(map(want, blocks)), into(got), priority=Priority.LARGE)
                assert len(got) == count

        return test

    few, many = (steps_of(partial(run, work(count)), "syncer/blocks/") / count for count in (250, 1500))
    assert many < 1.2 * few
