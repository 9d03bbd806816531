"""A way to a server on which a test stops the server's answers in the middle, for as long as it wants.

with gate_to(address) as gate:
    gate.hold(after_bytes=6 << 20)
    ...
    gate.until_held()
    ...
    gate.open()
"""

from __future__ import annotations

import math
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

_PIECE_BYTES = 16 << 10
_PATIENCE_S = 60


class Gate:
    """Connections to one port of the loopback go on to the server, with a thread for each direction.

    Attributes:
        address: http://HOST:PORT, to be used instead of the server's.
    """

    def __init__(self, server: str) -> None:
        url = urlsplit(server)
        assert url.hostname
        assert url.port
        self._server = (url.hostname, url.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._turn = threading.Condition()
        self._left_bytes = math.inf
        self._only = b""
        self._has_held = False

    def hold(self, *, after_bytes: int = 0, only: bytes = b"") -> None:
        """Let through so many bytes of answers and no more, of all or of `only` those to requests that contain this."""
        with self._turn:
            self._left_bytes, self._only, self._has_held = after_bytes, only, False

    def open(self) -> None:
        """All goes through again, also what was held."""
        with self._turn:
            self._left_bytes = math.inf
            self._turn.notify_all()

    def until_held(self) -> None:
        """Wait for the first answer that is held."""
        with self._turn:
            assert self._turn.wait_for(lambda: self._has_held, _PATIENCE_S), "nothing was held"

    def serve(self) -> None:
        """Blocking, until `end`. The server must be there all the time."""
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                asked = bytearray()
                for carry in (self._ask, self._answer):
                    threading.Thread(target=carry, args=(client, server, asked), daemon=True).start()

    def end(self) -> None:
        """Who waits in `accept` is woken by it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.open()

    def _ask(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        with suppress(OSError):
            while piece := client.recv(_PIECE_BYTES):
                asked[:] = piece
                server.sendall(piece)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    def _answer(self, client: socket.socket, server: socket.socket, asked: bytearray) -> None:
        with client, server, suppress(OSError):
            while piece := server.recv(_PIECE_BYTES):
                self._pass(asked, len(piece))
                client.sendall(piece)
            client.shutdown(socket.SHUT_RDWR)

    def _pass(self, asked: bytearray, size_bytes: int) -> None:
        with self._turn:
            while self._only in asked and self._left_bytes <= 0:
                self._has_held = True
                self._turn.notify_all()
                self._turn.wait()
            if self._only in asked:
                self._left_bytes -= size_bytes


@contextmanager
def gate_to(server: str) -> Iterator[Gate]:
    """A gate to a server, at http://HOST:PORT; open at first."""
    gate = Gate(server)
    thread = threading.Thread(target=gate.serve)
    thread.start()
    try:
        yield gate
    finally:
        gate.end()
        thread.join()
