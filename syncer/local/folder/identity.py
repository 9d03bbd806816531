"""Which folder a root is: so that an unmounted or replaced one is not taken for an emptied one.

An ordinary root has a marker, `.blocksync/root`, with a UUID; it, and the inode and filesystem of the folder, must be
what was recorded when the root was linked. A blockfs root is the mount of a volume with a certain UUID.
"""

from __future__ import annotations

import os
from typing import Final

import msgspec

from syncer.core.paths import PRIVATE
from syncer.core.planner.safety import RootIdentity, check_root
from syncer.errors import RootIdentityError
from syncer.local.safe_open import DIRECTORY_FLAGS, FILE_FLAGS
from syncer.local.syscalls import status
from syncer.protocol.jsontext import MALFORMED

MARKER: Final = b"root"
_MARKER_LIMIT: Final = 4096  # bytes; ours has about 60


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """What an ordinary root is recognised by, recorded when it is linked.

    Attributes:
        uuid: In its marker.
        ino: Inode of the folder.
        device: Its st_dev. It says little: a new disk in the slot of the old one may have its number.
        filesystem: Its f_fsid, which ext4 and btrfs have of their UUID; XFS and vfat of the device number, and
            FUSE has none (0).
    """

    uuid: str
    ino: int
    device: int
    filesystem: int


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """The marker file: JSON."""

    format: int
    uuid: str


def look_at_folder(root: int, uuid: str) -> Folder:
    """What an open folder is recognised by, given its marker's UUID."""
    found = status(b"", root)
    return Folder(uuid=uuid, ino=found.ino, device=found.device, filesystem=os.fstatvfs(root).f_fsid)


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
    except (*MALFORMED, OSError):  # a folder can be opened, and not read
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


def open_folder(path: bytes, linked: Folder) -> int:
    """Open a root's folder, if it is the one that was linked.

    Args:
        path: Absolute path.
        linked: As recorded by `link`.

    Returns:
        A descriptor, the caller's to close.

    Raises:
        RootIdentityError: It is another folder, or not mounted.
    """
    try:
        root = os.open(path, DIRECTORY_FLAGS)
    except OSError as error:
        what = f"the folder {os.fsdecode(path)}"
        raise RootIdentityError(what, f"root {linked.uuid}", f"{error.strerror} (not mounted?)") from error
    try:
        verify_folder(root, path, linked)
    except BaseException:
        os.close(root)
        raise
    return root


def verify_folder(root: int, path: bytes, linked: Folder) -> None:
    """Check that an open folder is the one that was linked.

    Raises:
        RootIdentityError: No marker, another marker, or another folder with a copy of the marker.
    """
    found = look_at_folder(root, read_marker(root) or "")
    what = f"the folder {os.fsdecode(path)}"
    try:
        check_root(
            RootIdentity(marker=linked.uuid, ino=linked.ino, volume=False),
            RootIdentity(marker=found.uuid, ino=found.ino, volume=False),
        )
    except RootIdentityError as error:
        raise RootIdentityError(what, error.expected, error.found) from None
    is_same = found.filesystem == linked.filesystem
    if 0 in (found.filesystem, linked.filesystem) and not is_same:  # kernels learn to tell it
        is_same = found.device == linked.device
    if not is_same:
        # The root of a filesystem always has the same inode number, so a backup restored to a new disk gets this far.
        raise RootIdentityError(
            what,
            f"filesystem {linked.filesystem:x} on device {linked.device}",
            f"filesystem {found.filesystem:x} on device {found.device}",
        )
