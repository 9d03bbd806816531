"""Give back to the system what a cycle over everything has used: a daemon at rest should not keep a peak's memory."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

_MUCH_BYTES: Final = 32 << 20  # less is not worth the 50 ms of a full collection
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    """Memory of this process that is in RAM; 0 where that can't be told."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def give_back(before_bytes: int) -> None:
    """Free what is free, if the process has grown much since it had `before_bytes`; blocking."""
    if resident_bytes() - before_bytes < _MUCH_BYTES:
        return
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if trim is not None:
        trim(0)
