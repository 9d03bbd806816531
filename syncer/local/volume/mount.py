"""Which volume is mounted at a place."""

from __future__ import annotations

import os

from blockfs.control import protocol
from blockfs.control.client import ControlClient, NotMountedError
from blockfs.runtime.mountinfo import Mount, blocksync_mount_of
from syncer.errors import RootIdentityError


def find_mount(path: bytes) -> Mount | None:
    """The blocksync mount whose mount point is exactly `path`; None for anything else, also folders inside a mount."""
    mount = blocksync_mount_of(path)
    if mount is None or mount.mountpoint != os.path.realpath(path) or mount.root != b"/":
        return None
    return mount


def verified(control: ControlClient, what: str, volume_uuid: str) -> protocol.StatusReply:
    """Make sure that the mount serves the volume that was linked.

    Raises:
        RootIdentityError: It is another volume.
    """
    status = control.status()
    if status.uuid != volume_uuid:
        raise RootIdentityError(what, f"volume {volume_uuid}", f"volume {status.uuid}")
    return status


def check_history(what: str, last: protocol.CursorMsg, now: protocol.CursorMsg) -> None:
    """Make sure that the volume is not a copy from before its last observation, which a backup is.

    What it does not have any more would look deleted, and its numbers come again with another meaning.

    Args:
        what: The mount point, for the message.
        last: Where the journal was.
        now: Where it is.

    Raises:
        RootIdentityError: The journal has gone back, or it is another copy's.
    """
    if now.line != last.line:
        raise RootIdentityError(what, "the volume itself", "a copy of it (put back from a backup, or moved?)")
    before, after = ((cursor.mount_generation, cursor.sequence) for cursor in (last, now))
    if after < before:
        raise RootIdentityError(what, f"its change {before[1]} or later", f"change {after[1]}: an older backup?")


def check_mount(path: bytes, volume_uuid: str) -> None:
    """Make sure that a volume is mounted at `path` and is the one with this UUID; nothing is made there.

    Raises:
        RootIdentityError: Not mounted, or another volume.
    """
    what = f"the mount point {os.fsdecode(path)}"
    mount = find_mount(path)
    if mount is None:
        raise RootIdentityError(what, f"volume {volume_uuid}", "no mounted volume")
    try:
        with ControlClient(mount.source) as control:
            verified(control, what, volume_uuid)
    except NotMountedError as error:
        raise RootIdentityError(what, f"volume {volume_uuid}", str(error)) from error
