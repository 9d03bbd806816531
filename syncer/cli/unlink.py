"""`blocksync unlink`: forget a root; its files stay."""

from __future__ import annotations

import os

import click

from blockfs.runtime.output import note, shown
from syncer.cli.roots import PATH, LinkedRoot, Registry
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError
from syncer.local.identity import MARKER, read_marker
from syncer.local.places import DIRECTORY_FLAGS
from syncer.local.private import PrivateFolder
from syncer.state.statedb import StateDB
from syncer.watch import control


@click.command("unlink")
@click.argument("root", type=PATH)
def command(root: bytes) -> None:
    """Forget what ROOT is linked to. Drops its state, never a file: neither its own nor the server's.

    What lies in ROOT/.blocksync/trash stays there.
    """
    registry = Registry(os.environ)
    linked = registry.get(root)
    _wait_for_nobody(linked)
    _remove_marker(linked)
    registry.remove(linked)
    control.reload(registry.socket)
    note(f"unlinked {shown(linked.path)} from {linked.record.url}")


def _wait_for_nobody(linked: LinkedRoot) -> None:
    """Make sure that no cycle is running.

    Raises:
        LockedError: One is.
    """
    try:
        StateDB.open(linked.state).close()
    except (NotFoundError, CorruptionError, FormatTooNewError):
        return  # there is nothing that could run on it


def _remove_marker(linked: LinkedRoot) -> None:
    """Take the marker away, if the folder is there and the marker is ours."""
    if linked.record.folder is None:
        return
    try:
        descriptor = os.open(linked.path, DIRECTORY_FLAGS)
    except OSError:
        return
    try:
        if read_marker(descriptor) == linked.record.uuid:
            private = PrivateFolder(descriptor)
            os.unlink(MARKER, dir_fd=private.top)
            private.close()
    finally:
        os.close(descriptor)
