"""Repair of the tree: what fsck worked out, written as one transaction. A crash leaves the old state or the new one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from blockfs.blocks.environment import close_environment, lmdb_errors
from blockfs.errors import FormatTooNewError
from blockfs.tree.check import Examination, examine
from blockfs.tree.committed import CommittedView, Snapshot
from blockfs.tree.draft import World
from blockfs.tree.environment import ADVICE, open_tables, open_tree_environment
from blockfs.tree.schema import FORMAT, META_FORMAT, Table, decode_format


@contextmanager
def examined(path: bytes, world: World, *, write: bool) -> Iterator[Examination]:
    """Examine the tree at `path`, which nobody else may have open; with `write`, repair it before the block begins.

    A tree whose rows about itself are damaged can't be opened by `Tree.open`, and is by this.

    Raises:
        NotFoundError: No such directory.
        CorruptionError: It is no readable LMDB database, or lacks a table.
        FormatTooNewError: Made by a newer blocksync.
        NoSpaceError: The host is full; nothing was changed.
    """
    environment = open_tree_environment(path)
    try:
        databases = open_tables(environment, path)
        view = CommittedView(Snapshot(environment.begin(), databases))
        try:
            _refuse_newer(view, path)
            result = examine(view, world)
            if write:
                with lmdb_errors(os.fsdecode(path), ADVICE), environment.begin(write=True) as transaction:
                    for table in Table:
                        for key, row in result.draft.rows.changes[table].items():
                            if row is None:
                                transaction.delete(key, db=databases[table])
                            else:
                                transaction.put(key, row, db=databases[table])
            yield result
        finally:
            view.close()
    finally:
        close_environment(environment)


def _refuse_newer(view: CommittedView, path: bytes) -> None:
    row = view.rows.get(Table.META, META_FORMAT)
    if row is not None and len(row) == 4 and decode_format(row) > FORMAT:
        raise FormatTooNewError(os.fsdecode(path), decode_format(row), FORMAT)
