"""What a neighbour has is not fetched from the server: pulls of the real program.

The server's cable is slow, so that it is not chance that decides where the tests' machine is busy, and a neighbour
answers late. With all cables as fast as they can be it is measured: `python -m benchmarks lan folder`.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import effort
from tests.kit.netns import Lan
from tests.kit.program import Machine, Site, is_idle, is_there

DATA_BYTES = 64 << 20
SERVER_MBIT_S = 2.0
ENOUGH_BYTES = 50_000_000
"""Of 67 MB, of which the server's cable brings a quarter of a MB a second; its first window is 2 MiB, or a block."""

WAYS = [
    ("64KiB", "reconcile", "before"),
    ("4MiB", "watch", "before"),
    ("64KiB", "watch", "after"),
    ("4MiB", "reconcile", "before"),
    ("64KiB", "watch", "before"),
    ("4MiB", "watch", "after"),
]
"""The share's block size, what pulls, and whether the neighbour's daemon begins before it or after it."""


@pytest.mark.parametrize(("block_size", "command", "neighbour"), effort.first("pulls beside a neighbour", WAYS))
def test_what_a_neighbour_has_comes_from_it(tmp_path: Path, block_size: str, command: str, neighbour: str) -> None:
    data = os.urandom(DATA_BYTES)
    with Lan(3, home=tmp_path) as lan:
        server = Site(lan.nodes[0], "--block-size", block_size)
        holder, puller = Machine(lan.nodes[1], server), Machine(lan.nodes[2], server)
        if neighbour == "after":
            puller.watch()
            puller.until("status", is_idle)
            puller("pause", puller.root)
        (holder.root / "image").write_bytes(data)
        holder("reconcile", holder.root)
        holder.watch()
        holder.until("peers", is_there)
        holder.until("status", is_idle)
        server.node.shape(SERVER_MBIT_S)
        if command == "reconcile":
            got = puller.json("reconcile", puller.root)["bytes_from_peers"]
        else:
            if neighbour == "after":
                puller("resume", puller.root)
            else:
                puller.watch()
            image = puller.root / "image"
            got = puller.until("peers", lambda _: image.is_file())["figures"]["bytes_from_peers"]
        assert (puller.root / "image").read_bytes() == data
        assert got >= ENOUGH_BYTES
