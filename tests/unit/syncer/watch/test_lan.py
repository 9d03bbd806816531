"""The daemon on the LAN: roots come and go, settings change, and a fault of the exchange stays there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import trio
import trio.testing

from syncer.peer.exchange.exchange import Exchange
from syncer.peer.session.keyring import RootKey
from syncer.watch.lan import Lan, Member
from tests.kit.peering import Shelf, block, name, on_a_clock
from tests.kit.stations import Station, Wire, running

KEY = RootKey(raw=b"k" * 32)
BLOCKS = [block(number) for number in range(10)]


class Root(Shelf):
    """What a root has, as the daemon serves it."""

    closed = 0

    asked = 0

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        self.asked += 1
        return super().match(prefixes)

    def rest(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


def member(index: Root | None, *keys: RootKey, off: str = "") -> Member:
    return Member(root="/home/anna/images", block_size=1000, keys=keys, off=off, index=index)


class Daemon:
    """Makes an exchange whenever it is asked to, each at a place of its own on one wire."""

    def __init__(self, wire: Wire, *, warms: bool = True) -> None:
        self.wire = wire
        self.made: list[Station] = []
        self.lan = Lan(self._make, warms=warms)

    def _make(self) -> Exchange:
        self.made.append(Station(self.wire))
        return self.made[-1].exchange

    async def has_made(self, number: int) -> None:
        """Wait for so many exchanges. The clock jumps while a thread of the one before is still at work."""
        while len(self.made) < number:
            await trio.sleep(1)
            await trio.to_thread.run_sync(int)


@asynccontextmanager
async def daemon(wire: Wire, *, warms: bool = True) -> AsyncIterator[Daemon]:
    made = Daemon(wire, warms=warms)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.lan.run)
        yield made
        nursery.cancel_scope.cancel()


@on_a_clock
async def test_it_begins_with_the_first_root_that_has_a_key() -> None:
    wire = Wire()
    async with daemon(wire) as here:
        here.lan.attend("root", member(Root(BLOCKS), off="it is paused"))
        await trio.sleep(60)
        assert (here.made, wire.frames) == ([], [])
        assert [share.off for share in here.lan.live().shares] == ["it is paused"]
        assert here.lan.circle("root") is None
        here.lan.attend("root", member(Root(BLOCKS), KEY))
        await trio.sleep(1)
        other = Station(wire)
        async with running(other):
            other.exchange.share("root", [KEY], Shelf())
            assert len(await other.fetches(BLOCKS)) == 10
            assert here.lan.given("root") == (10, 10_000)


@on_a_clock
async def test_a_root_that_is_not_linked_any_more_is_let_go() -> None:
    wire, index = Wire(), Root(BLOCKS)
    async with daemon(wire) as here:
        here.lan.attend("root", member(index, KEY))
        await trio.sleep(1)
        here.lan.keep_only(())
        assert index.closed == 1
        assert here.lan.circle("root") is None
        assert here.lan.live().shares == []


@on_a_clock
async def test_a_bug_in_the_exchange_ends_neither_the_daemon_nor_a_root_that_has_news_just_then() -> None:
    wire = Wire()
    async with daemon(wire) as here:
        here.lan.attend("root", member(Root(BLOCKS), KEY))
        await trio.sleep(1)
        (first,) = here.made

        async def fail() -> None:
            raise ZeroDivisionError

        first.exchange.spawn(fail)
        for _ in range(20):  # whatever of it has ended already
            here.lan.attend("root", member(Root(BLOCKS), KEY))
            here.lan.circle("root")
            await trio.lowlevel.checkpoint()
        assert here.lan.circle("root") is None
        await here.has_made(2)
        await trio.sleep(1)
        assert here.lan.circle("root") is not None


@on_a_clock
async def test_other_settings_begin_it_anew_with_all_roots() -> None:
    wire = Wire()
    async with daemon(wire) as here:
        here.lan.attend("root", member(Root(BLOCKS[:5]), KEY))
        here.lan.attend("another", member(Root(BLOCKS[5:]), KEY))
        await trio.sleep(1)
        here.lan.begin_anew()
        here.lan.attend("root", member(Root(BLOCKS[:5]), KEY))
        await here.has_made(2)
        await trio.sleep(1)
        other = Station(wire)
        async with running(other):
            other.exchange.share("root", [KEY], Shelf())
            assert set(await other.fetches(BLOCKS)) == {name(data) for data in BLOCKS}


@on_a_clock
async def test_who_gives_nothing_asks_all_the_same() -> None:
    wire = Wire()
    async with daemon(wire) as here:
        here.lan.attend("root", member(None, KEY))
        await trio.sleep(1)
        other = Station(wire)
        async with running(other):
            other.exchange.share("root", [KEY], Shelf(BLOCKS))
            assert len(await here.made[0].fetches(BLOCKS)) == 10
            here.lan.attend("root", member(Root(BLOCKS), KEY))
            here.lan.attend("root", member(None, KEY))
            other.exchange.share("root", [KEY], Shelf())
            assert await other.fetches(BLOCKS) == {}


@on_a_clock
async def test_what_is_not_warmed_is_looked_into_when_somebody_asks() -> None:
    wire, index = Wire(), Root(BLOCKS)
    async with daemon(wire, warms=False) as here:
        here.lan.attend("root", member(index, KEY))
        await trio.sleep(60)
        assert index.asked == 0
        other = Station(wire)
        async with running(other):
            other.exchange.share("root", [KEY], Shelf())
            assert len(await other.fetches(BLOCKS)) == 10
