"""The source of peers is opened by what is missing; later where nobody was heard lately."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.blocks.server import REMOTE
from syncer.peer.exchange.lazily import LONE_S, LazySource
from syncer.ports.blocks import Priority, Want
from tests.kit.peering import on_a_clock
from tests.unit.syncer.blocks.scripted import Holding, blocks_of

HAS = blocks_of(100)


class Network:
    """Nobody is there; notes when it was looked."""

    def __init__(self, later_s: float = 0.0) -> None:
        self.opened: list[float] = []
        self.source = LazySource(self._open, lambda: later_s)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[None]:
        self.opened.append(trio.current_time())
        yield None


async def fetched(board: Blocks, *blocks: BlockId) -> int:
    """Want these, and wait until they are there or nowhere; how many are nowhere."""

    async def receive(batch: object) -> None: ...

    wants = [Want(id=each, length=len(HAS[each])) for each in blocks]
    return len(await board.fetch(wants, receive, priority=Priority.LARGE))


async def lacked(board: Blocks, *blocks: BlockId) -> int:
    """A cycle that wants these, and ends when it has them; how many it did not get."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        missing = await fetched(board, *blocks)
        nursery.cancel_scope.cancel()
    return missing


@on_a_clock
async def test_a_cycle_that_lacks_nothing_opens_nothing() -> None:
    network = Network()
    assert await lacked(Blocks([network.source])) == 0
    assert network.opened == []


@on_a_clock
async def test_the_first_want_opens_it() -> None:
    network = Network()
    began = trio.current_time()
    assert await lacked(Blocks([network.source]), *HAS) == 100  # there are no peers, so it fails
    assert network.opened == [began]


@pytest.mark.parametrize(("server_s", "looks"), [(0.04, False), (0.06, True)])
def test_one_want_alone_is_the_servers_if_that_is_quick(server_s: float, looks: bool) -> None:
    """Peers would not be asked for it: it is the first window."""

    @on_a_clock
    async def main() -> None:
        network, server = Network(), Holding(REMOTE, HAS, delay_s=server_s)
        began = trio.current_time()
        assert await lacked(Blocks([network.source, server]), next(iter(HAS))) == 0
        assert network.opened == ([pytest.approx(began + LONE_S)] if looks else [])

    main()


@on_a_clock
async def test_wants_that_come_one_after_another_open_it_with_the_second() -> None:
    network, server = Network(), Holding(REMOTE, HAS, delay_s=0.04)
    board, began = Blocks([network.source, server]), trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        async with trio.open_nursery() as both:
            first, second, *_ = HAS
            both.start_soon(fetched, board, first)
            await trio.sleep(0.012)
            both.start_soon(fetched, board, second)
        nursery.cancel_scope.cancel()
    assert network.opened == [pytest.approx(began + 0.015)]


@on_a_clock
async def test_what_is_wanted_after_one_alone_is_looked_for() -> None:
    network, server = Network(), Holding(REMOTE, HAS, delay_s=0.03)
    board = Blocks([network.source, server])
    first, *others = HAS
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        assert await fetched(board, first) == 0
        await trio.sleep(10)
        assert network.opened == []
        now = trio.current_time()
        assert await fetched(board, *others) == 0
        assert network.opened == [now]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("server_s", "looks"), [(0.4, False), (1.2, True)])
def test_where_nobody_was_heard_lately_the_server_has_all_alone(server_s: float, looks: bool) -> None:
    """A cycle that has all it lacks by then opens nothing."""

    @on_a_clock
    async def main() -> None:
        network, server = Network(later_s=1.0), Holding(REMOTE, HAS, delay_s=server_s)
        began = trio.current_time()
        assert await lacked(Blocks([network.source, server]), *HAS) == 0
        assert len(server.asked) <= 2  # all; where it began before the source of peers, a first window before
        assert network.opened == ([began + 1.0] if looks else [])

    main()


@on_a_clock
async def test_what_the_server_lacks_is_looked_for_after_that() -> None:
    network, server = Network(later_s=1.0), Holding(REMOTE, {})
    began = trio.current_time()
    assert await lacked(Blocks([network.source, server]), *HAS) == 100
    assert network.opened == [began + 1.0]
