"""Frames as fast as this machine sends them, 100,000 a second at most, to one node.

Half of them are random, half such as a stranger makes who knows the format.

    python -m tests.kit.flood SECONDS MAC

It prints how many it has sent.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import sys
import time
from typing import Final

from syncer.peer.wire.keys import epoch_of
from tests.kit.netns import INTERFACE

ETHERTYPE: Final = 0x88B5
MAGIC: Final = bytes.fromhex("b5b10c")
BATCH: Final = 256
PER_S: Final = 100_000
_LENGTH: Final = 64


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_char_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr of sendmmsg(2)."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint32),
    )


def _frame(number: int, target: bytes) -> bytes:
    """Ethernet header and all."""
    header = target + os.urandom(6)[:6] + ETHERTYPE.to_bytes(2, "big")
    header = header[:6] + b"\x02" + header[7:]
    if number % 2:
        return header + os.urandom(60 + _LENGTH)
    kind = 1 + number // 2 % 4
    epoch = epoch_of(time.time()) % (1 << 16)
    fields = struct.pack(">3sBBBH8s16sQHH", MAGIC, 1, kind, 0, epoch, os.urandom(8), os.urandom(16), 1, _LENGTH, 0)
    return header + fields + os.urandom(_LENGTH + 16)


def main(seconds: float, target: bytes) -> int:
    """Send until the time is over; returns how many went out."""
    libc = ctypes.CDLL(None, use_errno=True)
    frames = [_frame(number, target) for number in range(BATCH)]
    vectors = [_Vector(frame, len(frame)) for frame in frames]
    messages = (_Message * BATCH)(*(_Message(None, 0, ctypes.pointer(each), 1, None, 0, 0, 0) for each in vectors))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as out:
        out.bind((INTERFACE, 0))
        sent, began = 0, time.monotonic()
        while (passed := time.monotonic() - began) < seconds:
            if sent < PER_S * passed:
                sent += max(0, libc.sendmmsg(out.fileno(), messages, BATCH, 0))
            else:
                time.sleep(BATCH / PER_S)
    return sent


if __name__ == "__main__":
    print(main(float(sys.argv[1]), bytes.fromhex(sys.argv[2].replace(":", ""))))
