"""Work on a volume that is not mounted: it is locked meanwhile, and nothing staged is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.environment import structural_damage
from blockfs.blocks.layout import REPAIR_ADVICE
from blockfs.control.snapshots import SnapshotMsg
from blockfs.engine.ballast import Ballast
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.snapshots import snapshots_of
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.errors import CorruptionError
from blockfs.fuse.snapshots import errors_of_create, errors_of_lookup, snapshots_reply
from blockfs.tree.schema import ROOT_INO
from blockfs.tree.store import Tree

TREE_ADVICE: Final = (
    "its pages can't be repaired: restore VOLUME/tree from a backup, or get your files from where this volume was "
    "synced to; the blocks are intact, see docs/guide/recovery.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineVolume:
    """The stores of a locked volume. The tree is for reading only: no mount was begun on it."""

    blocks: BlockDirectory
    tree: Tree
    ballast: Ballast


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
        refuse_damaged_pages(os.fsdecode(volume.tree_path), TREE_ADVICE)
        refuse_damaged_pages(os.path.join(volume.blocks_path, "index"), REPAIR_ADVICE)
        tree = Tree.open(volume.tree_path)
        try:
            with BlockDirectory.open(volume.blocks_path) as blocks:
                yield OfflineVolume(blocks=blocks, tree=tree, ballast=Ballast(volume.path))
        finally:
            tree.close()
    finally:
        lock.release()


def create_snapshot(path: bytes, name: bytes) -> SnapshotMsg:
    """Take a snapshot of all files of a volume that is not mounted.

    Raises:
        UsageError: The name is taken, or can't be one.
        BlockfsError: As `Filesystem.open` and `Snapshots.create`.
    """
    with _engine(path) as filesystem, errors_of_create(b"/", name):
        (made,) = snapshots_reply([filesystem.snapshots.create(ROOT_INO, name)]).snapshots
    return made


def list_snapshots(path: bytes) -> list[SnapshotMsg]:
    """The snapshots of a volume that is not mounted.

    Raises:
        BlockfsError: As `opened`.
    """
    with opened(path) as volume, volume.tree.committed() as view:
        return snapshots_reply(snapshots_of(view)).snapshots


def delete_snapshot(path: bytes, name: bytes) -> None:
    """Delete a snapshot of a volume that is not mounted.

    Raises:
        NotFoundError: There is none of that name.
        BlockfsError: As `Filesystem.open` and `Snapshots.remove`.
    """
    with _engine(path) as filesystem:
        with errors_of_lookup(name):
            ino = filesystem.snapshots.take_away(name)
        filesystem.snapshots.remove(ino)


@contextmanager
def _engine(path: bytes) -> Iterator[Filesystem]:
    """A volume that this process works on as a mount would, without a mountpoint and without threads."""
    filesystem = Filesystem.open(path, EngineConfig(background=False))
    try:
        yield filesystem
    finally:
        filesystem.close()


def refuse_damaged_pages(path: str, advice: str) -> None:
    """Walk all pages of an LMDB file: LMDB trusts it, and a page that points outside would end this process.

    Args:
        path: The environment's folder.
        advice: What to do about damage.

    Raises:
        CorruptionError: The file is damaged, cut off or gone.
    """
    damage = structural_damage(path) if os.path.exists(os.path.join(path, "data.mdb")) else ["it is gone"]
    if damage:
        raise CorruptionError(f"{path}/data.mdb is damaged ({damage[0]}): {advice}")
