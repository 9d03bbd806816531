"""The page's process: listens on the loopback, and gives out links to who started it. See `watch.page.process`.

It is run, and bounded, as `blocksync serve` is; see `server.http.running` and `server.http.bounded_protocol`.
"""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TextIO

import msgspec
from starlette.types import ASGIApp, Scope

from blockfs.runtime.failures import code_of
from syncer.errors import LockedError, SyncerError, UsageError
from syncer.server.http.bounded_protocol import RECEPTION_OF, BoundedProtocol, Reception, guest_of
from syncer.server.http.guests import Bounds, Guests
from syncer.server.http.running import BoundedServer, open_listener
from syncer.ui.app import make_app
from syncer.ui.oversight import make_figures
from syncer.ui.ports import PagePorts
from syncer.ui.security import SUFFIX, Keys
from syncer.watch.control import Ready
from syncer.watch.page.places import loopback

MAX_CONNECTIONS: Final = 64
MAX_STRANGERS: Final = 16
_LOOPBACK: Final = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}
_ABSENT: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT})
_DRAWS: Final = 64  # of a port that is free at both
_BACKLOG: Final = 64
_GRACE_S: Final = 1  # streams of events never end by themselves


def listen(address: str) -> list[socket.socket]:
    """Open the listening sockets: one port of all addresses that browsers take the page's name for.

    They take it for both, `::1` first. Whoever else had the port of the one that we don't listen to would be sent the
    link, by the user's own browser, and could open the session himself.

    Args:
        address: HOST:PORT of the loopback; port 0 lets the system choose.

    Raises:
        UsageError: It is none, one that others could reach, or one that no browser would look for the page at.
        LockedError: The port is in use, at one of them.
    """
    place = loopback(address)
    if place is None:
        raise UsageError(
            f"--listen {address!r}: expected HOST:PORT, e.g. 127.0.0.1:8801; the page is for this machine only "
            "(127.0.0.1, [::1] or localhost); from another one use `ssh -L 8801:localhost:8801 HOST`, and open the "
            "link there"
        )
    asked, port = place
    hosts = [asked, *(other for other in _LOOPBACK if other != asked and _is_here(other))]
    refusal = LockedError(f"the address {address}", None)
    for _ in range(_DRAWS if port == 0 else 1):
        with contextlib.ExitStack() as opened:
            found: list[socket.socket] = []
            try:
                for each in hosts:
                    number = found[0].getsockname()[1] if found else port
                    found.append(opened.enter_context(_open(each, number)))
            except LockedError as error:
                refusal = error  # a port that the system chose may be somebody's at the other one
                continue
            opened.pop_all()
            return found
    raise refusal


def _open(host: str, port: int) -> socket.socket:
    family = _LOOPBACK[host]
    named = f"[{host}]:{port}" if family is socket.AF_INET6 else f"{host}:{port}"
    return open_listener(named, family, host, port, _BACKLOG)


def _is_here(host: str) -> bool:
    """Whether the machine has that address: IPv6 may be off. That it has no free port for us is another matter."""
    try:
        with socket.socket(_LOOPBACK[host]) as tried:
            tried.bind((host, 0))
    except OSError as error:
        return error.errno not in _ABSENT
    return True


def serve(ports: PagePorts, address: str, asked: TextIO, told: TextIO) -> int:
    """Serve the page until nobody could ask for a link any more.

    Args:
        ports: The program.
        address: HOST:PORT.
        asked: Each line asks for a link; its end ends us.
        told: Where a `Ready` and the links go, a line each.

    Returns:
        The exit code.
    """
    # Lower case: browsers and DNS know no other. 64 bits, which nobody can try out: each try is a connection.
    host = f"blocksync-{secrets.token_hex(8)}{SUFFIX}"
    keys = Keys()

    def link(page: str) -> str:
        return f"{page}open?key={keys.new_link(time.time())}"

    return _serve(make_app(ports, keys, host, time.time, _know), host, link, address, asked, told)


def serve_figures(ports: PagePorts, address: str, asked: TextIO, told: TextIO) -> int:
    """Serve `/healthz` and `/metrics` and no page, until nobody asks: as `serve`, with the address for a link."""
    return _serve(make_figures(ports, _know), "localhost", lambda place: place, address, asked, told)


def _serve(app: ASGIApp, host: str, link: Callable[[str], str], address: str, asked: TextIO, told: TextIO) -> int:
    """See `serve`.

    Args:
        app: What answers.
        host: Its name.
        link: From its address to what is told who asks.
        address: HOST:PORT.
        asked: See `serve`.
        told: See `serve`.
    """

    def tell(text: str) -> None:
        told.write(text + "\n")
        told.flush()

    try:
        listeners = listen(address)
    except SyncerError as error:
        tell(msgspec.json.encode(Ready(refused=str(error), exit_code=code_of(error))).decode())
        return code_of(error)
    port = listeners[0].getsockname()[1]
    page = f"http://{host}:{port}/"
    bounds = Bounds(connections=MAX_CONNECTIONS, of_network=MAX_STRANGERS, of_account=MAX_CONNECTIONS - MAX_STRANGERS)
    reception = Reception(guests=Guests(bounds))
    server = BoundedServer(
        app,
        partial(BoundedProtocol, reception=reception),
        reception,
        lambda: tell(msgspec.json.encode(ready).decode()),
        at_once=_BACKLOG,
        queue=_BACKLOG,
        grace_s=_GRACE_S,
    )
    ready = Ready(address=page, listen=address)

    def answer() -> None:
        for _ in asked:
            tell(link(page))
        server.should_exit = True

    asking = threading.Thread(target=answer, name="links", daemon=True)
    asking.start()
    with contextlib.ExitStack() as closing, contextlib.suppress(BrokenPipeError):
        for each in listeners:
            closing.enter_context(each)
        server.run(listeners)
    return 0


def _know(scope: Scope) -> None:
    """Connections of a session are not those that have to go when another user opens many."""
    guest = guest_of(scope)
    if guest is not None:
        scope["state"][RECEPTION_OF].guests.show(guest, "user", b"")
