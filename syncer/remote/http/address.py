"""Addresses of HTTP servers. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import msgspec

PORTS: Final = {"http": 80, "https": 443}
"""Which port a scheme has where none is named."""


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
        return origin_of(self.scheme, self.host, self.port)

    def __str__(self) -> str:
        return self.origin + self.path


def origin_of(scheme: str, host: str, port: int) -> str:
    """Scheme, host and port; an address of IPv6 gets its brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def parse_address(text: str) -> HttpAddress:
    """Read `http(s)://HOST[:PORT][/PATH]`.

    Raises:
        ValueError: Something else, or with credentials, a query or a fragment.
    """
    parts = urlsplit(text)
    port = parts.port
    if parts.scheme not in PORTS or not parts.hostname:
        raise ValueError("expected http(s)://HOST[:PORT][/PATH]")
    if parts.username is not None or parts.query or parts.fragment or not text.isascii() or not text.isprintable():
        raise ValueError("no credentials, query, fragment or unquoted characters, please")
    return HttpAddress(
        scheme=parts.scheme,
        host=parts.hostname,
        port=PORTS[parts.scheme] if port is None else port,
        path=parts.path.rstrip("/").replace(" ", "%20"),
    )
