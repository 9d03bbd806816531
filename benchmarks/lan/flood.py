"""Frames that are not ours, 100,000 a second: what they cost a daemon, and a sync beside them."""

from __future__ import annotations

import ctypes
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.lan.office import Daemon, cpu_s, office, until_pulled
from benchmarks.lan.rows import Row, times
from benchmarks.lan.sizes import MIB, Sizes
from tests.kit.netns import INTERFACE, Node
from tests.kit.program import is_there

PROJECT: Final = Path(__file__).parents[2]
RATE: Final = 100_000
ETHERTYPE, NOBODYS = 0x88B5, 0x88B6
MAGIC: Final = bytes.fromhex("b5b10c01")
_SIZE: Final = 124
_BATCH: Final = 500
_VARIETY: Final = 64


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
            with flooded(flooding, ETHERTYPE) as told:
                time.sleep(1.0)  # until all is warm
                before_s, began_s = cpu_s(daemon.process), time.monotonic()
                time.sleep(sizes.flood_s)
                cores.append((cpu_s(daemon.process) - before_s) / (time.monotonic() - began_s))
            rates.append(told["rate"] / 1000)
            for ethertype, seconds in pulls.items():
                machine = here.fresh(pulling)
                with flooded(flooding, ethertype):
                    seconds.append(float(machine.json("reconcile", machine.root)["seconds"]))
    assert min(rates) > RATE / 1000 * 0.9, f"only {min(rates)} thousand frames a second were sent"
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
def flooded(node: Node, ethertype: int) -> Iterator[dict[str, Any]]:
    """Frames to all, from this node; at the end the yielded dict has the rate that was reached."""
    process = node.start(
        sys.executable, "-m", "benchmarks.lan.flood", str(ethertype),
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


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vectors_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


def send(ethertype: int) -> float:
    """Send frames that begin as ours do, many with each call, until stdin ends. Returns frames a second."""
    libc = ctypes.CDLL(None, use_errno=True)
    frames = [ctypes.create_string_buffer(MAGIC + os.urandom(_SIZE - len(MAGIC)), _SIZE) for _ in range(_VARIETY)]
    where = (socket.htons(ethertype), socket.if_nametoindex(INTERFACE), 0, 0, 6, b"\xff" * 6)
    address = ctypes.create_string_buffer(struct.pack("=HHiHBB8s", socket.AF_PACKET, *where))  # struct sockaddr_ll
    vectors = [_Vector(ctypes.addressof(frame), _SIZE) for frame in frames]
    batch = (_Message * _BATCH)()
    for number, message in enumerate(batch):
        message.name, message.name_length = ctypes.addressof(address), 20
        message.vectors, message.vectors_count = ctypes.pointer(vectors[number % _VARIETY]), 1
    sent = 0
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0) as out:
        os.set_blocking(sys.stdin.fileno(), False)
        began_s = time.monotonic()
        while sys.stdin.buffer.read(1) is None:
            went = libc.sendmmsg(out.fileno(), batch, _BATCH, 0)
            assert went > 0, os.strerror(ctypes.get_errno())
            sent += went
            time.sleep(max(0.0, sent / RATE - (time.monotonic() - began_s)))
        return sent / (time.monotonic() - began_s)


if __name__ == "__main__":
    print(json.dumps("sending"), flush=True)
    print(json.dumps(send(int(sys.argv[1]))))
