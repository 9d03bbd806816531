"""Who has these blocks? Asked of a running daemon, whose index is on disk."""

from __future__ import annotations

import hashlib
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from benchmarks.lan.asker import AskerProgram
from benchmarks.lan.office import Daemon, Office, office, until_pulled
from benchmarks.lan.sizes import Sizes
from benchmarks.rows import Row
from tests.kit.netns import Node

PART: Final = "questions"
SMALL_BLOCK: Final = 4 << 10  # so that 10,000 ids are of 40 MB
_ECHO_PORT: Final = 4242
_MANY: Final = 5  # questions for many ids in a repetition
_TIMEOUT_S: Final = 10.0


def run(sizes: Sizes) -> list[Row]:
    """One id, and many."""
    single: list[list[float]] = []
    many: list[float] = []
    echoes: list[list[float]] = []
    with office(2, "--block-size", "4KiB") as here:
        ids = _publish(here, sizes.ids)
        holder, asking = (here.fresh(node) for node in here.lan.nodes[2:])
        daemon = Daemon(holder)
        until_pulled([daemon], 1)
        asking("reconcile", asking.root)  # it learns the key
        asker = AskerProgram(asking)
        for process, core in ((daemon.process, 0), (asker.process, 1)):  # each has one for itself, as two machines have
            os.sched_setaffinity(process.pid, {core})
        asker.ask(ids, 1, 10)
        for _ in range(sizes.repetitions):
            echoes.append(_echoes(here.lan.nodes[2], here.lan.nodes[3], sizes.questions))
            single.append(asker.ask(ids, 1, sizes.questions))
            many += asker.ask(ids, sizes.ids, _MANY)
    beside = "UDP echo in Python, ms"
    return [
        Row(
            part=PART, work=f"who-has, 1 id, {name}", unit="ms", limit=limit,
            values=[_quantile(each, share) for each in single],
            beside=beside, beside_values=[_quantile(each, share) for each in echoes],
        )
        for name, share, limit in (("p50", 0.5, 0.5), ("p99", 0.99, 5.0))
    ] + [
        Row(
            part=PART, work=f"who-has, {sizes.ids:,} ids, until all are offered", unit="ms", limit=25.0,
            values=[each * 1000 for each in many], notes={"ids": sizes.ids},
        )
    ]  # fmt: skip


def _publish(here: Office, count: int) -> Path:
    """A file of so many blocks; returns the file of their ids."""
    here.publish(image=count * SMALL_BLOCK)
    ids = here.lan.nodes[0].home / "ids"
    with (here.publisher.root / "image").open("rb") as image, ids.open("wb") as out:
        while block := image.read(SMALL_BLOCK):
            out.write(hashlib.sha256(block.rstrip(b"\0")).digest())
    return ids


def _quantile(seconds: list[float], share: float) -> float:
    """In milliseconds."""
    return statistics.quantiles(seconds, n=1000, method="inclusive")[round(share * 1000) - 1] * 1000


_ECHO = f"""
import socket
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("", {_ECHO_PORT}))
print("ready", flush=True)
while True:
    data, there = echo.recvfrom(2048)
    echo.sendto(data, there)
"""


def _echoes(there: Node, here: Node, count: int) -> list[float]:
    """Round trips of datagrams as long as a question for one id, between two Python programs."""
    echo = there.start(sys.executable, "-c", _ECHO, stdout=subprocess.PIPE)
    assert echo.stdout is not None
    echo.stdout.readline()
    with here.inside():
        asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    found = []
    with asking:
        asking.settimeout(_TIMEOUT_S)
        for _ in range(count):
            began_s = time.perf_counter()
            asking.sendto(bytes(124), (there.ipv4, _ECHO_PORT))
            asking.recv(2048)
            found.append(time.perf_counter() - began_s)
            time.sleep(0.01)
    there.kill(echo)
    return found
