"""How much room the twins of a root hold, for `status` and `doctor`: nothing is made or changed, and nothing waits."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from blockfs.runtime.fiemap import OddMapError, differing, overlap
from blockfs.runtime.reflink import extents
from syncer.core.paths import PRIVATE
from syncer.core.rows import BaseRows
from syncer.errors import LocalChangedError
from syncer.local.safe_open import DIRECTORY_FLAGS, FILE_FLAGS, open_file, tag_of
from syncer.local.syscalls import status
from syncer.local.twins.table import Inode, Twin, inode_of, load
from syncer.local.twins.twins import TWINS, places_of
from syncer.ports.state import State


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What twins cost.

    Attributes:
        files: How many there are.
        bytes: Room that they do not share with their files: what was written there since the last look. At most: a
            displaced version in the trash may share it.
    """

    files: int
    bytes: int


def held(root: int, state: State) -> Held:
    """Ask the filesystem where twins and their files lie. Pages that are not written back yet are not counted.

    Args:
        root: Descriptor of the root.
        state: The root's.
    """
    files = total = 0
    table = load(state.memory("twins"))
    if table:
        with state.rows() as rows, suppress(OSError):
            folder = os.open(PRIVATE + b"/" + TWINS, DIRECTORY_FLAGS, dir_fd=root)
            try:
                for inode, twin in table.items():
                    found = _own_bytes(root, folder, inode, twin, rows)
                    if found is not None:
                        files, total = files + 1, total + found
            finally:
                os.close(folder)
    return Held(files=files, bytes=total)


def _own_bytes(root: int, folder: int, inode: Inode, twin: Twin, rows: BaseRows) -> int | None:
    """None: it is not there."""
    try:
        descriptor = os.open(twin.name, FILE_FLAGS, dir_fd=folder)
    except OSError:
        return None
    try:
        whole = os.fstat(descriptor).st_blocks * 512
        live = _opened(root, inode, twin, rows)
        if live is None:
            return whole
        try:
            mine = list(extents(descriptor, twin.content.size_bytes, sync=False))
            its = extents(live, twin.content.size_bytes, sync=False)
            return overlap(mine, list(differing(mine, its, twin.content.size_bytes)))
        except (OSError, OddMapError):
            return whole
        finally:
            os.close(live)
    finally:
        os.close(descriptor)


def _opened(root: int, inode: Inode, twin: Twin, rows: BaseRows) -> int | None:
    """The file whose twin it is."""
    for path in places_of(inode, twin, rows):
        with suppress(OSError, LocalChangedError):
            descriptor = open_file(root, path)
            if inode_of(tag_of(status(b"", descriptor))) == inode:
                return descriptor
            os.close(descriptor)
    return None
