"""Bandwidth limits on the command line: `--limit-up 500KiB`, per second, with any unit of sizes; `0` is no limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from blockfs.runtime.units import parse_size


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes per second; None: no limit."""

    up: int | None = None
    down: int | None = None

    def overridden(self, up: str | None, down: str | None) -> Limits:
        """With what the command line says; what it leaves out stays.

        Raises:
            UsageError: Not a size.
        """
        return Limits(up=self.up if up is None else _rate(up), down=self.down if down is None else _rate(down))


NO_LIMITS: Final = Limits()


def limit_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `limit_up` and `limit_down` to a command."""
    import click  # noqa: PLC0415 - the page needs `Limits`, and no library of command lines

    up = click.option("--limit-up", metavar="RATE", help="Send at most so much per second, e.g. 500KiB; 0: no limit.")
    down = click.option("--limit-down", metavar="RATE", help="Receive at most so much per second; 0: no limit.")
    return up(down(function))


def _rate(text: str) -> int | None:
    return None if text.strip() == "0" else parse_size(text) or None
