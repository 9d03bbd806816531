"""Frames as fast as this machine sends them, 100,000 a second at most: what a stranger on the network can send.

    with flooding(node, frames, least=1_000_000) as flood:
        …
    assert flood.sent >= 1_000_000

The process that sends them is this module: it reads frames from stdin, one line of hex each, then an empty line. It
sends until stdin ends, and at least so many, and prints how many and in how many seconds.

    python -m tests.kit.flood LEAST
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from syncer.peer.wire.frames import HEADER_BYTES, MAGIC, OVERHEAD_BYTES, VERSION, FrameType
from syncer.peer.wire.keys import epoch_of
from tests.kit.netns import INTERFACE, Frame, Node

PROJECT: Final = Path(__file__).parents[2]
ETHERTYPE: Final = 0x88B5
ETHERNET_BYTES: Final = 14
TO_ALL: Final = b"\xff" * 6
BATCH: Final = 256
PER_S: Final = 100_000
SHORT, LONG = 64, 1440
"""Bodies: of a HELLO, and the longest."""
_MAC: Final = b"\x02" + os.urandom(5)
_COUNTER, _LENGTH = slice(32, 40), slice(40, 42)
_FAR: Final = 1 << 40
"""Ahead of all that anybody has counted."""


class Flood:
    """What was sent, known at the end.

    Attributes:
        sent: Frames.
        seconds: In which.
    """

    sent = 0
    seconds = 0.0

    @property
    def per_s(self) -> float:
        """Frames a second."""
        return self.sent / self.seconds if self.seconds else 0.0


@contextmanager
def flooding(node: Node, frames: Sequence[bytes], *, least: int = 0) -> Iterator[Flood]:
    """Frames leave this node, these again and again, as long as the block lasts, and at least so many."""
    process = node.start(
        sys.executable, "-m", "tests.kit.flood", str(least),
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(f"{frame.hex()}\n" for frame in frames) + "\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == "sending"
    told = Flood()
    try:
        yield told
    finally:
        process.stdin.close()
        told.sent, told.seconds = json.loads(process.stdout.readline() or "[0, 0]")
        process.wait()


def addressed(bodies: Sequence[bytes], to: bytes = TO_ALL, ethertype: int = ETHERTYPE) -> list[bytes]:
    """With a header of Ethernet before each: from one address that is nobody's."""
    return [to + _MAC + ethertype.to_bytes(2, "big") + body for body in bodies]


def random_ones(count: int = BATCH) -> list[bytes]:
    """What begins with our magic and is anything behind it: the cheapest that reach a process."""
    return [MAGIC + os.urandom(OVERHEAD_BYTES + SHORT - len(MAGIC)) for _ in range(count)]


def made_up(count: int = BATCH) -> list[bytes]:
    """As somebody makes who has read the page about the format: each costs a hint for each key of who hears it."""
    epoch = epoch_of(time.time()) % (1 << 16)
    kinds = list(FrameType)
    return [
        struct.pack(
            ">3sBBBH8s16sQHH", MAGIC, VERSION, kinds[number % len(kinds)], 0, epoch, os.urandom(8), os.urandom(16), 1,
            SHORT, 0,
        )
        + os.urandom(SHORT + OVERHEAD_BYTES - HEADER_BYTES)
        for number in range(count)
    ]  # fmt: skip


def forged(heard: Sequence[bytes], length: int, count: int = BATCH) -> list[bytes]:
    """Under ids and hints of members that were heard, with counters far ahead: each is right up to its tag."""
    made = []
    for number in range(count):
        header = bytearray(heard[number % len(heard)][:HEADER_BYTES])
        header[_COUNTER] = (_FAR + random.getrandbits(32)).to_bytes(8, "big")
        header[_LENGTH] = length.to_bytes(2, "big")
        made.append(bytes(header) + os.urandom(length + OVERHEAD_BYTES - HEADER_BYTES))
    return made


def heard_from(frames: Sequence[Frame], *nodes: Node) -> list[bytes]:
    """Our frames of Ethernet among those of a capture, from the first byte of our own header on."""
    ports = {node.port for node in nodes}
    return [told.data[ETHERNET_BYTES:] for told in frames if told.ethertype == ETHERTYPE and told.port in ports]


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Header(ctypes.Structure):
    """struct msghdr of sendmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class _Message(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2): 64 bytes. The header is one of its own, for what is behind its last field."""

    _fields_ = (("header", _Header), ("sent", ctypes.c_uint32))


def _send(frames: Sequence[bytes], least: int) -> tuple[int, float]:
    """Send until stdin ends, and at least so many. Returns how many went out, and in how many seconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    many = list(frames) * -(-BATCH // len(frames))
    vectors = [_Vector(frame, len(frame)) for frame in many]
    headers = [_Header(None, 0, ctypes.pointer(each), 1, None, 0, 0) for each in vectors]
    messages = (_Message * len(many))(*(_Message(header, 0) for header in headers))
    os.set_blocking(sys.stdin.fileno(), False)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as out:
        out.bind((INTERFACE, 0))
        sent, began = 0, time.monotonic()
        while sent < least or sys.stdin.buffer.read(1) is None:
            # A call may end after a few, when a queue is full: the next one goes on there, or the last ones never go.
            at = sent % len(many)
            left = ctypes.byref(messages, at * ctypes.sizeof(_Message))
            sent += max(0, libc.sendmmsg(out.fileno(), left, min(BATCH, len(many) - at), 0))
            ahead_s = sent / PER_S - (time.monotonic() - began)
            if ahead_s > 0:  # to sleep for nothing is to give the processor away: a tenth of the rate on a busy machine
                time.sleep(ahead_s)
        return sent, time.monotonic() - began


def main(least: int) -> None:
    """Read the frames, send them, tell."""
    frames = []
    while line := sys.stdin.readline().strip():
        frames.append(bytes.fromhex(line))
    print(json.dumps("sending"), flush=True)
    print(json.dumps(_send(frames, least)))


if __name__ == "__main__":
    main(int(sys.argv[1]))
