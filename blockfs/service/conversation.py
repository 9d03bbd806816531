"""What the answers over the control socket know: the mount, and what one connection has begun."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.portions import pause_of
from blockfs.errors import EXPECTED
from blockfs.runtime.logs import Log
from blockfs.service.changes import ChangeListing
from blockfs.service.counters import Counters
from blockfs.service.snapshot_changes import SnapshotListing

log = Log()


class Kernel(Protocol):
    """What a front-end can tell the kernel.

    Attributes:
        name: Which one it is.
    """

    @property
    def name(self) -> str:
        """See the class."""
        ...

    def forget_entry(self, parent: int, name: bytes) -> None:
        """A directory entry has changed."""
        ...

    def forget_attributes(self, ino: int) -> None:
        """An inode's attributes have changed."""
        ...

    def take_pages(self) -> None:
        """Wait until all that programs had written before the call has come in; see `writeback`."""
        ...


class Mount:
    """A mount, as its control socket sees it.

    Attributes:
        ending: Set when the mount ends: long work lets go.
        seals: When it has ended, what was written meanwhile is sealed too, and files that the kernel wrote itself go.
        why_not_native: Why the kernel reads and writes no files of the host itself; None: it does.
        scrubbed: How many blocks a scrub under way has checked, and of how many; zeros: there is none.
    """

    def __init__(
        self,
        filesystem: Filesystem,
        kernel: Kernel,
        mountpoint: bytes,
        unmount: Callable[[], None],
        counters: Counters,
    ) -> None:
        self.filesystem = filesystem
        self.counters = counters
        self.kernel = kernel
        self.mountpoint = mountpoint
        self.unmount = unmount
        self.ending = threading.Event()
        self.scrubbed = (0, 0)
        self.seals = False
        self.why_not_native: str | None = "the mount begins"
        filesystem.fatal.listen(self.ending.set)


class Conversation:
    """One connection. Used by one thread, its own, without the engine's lock.

    Attributes:
        mount: The mount.
        filesystem: What is mounted.
        stop: Whether the mount ends: asked by what takes long.
        pause: Lets go by StoppedError then: likewise.
        listing: The listing of changes under way.
        prepared: Handles of nameless files that were prepared here, and have no name yet.
    """

    def __init__(self, mount: Mount) -> None:
        self.mount = mount
        self.filesystem = mount.filesystem
        self.stop = mount.ending.is_set
        self.pause = pause_of(self.stop)
        self.listing: ChangeListing | SnapshotListing | None = None
        self.prepared: set[int] = set()

    def close(self) -> None:
        """Drop the listing and the prepared files; one that can't be dropped now goes with the next mount."""
        with self.filesystem.fatal.owning("the end of a conversation"):
            self.drop_listing()
            for handle in self.prepared:
                try:
                    self.filesystem.apply.abandon_file(handle)
                except EXPECTED as error:
                    log.warning("control.file_left", reason=str(error))

    def drop_listing(self) -> None:
        """Let the state go from which changes were listed."""
        if self.listing is not None:
            self.listing.close()
            self.listing = None
