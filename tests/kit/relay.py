"""A server on the loopback, also at an address in a node: what cannot be started there is reached from its network."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

from tests.kit.netns import Node

_PIECE_BYTES = 64 << 10


@contextlib.contextmanager
def relayed(node: Node, port: int) -> Iterator[str]:
    """Carry connections to the node, at this port, on to the same port of 127.0.0.1 here; gives their HOST:PORT."""
    assert node.ipv4 is not None
    with node.inside():
        listening = socket.create_server((node.ipv4, port))
    threading.Thread(target=_accept, args=(listening, port), daemon=True).start()
    try:
        yield f"{node.ipv4}:{port}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _accept(listening: socket.socket, port: int) -> None:
    with contextlib.suppress(OSError):  # closed
        while True:
            client, _ = listening.accept()
            threading.Thread(target=_serve, args=(client, port), daemon=True).start()


def _serve(client: socket.socket, port: int) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=_carry, args=(server, client), daemon=True)
        back.start()
        _carry(client, server)
        back.join()


def _carry(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):  # one end has gone
        while piece := source.recv(_PIECE_BYTES):
            target.sendall(piece)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)
