"""How many descriptors this process may have."""

from __future__ import annotations

import resource
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
