"""Repair of the tree: what fsck worked out, written as one transaction. A crash leaves the old state or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import lmdb

from blockfs.blocks.environment import close_environment, lmdb_errors
from blockfs.tree.committed import CommittedView, Snapshot
from blockfs.tree.environment import ADVICE, open_tables, open_tree_environment
from blockfs.tree.fsck.check import examine
from blockfs.tree.fsck.draft import World
from blockfs.tree.schema import Table
from blockfs.tree.upgrade import upgrade


class TreeRepair:
    """A tree that nobody else has open, what is wrong with it, and the repaired state, which `write` makes durable."""

    def __init__(self, path: bytes, environment: lmdb.Environment, world: World) -> None:
        """Use `opened`."""
        self._path = path
        self._environment = environment
        self._databases = open_tables(environment, path)
        self._view = CommittedView(Snapshot(environment.begin(), self._databases, path))
        try:
            self.examination = examine(self._view, world)
        except BaseException:
            self._view.close()
            raise

    @classmethod
    @contextmanager
    def opened(cls, path: bytes, world: World) -> Iterator[TreeRepair]:
        """Examine the tree at `path`. One whose rows about itself are damaged can't be opened by `Tree.open`.

        Raises:
            NotFoundError: No such directory.
            CorruptionError: It is no readable LMDB database, or lacks a table.
            FormatTooNewError: Made by a newer blocksync.
        """
        bring_up_to_date(path)
        environment = open_tree_environment(path)
        try:
            work = cls(path, environment, world)
            try:
                yield work
            finally:
                work._view.close()
        finally:
            close_environment(environment)

    def write(self) -> None:
        """Make the repaired state durable, all of it at once.

        Raises:
            NoSpaceError: The host is full; nothing was changed.
        """
        changes = self.examination.draft.rows.changes
        with lmdb_errors(os.fsdecode(self._path), ADVICE), self._environment.begin(write=True) as transaction:
            for table in Table:
                for key, row in changes[table].items():
                    if row is None:
                        transaction.delete(key, db=self._databases[table])
                    else:
                        transaction.put(key, row, db=self._databases[table])


def bring_up_to_date(path: bytes) -> None:
    """Upgrade a tree of an earlier format, as every command does that opens one, and refuse one of a later format.

    Raises:
        NotFoundError: No such directory.
        CorruptionError: It is no readable LMDB database, or lacks a table.
        FormatTooNewError: Made by a newer blocksync.
    """
    environment = open_tree_environment(path)
    try:
        upgrade(environment, path, repairing=True)
    finally:
        close_environment(environment)
