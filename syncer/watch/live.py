"""How the daemon and its roots stand: values that `status` shows. Pure."""

from __future__ import annotations

from typing import Literal

import msgspec

Phase = Literal["starting", "idle", "quiet", "working", "retrying", "consent", "away", "paused", "damaged"]
"""starting: nothing was looked at yet. idle: both sides are equal, as far as was told. quiet: changes are waiting for
quiet. working: a cycle runs. retrying: something failed, `detail` says what. consent: the safety stop waits for a
person. away: the root is not mounted, or is another one. paused: by `blocksync pause`.
damaged: what is linked can't be read; `root` is the record's path, `detail` says what to do."""


class RootLive(msgspec.Struct, frozen=True, kw_only=True):
    """One root now.

    Attributes:
        root: Its path, for a person.
        uuid: Its name in the registry.
        phase: See `Phase`.
        detail: Why, in words; empty if there is nothing to say.
        degraded: What works less well than it should: watching is incomplete, the server can't be asked.
        watching: How local changes are noticed.
        following: How the server's changes are noticed.
        dirty: Local places that are to be looked at; -1: all.
        since: When the phase began, seconds since the epoch.
        next: When something is tried again or looked at on its own account, seconds since the epoch; None: never.
        synced: When a cycle of this daemon went through last, seconds since the epoch; None: none did yet.
        cycles: Cycles since the daemon began.
        moving: Path of what was synced last in a running cycle.
        progress: How far that cycle is, by the keys of `reconcile --json`: its last line `looking` or `progress`.
        last: Figures of the last cycle, by the keys of `reconcile`'s summary.
        changed: The same of the last cycle that changed something. What we push comes back as a change of the server's,
            so a cycle that finds nothing to do follows it.
    """

    root: str
    uuid: str
    phase: Phase
    since: float
    detail: str = ""
    degraded: list[str] = []
    watching: str = ""
    following: str = ""
    dirty: int = 0
    next: float | None = None
    synced: float | None = None
    cycles: int = 0
    moving: str = ""
    progress: dict[str, int] = {}
    last: dict[str, int | float] = {}
    changed: dict[str, int | float] = {}


class DaemonLive(msgspec.Struct, frozen=True, kw_only=True):
    """The daemon now."""

    pid: int
    started: float
    roots: list[RootLive]
