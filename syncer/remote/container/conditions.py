"""Is it still the version that we decided on? Pure decisions."""

from __future__ import annotations

from syncer.core.model import RelPath, RemoteTag
from syncer.errors import ConflictOnRemoteError


def same_version(expect: RemoteTag | None, found: RemoteTag | None) -> bool:
    """Whether `found` is the version `expect` names. None is "no object".

    Versions are never reused on one server. The uuid is compared too, where both have one: it tells a restored or
    replaced server from the one we know.
    """
    if expect is None or found is None:
        return expect is found
    if expect.version != found.version:
        return False
    return not expect.uuid or not found.uuid or expect.uuid == found.uuid


def require(path: RelPath, expect: RemoteTag | None, found: RemoteTag | None) -> None:
    """Insist on `expect`.

    Raises:
        ConflictOnRemoteError: Something else is there, or nothing.
    """
    if not same_version(expect, found):
        raise ConflictOnRemoteError(path, describe(expect), describe(found))


def describe(tag: RemoteTag | None) -> str:
    """A version in words, for messages."""
    return "no object" if tag is None else f"version {tag.version}"
