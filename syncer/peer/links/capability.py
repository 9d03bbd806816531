"""CAP_NET_RAW is for opening one socket: when that is open, nobody in this process needs it any more."""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

CAP_NET_RAW: Final = 13
_VERSION_3: Final = 0x20080522
_HEADER: Final = struct.Struct("=Ii")
_SETS: Final = struct.Struct("=6I")  # effective, permitted, inheritable of capabilities 0-31, then of 32-63
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def drop_net_raw() -> bool:
    """Take CAP_NET_RAW from the effective, permitted, inheritable and ambient sets.

    Linux keeps them per thread, and a thread can change only its own: call it before there is another one. Those that
    come later have what this one has. A process of root that runs another program gives that program all of root's
    capabilities anew, as ever.

    Returns:
        Whether no thread of this process has it any more. False: there were others.
    """
    header = _HEADER.pack(_VERSION_3, 0)
    sets = ctypes.create_string_buffer(_SETS.size)
    _call(_LIBC.capget, header, sets)
    words = _SETS.unpack(sets.raw)
    # What leaves the permitted or the inheritable set leaves the ambient one, capabilities(7).
    _call(_LIBC.capset, header, _SETS.pack(*(word & ~(1 << CAP_NET_RAW) for word in words[:3]), *words[3:]))
    return not held()


def held() -> bool:
    """Whether a thread of this process has CAP_NET_RAW in effect or could have it."""
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/status", encoding="ascii", errors="replace") as status:
                lines = [line.split() for line in status if line.startswith(("CapEff:", "CapPrm:"))]
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        if any(int(value, 16) >> CAP_NET_RAW & 1 for _, value in lines):
            return True
    return False


def _call(function: ctypes._NamedFuncPointer, header: bytes, sets: object) -> None:
    if function(header, sets) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), function.__name__)
