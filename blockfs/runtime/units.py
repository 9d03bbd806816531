"""Sizes and spans of time as people write them. Pure."""

from __future__ import annotations

import re
from typing import Final

from blockfs.errors import UsageError

_BINARY: Final = ("KiB", "MiB", "GiB", "TiB", "PiB")
_FACTORS: Final[dict[str, int]] = {
    "": 1,
    "b": 1,
    # A bare letter is binary, as with qemu-img, dd and lvm; "kB" and "MB" are decimal, as SI says.
    **{unit[0].lower(): 1024 ** (power + 1) for power, unit in enumerate(_BINARY)},
    **{unit.lower(): 1024 ** (power + 1) for power, unit in enumerate(_BINARY)},
    **{f"{unit[0].lower()}b": 1000 ** (power + 1) for power, unit in enumerate(_BINARY)},
}
_SIZE: Final = re.compile(r"(\d{1,99})(?:\.(\d{1,99}))?\s*([A-Za-z]*)", re.ASCII)  # Python reads 4300 digits at most


_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LONGEST_S: Final = 1000 * 365 * 86400  # a thousand years from now there still is a date; none after the year 9999


def parse_size(text: str) -> int:
    """Read a size: `65536`, `64KiB`, `64K`, `1.5 GiB`, `10MB`.

    Returns:
        Bytes.

    Raises:
        UsageError: No such form, an unknown unit, or not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip())
    factor: int | None = _FACTORS.get(match[3].lower()) if match else None
    if match is None or factor is None:
        raise UsageError(f"{text!r} is not a size: expected a number and a unit such as 64KiB, 1.5GiB or 10MB")
    fraction = match[2] or ""
    scale: int = 10 ** len(fraction)
    size, rest = divmod(int(match[1] + fraction) * factor, scale)
    if rest:
        raise UsageError(f"{text!r} is not a whole number of bytes")
    return size


def parse_duration(text: str) -> float:
    """Read a span of time: `30d`, `12h`, `90m`, `45s`, `0.5d`, `2w`; `0` needs no unit.

    Returns:
        Seconds.

    Raises:
        UsageError: No such form, an unknown unit, or more than a thousand years.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is not None:
        number, factor = float(f"{match[1]}.{match[2] or 0}"), _SECONDS.get(match[3].lower())
        if factor is not None or (number == 0 and not match[3]):
            seconds = number * (factor or 0)
            if seconds > _LONGEST_S:
                raise UsageError(f"{text[:100]!r} is too long a span of time: expected 365000d at most")
            return seconds
    raise UsageError(f"{text!r} is not a span of time: expected a number and a unit, such as 30d, 12h, 15m or 45s")


def counted(count: int, one: str, many: str, *, between: str = "") -> str:
    """Write how many there are of something: `1 block`, `2 blocks`.

    Args:
        count: How many.
        one: What one of them is called.
        many: What several are called, or none.
        between: Stands between thousands.
    """
    number = f"{count:,}".replace(",", between)
    return f"{number} {one if count == 1 else many}"


def format_size(size_bytes: int) -> str:
    """Write a size for a person: binary units, three or four significant digits: `0 B`, `64 KiB`, `1.53 GiB`."""
    if abs(size_bytes) < 1024:
        return f"{size_bytes} B"
    value: float = size_bytes
    unit = "B"
    for unit in _BINARY:  # noqa: B007 - the unit at which the loop ends is the result
        value /= 1024
        if abs(value) < 999.5:
            break
    digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
    number = f"{value:.{digits}f}"
    return f"{number.rstrip('0').rstrip('.') if '.' in number else number} {unit}"
