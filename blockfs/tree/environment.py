"""The LMDB environment of the tree: where it is, how large, and its sub-databases."""

from __future__ import annotations

import os
from typing import Final

import lmdb

from blockfs.blocks.environment import lmdb_errors, open_databases, open_environment
from blockfs.errors import CorruptionError
from blockfs.runtime.atomic import space_errors, sync_directory
from blockfs.tree.schema import Table

MAP_SIZE_BYTES: Final = 1 << 40  # 1 TiB of address space; costs nothing until used
ADVICE: Final = "run `blocksync fsck` on the unmounted volume"


def make_directory(path: bytes) -> None:
    """Make the empty directory for a tree, durably.

    Raises:
        FileExistsError: There is something at `path` already.
        NoSpaceError: The host is full.
    """
    with space_errors(os.fsdecode(path)):
        os.mkdir(path, 0o700)
    sync_directory(os.path.dirname(os.path.abspath(path)))


def open_tree_environment(path: bytes) -> lmdb.Environment:
    """Open the LMDB environment in the directory `path`, or share it within this process.

    Raises:
        NotFoundError: No such directory.
        CorruptionError: The file is no LMDB database, or is cut off.
    """
    return open_environment(os.fsdecode(path), map_size_bytes=MAP_SIZE_BYTES, databases=len(Table), advice=ADVICE)


def create_tables(environment: lmdb.Environment, transaction: lmdb.Transaction[bytes]) -> list[lmdb._Database]:
    """Make all sub-databases in one transaction; returns handles indexed by `Table`."""
    return [environment.open_db(table.name.lower().encode(), txn=transaction) for table in Table]


def open_tables(environment: lmdb.Environment, path: bytes) -> list[lmdb._Database]:
    """Handles of all sub-databases, indexed by `Table`.

    Raises:
        CorruptionError: One is missing.
    """
    with lmdb_errors(os.fsdecode(path), ADVICE):
        try:
            return open_databases(environment, (table.name.lower().encode() for table in Table))
        except lmdb.NotFoundError as error:
            raise CorruptionError(f"the tree lacks a sub-database ({error}); this is no blocksync tree") from error
