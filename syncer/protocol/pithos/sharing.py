"""X-Object-Sharing: `read=ACCOUNT,ACCOUNT; write=…`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from syncer.protocol.pithos.headers import HeaderError, quote_value, unquote_value
from syncer.protocol.pithos.names import container_name_problem

MAX_READERS: Final = 100
EVERYBODY: Final = "*"


def parse_sharing(value: str) -> list[str]:
    """Read who may read; none ends the sharing.

    Raises:
        HeaderError: Another form, somebody who may write, a group, or too many.
    """
    found: list[str] = []
    for term in filter(None, (one.strip() for one in unquote_value(value).split(";"))):
        what, equals, accounts = term.partition("=")
        names = [name for name in (one.strip() for one in accounts.split(",")) if name]
        if not equals or what.strip() not in {"read", "write"}:
            raise HeaderError(f"X-Object-Sharing: expected read=ACCOUNT,…, got {term[:100]!r}")
        if what.strip() == "write" and names:
            raise HeaderError("X-Object-Sharing: this server shares for reading only; write= must be empty")
        found += names
    for name in found:
        if name != EVERYBODY and (":" in name or container_name_problem(name) is not None):
            raise HeaderError(f"X-Object-Sharing: {name[:100]!r} is no account (groups are not supported)")
    if len(found) > MAX_READERS:
        raise HeaderError(f"X-Object-Sharing: at most {MAX_READERS} accounts, not {len(found)}")
    return sorted(set(found))


def sharing_value(readers: Sequence[str]) -> str:
    """Write who may read."""
    return quote_value("read=" + ",".join(readers))
