"""Which requests change nothing, of the kernel and of the control socket: what an error that nobody expected costs.

One that changes nothing is answered with EIO, and its trace is in the log. Any other one may have been stopped
half-way: the mount is abandoned, so that no half of a change becomes durable (`blockfs.engine.fatal`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from blockfs.control import protocol, snapshots, waiting


class Effect(Enum):
    """What a request may have done when it is stopped half-way."""

    LOOKS = "nothing"
    """Times of access and references of the kernel do not count: each is whole, or forgotten with the mount."""
    CHANGES = "half a change"


KERNEL: Final[Mapping[str, Effect]] = MappingProxyType(
    dict.fromkeys(
        (
            "lookup",
            "getattr",
            "readlink",
            "getxattr",
            "listxattr",
            "statfs",
            "read",
            "opendir",
            "readdir",
            "releasedir",
        ),
        Effect.LOOKS,
    )
    | dict.fromkeys(
        (
            "forget",  # the last one removes an inode without names
            "release",
            "open",
            "mknod",
            "mkdir",
            "symlink",
            "link",
            "create",
            "unlink",
            "rmdir",
            "rename",
            "setattr",
            "setxattr",
            "removexattr",
            "write",
            "fsync",
            "fsyncdir",
        ),
        Effect.CHANGES,
    )
)
"""Requests of the kernel: all that are answered."""

ACTIVITY: Final = frozenset(
    {"mknod", "mkdir", "symlink", "link", "create", "unlink", "rmdir", "rename", "setxattr", "removexattr"}
)
"""Requests of the kernel that are activity each time. A writer counts when it closes, a setattr when nobody writes: a
running VM, whose times the kernel sends every now and then, must not wake the syncer for ever."""

LOOKING: Final[frozenset[type[protocol.Request]]] = frozenset(
    {
        protocol.Status,
        protocol.Stats,
        protocol.Fsck,
        protocol.Changes,
        protocol.BlockListPage,
        waiting.Wait,
        snapshots.SnapshotList,
    }
)
"""Requests of the control socket that change nothing. Scrub quarantines blocks, Hashes remembers what it worked out."""
