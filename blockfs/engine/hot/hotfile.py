"""What a mount knows of one hot file.

The kernel writes into it without telling us. What tells is its status: `seen` is size and times as they were before all
of it was last written back, which makes each later store into a mapping fault and change them. A status that is so
young that a write of the same tick could have it, too, counts as none.
"""

from __future__ import annotations

import os
import time
from typing import Final

from msgspec.structs import replace

from blockfs.engine.hot.folder import Descriptor, Key
from blockfs.tree.schema import HotRow, HotState, Inode

_YOUNG_NS: Final = 50_000_000  # above the tick of any kernel's coarse clock (10 ms at HZ=100)

Seen = tuple[int, int, int]
"""Size, mtime and ctime."""


class HotFile:
    """A hot file that is its file's content. Guarded by the engine's lock, but for `file` and `number`.

    Attributes:
        ino: The file.
        number: Of the hot file.
        file: Its descriptor.
        opens: How often the kernel has it open, or we change it ourselves just now.
        opened: How often that began: if it is the same later, and `opens` is 0, nobody has written meanwhile.
        moving: How many of us just now make bytes of it come to lie where they may have lain before: holes, or shared.
        moves: How often that began.
        sealed_opened: `opened` when all of it was sealed while nobody had it open; -1: it was not.
        sealed_at_s: Monotonic time of the newest seal, or at which it was made.
        released_at_s: Monotonic time at which it was closed last.
        is_new: It was empty when it was made: it may be used before it has a row.
        is_named: Its row is in the tree, or on its way: then its name is durable.
        is_durable: Its row is durable.
        is_behind: The leaves tell older content than the row's version.
        cuts: How often leaves went because the file had become shorter: a seal under way counts on them.
        seen: See the module; None: it must be taken for changed.
        failed: The host failed to write it back; what it holds is not all that was written.
    """

    __slots__ = (
        "_looked",
        "cuts",
        "failed",
        "file",
        "ino",
        "is_behind",
        "is_durable",
        "is_named",
        "is_new",
        "moves",
        "moving",
        "number",
        "opened",
        "opens",
        "released_at_s",
        "sealed_at_s",
        "sealed_opened",
        "seen",
    )

    def __init__(self, key: Key, file: Descriptor) -> None:
        self.ino, self.number = key
        self.file = file
        self.opens = 0
        self.opened = 0
        self.moving = 0
        self.moves = 0
        self.sealed_opened = -1
        self.sealed_at_s = time.monotonic()
        self.released_at_s = 0.0
        self.is_new = False
        self.is_named = False
        self.is_durable = False
        self.is_behind = False
        self.cuts = 0
        self.seen: Seen | None = None
        self.failed = False
        self._looked: Seen | None = None

    @property
    def key(self) -> Key:
        """Its name in the folder."""
        return self.ino, self.number

    def status(self) -> os.stat_result:
        """Its status now."""
        return os.fstat(self.file.fd)

    def is_ahead(self, status: os.stat_result | None = None) -> bool:
        """Whether it may have changed since it was last seen, now or when it had a status."""
        return self.seen is None or self.seen != _seen(status or self.status())

    def has_moved(self, status: os.stat_result) -> bool:
        """Whether its status is another than when this was asked last."""
        before, self._looked = self._looked, _seen(status)
        return before != self._looked

    def has_changed_since(self, status: os.stat_result) -> bool:
        """Whether it may have changed since it had a status, which was before all of it was written back."""
        return _is_young(status) or self.differs_from(status)

    def differs_from(self, status: os.stat_result) -> bool:
        """Whether its status is another one now."""
        return _seen(status) != _seen(self.status())

    def see(self, status: os.stat_result, *, is_old: bool = False) -> None:
        """All was written back after it had this status. `is_old`: nobody can have written since."""
        self.seen = None if not is_old and _is_young(status) else _seen(status)

    def set_times(self, atime_ns: int | None, mtime_ns: int | None) -> None:
        """Give it times of access and change; None: that stays. Whether it has changed is known before (`is_ahead`)."""
        was_ahead, status = self.is_ahead(), self.status()
        atime_ns = status.st_atime_ns if atime_ns is None else atime_ns
        os.utime(self.file.fd, ns=(atime_ns, status.st_mtime_ns if mtime_ns is None else mtime_ns))
        self.seen = None if was_ahead or self.is_in_use else _seen(self.status())

    @property
    def is_in_use(self) -> bool:
        """Whether somebody may write to it: has it open, or a mapping of it, which outlives what it was opened with."""
        return self.opens > 0 or self.file.is_shared()

    def live(self, row: Inode) -> Inode:
        """The inode's row as readers see it."""
        status = self.status()
        if status.st_atime_ns > row.atime_ns:  # reads are the kernel's own, too
            row = replace(row, atime_ns=status.st_atime_ns)
        return row if self.seen == _seen(status) else with_status(row, status)

    def row(self) -> HotRow:
        """Its row in the tree."""
        state = HotState.BEHIND if self.is_behind else HotState.SEALED
        return HotRow(ino=self.ino, number=self.number, state=state)


def with_status(row: Inode, status: os.stat_result) -> Inode:
    """A file's row with the size and times of its hot file."""
    ctime_ns = max(row.ctime_ns, status.st_ctime_ns)
    return replace(row, size_bytes=status.st_size, mtime_ns=status.st_mtime_ns, ctime_ns=ctime_ns)


def _is_young(status: os.stat_result) -> bool:
    return time.time_ns() - status.st_ctime_ns < _YOUNG_NS


def _seen(status: os.stat_result) -> Seen:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns
