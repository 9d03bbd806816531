"""Where the page and the daemon's figures may listen: on the loopback only. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

LOOPBACK: Final = ("127.0.0.1", "::1")


def loopback(address: str) -> tuple[str, int] | None:
    """Host, without brackets, and port of HOST:PORT; None: it is none, or one that others could reach."""
    host, colon, port = address.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
        return None
    asked = LOOPBACK[0] if host == "localhost" else host.removeprefix("[").removesuffix("]")
    return (asked, int(port)) if asked in LOOPBACK else None


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table `[metrics]` of config.toml.

    Attributes:
        listen: HOST:PORT of the loopback; empty: nowhere.
    """

    listen: str = ""


def objection(metrics: Metrics) -> tuple[str, str] | None:
    """What is wrong with settings that a type can't say: the key, and what was expected. None: nothing."""
    if metrics.listen and loopback(metrics.listen) is None:
        return "listen", f'expected HOST:PORT of this machine only, e.g. "127.0.0.1:8802", got {metrics.listen!r}'
    return None
