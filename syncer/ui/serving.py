"""The page's process: listens on the loopback, and gives out links to who started it. See `watch.page`.

It is run, and bounded, as `blocksync serve` is; see `server.http.running` and `server.http.bounded_protocol`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import secrets
import socket
import threading
import time
from functools import partial
from typing import Final, TextIO

import msgspec
from starlette.types import Scope

from blockfs.runtime.failures import code_of
from syncer.errors import SyncerError, UsageError
from syncer.server.http.bounded_protocol import RECEPTION_OF, BoundedProtocol, Reception, guest_of
from syncer.server.http.guests import Bounds, Guests
from syncer.server.http.running import BoundedServer, open_listener
from syncer.ui.app import make_app
from syncer.ui.ports import PagePorts
from syncer.ui.security import SUFFIX, Keys
from syncer.watch.control import Ready

MAX_CONNECTIONS: Final = 64
MAX_STRANGERS: Final = 16
_BACKLOG: Final = 64
_GRACE_S: Final = 1  # streams of events never end by themselves


def listen(address: str) -> socket.socket:
    """Open the listening socket.

    Args:
        address: HOST:PORT of the loopback; port 0 lets the system choose.

    Raises:
        UsageError: It is none, or one that others could reach.
        LockedError: The port is in use.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
        raise UsageError(f"--listen {address!r}: expected HOST:PORT, e.g. 127.0.0.1:8801")
    try:
        found = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host.strip("[]"))
    except ValueError:
        raise UsageError(f"--listen {address!r}: HOST is 127.0.0.1, [::1] or localhost") from None
    if not found.is_loopback:
        raise UsageError(
            f"--listen {address!r}: the page is for this machine only; from another one use "
            "`ssh -L 8801:localhost:8801 HOST`, and open the link there"
        )
    family = socket.AF_INET6 if found.version == 6 else socket.AF_INET
    return open_listener(address, family, str(found), int(port), _BACKLOG)


def serve(ports: PagePorts, address: str, asked: TextIO, told: TextIO) -> int:
    """Serve until nobody could ask for a link any more.

    Args:
        ports: The program.
        address: HOST:PORT.
        asked: Each line asks for a link; its end ends us.
        told: Where a `Ready` and the links go, a line each.

    Returns:
        The exit code.
    """

    def tell(text: str) -> None:
        told.write(text + "\n")
        told.flush()

    try:
        listener = listen(address)
    except SyncerError as error:
        tell(msgspec.json.encode(Ready(refused=str(error), exit_code=code_of(error))).decode())
        return code_of(error)
    # Lower case: browsers and DNS know no other. 64 bits, which nobody can try out: each try is a connection.
    host = f"blocksync-{secrets.token_hex(8)}{SUFFIX}"
    keys = Keys()
    port = listener.getsockname()[1]
    page = f"http://{host}:{port}/"
    bounds = Bounds(connections=MAX_CONNECTIONS, of_network=MAX_STRANGERS, of_account=MAX_CONNECTIONS - MAX_STRANGERS)
    reception = Reception(guests=Guests(bounds))
    server = BoundedServer(
        make_app(ports, keys, host, time.time, _know),
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
            tell(f"{page}open?key={keys.new_link(time.time())}")
        server.should_exit = True

    asking = threading.Thread(target=answer, name="links", daemon=True)
    asking.start()
    with listener, contextlib.suppress(BrokenPipeError):
        server.run([listener])
    return 0


def _know(scope: Scope) -> None:
    """Connections of a session are not those that have to go when another user opens many."""
    guest = guest_of(scope)
    if guest is not None:
        scope["state"][RECEPTION_OF].guests.show(guest, "user", b"")
