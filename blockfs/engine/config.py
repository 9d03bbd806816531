"""What can be tuned in the engine, each value with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from blockfs.engine.space.policy import BALLAST_BYTES

OPEN_STAGING_FILES: Final = 256  # a mount takes more where the host lets it


def no_checkpoint(step: str) -> None:
    """Do nothing: the default of `EngineConfig.checkpoint`."""


class EngineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one mount.

    Attributes:
        read_only: The files of the volume stay as they are: no threads, no commit, no seal. Only a volume that was not
            unmounted cleanly is recovered first, as by any mount.
        quiet_s: Seconds without a write after which a file is sealed. With 5 s, random 4 KiB writes over 2 GiB would be
            rewritten about 8 times (architecture, section 4).
        staged_limit_bytes: Writers wait while this much is staged; less where the host has little room, see
            `FileTable`. Sealing starts at half of it. The more pages of a block wait for each other, the fewer bytes
            are written per page (docs/design/write-path.md, section 5).
        publish_s: Seconds after which an unsynced change is flushed and committed in the background.
        commit_s: Seconds that a metadata change waits for others to share its commit.
        seal_workers: Threads that hash: SHA-256 scales to two from 64 KiB blocks up and loses with threads at 4 KiB.
        open_staging_files: Descriptors kept open for staging files; a copy of 10,000 small files must not exhaust them.
            Where there are fewer than files with unsynced data, each further file takes an fdatasync.
        adopt_bytes: A staging file with that much new data becomes a segment; less is copied into a common one, so that
            segments stay few: adopting gains a few milliseconds then (ADR 0014).
        reserve_bytes: Writes and new names fail with ENOSPC when the host has less room than this, so that metadata
            commits, sealing and deletion still have it. Never more than 1/64 of the host filesystem.
        ballast_bytes: See `blockfs.engine.space.ballast`.
        native: Give the kernel hot files to read and write, where the host can. Those of an earlier mount are content
            anyway, until they are sealed.
        background: Run the threads that commit, publish and seal. Off in tests that drive every step themselves.
        checkpoint: Called with the name of each durability step before it is done: the seam of the crash tests.
    """

    read_only: bool = False
    quiet_s: float = 30.0
    staged_limit_bytes: int = 2 << 30
    publish_s: float = 5.0
    commit_s: float = 1.0
    seal_workers: int = 2
    open_staging_files: int = OPEN_STAGING_FILES
    adopt_bytes: int = 32 << 20
    reserve_bytes: int = 32 << 20
    ballast_bytes: int = BALLAST_BYTES
    native: bool = False
    background: bool = True
    checkpoint: Callable[[str], None] = no_checkpoint
