"""Many new small files made durable at once: one syncfs(2), where that promises what an fsync of each does.

An fsync is a commit of the filesystem's journal, or at least a flush of the disk's cache, and takes as long for 1 KiB
as for many files: 4,096 files took 0.43 to 2.7 s by fsync, and 0.09 to 0.19 s by syncfs in groups (ext4).

syncfs writes what anybody else has written to this filesystem, too. So it is used only while there is little of that.
Not all that it is told of goes wrong: kernels before 5.17 forget failures of the journal, before 5.8 those of pages. So
one file is fsynced afterwards, which tells whether the filesystem itself still works, and each is asked for its pages.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from blockfs.runtime.linux import filesystem_magic, syncfs_descriptor

LEAST_FILES: Final = 16  # fewer are not worth it: their fsyncs share a commit or two
_MOST_DIRTY_BYTES: Final = 64 << 20  # of all programs: a fraction of a second on any disk
_DURABLE: Final = frozenset({0xEF53, 0x58465342, 0x9123683E})
"""ext2 to ext4, XFS, btrfs: there syncfs waits for the journal, and for the disk's cache. On others, of a network, of
FUSE or in layers, nobody has promised that."""


def sync_together(descriptors: Sequence[int]) -> bool:
    """Make files durable as a group; afterwards `check_written` tells of each whether its pages arrived.

    Args:
        descriptors: Open files of one filesystem, whose contents and attributes are complete.

    Returns:
        False: they are to be fsynced one by one, which also tells whose fault it was.
    """
    if len(descriptors) < LEAST_FILES:
        return False
    try:
        if filesystem_magic(descriptors[0]) not in _DURABLE or dirty_bytes() > _MOST_DIRTY_BYTES:
            return False
        syncfs_descriptor(descriptors[0])
        os.fsync(descriptors[0])
    except OSError:
        return False
    return True


def dirty_bytes() -> int:
    """What the kernel has not written yet, of all files.

    Raises:
        OSError: It does not tell.
    """
    with open("/proc/meminfo", "rb") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith((b"Dirty:", b"Writeback:")))
