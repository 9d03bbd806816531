"""Which folder a root is: so that an unmounted or replaced one is not taken for an emptied one.

An ordinary root has a marker, `.blocksync/root`, with a UUID; it, and the inode and filesystem of the folder, must be
what was recorded when the root was linked. A blockfs root is the mount of a volume with a certain UUID.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import msgspec

from syncer.core.paths import PRIVATE
from syncer.errors import RootIdentityError
from syncer.local.places import FILE_FLAGS
from syncer.local.syscalls import status

MARKER: Final = b"root"
_MARKER_LIMIT: Final = 4096  # bytes; ours has about 60


@dataclass(frozen=True, slots=True, kw_only=True)
class RootIdentity:
    """Recorded when a root is linked.

    Attributes:
        uuid: In the marker of an ordinary root; the volume's of a blockfs root.
        blockfs: Which of the two kinds it is.
        device: st_dev of the folder. Also the device number in all tags of the root. 0 for blockfs.
        filesystem: f_fsid of the folder: survives a reboot where device numbers don't. 0 for blockfs.
        ino: Inode of the folder. 0 for blockfs.
    """

    uuid: str
    blockfs: bool
    device: int = 0
    filesystem: int = 0
    ino: int = 0


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The marker file: JSON."""

    format: int
    uuid: str


def look_at_folder(root: int, uuid: str) -> RootIdentity:
    """The identity that an open folder has, given its marker's UUID."""
    found = status(b"", root)
    return RootIdentity(
        uuid=uuid, blockfs=False, device=found.device, filesystem=os.fstatvfs(root).f_fsid, ino=found.ino
    )


def read_marker(root: int) -> str | None:
    """The UUID in a folder's marker, None if there is no readable one."""
    try:
        private = os.open(PRIVATE, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=root)
    except OSError:
        return None
    try:
        descriptor = os.open(MARKER, FILE_FLAGS, dir_fd=private)
    except OSError:
        return None
    finally:
        os.close(private)
    try:
        return msgspec.json.decode(os.read(descriptor, _MARKER_LIMIT), type=Marker).uuid
    except msgspec.MsgspecError:
        return None
    finally:
        os.close(descriptor)


def write_marker(private: int, uuid: str) -> None:
    """Write the marker durably into an open private folder."""
    temporary = MARKER + b".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=private)
    try:
        os.write(descriptor, msgspec.json.encode(Marker(format=1, uuid=uuid)) + b"\n")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, MARKER, src_dir_fd=private, dst_dir_fd=private)
    os.fsync(private)


def verify_folder(root: int, path: bytes, expected: RootIdentity) -> None:
    """Check that an open folder is the one that was linked.

    Raises:
        RootIdentityError: No marker, another marker, or another folder with a copy of the marker.
    """
    what = f"the folder {os.fsdecode(path)}"
    marker = read_marker(root)
    if marker is None:
        raise RootIdentityError(what, f"root {expected.uuid}", "a folder without .blocksync/root (not mounted?)")
    if marker != expected.uuid:
        raise RootIdentityError(what, f"root {expected.uuid}", f"root {marker}")
    found = look_at_folder(root, marker)
    same_filesystem = found.device == expected.device or found.filesystem == expected.filesystem
    if found.ino != expected.ino or not same_filesystem:
        raise RootIdentityError(
            what,
            f"inode {expected.ino} on device {expected.device}",
            f"inode {found.ino} on device {found.device}: a copy or a restored backup",
        )
