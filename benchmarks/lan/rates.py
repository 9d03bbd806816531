"""How fast blocks come from peers: one, four, one of them bad; and one seed for seven downloaders."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times
from tests.kit.netns import Lan, Node
from tests.kit.trader import Trader

BLOCK: Final = 64 << 10
LARGE_BLOCK: Final = 4 * MIB
_GIGABIT: Final = 1000.0
_SLOW_MBIT_S: Final = 200.0
_STREAM_PORT: Final = 4242


def gigabit(sizes: Sizes) -> list[Row]:
    """One peer, its link shaped to 1 Gbit/s."""
    part, size = "gigabit", sizes.stream_bytes
    rates, cores, plain = [], [], []
    for _ in range(sizes.repetitions):
        with network(2) as (seed, asker):
            asker.shape(_GIGABIT)
            plain.append(size / _stream(seed, asker, size) / 1e6)
            fetched = _fetch([_holding(seed, size)], asker, size)
            rates.append(size / fetched["seconds"] / 1e6)
            cores.append(fetched["cpu"] / fetched["seconds"])
    beside = "plain TCP in Python, MB/s"
    return [
        Row(
            part=part, work=f"one peer, 1 Gbit/s, {size // MIB} MiB", unit="MB/s", values=rates,
            limit=110.0, least=True, beside=beside, beside_values=plain,
        ),
        Row(part=part, work="the same, the downloader's share of a core", unit="core", values=cores, limit=0.6),
    ]  # fmt: skip


def unshaped(sizes: Sizes) -> list[Row]:
    """One peer, as fast as both cores go; each end has one for itself, as two machines have.

    Else the system lets both take turns on one of them, at half the rate, in every other run.
    """
    found: dict[str, list[float]] = {"4 MiB": [], "64 KiB": []}
    plain, size = [], sizes.stream_bytes
    for _ in range(sizes.repetitions):
        with network(2) as (seed, asker):
            plain.append(size / _stream(seed, asker, size) / 1e6)
        for name, block in (("4 MiB", LARGE_BLOCK), ("64 KiB", BLOCK)):
            with network(2) as (seed, asker):
                holding, fetching = _holding(seed, size, block), Trader(asker, size=block)
                for trader, core in ((holding, 0), (fetching, 1)):
                    assert trader.port
                    os.sched_setaffinity(trader.process.pid, {core})
                fetched = _complete(fetching.fetch(0, size // block), size, block)
                found[name].append(size / fetched["seconds"] / 1e6)
    return [
        Row(
            part="unshaped", work=f"one peer, no limit, {size // MIB} MiB in blocks of {name}", unit="MB/s",
            values=values, limit=500.0, least=True, beside="plain TCP in Python, MB/s", beside_values=plain,
        )
        for name, values in found.items()
    ]  # fmt: skip


def four(sizes: Sizes) -> list[Row]:
    """Four peers of 200 Mbit/s each, and what came from two of them; one of them alone beside it."""
    rates: list[float] = []
    alone: list[float] = []
    twice: list[float] = []
    size = sizes.hostile_bytes
    for _ in range(sizes.repetitions):
        for count, found in ((1, alone), (4, rates)):
            with network(count + 1) as (asker, *seeds):
                holding = [_holding(seed, size, mbit_s=_SLOW_MBIT_S) for seed in seeds]
                assert all(trader.port for trader in holding)
                trader = Trader(asker, size=BLOCK)
                fetched = _complete(trader.fetch(0, size // BLOCK), size, BLOCK)
                found.append(size / fetched["seconds"] / 1e6)
                if count > 1:
                    twice.append(trader.figures()["wasted_bytes"] / size * 100)
    return [
        Row(
            part="four", work=f"4 peers of 200 Mbit/s each, {size // MIB} MiB", unit="MB/s", values=rates,
            limit=80.0, least=True, beside="1 of them, MB/s", beside_values=alone,
        ),
        Row(part="four", work="the same: bytes that came twice", unit="%", values=twice, limit=2.0),
    ]  # fmt: skip


def crowd(sizes: Sizes) -> list[Row]:
    """Seven that want the same of one seed of 200 Mbit/s, and give each other what they have; one alone beside it."""
    last: list[float] = []
    alone: list[float] = []
    size = sizes.crowd_bytes
    for _ in range(sizes.repetitions):
        for count, found in ((1, alone), (7, last)):
            with network(count + 1) as (seed, *askers):
                holding = _holding(seed, size, mbit_s=_SLOW_MBIT_S)
                traders = [Trader(asker, size=BLOCK, keeps=True) for asker in askers]
                for trader in traders:
                    trader.tell(fetch=[0, size // BLOCK])
                found.append(max(_complete(trader.until("fetched"), size, BLOCK)["seconds"] for trader in traders))
                del holding
    return [
        times(
            "crowd",
            f"7 downloaders, 1 seed of 200 Mbit/s, {size // MIB} MiB: the last",
            2.5,
            last,
            "one alone, s",
            alone,
        )
    ]


def hostile(sizes: Sizes) -> list[Row]:
    """One of four peers of 200 Mbit/s is dead, corrupts, lies or stalls; four good ones beside it."""
    size = sizes.hostile_bytes
    kinds = {"dies half-way": "dead", "sends wrong blocks": "corrupt", "lacks what it offers": "lie", "stalls": "stall"}
    good: list[float] = []
    bad: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(sizes.repetitions):
        good.append(_one_of_four(size, None))
        for name, evil in kinds.items():
            bad[name].append(_one_of_four(size, evil))
    return [
        times("hostile", f"1 of 4 peers {name}, {size // MIB} MiB", 1.5, values, "4 good peers, s", good)
        for name, values in bad.items()
    ]


def lossy(sizes: Sizes) -> list[Row]:
    """Every fifth frame of a question or an answer is lost."""
    found: dict[int, list[float]] = {0: [], 200: []}
    size = sizes.hostile_bytes
    for _ in range(sizes.repetitions):
        for per_mille, seconds in found.items():
            with network(5) as (asker, *seeds):
                holding = [_holding(seed, size, mbit_s=_SLOW_MBIT_S) for seed in seeds]
                asker.loses(per_mille, "ether type 0x88b5")
                seconds.append(_fetch(holding, asker, size)["seconds"])
    return [
        times("lossy", f"20 % of L2 frames lost, 4 peers, {size // MIB} MiB", 1.2, found[200], "none lost, s", found[0])
    ]


def _one_of_four(size: int, evil: str | None) -> float:
    with network(5) as (asker, *seeds):
        first = _holding(seeds[0], size, mbit_s=_SLOW_MBIT_S, evil=None if evil == "dead" else evil)
        others = [_holding(seed, size, mbit_s=_SLOW_MBIT_S) for seed in seeds[1:]]
        trader = Trader(asker, size=BLOCK)
        trader.tell(fetch=[0, size // BLOCK])
        if evil == "dead":
            while first.figures()["bytes_to_peers"] < size // 8:  # half of what it would give
                pass
            first.node.kill(first.process)
        del others
        return float(_complete(trader.until("fetched"), size, BLOCK)["seconds"])


@contextmanager
def network(count: int) -> Iterator[list[Node]]:
    """Nodes without a server."""
    with tempfile.TemporaryDirectory(prefix="blocksync-lan-") as home, Lan(count, home=Path(home)) as lan:
        yield lan.nodes


def _holding(
    node: Node, size: int, block: int = BLOCK, *, mbit_s: float | None = None, evil: str | None = None
) -> Trader:
    """A peer that has so many bytes of blocks."""
    node.shape(mbit_s)
    return Trader(node, blocks=[0, size // block], size=block, evil=evil)


def _fetch(holding: Sequence[Trader], node: Node, size: int, block: int = BLOCK) -> dict[str, Any]:
    """Have a node fetch all of it, once all peers are there."""
    assert all(trader.port for trader in holding)
    return _complete(Trader(node, size=block).fetch(0, size // block), size, block)


def _complete(fetched: dict[str, Any], size: int, block: int) -> dict[str, Any]:
    assert (fetched["blocks"], fetched["failed"]) == (size // block, 0), fetched
    return fetched


_SEND = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))) as listening:
    print("ready", flush=True)
    taken, _ = listening.accept()
    piece, left = bytes(1 << 20), int(sys.argv[2])
    while left > 0:
        taken.sendall(piece)
        left -= len(piece)
"""


def _stream(seed: Node, asker: Node, size: int) -> float:
    """Seconds in which so many bytes go through a plain TCP connection."""
    sending = seed.start(sys.executable, "-c", _SEND, str(_STREAM_PORT), str(size), stdout=subprocess.PIPE)
    assert sending.stdout is not None
    sending.stdout.readline()
    with asker.inside():
        taking = socket.socket()
    with taking:
        began_s = time.perf_counter()
        taking.connect((seed.ipv4, _STREAM_PORT))
        room, left = bytearray(1 << 20), size
        while left > 0:
            left -= taking.recv_into(room)
        took_s = time.perf_counter() - began_s
    sending.wait()
    return took_s
