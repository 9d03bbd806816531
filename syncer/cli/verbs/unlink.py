"""`blocksync unlink`: forget a root; its files stay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import click

from blockfs.runtime.output import json_line, note, shown
from syncer.cli.paths import PATH
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import open_state, open_trash
from syncer.core.model import RelPath
from syncer.core.paths import PARK_FOLDER
from syncer.engine.root_state import RootState
from syncer.errors import CorruptionError, FormatTooNewError, NotFoundError, RootIdentityError
from syncer.local.folder.identity import MARKER, Folder, read_marker, verify_folder
from syncer.local.folder.private import PrivateFolder
from syncer.local.safe_open import DIRECTORY_FLAGS
from syncer.local.twins.twins import remove_twins
from syncer.state.statedb import StateDB
from syncer.watch import control


@click.command("unlink")
@click.argument("root", type=PATH)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(root: bytes, as_json: bool) -> None:
    """Forget what ROOT is linked to. Drops its state, never a file: neither its own nor the server's.

    What lies in ROOT/.blocksync/trash stays there. So does what a cycle that was cut short left in
    ROOT/.blocksync/park, which is told; a `blocksync reconcile` before puts it in its place.
    """
    registry = Registry(os.environ)
    linked = registry.get(root)
    with _alone_on(linked) as database:
        _tell_of_parked(linked)
        _remove_marker(linked, database)
        registry.remove(linked)
    control.reload(registry.socket)
    if as_json:
        json_line("unlink", {"root": shown(linked.path), "uuid": linked.record.uuid, "url": linked.record.url})
    else:
        note(f"unlinked {shown(linked.path)} from {linked.record.url}")


@contextmanager
def _alone_on(linked: LinkedRoot) -> Iterator[StateDB | None]:
    """Make sure that no cycle runs or begins; one of the daemon is waited for. Gives the root's state, if it has one.

    Raises:
        LockedError: Another command works on it.
    """
    try:
        database: AbstractContextManager[StateDB | None] = open_state(linked)
    except (NotFoundError, CorruptionError, FormatTooNewError):
        database = nullcontext()  # there is nothing that could run on it
    with database as state:
        yield state


def _tell_of_parked(linked: LinkedRoot) -> None:
    """Nobody would look into the private folder for what a cycle was just moving."""
    park = os.path.join(linked.path, PARK_FOLDER)
    try:
        names = sorted(os.listdir(park))
    except OSError:
        return
    for name in names:
        place = shown(os.path.join(park, name))
        note(f"{place} was left there by a cycle that was cut short: move it to where it belongs")


def _remove_marker(linked: LinkedRoot, database: StateDB | None) -> None:
    """Take the marker away, if the folder is there and the marker is ours; what is no trash gets out of the trash."""
    if linked.record.folder is None:
        return
    try:
        descriptor = os.open(linked.path, DIRECTORY_FLAGS)
    except OSError:
        return
    try:
        if read_marker(descriptor) == linked.record.uuid:
            if database is not None:
                for back in _review(linked, descriptor, linked.record.folder, database):
                    note(f"{shown(back)}: a version that nobody had seen is out of the trash again")
            private = PrivateFolder(descriptor)
            remove_twins(private.top)
            os.unlink(MARKER, dir_fd=private.top)
            private.close()
    finally:
        os.close(descriptor)


def _review(linked: LinkedRoot, descriptor: int, folder: Folder, database: StateDB) -> list[RelPath]:
    """Look through the trash for the last time; returns where items went that were none."""
    record = linked.record
    with open_trash(linked.path, record.block_size, record.keep_trash_s, RootState(database)) as trash:
        try:
            verify_folder(descriptor, linked.path, folder)
        except RootIdentityError:
            return trash.adopt()
        return trash.review(expire=False)
