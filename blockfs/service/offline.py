"""Work on a volume that is not mounted: it is locked meanwhile, and nothing staged is touched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.maintenance.scrub import Step
from blockfs.control.protocol import GcReply, ScrubReply
from blockfs.control.snapshots import SnapshotMsg
from blockfs.engine.config import EngineConfig
from blockfs.engine.copies.snapshots import snapshots_of
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.space.ballast import Ballast
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.service import maintenance
from blockfs.service.child import in_child
from blockfs.service.pages import refuse_damaged_index, refuse_damaged_tree
from blockfs.service.snapshots import errors_of_create, errors_of_lookup, snapshots_reply
from blockfs.tree.schema import ROOT_INO
from blockfs.tree.store import Tree


@contextmanager
def _opened(path: bytes, *, walk_index: bool = False) -> Iterator[tuple[BlockDirectory, Tree, Ballast]]:
    """Lock and open a volume whose tree has sound pages. The tree is for reading only: no mount is begun on it.

    Raises:
        NotFoundError: No volume there.
        LockedError: Mounted, or another command works on it.
        FormatTooNewError: Made by a newer blocksync.
        CorruptionError: The tree or the block index can't be read.
    """
    volume = Volume.load(path)
    lock = VolumeLock.acquire(volume.path)
    try:
        refuse_damaged_tree(volume)
        if walk_index:
            refuse_damaged_index(volume)
        tree = Tree.open(volume.tree_path)
        try:
            with BlockDirectory.open(volume.blocks_path) as blocks:
                yield blocks, tree, Ballast(volume.path)
        finally:
            tree.close()
    finally:
        lock.release()


def gc(path: bytes) -> GcReply:
    """Remove blocks that nothing refers to. The pages of the index are not walked before, only if they kill.

    Raises:
        BlockfsError: As `_opened` and `maintenance.gc`.
    """

    def collect() -> GcReply:
        with _opened(path) as (blocks, tree, ballast):
            return maintenance.gc(blocks, tree, ballast)

    return in_child(path, collect, GcReply)


def scrub(path: bytes, *, step: Step) -> ScrubReply:
    """Read and hash every stored block, after all pages of the index.

    `step`: told how many blocks are checked, and of how many.

    Raises:
        BlockfsError: As `_opened`.
    """
    with _opened(path, walk_index=True) as (blocks, tree, _):
        return maintenance.scrub(blocks, tree, step=step)


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
        BlockfsError: As `_opened`.
    """
    with _opened(path) as (_, tree, _), tree.committed() as view:
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
        if filesystem.fatal.has_struck:
            filesystem.abandon()  # by Ctrl-C in the middle of a change, say: that is on its way to who asked
        else:
            filesystem.close()
