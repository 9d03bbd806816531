"""A slow line on loopback: bytes arrive half a round trip later, and not faster than the line carries them.

A process of our own, started by the benchmarks: `python -m benchmarks.proxy TARGET_PORT RTT_MS MBIT_S`; it prints its
port. Each direction is one queue that all connections share, as on a real line.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from subprocess import PIPE, Popen

import trio

_PIECE_BYTES = 16 << 10
_OWN_S = 0.0008  # what this process itself takes each way; with it, an echo takes the round trip that was asked for
_TICK_S = 0.001  # epoll waits for whole milliseconds, rounded up: half of one less makes the mean right, for each piece
_PIECES = 64  # per connection in flight: 1 MiB, more than the line holds


class Line:
    """One direction."""

    def __init__(self, delay_s: float, bytes_per_s: float) -> None:
        self.delay_s = delay_s
        self._bytes_per_s = bytes_per_s
        self._free_s = 0.0

    def arrival_s(self, size_bytes: int) -> float:
        """When a piece that is sent now will have arrived."""
        begin = max(self._free_s, trio.current_time())
        self._free_s = begin + size_bytes / self._bytes_per_s
        return self._free_s + self.delay_s


async def _carry(source: trio.SocketStream, target: trio.SocketStream, line: Line) -> None:
    send, receive = trio.open_memory_channel[tuple[float, bytes]](_PIECES)

    async def take() -> None:
        async with send:
            async for piece in source:
                await send.send((line.arrival_s(len(piece)), bytes(piece)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(take)
        async for arrival_s, piece in receive:
            if arrival_s - trio.current_time() > _TICK_S / 2:
                await trio.sleep_until(arrival_s - _TICK_S / 2)
            await target.send_all(piece)
    await target.send_eof()


@asynccontextmanager
async def _connected(port: int, up: Line) -> AsyncIterator[trio.SocketStream]:
    await trio.sleep(2 * up.delay_s)  # the handshake of a new connection is a round trip, too
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    stream.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    async with stream:
        yield stream


async def serve(port: int, rtt_s: float, bytes_per_s: float) -> None:
    """Forward connections to a local port until killed."""
    delay_s = max(0.0, rtt_s / 2 - _OWN_S)
    up, down = Line(delay_s, bytes_per_s), Line(delay_s, bytes_per_s)

    async def handle(client: trio.SocketStream) -> None:
        try:
            client.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
            async with _connected(port, up) as server, trio.open_nursery() as nursery:
                nursery.start_soon(_carry, client, server, up)
                nursery.start_soon(_carry, server, client, down)
        except* (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            pass  # one end went away: so does the other

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(handle, listeners)


@contextmanager
def slow_line(port: int, rtt_ms: float, mbit_s: float) -> Iterator[int]:
    """Such a line to a local port; yields the port to use instead."""
    command = [sys.executable, "-m", "benchmarks.proxy", str(port), str(rtt_ms), str(mbit_s)]
    process = Popen(command, stdout=PIPE, text=True)
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


if __name__ == "__main__":
    trio.run(serve, int(sys.argv[1]), float(sys.argv[2]) / 1000, float(sys.argv[3]) * 1e6 / 8)
