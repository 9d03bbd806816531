"""uvicorn with our bounds: what `serve` and the page of `watch` have in common."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.server import Server

from blockfs.runtime.memory import give_back, resident_bytes, trim
from syncer.errors import LockedError, UsageError
from syncer.server.http.bounded_protocol import Reception

KEEP_ALIVE_S: Final = 75  # idle connections; longer than a client's pause between two steps of a cycle
_TICKS_PER_S: Final = 10  # uvicorn's
_MEMORY_S: Final = 60  # from one look at how much there is to the next


def open_listener(listen: str, family: socket.AddressFamily, host: str, port: int, queue: int) -> socket.socket:
    """A socket that listens.

    Args:
        listen: The address as it was given, for messages.
        family: IPv4 or IPv6.
        host: Without brackets.
        port: 0 lets the system choose.
        queue: How many connections wait in the kernel.

    Raises:
        UsageError: No address of this machine.
        LockedError: The port is in use.
    """
    try:
        listener = socket.create_server((host, port), family=family, backlog=queue)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise LockedError(f"the address {listen}", None) from None
        raise UsageError(f"--listen {listen}: {error.strerror or error}") from None
    # Accepted sockets inherit it. asyncio would set it, but not on sockets whose protocol number is 0, as here: each
    # GET took 40 ms, because headers and body are two writes and the client delays its ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class BoundedServer(Server):
    """uvicorn, which says when it is ready and looks at its connections every second.

    Attributes:
        reception: The books about connections, and their time-outs.
    """

    def __init__(
        self,
        app: Any,
        protocol: Any,
        reception: Reception,
        on_ready: Callable[[], None],
        *,
        at_once: int,
        queue: int,
        grace_s: int,
    ) -> None:
        """Prepare.

        Args:
            app: What answers.
            protocol: Makes what speaks on a connection.
            reception: See the attribute.
            on_ready: Called when connections are accepted.
            at_once: How many connections are accepted at once: asyncio counts none of them before.
            queue: How many wait in the kernel meanwhile.
            grace_s: For what is being answered when it is told to stop.
        """
        super().__init__(
            Config(
                app,
                http=protocol,
                ws="none",
                loop="asyncio",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=grace_s,
                backlog=at_once,
            )
        )
        self.reception = reception
        self._queue = queue
        self._on_ready = on_ready
        self._usual_bytes = 0

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Say so when connections are accepted."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(self._queue)
        trim()  # what loading code has left: 2 MB of the page's
        self._usual_bytes = resident_bytes()
        self._on_ready()

    async def on_second(self) -> None:
        """What else is to be done each second."""

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % _TICKS_PER_S == 0:
            self.reception.guests.look(asyncio.get_running_loop().time())
            await self.on_second()
        if counter % (_TICKS_PER_S * _MEMORY_S) == 0:  # after a storm of requests
            self._usual_bytes = give_back(self._usual_bytes)
        return await super().on_tick(counter)
