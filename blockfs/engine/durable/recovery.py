"""Finding staged data again at mount, after a clean or an unclean end.

The tree names the generations that count. What their files hold is what SEEK_DATA says, cut at the smaller of the
recorded `valid_below` and the published size: bytes beyond were never published, or were cut away. Files that the tree
does not name are superfluous: their data are sealed, or void, or were never flushed.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.context import Stores
from blockfs.engine.durable.failing import recall
from blockfs.engine.hot.folder import HotFolder
from blockfs.engine.hot.recovery import recover_hot
from blockfs.errors import CorruptionError
from blockfs.tree.schema import Generation, Kind
from blockfs.tree.store import Tree


def recover(stores: Stores, table: FileTable, folder: HotFolder, *, was_clean: bool) -> None:
    """Bring back staged data and remove what a crash has left. Commits.

    Args:
        stores: With a mount begun. If it is read-only, all this happens in memory alone.
        table: Empty.
        folder: Of the hot files.
        was_clean: The last mount ended cleanly; otherwise every file with staged data is journalled as changed.

    Raises:
        CorruptionError: A generation or a hot file that the tree names is gone.
        NoSpaceError: The host is full.
    """
    tree = stores.tree
    remove_orphans(tree)
    named = list(tree.all_generations())
    for generation in named:
        _check_owner(stores, generation)
    recall(stores, table)
    staged = []
    for ino, rows in groupby(named, lambda generation: generation.ino):
        staged.append(ino)
        _recover_file(stores, table.get(ino), list(rows), table, was_clean=was_clean)
        if not was_clean:
            _distrust(stores, table, table.get(ino))
    superfluous = recover_hot(stores, table, folder, was_clean=was_clean)
    tree.commit()
    # Only after that commit: an orphan's generations were still named before it.
    known = {(one.ino, one.range_index, one.generation) for one in tree.all_generations()}
    if not stores.config.read_only:
        for key in stores.staging.names():
            if key not in known:
                stores.staging.unlink(key)
        for hot in superfluous:
            folder.unlink(hot)
    for ino in staged:
        table.settle(table.get(ino))


def remove_orphans(tree: Tree) -> None:
    """Remove the inodes that lost their last name while they were in use. Nobody uses one yet."""
    for ino in list(tree.orphans()):
        if tree.inode(ino) is not None:
            tree.remove_inode(ino)
        tree.remove_orphan(ino)


def _check_owner(stores: Stores, generation: Generation) -> None:
    inode = stores.tree.inode(generation.ino)
    if inode is None or inode.kind is not Kind.FILE:
        raise CorruptionError(f"tree: staged data of inode {generation.ino}, which is no file; run `blocksync fsck`")


def _recover_file(
    stores: Stores, state: FileState, rows: list[Generation], table: FileTable, *, was_clean: bool
) -> None:
    """Rebuild one file's generations, oldest first, all closed."""
    by_number = attrgetter("generation")
    for number, ranges in groupby(sorted(rows, key=by_number), by_number):
        generation = table.add_generation(state, number)
        for row in ranges:
            generation.valid_below = min(generation.valid_below, row.valid_below)
            file = stores.staging.existing((row.ino, row.range_index, row.generation))
            generation.files[row.range_index] = file
            generation.named.add(row.range_index)
        generation.find(stores.staging, is_synced=was_clean)
        if state.failures is not None:  # noted, and not punched any more
            generation.lose(state.failures.pages)
    # Durably: the file may grow again before they are sealed, and must not show then what was never published.
    table.cut_generations(state, state.size_bytes)


def _distrust(stores: Stores, table: FileTable, state: FileState) -> None:
    """After an unclean end: pages may have changed after the version was given out, and need not be on disk yet.

    A killed mount leaves its writes in the host's page cache. They are found and shown, so the next fsync must flush
    them, as if they had just been written.
    """
    stores.tree.put_inode(table.row(state.ino), content_changed=True)
    state.stamp += 1
