"""How many requests the kernel may have waiting for this mount: so that no fsync waits behind somebody's stream.

The kernel sends written pages back as background requests, and there are two limits, in the control filesystem for
FUSE (Documentation/filesystems/fuse.rst in Linux). An fsync needs a place below the first for its pages; with the
kernel's own 12 they stand in line behind those of whoever streams. From the second on, pages that nobody waits for stay
in the page cache: that keeps the line short. libfuse could negotiate both, but pyfuse3 has no way to say so.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import structlog

from blockfs.runtime.linux import detached_mount
from blockfs.runtime.mountinfo import Mount, read_mounts

MAX_BACKGROUND: Final = 32  # each holds up to 1 MiB of memory here
CONGESTION_THRESHOLD: Final = 3  # an fsync beside a stream took 6.6 ms, with 1 7.6 ms, with the kernel's 12 and 9 11 ms
_USUAL_PLACE: Final = "/sys/fs/fuse/connections"

log = structlog.get_logger()


def shorten_queue(mountpoint: bytes) -> None:
    """Set the limits for the mount at `mountpoint`. What can't be set stays the kernel's: slower, and nothing else."""
    mount = next((one for one in reversed(read_mounts()) if one.mountpoint == mountpoint), None)
    if mount is None:
        return
    try:
        _set_limits(mount)
    except OSError as error:
        log.debug("mount.queue_unchanged", reason=str(error))


def _set_limits(mount: Mount) -> None:
    with contextlib.ExitStack() as opened:
        try:
            control = os.open(f"{_USUAL_PLACE}/{mount.device_minor}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # mounted nowhere, as in many containers: only root can reach it
            filesystem = detached_mount(b"fusectl")
            opened.callback(os.close, filesystem)
            control = os.open(str(mount.device_minor), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=filesystem)
        opened.callback(os.close, control)
        for name, value in {"max_background": MAX_BACKGROUND, "congestion_threshold": CONGESTION_THRESHOLD}.items():
            descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=control)
            opened.callback(os.close, descriptor)
            os.write(descriptor, str(value).encode())
