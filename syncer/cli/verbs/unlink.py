"""`blocksync unlink`: forget a root; its files stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import click

from blockfs.runtime.output import json_line, note, shown
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import open_state
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError
from syncer.local.folder.identity import MARKER, read_marker
from syncer.local.folder.private import PrivateFolder
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.twins.twins import remove_twins
from syncer.watch import control


@click.command("unlink")
@click.argument("root", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(root: bytes, as_json: bool) -> None:
    """Forget what ROOT is linked to. Drops its state, never a file: neither its own nor the server's.

    What lies in ROOT/.blocksync/trash stays there.
    """
    registry = Registry(os.environ)
    linked = registry.get(root)
    with _alone_on(linked):
        _remove_marker(linked)
        registry.remove(linked)
    control.reload(registry.socket)
    if as_json:
        json_line("unlink", {"root": shown(linked.path), "uuid": linked.record.uuid, "url": linked.record.url})
    else:
        note(f"unlinked {shown(linked.path)} from {linked.record.url}")


@contextmanager
def _alone_on(linked: LinkedRoot) -> Iterator[None]:
    """Make sure that no cycle runs or begins; one of the daemon is waited for.

    Raises:
        LockedError: Another command works on it.
    """
    try:
        database: AbstractContextManager[object] = open_state(linked)
    except (NotFoundError, CorruptionError, FormatTooNewError):
        database = nullcontext()  # there is nothing that could run on it
    with database:
        yield


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
            remove_twins(private.top)
            os.unlink(MARKER, dir_fd=private.top)
            private.close()
    finally:
        os.close(descriptor)
