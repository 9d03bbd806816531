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


def raise_limit() -> None:
    """Have as many as the host lets us: a shell gives 1024, of which a program gets all that it asks for if it asks."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _ENOUGH if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH)
    if limit() < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
