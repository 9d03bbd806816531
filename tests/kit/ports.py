"""Ports of loopback for servers whose port must be known before they start, or must be the same after a restart."""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_FIRST: Final = 12_000
_KEPT: Final[list[socket.socket]] = []


def free_port() -> int:
    """A port that nobody listens on, nor will until this process ends: whoever asks here, in any process, gets another.

    It is below those that the kernel gives to connections and to listeners on port 0: another test might have one of
    them before it is used. Who has asked for it holds an abstract socket of that name.
    """
    return free_ports(1)


def free_ports(count: int) -> int:
    """As `free_port`: the first of so many in a row."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        first = random.randrange(_FIRST, ephemeral - count)
        claims = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(count)]
        try:
            for port, claim in enumerate(claims, first):
                claim.bind(f"\0blocksync-tests-port-{port}")
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            for claim in claims:
                claim.close()
            continue
        _KEPT.extend(claims)
        return first
