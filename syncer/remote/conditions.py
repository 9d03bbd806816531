"""Is it still the version that we decided on? Did anybody slip in? Pure decisions."""

from __future__ import annotations

from collections.abc import Sequence

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


def slipped_in(versions: Sequence[int], base: int, ours: int) -> list[int]:
    """Versions between the one we based on and ours: somebody wrote them while our condition was being checked.

    Args:
        versions: All versions of the object, as the server lists them.
        base: What we replaced, 0 if there was nothing.
        ours: What our write became.
    """
    return sorted(version for version in versions if base < version < ours)
