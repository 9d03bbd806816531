"""The running server: around the application, signals, what is read anew, and the background collection."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from functools import partial
from types import FrameType
from typing import Any, Final

from blockfs.blocks.maintenance.gc import CollectionStopped
from blockfs.errors import BlockfsError
from blockfs.runtime import descriptors
from blockfs.runtime.logs import Log
from syncer.errors import SyncerError, UsageError
from syncer.server.app import App
from syncer.server.http.bounded_protocol import BoundedProtocol, Reception
from syncer.server.http.guests import Bounds, Guests
from syncer.server.http.running import BoundedServer, open_listener
from syncer.server.http.tls import Certificates, TlsDoor
from syncer.server.store.store import Store
from syncer.server.tokenfile import WatchedTokens

BACKLOG: Final = 1024
ACCEPT_AT_ONCE: Final = 64  # asyncio takes so many before any of them is counted
MOST_CONNECTIONS: Final = 4096  # a silent one costs some 10 KiB
MOST_DESCRIPTORS: Final = 65536
RESERVED_DESCRIPTORS: Final = 384  # 256 open segments, the catalogue, and those that were sent away and not yet closed
GRACE_S: Final = 5  # for requests that are being answered when the server is told to stop
COLLECT_FIRST_S: Final = 600.0  # after the start: a server that never runs for long collects, too
COLLECT_EVERY_S: Final = 3600.0

_log = Log()


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
    return open_listener(listen, family, host.strip("[]"), port, BACKLOG)


def url(listener: socket.socket, *, secure: bool = False) -> str:
    """The address that a listening socket has, as `http(s)://HOST:PORT`."""
    host, port = listener.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{scheme}://{host}:{port}"


def most_connections() -> int:
    """How many connections there is room for."""
    return max(16, min(MOST_CONNECTIONS, descriptors.limit() - RESERVED_DESCRIPTORS))


def _nothing() -> None:
    """Nobody wants to know."""


class Server(BoundedServer):
    """It, with our signals.

    Attributes:
        stopped_by: The signal that ended it, None for `should_exit`.
    """

    def __init__(
        self,
        app: App,
        on_ready: Callable[[], None],
        on_stopping: Callable[[], None] = _nothing,
        *,
        certificates: Certificates | None = None,
        reception: Reception | None = None,
        on_hangup: Callable[[], Collection[bytes] | None] = _nothing,
        on_second: Callable[[], Collection[bytes] | None] = _nothing,
    ) -> None:
        """Prepare.

        Args:
            app: What answers.
            on_ready: Called when connections are accepted.
            on_stopping: Called when no more are.
            certificates: For TLS; None: plain HTTP.
            reception: The books about connections, and their time-outs.
            on_hangup: Called in a thread after SIGHUP; the tokens that are known from now on, None: as before.
            on_second: The same, called each second.
        """
        reception = reception or Reception(guests=Guests(Bounds.within(most_connections())))
        protocol: Any = partial(BoundedProtocol, reception=reception)
        if certificates is not None:
            protocol = partial(TlsDoor, inner=protocol, reception=reception, certificates=certificates)
        super().__init__(app, protocol, reception, on_ready, at_once=ACCEPT_AT_ONCE, queue=BACKLOG, grace_s=GRACE_S)
        self.stopped_by: int | None = None
        self._on_stopping = on_stopping
        self._on_hangup = on_hangup
        self._on_second = on_second
        self._hung_up = False

    async def on_second(self) -> None:
        """Look whether tokens have changed."""
        self._withdraw(await asyncio.to_thread(self._on_second))

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if self._hung_up:
            self._hung_up = False
            self._withdraw(await asyncio.to_thread(self._on_hangup))
        return await super().on_tick(counter)

    def _withdraw(self, known: Collection[bytes] | None) -> None:
        """End the connections of tokens that are no longer among these."""
        if known is not None:
            self.reception.guests.withdraw(known)

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
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._note_hangup)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note_hangup(self, _signal: int, _frame: FrameType | None) -> None:
        self._hung_up = True

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


class Renewal:
    """What is read anew: all at SIGHUP, tokens when their file has changed.

    What can't be read stays as it was, and the log says so.
    """

    def __init__(
        self,
        app: App,
        store: Store,
        tokens: WatchedTokens,
        certificates: Certificates | None,
        told: Callable[[str], None],
    ) -> None:
        """Prepare.

        Args:
            app: Where tokens are looked up.
            store: Where quotas are.
            tokens: The token file.
            certificates: None without TLS.
            told: Called with a line for a person.
        """
        self._known = app.tokens.known
        self._app = app
        self._store = store
        self._tokens = tokens
        self._certificates = certificates
        self._told = told

    def look(self) -> Collection[bytes] | None:
        """Read the token file if it has changed. Returns all tokens that count, if these are others than before."""
        if self._tokens.has_changed():
            self._renew_tokens()
        before, self._known = self._known, self._app.tokens.known
        return None if self._known == before else self._known

    def _renew_tokens(self) -> None:
        try:
            tokens = self._tokens.read()
            self._store.set_quotas(tokens.quotas)
            self._app.tokens = tokens
            self._told(f"tokens read again: {len(tokens.known)}")
        except (BlockfsError, SyncerError) as error:
            _log.error("tokens.not_renewed", error=str(error))

    def renew(self) -> Collection[bytes]:
        """Read the token file and the certificate. Returns all tokens that count."""
        self._renew_tokens()
        if self._certificates is not None:
            try:
                self._certificates.renew()
                self._told("certificate read again")
            except SyncerError as error:
                _log.error("certificate.not_renewed", error=str(error))
        return self._app.tokens.known


def serve(
    store: Store,
    tokens: WatchedTokens,
    listener: socket.socket,
    on_ready: Callable[[], None],
    on_stopping: Callable[[], None] = _nothing,
    *,
    certificates: Certificates | None = None,
    told: Callable[[str], None] = lambda _text: None,
) -> bool:
    """Serve until SIGTERM or SIGINT. The store stays open. SIGHUP reads tokens and certificate anew.

    Args:
        store: What is served.
        tokens: To whom.
        listener: Bound and listening.
        on_ready: Called when requests are accepted.
        on_stopping: Called when no more are.
        certificates: For TLS; None: plain HTTP.
        told: Called with a line for a person when something was read anew.

    Returns:
        True if it was interrupted (SIGINT).
    """

    def stop_waiting() -> None:
        store.notifier.close()  # or clients that wait for changes would use up the time of grace
        on_stopping()

    descriptors.raise_limit(MOST_DESCRIPTORS)  # each connection is one
    known = tokens.read()
    store.set_quotas(known.quotas)
    app = App(store, known)
    renewal = Renewal(app, store, tokens, certificates, told)
    server = Server(
        app, on_ready, stop_waiting, certificates=certificates, on_hangup=renewal.renew, on_second=renewal.look
    )
    collector = Collector(store)
    try:
        server.run([listener])
    finally:
        collector.close()
    return server.stopped_by == signal.SIGINT
