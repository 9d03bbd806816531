"""Work on a volume that is not mounted: it is locked meanwhile, and nothing staged is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from blockfs.blocks.directory import BlockDirectory
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.tree.store import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineVolume:
    """The stores of a locked volume. The tree is for reading only: no mount was begun on it."""

    blocks: BlockDirectory
    tree: Tree


@contextmanager
def opened(path: bytes) -> Iterator[OfflineVolume]:
    """Lock and open a volume.

    Raises:
        NotFoundError: No volume there.
        LockedError: Mounted, or another command works on it.
        FormatTooNewError: Made by a newer blocksync.
        CorruptionError: The tree or the block index can't be read.
    """
    volume = Volume.load(path)
    lock = VolumeLock.acquire(volume.path)
    try:
        tree = Tree.open(volume.tree_path)
        try:
            with BlockDirectory.open(volume.blocks_path) as blocks:
                yield OfflineVolume(blocks=blocks, tree=tree)
        finally:
            tree.close()
    finally:
        lock.release()
