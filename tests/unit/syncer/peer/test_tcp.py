"""Where connections to peers go."""

from __future__ import annotations

import socket

import pytest
import trio

from syncer.peer.exchange import tcp

HERE = bytes(10) + b"\xff\xff" + bytes([127, 0, 0, 1])


@pytest.mark.parametrize(("interface", "kept_to"), [("lo", b"lo\0"), ("", b"")])
def test_a_connection_keeps_to_the_interface_by_which_the_peer_was_heard(interface: str, kept_to: bytes) -> None:
    """Else the routing table may lead it through one that is metered, or a tunnel."""

    async def connect() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            zone = socket.if_nametoindex(interface) if interface else 0
            stream = await tcp.dial(HERE, listening.getsockname()[1], zone)
            async with stream:
                return bytes(stream.socket.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16))

    assert trio.run(connect) == kept_to
