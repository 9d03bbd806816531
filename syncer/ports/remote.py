"""Values of the remote side that others keep or compare without knowing which remote it is."""

from __future__ import annotations

import msgspec


class Cursor(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in a container's history, from which `CloudClient.changes` goes on. Keep it as it is.

    Attributes:
        identity: UUID text of the container's life.
        version: Serial of its last change at that moment.
        modified_us: Time of that change: a server restored from a backup gives its serials out again.
        evidence: On a server without `changes`, where the others are empty: what `compare` is told without a listing as
            long as it is so. Empty if a further change might not show in it.
    """

    identity: str
    version: int
    modified_us: int
    evidence: tuple[str, ...] = ()
