"""Remote URLs: `pithos+http(s)://BASE/ACCOUNT/CONTAINER[?prefix=FOLDER]`. Pure."""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from syncer.core.paths import PRIVATE
from syncer.protocol.pithos.names import container_name_problem, object_name_problem, quote_name
from syncer.remote.http.address import PORTS, origin_of

PRIVATE_NAME: Final = PRIVATE.decode()
_SCHEMES: Final = {"pithos+http": "http", "pithos+https": "https"}


class RemoteUrl(msgspec.Struct, frozen=True, kw_only=True):
    """Where a container is.

    Attributes:
        scheme: "http" or "https".
        host: Name or address; IPv6 without brackets.
        port: TCP port.
        base: Path before the account, decoded, without slashes at its ends; "" when there is none.
        account: Decoded.
        container: Decoded.
        prefix: The folder of the container that is meant, decoded, without slashes at its ends; "" for all of it.
    """

    scheme: str
    host: str
    port: int
    base: str
    account: str
    container: str
    prefix: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port, as messages name a server."""
        return origin_of(self.scheme, self.host, self.port)

    @property
    def container_path(self) -> str:
        """Request path of the container, quoted."""
        parts = [part for part in (self.base, self.account, self.container) if part]
        return "/" + "/".join(quote_name(part) for part in parts)

    def object_reference(self, name: str) -> str:
        """`/container/object`, quoted, as Destination and X-Move-From take it."""
        return f"/{quote_name(self.container)}/{quote_name(name)}"

    def __str__(self) -> str:
        folder = f"?prefix={quote_name(self.prefix)}" if self.prefix else ""
        return f"pithos+{self.origin}{self.container_path}{folder}"

    @property
    def whole(self) -> RemoteUrl:
        """The container itself."""
        return replace(self, prefix="")


def parse_url(text: str) -> RemoteUrl:
    """Read a remote URL.

    Args:
        text: E.g. `pithos+https://files.example.org/pithos/object-store/v1/ACCOUNT/CONTAINER`. The last two segments
            are account and container, percent-decoded; the rest is the base. `?prefix=FOLDER` names a folder of it.

    Raises:
        ValueError: Not such a URL; the message says what is expected. Credentials, queries and fragments are refused:
            a token never belongs into a URL.
    """
    form = "expected pithos+http(s)://HOST[:PORT]/…/ACCOUNT/CONTAINER[?prefix=FOLDER]"
    try:
        parts = urlsplit(text)
        port = parts.port
        segments = [
            unquote(segment, errors="strict") for segment in parts.path.removeprefix("/").removesuffix("/").split("/")
        ]
    except ValueError as error:
        raise ValueError(f"{text!r} is not a remote URL ({error}): {form}") from None
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ValueError(f"{text!r} is not a remote URL: {form}")
    if parts.username is not None or parts.fragment or (parts.query and not parts.query.startswith("prefix=")):
        raise ValueError(f"{parts.scheme}://{parts.hostname}…: no credentials, query or fragment, please: {form}")
    prefix = unquote(parts.query.removeprefix("prefix="), errors="replace").strip("/")
    problem = prefix_problem(prefix)
    if problem is not None:
        raise ValueError(f"{text!r}: the folder {prefix!r} can't be a root: {problem}: {form}")
    if len(segments) < 2 or any(container_name_problem(segment) for segment in segments):
        raise ValueError(f"{text!r} names no account and container: {form}")
    return RemoteUrl(
        scheme=scheme,
        host=parts.hostname,
        port=PORTS[scheme] if port is None else port,
        base="/".join(segments[:-2]),
        account=segments[-2],
        container=segments[-1],
        prefix=prefix,
    )


def prefix_problem(prefix: str) -> str | None:
    """Say why a folder of a container can't be a root; None if it can, or is the whole container."""
    if not prefix:
        return None
    if "\ufffd" in prefix:
        return "it is not percent-encoded UTF-8"
    if PRIVATE_NAME in prefix.split("/"):
        return f"{PRIVATE_NAME} is reserved"
    return object_name_problem(prefix)


def nested(one: str, other: str) -> bool:
    """Whether one of two URLs names a folder of the container, or in the folder, that the other names."""
    if not all(url.partition("://")[0] in _SCHEMES for url in (one, other)):
        return False  # a repository is one as a whole
    first, second = parse_url(one), parse_url(other)
    if first.whole != second.whole or first.prefix == second.prefix:
        return False
    short, long = sorted((first.prefix, second.prefix), key=len)
    return not short or long.startswith(f"{short}/")
