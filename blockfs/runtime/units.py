"""Sizes as people write and read them. Binary units only: KiB, MiB, GiB, TiB."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"": 1, "B": 1, "KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}
_SIZE: Final = re.compile(r"(\d{1,20})\s*([A-Za-z]*)")


def parse_size(text: str) -> int:
    """Read a size in bytes: `65536`, `64KiB`, `4 MiB`. Case does not count.

    Raises:
        ValueError: Not a number with one of the known units. `64K` and `64KB` are refused: they mean 1000 to some and
            1024 to others.
    """
    match = _SIZE.fullmatch(text.strip())
    unit = None if match is None else _UNITS.get(match[2].upper())
    if match is None or unit is None:
        raise ValueError(f"{text!r} is not a size: write bytes or a number with KiB, MiB, GiB or TiB, as in 64KiB")
    return int(match[1]) * unit


def format_size(size_bytes: int) -> str:
    """A size for people: `512 B`, `64.0 KiB`, `1.5 GiB`. Programs read the JSON output."""
    if size_bytes < 1 << 10:
        return f"{size_bytes} B"
    for name, unit in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)):
        if size_bytes < unit << 10:
            return f"{size_bytes / unit:.1f} {name}"
    return f"{size_bytes / (1 << 40):.1f} TiB"
