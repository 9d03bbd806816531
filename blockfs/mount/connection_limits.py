"""What the kernel may keep waiting for this mount: so that no fsync waits behind somebody's stream.

The kernel sends written pages back as background requests, and there are two limits, in the control filesystem for
FUSE (Documentation/filesystems/fuse.rst in Linux). An fsync needs a place below the first for its pages; with the
kernel's own 12 they stand in line behind those of whoever streams. From the second on, pages that nobody waits for stay
in the page cache: that keeps the line short. INIT negotiates both, but pyfuse3 has no way to say so.

How much may be dirty is the backing device's limit (Documentation/ABI/testing/sysfs-class-bdi in Linux): the kernel's
own, about 48 MB on a host of 24 GB, is the line that a stream makes. How much is read ahead is its as well: of what
INIT offers, the kernel's own 128 KiB, an answer can only take away.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from blockfs.fuse.fairness import CONGESTION_THRESHOLD, MAX_BACKGROUND
from blockfs.runtime.linux import detached_mount
from blockfs.runtime.logs import Log
from blockfs.runtime.mountinfo import read_mounts

LOWERED_DIRTY_BYTES: Final = 2 << 20
"""An fsync beside a stream of 7 GB took 5.9 ms, with 4 MiB 7.2 ms, one run each. The stream lost a quarter of its speed
from 4 to 2 MiB."""
READ_AHEAD_KIB: Final = 512  # one request of a file that is read in order; its answer takes no longer than four of 128
_CONNECTIONS: Final = "/sys/fs/fuse/connections"
_BACKING_DEVICES: Final = Path("/sys/class/bdi")

log = Log()


class ConnectionLimits:
    """The kernel's queue for one mount. What can't be set stays the kernel's: slower, and nothing else.

    Args:
        mountpoint: Absolute path of the mount.
    """

    def __init__(self, mountpoint: bytes) -> None:
        mounts = reversed(read_mounts())
        minor = next((one.device_minor for one in mounts if one.mountpoint == mountpoint), None)
        self._backing_device = _BACKING_DEVICES / f"0:{minor}"
        self._usual_ratio: str | None = None
        # Kept open: when the kernel has unmounted, the next mount of anybody gets the number, but not this directory.
        self._files: int | None = None
        with _told():
            self._files = _control_files(str(minor))

    def shorten(self) -> None:
        """Limit the requests that may wait."""
        with _told():
            self._control({"max_background": MAX_BACKGROUND, "congestion_threshold": CONGESTION_THRESHOLD})

    def read_ahead(self) -> None:
        """Have the kernel ask for more at once where a file is read in order."""
        with _told():
            (self._backing_device / "read_ahead_kb").write_text(str(READ_AHEAD_KIB))

    def cut(self) -> None:
        """Cut the connection: requests that wait fail, and so do all that come. For a mount that nobody serves."""
        with _told():
            self._control({"abort": 1})

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        if self._files is not None:
            os.close(self._files)
            self._files = None

    def _control(self, values: Mapping[str, int]) -> None:
        """Write to files of the connection."""
        if self._files is None:
            return
        for name, value in values.items():
            descriptor = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._files)
            try:
                os.write(descriptor, str(value).encode())
            finally:
                os.close(descriptor)

    def lower(self) -> None:
        """Let writers have little dirty: beyond it they wait."""
        with _told():
            if self._usual_ratio is None:
                self._usual_ratio = (self._backing_device / "max_ratio_fine").read_text()
            (self._backing_device / "max_bytes").write_text(str(LOWERED_DIRTY_BYTES))

    def restore(self) -> None:
        """Let writers have as much dirty as before."""
        if self._usual_ratio is not None:
            with _told():
                (self._backing_device / "max_ratio_fine").write_text(self._usual_ratio)


def _control_files(connection: str) -> int:
    """The directory of a connection; only root can reach it, where it is mounted nowhere, as in many containers."""
    flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        return os.open(f"{_CONNECTIONS}/{connection}", flags)
    except FileNotFoundError:
        filesystem = detached_mount(b"fusectl")
        try:
            return os.open(connection, flags, dir_fd=filesystem)
        finally:
            os.close(filesystem)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.debug("mount.queue_unchanged", reason=str(error))
