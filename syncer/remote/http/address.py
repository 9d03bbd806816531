"""Addresses of HTTP servers. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

_PORTS: Final = {"http": 80, "https": 443}


class HttpAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A server, and a path on it.

    Attributes:
        scheme: "http" or "https".
        host: Name or address; IPv6 without brackets.
        port: TCP port.
        path: As it goes on the wire, without a slash at its end.
    """

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as messages name a server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.origin + self.path


def parse_address(text: str) -> HttpAddress:
    """Read `http(s)://HOST[:PORT][/PATH]`.

    Raises:
        ValueError: Something else, or with credentials, a query or a fragment.
    """
    parts = urlsplit(text)
    port = parts.port
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("expected http(s)://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.query or parts.fragment or not text.isascii() or not text.isprintable():
        raise ValueError("no credentials, query, fragment or unquoted characters, please")
    return HttpAddress(
        scheme=parts.scheme,
        host=parts.hostname,
        port=_PORTS[parts.scheme] if port is None else port,
        path=parts.path.rstrip("/").replace(" ", "%20"),
    )
