"""How many descriptors this process may have, and that the first three are the standard streams."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress
from typing import Final

_ENOUGH: Final = 1 << 20  # what Linux lets a process have unless it was told otherwise (fs.nr_open)


def limit() -> int:
    """How many it may have at once."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ENOUGH if soft == resource.RLIM_INFINITY else soft


def raise_limit(wanted: int = _ENOUGH) -> None:
    """Have as many as the host lets us, up to `wanted`: a shell gives 1024, and more to a program that asks."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if limit() < most:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def complete_streams() -> None:
    """Open /dev/null for each standard stream that the process was started without; before any other file is opened.

    Else the next files get these numbers, the volume's lock, say; and who takes the number for the stream (a daemon
    that lets go of its terminal) writes into that file, or closes it: a mount without its lock is mounted twice.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # so Python says that there is none
            descriptor = os.open(os.devnull, os.O_RDWR)  # in this order the lowest free number is the stream's
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8", errors="backslashreplace"))
