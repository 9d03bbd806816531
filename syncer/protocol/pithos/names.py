"""Object and container names: which are safe, and how they travel in a URL. Pure.

An object name is text: path segments joined by "/". On the wire it is UTF-8, percent-encoded. A local path is bytes.
Both directions refuse what would leave the root of a replica or can't be written down on the other side.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote_from_bytes

from blockfs.runtime.output import shown
from syncer.errors import UnsafeNameError

MAX_OBJECT_CHARACTERS: Final = 1024  # as in Pithos
MAX_CONTAINER_CHARACTERS: Final = 256  # as in Pithos

_URL_SAFE: Final = "/~"  # besides RFC 3986's unreserved characters
_CONTROL: Final = frozenset(map(chr, (*range(0x20), 0x7F, *range(0x80, 0xA0))))  # Unicode category Cc
_HEX: Final = frozenset(b"0123456789abcdefABCDEF")


def object_name_problem(name: str) -> str | None:
    """Say why an object name is refused.

    Args:
        name: Decoded name, as a listing or a URL gives it.

    Returns:
        The reason, None for a safe name.
    """
    if not name:
        return "it is empty"
    if len(name) > MAX_OBJECT_CHARACTERS:
        return f"it has {len(name)} characters, more than {MAX_OBJECT_CHARACTERS}"
    for segment in name.split("/"):
        if not segment:
            return "it has an empty segment (a slash too many)"
        if segment in {".", ".."}:
            return f"it has a {segment!r} segment"
    return _character_problem(name)


def container_name_problem(name: str) -> str | None:
    """Say why a container (or account) name is refused; None for a safe one."""
    if not name:
        return "it is empty"
    if len(name) > MAX_CONTAINER_CHARACTERS:
        return f"it has {len(name)} characters, more than {MAX_CONTAINER_CHARACTERS}"
    if "/" in name:
        return "it contains a slash"
    if name in {".", ".."}:
        return f"it is {name!r}"
    return _character_problem(name)


def name_from_path(path: bytes) -> str:
    """Object name of a relative local path.

    Raises:
        UnsafeNameError: Not UTF-8, or a name that the server refuses.
    """
    try:
        name = path.decode("utf-8")
    except UnicodeDecodeError:
        raise UnsafeNameError(path, "it is not UTF-8, so the server can't hold it") from None
    problem = object_name_problem(name)
    if problem is not None:
        raise UnsafeNameError(path, problem)
    return name


def path_from_name(name: str) -> bytes:
    """Relative local path of an object name that came from a server.

    Raises:
        UnsafeNameError: A name that would leave the root, or that no local path can be.
    """
    problem = object_name_problem(name)
    if problem is not None:
        raise UnsafeNameError(name.encode("utf-8", "surrogatepass"), problem)
    return name.encode("utf-8")


def quote_name(name: str) -> str:
    """Percent-encode a name for a URL path; slashes stay."""
    return quote_from_bytes(name.encode("utf-8"), safe=_URL_SAFE)


def unquote_name(raw: bytes) -> str:
    """Decode a part of a raw URL path. `%2F` is a slash like any other.

    Raises:
        ValueError: A broken percent escape, or bytes that are not UTF-8.
    """
    head, *escapes = raw.split(b"%")
    parts = [head]
    for escape in escapes:
        if len(escape) < 2 or not _HEX.issuperset(escape[:2]):
            raise ValueError(f"broken percent escape in {shown(raw[:200])}")
        parts.append(bytes([int(escape[:2], 16)]) + escape[2:])
    try:
        return b"".join(parts).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{shown(raw[:200])} is not UTF-8") from None


def _character_problem(name: str) -> str | None:
    """Control characters break listings in text form; lone surrogates can't be written as UTF-8."""
    if name.isprintable():  # nearly every name: then it has neither
        return None
    if not _CONTROL.isdisjoint(name):
        return "it contains a control character"
    if any("\ud800" <= character <= "\udfff" for character in name):
        return "it contains a lone surrogate, which is not UTF-8"
    return None
