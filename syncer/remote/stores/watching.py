"""Directories whose changes the kernel tells of (inotify, by watchdog): where all who write there are on this machine.

Of a share (NFS, SMB, SSHFS) it tells only what this machine does itself: there somebody has to look.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

import trio

from blockfs.runtime.mountinfo import FILESYSTEM_TYPE, mount_of, read_mounts

if TYPE_CHECKING:  # loaded where a daemon waits: 30 ms
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver

LOCAL_TYPES: Final = frozenset(
    {"bcachefs", "btrfs", "exfat", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3", "overlay", "ramfs"}
    | {"reiserfs", "tmpfs", "vfat", "xfs", "zfs", FILESYSTEM_TYPE}
)
"""Types of filesystems that one machine has for itself."""


def is_told(path: str) -> bool:
    """Whether the kernel tells of all that is written to a directory. False where that is not known."""
    try:
        mount = mount_of(os.path.realpath(os.fsencode(path)), read_mounts())
    except OSError:
        return False
    return mount is not None and mount.filesystem_type in LOCAL_TYPES


@asynccontextmanager
async def watched(folders: Sequence[str]) -> AsyncIterator[Callable[[], Awaitable[None]] | None]:
    """Watch some directories, without what lies in directories below them.

    Yields:
        Returns when something was written, renamed or deleted there since they are watched. None: they can't be, for
        the user's watches are all in use, say.
    """
    changed = trio.Event()
    token = trio.lowlevel.current_trio_token()

    def tell() -> None:
        with contextlib.suppress(trio.RunFinishedError):
            token.run_sync_soon(changed.set, idempotent=True)

    observer = await trio.to_thread.run_sync(_started, folders, tell)
    try:
        yield None if observer is None else changed.wait
    finally:
        if observer is not None:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(_stop, observer)


def _started(folders: Sequence[str], tell: Callable[[], None]) -> BaseObserver | None:
    from watchdog.events import (  # noqa: PLC0415 - see above
        DirCreatedEvent,
        DirDeletedEvent,
        DirMovedEvent,
        FileClosedEvent,
        FileDeletedEvent,
        FileMovedEvent,
        FileSystemEventHandler,
    )
    from watchdog.observers import Observer  # noqa: PLC0415 - likewise

    class Handler(FileSystemEventHandler):
        def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - whoever is told looks at everything
            tell()

    # What is read is no event: a look would tell of itself.
    events: list[type[FileSystemEvent]] = [
        FileClosedEvent,
        FileMovedEvent,
        FileDeletedEvent,
        DirCreatedEvent,
        DirMovedEvent,
        DirDeletedEvent,
    ]
    logging.getLogger("watchdog").setLevel(logging.CRITICAL)  # in some races it logs tracebacks
    observer = Observer()
    try:
        for folder in folders:
            observer.schedule(Handler(), folder, recursive=False, event_filter=events)
        observer.start()
    except OSError:
        observer.unschedule_all()
        return None
    return observer


def _stop(observer: BaseObserver) -> None:
    observer.stop()
    observer.join()
