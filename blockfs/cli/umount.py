"""`blocksync umount`: commit, unmount, and wait until the mount process is gone."""

from __future__ import annotations

import errno
import os
import select
from contextlib import ExitStack
from typing import Final

import click

from blockfs.cli.parameters import PATH, json_option
from blockfs.control.client import ConnectionLostError, ControlClient, NotMountedError, RequestError
from blockfs.errors import BlockfsError, ChangesLostError, NotFoundError
from blockfs.exitcodes import ExitCode
from blockfs.mount.abort import end_dying
from blockfs.mount.holders import Holder, holders_of, is_elsewhere
from blockfs.mount.mountpoints import is_dead, mount_at, unmount
from blockfs.runtime.failures import said
from blockfs.runtime.linux import syncfs
from blockfs.runtime.mountinfo import Mount
from blockfs.runtime.output import JsonValue, json_line, note, shown

_LOOK_S: Final = 1.0  # how often a wait for the process's end looks whether somebody else keeps it alive
_PATIENCE_S: Final = 5.0  # for those: many a copy is of something short, a service that starts
_SAID: Final = {
    "cut off": "the mount process had been killed; cut off",
    "detached": "the mount process was gone already; detached",
    "ended": "somebody had cut the mount off; its process has ended",
}


class HeldElsewhereError(BlockfsError):
    """The mountpoint is gone, but copies of the mount keep its process alive."""

    exit_code = ExitCode.LOCKED

    def __init__(self, mountpoint: bytes, pid: int, holders: list[Holder]) -> None:
        self.holders = holders
        super().__init__(
            f"{shown(mountpoint)} is unmounted and all is durable, but the mount process {pid} goes on until others "
            f"let go. {'; '.join(holder.told for holder in holders)}"
        )


@click.command("umount")
@click.argument("mountpoint", type=PATH)
@click.option("--seal", is_flag=True, help="Turn everything written into blocks first; else the next mount does.")
@json_option
def command(mountpoint: bytes, seal: bool, as_json: bool) -> None:
    """Unmount MOUNTPOINT; everything is durable and the mount process gone when this returns.

    Exit code 11: it is in use and still mounted, or it is unmounted here and somebody has it mounted elsewhere: who
    that is and how to go on is said.
    """
    mount = mount_at(os.path.realpath(mountpoint))
    if mount is None:
        raise NotFoundError(f"{shown(mountpoint)} is not the mountpoint of a blocksync mount")
    try:
        state = _unmount(mount, seal=seal)
    except HeldElsewhereError as error:
        if as_json:
            json_line("umount", _fields(mount, "held", error.holders))
        raise
    if as_json:
        json_line("umount", _fields(mount, state))
    elif state != "unmounted":
        note(f"{shown(mountpoint)}: {_SAID[state]}")


def _fields(mount: Mount, state: str, holders: list[Holder] | None = None) -> dict[str, JsonValue]:
    held: list[JsonValue] = [
        {"pid": holder.pid, "command": holder.command, "mountpoint": shown(holder.mountpoint)}
        for holder in holders or []
    ]
    return {"mountpoint": shown(mount.mountpoint), "volume": shown(mount.source), "state": state, "holders": held}


def _unmount(mount: Mount, *, seal: bool) -> str:
    """Returns what was done: "unmounted"; of a mount that serves nobody any more, which of `_SAID` it was.

    Raises:
        BlockfsError: Busy, held elsewhere, or what the mount process says.
    """
    if end_dying(mount.source):
        return "cut off"
    with ExitStack() as opened:
        try:
            client = opened.enter_context(ControlClient(mount.source))
            process = os.pidfd_open(client.server_pid)
        except (NotMountedError, ConnectionLostError, ProcessLookupError) as error:
            if isinstance(error, ConnectionLostError) and not is_dead(mount.mountpoint):
                raise
            unmount(mount.mountpoint, lazy=True)
            return "detached"
        opened.callback(os.close, process)
        if is_dead(mount.mountpoint):
            # The connection was cut, as by `umount -f`: the process learns of it by itself, commits and ends.
            _wait(process, client.server_pid, mount)
            if mount_at(mount.mountpoint) == mount:
                unmount(mount.mountpoint, lazy=True)
            return "ended"
        if _is_copy(client, mount):
            _let_go(client, process, mount, seal=seal)
        else:
            _end(client, process, mount, seal=seal)
    return "unmounted"


def _is_copy(client: ControlClient, mount: Mount) -> bool:
    """Whether the mount process knows this mountpoint by another name, or not at all: it would unmount its own."""
    try:
        known = client.status().mountpoint
    except (ConnectionLostError, RequestError):
        return False  # `_end` says what is the matter
    return known != mount.mountpoint or is_elsewhere(client.server_pid)


def _let_go(client: ControlClient, process: int, mount: Mount, *, seal: bool) -> None:
    """Unmount a bind mount, or what this namespace has of a mount; the process ends if it was the last one."""
    try:
        syncfs(mount.mountpoint)
        client.flush()
    except RequestError as error:
        if seal or error.exit_code != ExitCode.USAGE:
            raise
        # read-only: there is nothing to be made durable
    unmount(mount.mountpoint)
    _wait(process, client.server_pid, mount)


def _end(client: ControlClient, process: int, mount: Mount, *, seal: bool) -> None:
    failed: OSError | None = None
    # The kernel's pages first: an error in writing them is told here, not lost in the unmount.
    try:
        syncfs(mount.mountpoint)
    except OSError as error:
        if error.errno != errno.EIO:
            raise  # no room, say: there may be some later
        failed = error
    try:
        client.shutdown(seal=seal)
    except ConnectionLostError:
        # A process that is gone before its reply reached us has done what was asked, or was killed over it.
        _wait(process, client.server_pid, mount)
        if mount_at(mount.mountpoint) == mount:
            unmount(mount.mountpoint, lazy=True)
            raise ChangesLostError(
                f"{shown(mount.mountpoint)}: the mount process {client.server_pid} ended before all was saved; "
                "what was fsynced is there at the next mount, later changes may be lost"
            ) from None
    except RequestError as error:
        if error.exit_code == ExitCode.CHANGES_LOST:  # it has unmounted nevertheless
            _wait(process, client.server_pid, mount)
        raise
    _wait(process, client.server_pid, mount)
    if failed is not None:
        raise ChangesLostError(
            f"the mount has ended; something that was written to it could not be saved: {said(failed)}"
        )


def _wait(process: int, pid: int, mount: Mount) -> None:
    """Wait for the end of the mount process, which commits first.

    Raises:
        HeldElsewhereError: Somebody keeps it alive.
    """
    waited_s = 0.0
    while not select.select([process], [], [], _LOOK_S)[0]:
        holders = holders_of(mount)
        waited_s = waited_s + _LOOK_S if holders else 0.0
        if waited_s >= _PATIENCE_S:
            raise HeldElsewhereError(mount.mountpoint, pid, holders)
        if holders and waited_s == _LOOK_S:
            note(f"{shown(mount.mountpoint)}: waiting for who has it mounted elsewhere: {holders[0].told}")
