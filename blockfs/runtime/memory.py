"""Give memory back to the system: a process at rest should not keep what a peak took."""

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


def trim() -> None:
    """Give back the pages of the heap that are free; nothing where the C library has no call for that."""
    call = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc's
    if call is not None:
        call(0)


def give_back(before_bytes: int) -> int:
    """Free what is free, if the process has grown much since it had `before_bytes`; blocking.

    Returns:
        What to grow from the next time: what the process has now, or `before_bytes` if it has not grown much.
    """
    now_bytes = resident_bytes()
    if now_bytes - before_bytes < _MUCH_BYTES:
        return min(before_bytes, now_bytes)
    gc.collect()
    trim()
    return resident_bytes()
