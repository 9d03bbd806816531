"""Messages of the control socket about snapshots. Pure."""

from __future__ import annotations

import msgspec

from blockfs.control.message import Message, TimeNs


class SnapshotMsg(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot.

    Attributes:
        name: In `.snapshots`.
        source: Path of what was kept, relative to the root, at that time; b"" is the root.
        created_ns: When it was asked for.
        files: Regular files in it, hard links once.
        logical_bytes: Sum of their sizes.
    """

    name: bytes
    source: bytes
    created_ns: TimeNs
    files: int
    logical_bytes: int


class SnapshotCreate(Message, frozen=True, kw_only=True):
    """Keep `src` and all below it, read-only, as it is at one instant between request and reply. Durable.

    Pages in the kernel are not in it: syncfs(2) the mount first. `src` is relative to the mount's root, b"" the root.

    Errors: 10 (no src), 2 (the name is taken or can't be one; src lies in a snapshot).
    """

    src: bytes
    name: bytes


class SnapshotList(Message, frozen=True, kw_only=True):
    """Which snapshots are there?"""


class SnapshotDelete(Message, frozen=True, kw_only=True):
    """Delete a snapshot. Errors: 10 (no such snapshot)."""

    name: bytes


class SnapshotRestore(Message, frozen=True, kw_only=True):
    """Copy a snapshot, or what is at `path` in it, to `dst` among the live files, sharing all blocks. Durable.

    `dst` is relative to the mount's root.

    Errors: 10 (no such snapshot or path, no parent of dst), 2 (dst exists or can't be).
    """

    name: bytes
    path: bytes
    dst: bytes


class SnapshotsReply(Message, frozen=True, kw_only=True):
    """Snapshots in byte order of their names; to SnapshotCreate the new one."""

    snapshots: list[SnapshotMsg]
