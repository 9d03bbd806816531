"""The running server: uvicorn around the application, signals, and the background collection."""

from __future__ import annotations

import contextlib
import errno
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import structlog
import uvicorn

from blockfs.blocks.gc import CollectionStopped
from blockfs.errors import BlockfsError
from syncer.errors import LockedError, SyncerError, UsageError
from syncer.server.app import App
from syncer.server.bounded_protocol import BoundedProtocol
from syncer.server.store import Store
from syncer.server.tokens import Tokens

BACKLOG: Final = 1024
GRACE_S: Final = 5  # for requests that are being answered when the server is told to stop
KEEP_ALIVE_S: Final = 75  # idle connections; longer than a client's pause between two steps of a cycle
COLLECT_FIRST_S: Final = 600.0  # after the start: a server that never runs for long collects, too
COLLECT_EVERY_S: Final = 3600.0

_log = structlog.get_logger()


def parse_address(listen: str) -> tuple[str, int]:
    """Read `HOST:PORT`; IPv6 hosts are in brackets, and keep them.

    Raises:
        UsageError: Not such an address.
    """
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
        raise UsageError(f"--listen {listen!r}: expected HOST:PORT, e.g. 127.0.0.1:8800")
    return host, int(port)


def bind(listen: str) -> socket.socket:
    """Open the listening socket.

    Args:
        listen: `HOST:PORT`; port 0 lets the system choose.

    Raises:
        UsageError: Not such an address, or not one of this machine.
        LockedError: The port is in use.
    """
    host, port = parse_address(listen)
    family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LockedError(f"the address {listen}", None) from None
        raise UsageError(f"--listen {listen}: {error.strerror or error}") from None
    # Accepted sockets inherit it. asyncio would set it, but not on sockets whose protocol number is 0, as here: each
    # GET took 40 ms, because headers and body are two writes and the client delays its ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url(listener: socket.socket) -> str:
    """The address that a listening socket has, as `http://HOST:PORT`."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"http://{host}:{port}"


def _nothing() -> None:
    """Nobody wants to know."""


class Server(uvicorn.Server):
    """uvicorn with our readiness and our signals.

    Attributes:
        stopped_by: The signal that ended it, None for `should_exit`.
    """

    def __init__(self, app: App, on_ready: Callable[[], None], on_stopping: Callable[[], None] = _nothing) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedProtocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=GRACE_S,
                backlog=BACKLOG,
            )
        )
        self.stopped_by: int | None = None
        self._on_ready = on_ready
        self._on_stopping = on_stopping

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so when connections are accepted."""
        await super().startup(sockets)
        self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so, then let the requests that are being answered end."""
        self._on_stopping()
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop on SIGTERM and SIGINT. uvicorn's own would raise them again afterwards: no clean exit code."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note the signal."""
        self.stopped_by = sig
        super().handle_exit(sig, frame)


class Collector:
    """The garbage collection, now and then, in a thread of its own, until `close`."""

    def __init__(self, store: Store, *, first_s: float = COLLECT_FIRST_S, every_s: float = COLLECT_EVERY_S) -> None:
        self._store = store
        self._first_s = first_s
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, in the middle of a collection if need be."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._first_s
        while not self._stop.wait(wait_s):
            wait_s = self._every_s
            try:
                done = self._store.collect_garbage(stop=self._stop.is_set)
            except CollectionStopped:
                return
            except (BlockfsError, SyncerError, OSError) as error:
                _log.error("collection.failed", error=str(error))
            else:
                _log.info("collection.done", blocks=done.blocks.blocks_removed, freed_bytes=done.blocks.bytes_freed)


def serve(
    store: Store,
    tokens: Tokens,
    listener: socket.socket,
    on_ready: Callable[[], None],
    on_stopping: Callable[[], None] = _nothing,
) -> bool:
    """Serve until SIGTERM or SIGINT. The store stays open.

    Args:
        store: What is served.
        tokens: To whom.
        listener: Bound and listening.
        on_ready: Called when requests are accepted.
        on_stopping: Called when no more are.

    Returns:
        True if it was interrupted (SIGINT).
    """

    def stop_waiting() -> None:
        store.bell.close()  # or clients that wait for changes would use up the time of grace
        on_stopping()

    server = Server(App(store, tokens), on_ready, stop_waiting)
    collector = Collector(store)
    try:
        server.run([listener])
    finally:
        collector.close()
    return server.stopped_by == signal.SIGINT
