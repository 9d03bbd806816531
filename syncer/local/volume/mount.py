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
