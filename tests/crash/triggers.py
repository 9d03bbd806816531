"""When to kill: at random times, and in the middle of commits, seals and collections, seen by what they write.

The product has no seam for this. inotify tells of each write to the volume's files from outside; the kill follows some
microseconds later.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

_MODIFY, _CREATE, _DELETE = 0x02, 0x100, 0x200  # linux/inotify.h
_EVENT: Final = struct.Struct("iIII")
_libc: Final = ctypes.CDLL(None, use_errno=True)

PATIENCE_S: Final = 3.0  # for an event that does not come; then any moment is good


class Moment(msgspec.Struct, frozen=True):
    """A write that a process is known by.

    Attributes:
        folder: Of the volume.
        mask: Of inotify.
        is_it: Which names in the folder count.
        most: Of so many such writes one is chosen.
    """

    folder: str
    mask: int
    is_it: Callable[[bytes], bool] = lambda name: True
    most: int = 30


MOMENTS: Final = {
    "tree commit": Moment("tree", _MODIFY, lambda name: name == b"data.mdb", 60),
    "payload appended or punched": Moment("blocks/segments", _MODIFY, lambda name: name.endswith(b".seg"), 60),
    "sidecar written": Moment("blocks/segments", _MODIFY, lambda name: name.endswith(b".idx"), 15),
    "index commit": Moment("blocks/index", _MODIFY, lambda name: name == b"data.mdb", 40),
    "epoch begun or ended": Moment("blocks/epochs", _CREATE | _DELETE, most=6),
}
STAGED: Final = {
    "generation begun": Moment("staging", _CREATE),
    "generation dropped": Moment("staging", _DELETE, most=20),
    "page staged": Moment("staging", _MODIFY, most=300),
}
"""What only a writeback mount does."""
HOT: Final = {
    "hot file made": Moment("hot", _CREATE, most=10),
    "hot file removed": Moment("hot", _DELETE, most=10),
    "hot file written": Moment("hot", _MODIFY, most=300),
}
"""What only a native mount does."""
TIME: Final = "random time"


class Trigger:
    """Waits for one moment, chosen by chance. Make it before the load begins; `wait` returns what it was."""

    def __init__(self, volume: Path, noise: random.Random, *, is_native: bool) -> None:
        self._noise = noise
        moments = MOMENTS | (HOT if is_native else STAGED)
        self._name = noise.choice([TIME, TIME, *moments])
        self._moment = moments.get(self._name)
        self._events = -1
        if self._moment is not None:
            self._events = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            folder = os.fsencode(volume / self._moment.folder)
            assert _libc.inotify_add_watch(self._events, folder, self._moment.mask) >= 0, "inotify_add_watch"

    def wait(self) -> str:
        """Wait; returns what the kill shall hit."""
        if self._moment is None:
            time.sleep(self._noise.uniform(0.0, 0.8))
            return self._name
        try:
            return self._name if self._saw(self._moment) else TIME
        finally:
            os.close(self._events)

    def _saw(self, moment: Moment) -> bool:
        left = self._noise.randint(1, moment.most)
        until = time.monotonic() + PATIENCE_S
        while (patience_s := until - time.monotonic()) > 0:
            select.select([self._events], [], [], patience_s)
            try:
                data = os.read(self._events, 65536)
            except BlockingIOError:
                continue
            left -= sum(moment.is_it(name) for name in _names(data))
            if left <= 0:
                return True
        return False


def _names(data: bytes) -> list[bytes]:
    names = []
    at = 0
    while at < len(data):
        *_, length = _EVENT.unpack_from(data, at)
        names.append(data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0"))
        at += _EVENT.size + length
    return names
