"""What one cycle is to look at, on both sides; and what it is run by. Values and interfaces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from syncer.engine.report import Report
from syncer.ports.remote import Remote
from syncer.watch.dirt import CLEAN, EVERYTHING, Dirt
from syncer.watch.source import DirtySource


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What a cycle is to look at. What changed on the server it finds out itself, by one request.

    Attributes:
        local: In the root.
        remote: Something changed on the server.
        from_snapshot: Push files that are open for writing, too, as of one instant (volumes).
    """

    local: Dirt = CLEAN
    remote: bool = False
    from_snapshot: bool = False

    def __bool__(self) -> bool:
        return bool(self.local) or self.remote or self.from_snapshot

    def __or__(self, later: Work) -> Work:
        return Work(
            local=self.local | later.local,
            remote=self.remote or later.remote,
            from_snapshot=self.from_snapshot or later.from_snapshot,
        )


ALL: Final = Work(local=EVERYTHING, remote=True)


Moving = Callable[[str, dict[str, int]], None]
"""Is told what a cycle has synced last (a path for a person, or nothing), and how far it is: `RootLive.progress`."""


class RootPorts(Protocol):
    """One linked root as the daemon needs it. Made by the command line.

    Attributes:
        uuid: Names the root.
        path: Absolute path of ROOT.
        open_files_interval_s: How often files that stay open for writing are pushed; None: when they are closed only.
    """

    uuid: str
    path: bytes
    open_files_interval_s: float | None

    def source(self) -> DirtySource:
        """A new source; not armed."""
        ...

    def connect(self) -> Remote:
        """A client for as long as the root is watched."""
        ...

    async def cycle(self, remote: Remote, work: Work, moving: Moving) -> Report:
        """One cycle. Looks at least at what `work` names; records how it ended; tells `moving` how far it is.

        Raises:
            SyncerError, BlockfsError, OSError: It was broken off.
        """
        ...

    async def open_files(self) -> Work:
        """What a cycle must look at so that files which stay open for writing are pushed; nothing if there are none."""
        ...
