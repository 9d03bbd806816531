"""Frames that are not ours, 100,000 a second: what they cost a daemon, and a sync beside them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.lan.office import Daemon, cpu_s, office, until_pulled
from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times
from tests.kit.netns import INTERFACE, Node
from tests.kit.program import is_there

PROJECT: Final = Path(__file__).parents[2]
RATE: Final = 100_000
ETHERTYPE, NOBODYS = 0x88B5, 0x88B6
ALL: Final = b"\xff" * 6
MAGIC: Final = bytes.fromhex("b5b10c01")
_SIZE: Final = 124
_BATCH: Final = 200


def run(sizes: Sizes) -> list[Row]:
    """The daemon's share of a core; a pull beside frames that it hears, and beside frames of no protocol."""
    cores: list[float] = []
    rates: list[float] = []
    pulls: dict[int, list[float]] = {ETHERTYPE: [], NOBODYS: []}
    with office(3) as here:
        holding, pulling, flooding = here.lan.nodes[2:]
        here.publish(image=sizes.folder_bytes)
        holder = here.fresh(holding)
        daemon = Daemon(holder)
        until_pulled([daemon], 1)
        holder.until("peers", is_there)
        for _ in range(sizes.repetitions):
            with flooded(flooding, ETHERTYPE, bytes.fromhex(holding.mac.replace(":", ""))) as told:
                time.sleep(1.0)  # until all is warm
                before_s, began_s = cpu_s(daemon.process), time.monotonic()
                time.sleep(sizes.flood_s)
                cores.append((cpu_s(daemon.process) - before_s) / (time.monotonic() - began_s))
            rates.append(told["rate"] / 1000)
            for ethertype, seconds in pulls.items():
                machine = here.fresh(pulling)
                with flooded(flooding, ethertype):
                    seconds.append(float(machine.json("reconcile", machine.root)["seconds"]))
    return [
        Row(
            part="flood", work="100,000 foreign frames a second: the daemon's share of a core", unit="core", limit=0.25,
            values=cores, beside="thousand frames a second sent", beside_values=rates,
        ),
        times(
            "flood", f"the same: a pull of {sizes.folder_bytes // MIB} MiB meanwhile", 1.2, pulls[ETHERTYPE],
            "frames of another EtherType, s", pulls[NOBODYS],
        ),
    ]  # fmt: skip


@contextmanager
def flooded(node: Node, ethertype: int, to: bytes = ALL) -> Iterator[dict[str, Any]]:
    """Frames to an address, from this node; at the end the yielded dict has the rate that was reached."""
    process = node.start(
        sys.executable, "-m", "benchmarks.lan.flood", str(ethertype), to.hex(),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == "sending"
    told: dict[str, Any] = {}
    try:
        yield told
    finally:
        process.stdin.close()
        told["rate"] = json.loads(process.stdout.readline() or "0")
        process.wait()


def send(ethertype: int, to: bytes) -> float:
    """Send frames that begin as ours do until stdin ends. Returns frames a second."""
    frames = [MAGIC + os.urandom(_SIZE - len(MAGIC)) for _ in range(_BATCH)]
    sent = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as out:
        os.set_blocking(sys.stdin.fileno(), False)
        began_s = time.monotonic()
        while sys.stdin.buffer.read(1) is None:
            for frame in frames:
                out.sendto(frame, (INTERFACE, ethertype, 0, 0, to))
            sent += _BATCH
            time.sleep(max(0.0, sent / RATE - (time.monotonic() - began_s)))
        return sent / (time.monotonic() - began_s)


if __name__ == "__main__":
    print(json.dumps("sending"), flush=True)
    print(json.dumps(send(int(sys.argv[1]), bytes.fromhex(sys.argv[2]))))
