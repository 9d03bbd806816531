"""How roots stand, what cycles did, where blocks came from, who tells of changes: the words of all commands. Pure."""

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


def standing(condition: str, phase: str | None, *, is_paused: bool, was_stopped: bool, has_conflicts: bool) -> str:
    """How a root stands, in the word of `blocksync status`.

    Args:
        condition: What is known of it on the disk: see `RootStatus`.
        phase: What the daemon says; None: it does not watch it.
        is_paused: By `blocksync pause`.
        was_stopped: The last cycle ended with a safety stop.
        has_conflicts: There are conflict copies.
    """
    if is_paused:
        return "paused"
    if phase == "consent" or (phase in {None, "starting"} and was_stopped):
        return "safety stop"
    if phase == "working":
        return "running"
    if phase in {"away", "retrying"} and condition in {"ok", "degraded"}:
        return phase
    if condition == "ok" and has_conflicts:
        return "conflicts"  # in step, but somebody must choose
    return condition
