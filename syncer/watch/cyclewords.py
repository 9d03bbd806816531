"""What a cycle did, where its blocks came from, and who tells of changes, in the words of all commands. Pure."""

from __future__ import annotations

from typing import Final

from blockfs.runtime.units import counted

SOURCES: Final = {
    "blocks_received": "from the server",
    "blocks_from_peers": "from peers",
    "blocks_from_roots": "from other roots",
    "blocks_from_own": "from the root itself",
}
"""Where blocks came from: the key of a cycle's counts, and in words."""

FOLLOWING: Final = {
    "changes": "the server tells of changes",
    "polling": "the server is asked now and then",
    "files": "the repository's directory is watched",
}
"""How the server's changes are noticed: `RootLive.following`, and in words."""

TO_PEERS: Final = "to peers"
_WORDS: Final = {"conflicts": ("conflict", "conflicts")}


def changed(key: str, count: float, *, between: str = "") -> str:
    """Write what a cycle changed: `1 pushed`, `1 conflict`, `2 conflicts`.

    Args:
        key: Of its counts: one of `engine.report.CHANGES`.
        count: How many.
        between: See `counted`.
    """
    return counted(int(count), *_WORDS.get(key, (key, key)), between=between)
