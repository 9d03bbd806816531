"""Which volume serves this path? The kernel's list of mounts, parsed.

Format: proc_pid_mountinfo(5). In its fields space, tab, newline and backslash are octal escapes, so every other byte is
literal and paths stay bytes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

import msgspec

FILESYSTEM_TYPE: Final = "fuse.blocksync"
"""Type of our mounts; their source is the absolute path of the volume."""

_DEVICE: Final = re.compile(rb"[0-9]+:[0-9]+")
_OCTAL: Final = re.compile(rb"\\([0-7]{3})")


class Mount(msgspec.Struct, frozen=True, kw_only=True):
    """One line of mountinfo.

    Attributes:
        root: Path inside the filesystem that is mounted here; not "/" for bind mounts of a subdirectory.
        mountpoint: Absolute path.
        source: What is mounted; for our type the absolute path of the volume.
        device_minor: Number of the filesystem; for FUSE that of its connection.
    """

    root: bytes
    mountpoint: bytes
    filesystem_type: str
    source: bytes
    device_minor: int

    def inside(self, path: bytes) -> bytes:
        """A real absolute path on it, relative to the root of the filesystem; a bind mount shows a part of it only."""
        inner = os.path.normpath(b"/".join((self.root, os.path.relpath(path, self.mountpoint)))).lstrip(b"/")
        return b"" if inner == b"." else inner


def parse(text: bytes) -> list[Mount]:
    """Read mountinfo, in mount order. Lines that are not of the documented form are left out."""
    mounts = []
    for line in text.split(b"\n"):
        fields, separator, tail = line.partition(b" - ")
        before, after = fields.split(b" "), tail.split(b" ")
        if separator and len(before) >= 6 and len(after) >= 2 and _DEVICE.fullmatch(before[2]):
            mounts.append(
                Mount(
                    root=_unescaped(before[3]),
                    mountpoint=_unescaped(before[4]),
                    filesystem_type=os.fsdecode(after[0]),
                    source=_unescaped(after[1]),
                    device_minor=int(before[2].partition(b":")[2]),
                )
            )
    return mounts


def mount_of(path: bytes, mounts: Iterable[Mount]) -> Mount | None:
    """The mount that a real absolute path lies on: the longest mountpoint above it, the newest if they are stacked."""
    best: Mount | None = None
    for mount in mounts:
        if is_below(path, mount.mountpoint) and (best is None or len(mount.mountpoint) >= len(best.mountpoint)):
            best = mount
    return best


def is_below(path: bytes, directory: bytes) -> bool:
    """Whether an absolute path is `directory` or lies below it. Compares names, reads nothing."""
    prefix = directory.rstrip(b"/") + b"/"
    return path == directory or path.startswith(prefix) or path + b"/" == prefix


def read_mounts() -> list[Mount]:
    """The mounts that this process sees now."""
    with open("/proc/self/mountinfo", "rb") as file:
        return parse(file.read())


def blocksync_mount_of(path: bytes) -> Mount | None:
    """The blocksync mount that `path` lies on, or None. The path itself need not exist, nor its mount be alive."""
    mount = mount_of(os.path.realpath(path), read_mounts())
    return mount if mount is not None and mount.filesystem_type == FILESYSTEM_TYPE else None


def mounts_of_volume(volume: bytes) -> list[Mount]:
    """All blocksync mounts whose source is this volume (absolute real path)."""
    return [mount for mount in read_mounts() if mount.filesystem_type == FILESYSTEM_TYPE and mount.source == volume]


def _unescaped(field: bytes) -> bytes:
    return _OCTAL.sub(lambda match: bytes([int(match[1], 8) & 0xFF]), field)
