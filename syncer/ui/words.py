"""Sizes, times and names as the page writes them. Pure."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from blockfs.runtime import output, units
from blockfs.runtime.output import shown
from blockfs.runtime.units import format_size

THIN: Final = "\u202f"
"""What stands between thousands."""


def name(path: bytes) -> str:
    r"""A path to be read: bytes that are not UTF-8, controls and turns of direction appear as `\x…` and `\u…`."""
    return plain(shown(path))


def plain(text: str) -> str:
    """A text that may hold such a path."""
    return output.printable(text)


def size(size_bytes: float) -> str:
    """A number of bytes."""
    return format_size(int(size_bytes))


def number(value: float) -> str:
    """A count, with thin spaces: 16 777 216."""
    return f"{int(value):,}".replace(",", THIN)


def moment(at_s: float, now_s: float) -> str:
    """A time of day where it is today's, else the day, too; the machine's own time."""
    at, now = time.localtime(at_s), time.localtime(now_s)
    if (at.tm_year, at.tm_yday) == (now.tm_year, now.tm_yday):
        return time.strftime("%H:%M:%S", at)
    return time.strftime("%Y-%m-%d %H:%M", at)


def iso(at_s: float) -> str:
    """The same for programs."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_s))


def span(seconds: float) -> str:
    """How long something takes, roughly."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h" if seconds < 172_800 else f"{round(seconds / 86_400)} days"


counted: Final = partial(units.counted, between=THIN)
"""`1 file`, `2 files`."""
