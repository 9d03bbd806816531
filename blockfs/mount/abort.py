"""Mounts whose process was killed but can't die, and how they are ended.

A thread of the mount process that tells the kernel to forget a name waits, in the kernel, for the directory's lock.
Another process may hold that lock while it waits for an answer from the mount. If the mount process is killed just
then, neither gives way (seen with Linux 6.18): the killed process keeps its descriptors, and with them the connection
and the volume's lock, and all who use the mount wait for ever. So it is with one that is killed while it has a file of
its own mount open, to wait for its pages: the kernel closes that first, and waits for pages that nobody takes. A
forced unmount aborts the connection: all go on.
"""

from __future__ import annotations

import os
import select
from typing import Final

from blockfs.engine.volume import lock_holder
from blockfs.errors import MountError
from blockfs.runtime.linux import MNT_DETACH, MNT_FORCE, umount2
from blockfs.runtime.logs import Log
from blockfs.runtime.mountinfo import mounts_of_volume
from blockfs.runtime.output import shown

_PF_EXITING: Final = 0x4  # linux/sched.h
ENDING_TIMEOUT_S: Final = 30.0  # then something else keeps it, and the lock says so to who wants it

log = Log()


def end_dying(volume: bytes) -> bool:
    """End the mounts of a volume whose process was killed; a process that lives, or is gone altogether, is left alone.

    Asks nothing of the mount itself: a mount that does not answer must not stop who wants to repair it.

    Returns:
        Whether there was one.

    Raises:
        MountError: There is one, and only root may force it.
    """
    try:
        pid = lock_holder(volume)
    except OSError:
        return False  # the host fails: who serves the mount can still be asked
    mounts = mounts_of_volume(volume)
    if pid is None or not mounts or not _is_ending(pid):
        return False
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    try:
        if select.select([process], [], [], 0)[0]:
            return False  # only its parent has not waited for it
        for mount in mounts:
            log.warning("mount.aborted", volume=volume, mountpoint=mount.mountpoint, pid=pid)
            try:
                umount2(mount.mountpoint, MNT_FORCE | MNT_DETACH)
            except PermissionError:
                raise MountError(
                    f"{shown(mount.mountpoint)}: the mount process {pid} was killed and can't end; run "
                    f"`umount -f -l {shown(mount.mountpoint)}` as root"
                ) from None
        select.select([process], [], [], ENDING_TIMEOUT_S)  # its descriptors, and the volume's lock, go with it
    finally:
        os.close(process)
    return True


def _is_ending(pid: int) -> bool:
    """Whether a process has ended, or is about to, but for what the kernel does not let go, or for being waited for."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b") ")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] == b"Z" or bool(int(fields[6]) & _PF_EXITING)
