"""`blocksync umount`: commit, unmount, and wait until the mount process is gone."""

from __future__ import annotations

import contextlib
import os
import select

import click

from blockfs.cli.parameters import PATH
from blockfs.control.client import ConnectionLostError, ControlClient, NotMountedError, RequestError
from blockfs.errors import NotFoundError
from blockfs.fuse.dying import end_dying
from blockfs.fuse.mountpoints import mount_at, unmount
from blockfs.runtime.exitcodes import ExitCode
from blockfs.runtime.linux import syncfs
from blockfs.runtime.mountinfo import Mount
from blockfs.runtime.output import note, shown


@click.command("umount")
@click.argument("mountpoint", type=PATH)
@click.option("--seal", is_flag=True, help="Turn everything written into blocks first; else the next mount does.")
def command(mountpoint: bytes, seal: bool) -> None:
    """Unmount MOUNTPOINT; everything is durable and the mount process gone when this returns."""
    mount = mount_at(os.path.realpath(mountpoint))
    if mount is None:
        raise NotFoundError(f"{shown(mountpoint)} is not the mountpoint of a blocksync mount")
    if end_dying(mount.source):
        note(f"{shown(mountpoint)}: the mount process had been killed; cut off")
        return
    try:
        client = ControlClient(mount.source)
    except NotMountedError:
        unmount(mount.mountpoint, lazy=True)
        note(f"{shown(mountpoint)}: the mount process was gone already; detached")
        return
    with client:
        _end(client, mount, seal=seal)


def _end(client: ControlClient, mount: Mount, *, seal: bool) -> None:
    process = os.pidfd_open(client.server_pid)
    try:
        # The kernel's pages first: an error in writing them is told here, not lost in the unmount.
        syncfs(mount.mountpoint)
        try:
            # A process that is gone before its reply reached us has done what was asked.
            with contextlib.suppress(ConnectionLostError):
                client.shutdown(seal=seal)
        except RequestError as error:
            if error.exit_code == ExitCode.CHANGES_LOST:  # it has unmounted nevertheless
                select.select([process], [], [])
            raise
        select.select([process], [], [])
    finally:
        os.close(process)
