"""Whole exchanges in one process: a wire in memory, with connections in memory, on a clock that may jump."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.peer.exchange.exchange import Exchange
from syncer.peer.links.address import Address
from syncer.peer.links.link import Came, Gone, Received
from syncer.peer.links.links import Event, Happened
from syncer.peer.settings import Peers
from syncer.peer.wire.frames import Carrier
from syncer.ports.blocks import BlockSource, Priority, Want
from tests.kit.peering import Inline, name


class Wire:
    """An Ethernet in memory, with a TCP of its own."""

    def __init__(self) -> None:
        self.stations: list[Station] = []
        self.frames: list[bytes] = []
        self.connections = 0
        self.firewalled = False
        self.dial_s = 0.0
        self.streams: list[trio.abc.Stream] = []


class Station:
    """One machine: links and connections of one exchange."""

    def __init__(self, wire: Wire, **settings: Any) -> None:
        self.wire = wire
        self.number = len(wire.stations) + 1
        self.address = bytes.fromhex("fe80") + bytes(13) + bytes([self.number])
        self.on_battery = False
        self.settings = Peers(**settings)
        self.exchange = Exchange(
            self.settings,
            self,
            unix=lambda: 1e9 + trio.current_time(),
            transport=self,
            on_battery=lambda: self.on_battery,
        )
        self.exchange.uploads = Inline(self.settings.uploads)
        self._send, self._receive = trio.open_memory_channel[Event](1000)
        wire.stations.append(self)
        self._send.send_nowait(self._came())

    def _came(self) -> Came:
        return Came(
            link="lan0", carriers=(Carrier.ETHERNET,), bound=1440, wireless=False, metered=False,
            serves=True, addresses=(self.address,), index=7,
        )  # fmt: skip

    # --- Wires

    async def run(self, happened: Happened) -> None:
        async for event in self._receive:
            happened(event)

    def send(self, link: str, frame: bytes, to: Address | None) -> bool:
        self.wire.frames.append(frame)
        source = Address(carrier=Carrier.ETHERNET, host=bytes([self.number]))
        for other in self.wire.stations:
            if other is not self and (to is None or to.host == bytes([other.number])):
                other._send.send_nowait(Received(link="lan0", source=source, frame=frame))
        return True

    def confirm(self, received: Received) -> None:
        pass

    # --- Transport

    async def listen(self, port: int) -> tuple[trio.abc.Listener[trio.SocketStream], int]:
        return _Never(), port

    async def dial(self, address: bytes, port: int, zone: int) -> trio.abc.Stream:
        assert (port, zone) == (17_511, 7)
        await trio.sleep(self.wire.dial_s)
        self.wire.connections += 1
        target = next(each for each in self.wire.stations if each.address == address)
        if self.wire.firewalled:
            raise OSError(113, "No route to host")
        return target.knock(self.address) or _closed()

    def knock(self, address: bytes) -> trio.abc.Stream | None:
        """Connect to this machine; None: it is closed at once."""
        ours, theirs = trio.testing.memory_stream_pair()
        if not self.exchange.arrivals.admit(theirs, address):
            return None
        self.wire.streams.append(theirs)
        return ours

    # --- what tests do

    def lose_all_links(self) -> None:
        """Nothing is heard any more."""
        self._send.send_nowait(Gone(link="lan0"))
        self._send.close()

    async def fetches(self, blocks: Sequence[bytes], *others: BlockSource, root: str = "root") -> dict[BlockId, bytes]:
        """Fetch these from peers, and other sources; returns what came."""
        got: dict[BlockId, bytes] = {}

        async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
            got.update(batch)

        board = Blocks([self.exchange.source(root), *others])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(board.run)
            wants = [Want(id=name(data), length=len(data)) for data in blocks]
            await board.fetch(wants, receive, priority=Priority.LARGE)
            nursery.cancel_scope.cancel()
        return got


class _Never(trio.abc.Listener[trio.SocketStream]):
    async def accept(self) -> trio.SocketStream:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


def _closed() -> trio.abc.Stream:
    ours, theirs = trio.testing.memory_stream_pair()
    theirs.send_stream.close()
    theirs.receive_stream.close()
    return ours


@asynccontextmanager
async def running(*stations: Station) -> AsyncIterator[None]:
    """These exchanges run."""
    async with trio.open_nursery() as nursery:
        for station in stations:
            await nursery.start(station.exchange.run)
        await trio.testing.wait_all_tasks_blocked()
        yield
        nursery.cancel_scope.cancel()
