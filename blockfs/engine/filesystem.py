"""One mounted volume, without a front-end: the facade that FUSE, the control socket and offline tools are wired to.

It owns the parts and their order of birth and death. It has no rules of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.engine.background import Background
from blockfs.engine.config import EngineConfig
from blockfs.engine.content.files import Files
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.hostfile import probe
from blockfs.engine.content.reader import ContentReader
from blockfs.engine.content.staging import StagingDirectory
from blockfs.engine.content.writer import ContentWriter
from blockfs.engine.context import Stores
from blockfs.engine.copies.apply import Apply
from blockfs.engine.copies.clone import Cloner
from blockfs.engine.copies.freeze import Freeze
from blockfs.engine.copies.new_files import NewFiles
from blockfs.engine.copies.ranges import RangeCopier
from blockfs.engine.copies.snapshots import Snapshots
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.recovery import recover
from blockfs.engine.durable.seal_queue import SealQueue
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.fatal import EngineLock, Fatal
from blockfs.engine.hot.flush import HotFlusher
from blockfs.engine.hot.folder import HotFolder
from blockfs.engine.hot.hotfiles import HotFiles, why_not_native
from blockfs.engine.hot.recovery import LeftFiles
from blockfs.engine.hot.seal import HotSealer
from blockfs.engine.hot.together import Together
from blockfs.engine.names.namespace import Namespace
from blockfs.engine.portions import Stop, never
from blockfs.engine.space.ballast import Ballast
from blockfs.engine.space.room import Room
from blockfs.engine.volume import Volume, VolumeLock
from blockfs.errors import BlockfsError, NoSpaceError
from blockfs.runtime.logs import Log
from blockfs.tree.schema import SNAPSHOTS_NAME
from blockfs.tree.store import Tree

log = Log()

R = TypeVar("R")


class Filesystem:
    """A volume that this process has mounted.

    Attributes:
        volume: What it is.
        read_only: Nothing of it may be changed, nor sealed or collected.
        tree: For committed views; changes go through the parts below.
        blocks: The block directory.
        clock: For times of change; a front-end tells it what the kernel has stamped.
        lock: The engine's: hold it to make several calls one step. Never while waiting for a disk.
        namespace: Names and attributes.
        files: Contents.
        apply: Conditional changes, for the syncer.
        new_files: Many new files at once, for the syncer.
        snapshots: Read-only copies of subtrees.
        hot: Files that the kernel reads and writes itself.
        ballast: Space for what a full host must not prevent.
        fatal: Owns the errors that nobody expected, in any thread.
    """

    def __init__(self, volume: Volume, lock: VolumeLock, stores: Stores, ballast: Ballast, *, was_clean: bool) -> None:
        """Use `open`."""
        self.volume = volume
        self.read_only = stores.config.read_only
        self.tree = stores.tree
        self.blocks = stores.blocks
        self.lock = stores.lock
        self.ballast = ballast
        self.fatal = stores.fatal
        self._volume_lock = lock
        self._stores = stores
        self.clock = stores.clock
        self.priority = stores.priority
        self._table = FileTable(stores)
        config = stores.config
        folder = HotFolder(volume.hot_path, config.checkpoint, read_only=config.read_only)
        self._table.on_cold = folder.doom
        recover(stores, self._table, folder, was_clean=was_clean)
        self._committer = Committer(stores, ballast)
        self._committer.sweep_hot = folder.sweep
        self._flusher = Flusher(stores, self._table, self._committer)
        reader = ContentReader(stores, self._table)
        self._sealer = Sealer(stores, self._table, reader, self._committer)
        hot_flusher = HotFlusher(stores, folder)
        hot_sealer = HotSealer(stores, folder)
        self._flusher.hot, self._sealer.hot = hot_flusher, hot_sealer
        self.hot = HotFiles(
            stores,
            self._table,
            folder,
            self._sealer,
            hot_flusher,
            self._committer,
            why_not=why_not_native(stores, folder) if config.native else "it was not asked for",
        )
        self._left_files = LeftFiles(stores, self._table, folder, self._committer.commit)
        self._seal_queue = SealQueue(stores, self._table, self._sealer)
        room = Room(volume.staging_path, ballast, reserve_bytes=stores.config.reserve_bytes)
        writer = ContentWriter(stores, self._table, reader, self._committer, self._seal_queue, room)
        self.files = Files(stores, self._table, reader, writer, self._committer, self._flusher, self._sealer)
        self.namespace = Namespace(
            stores.tree,
            self.files,
            lock=stores.lock,
            now_ns=stores.clock.now_ns,
            block_size=stores.block_size,
            room=room,
        )
        self.apply = Apply(stores, self._table, self.namespace)
        self.new_files = NewFiles(stores, self.namespace)
        self._cloner = Cloner(stores, self._table, self._sealer, self.namespace)
        self._range_copier = RangeCopier(stores, self._table, self._sealer, self.files, self.namespace.new_names)
        together = Together(stores, hot_sealer)
        freeze = Freeze(stores, self._table, self._sealer, together, self._committer, self.namespace.inodes)
        self.snapshots = Snapshots(stores, self._committer, freeze, self.namespace)
        self._background = Background(
            stores, self._committer, self._flusher, self._seal_queue, self.snapshots, ballast, self._tidy
        )
        self._is_open = True

    @classmethod
    def open(cls, path: bytes, config: EngineConfig | None = None) -> Filesystem:
        """Mount the volume at `path`: lock it, recover what is staged, start the threads.

        A read-only mount of a volume that was not unmounted cleanly is preceded by a writing one without threads, which
        recovers it and ends cleanly: without that, what the syncer is told would differ from what is read here.

        Raises:
            NotFoundError: No volume there.
            LockedError: Another process has it.
            FormatTooNewError: Made by a newer blocksync.
            CorruptionError: Metadata or staged data are damaged.
            NoSpaceError: The host is full.
            UsageError: The host filesystem can't tell data from holes.
        """
        config = config or EngineConfig()
        volume = Volume.load(path)
        ballast = Ballast(volume.path, config.ballast_bytes)
        return ballast.spend(lambda: cls._open(volume, config, ballast))

    @classmethod
    def _open(cls, volume: Volume, config: EngineConfig, ballast: Ballast) -> Filesystem:
        with ExitStack() as undo:
            volume_lock = VolumeLock.acquire(volume.path)
            undo.callback(volume_lock.release)
            with suppress(FileExistsError):  # lost without data: named files that are gone are found by the recovery
                os.mkdir(volume.staging_path, 0o700)
            probe(volume.staging_path)
            blocks = BlockDirectory.open(volume.blocks_path, read_only=config.read_only)
            undo.callback(blocks.close)
            tree = Tree.open(volume.tree_path)
            undo.callback(tree.close)
            if tree.renamed_by_upgrade is not None:
                log.warning("volume.name_reserved", name=SNAPSHOTS_NAME, renamed_to=tree.renamed_by_upgrade)
            staging = StagingDirectory(
                volume.staging_path, open_files=config.open_staging_files, checkpoint=config.checkpoint
            )
            undo.callback(staging.close)
            was_clean = tree.begin_reading() if config.read_only else tree.begin_mount()
            if config.read_only and not was_clean:
                undo.close()
                cls.open(volume.path, replace(config, read_only=False, background=False)).close()
                return cls.open(volume.path, config)
            fatal = Fatal()
            lock = EngineLock(fatal)
            stores = Stores(tree=tree, blocks=blocks, staging=staging, lock=lock, config=config, fatal=fatal)
            filesystem = cls(volume, volume_lock, stores, ballast, was_clean=was_clean)
            undo.pop_all()
        if not config.read_only:
            with suppress(NoSpaceError):  # the background goes on trying
                ballast.take_back()
            filesystem._give_up_hot_files()
        if config.background and not config.read_only:
            filesystem._background.start()
        return filesystem

    @property
    def staged_bytes(self) -> int:
        """Bytes that were written and are not sealed yet."""
        return self._table.staged_bytes

    @property
    def commits(self) -> int:
        """Commits of metadata that this mount has written."""
        return self._committer.written

    @property
    def sealed_files(self) -> int:
        """How often this mount has turned what was staged of a file into blocks."""
        return self._sealer.sealed_files

    def commit(self) -> None:
        """Make all metadata durable that were changed before the call. Waits for a disk.

        Raises:
            NoSpaceError: The host is full; nothing is lost.
            TreeIoError: The host failed; nothing is lost.
        """
        self._committer.commit()

    def give_back(self) -> None:
        """Make all metadata durable, and give the host the room of what was removed. Fails as `commit` does."""
        self._committer.give_back()

    def with_room(self, make: Callable[[], R]) -> R:
        """Make something new. If there is no room, what was removed a moment ago gives its own back first.

        That waits for a disk, and may fail as `commit` does.
        """
        try:
            return make()
        except NoSpaceError:
            self._committer.give_back()
            return make()

    def flush(self, *, stop: Stop = never) -> None:
        """Seal all files, commit durably, and give up the hot files that nobody needs then.

        Args and errors as of `Files.flush`, and those of the host.
        """
        self.files.flush(stop=stop)
        self.hot.tidy()

    def sync(self) -> None:
        """Make everything durable without sealing it: syncfs(2).

        Raises:
            FlushFailedError: Something that was written to a file is lost; all else is done.
            NoSpaceError: The host is full; nothing is lost.
            HostIoError: The host failed.
            TreeIoError: The host failed.
        """
        failure = self._sync() or self.files.failure()
        if failure is not None:
            raise failure

    def _give_up_hot_files(self) -> None:
        """Seal what an earlier native mount has left, if this one is none. What fails stays, and is content as well."""
        if self.hot.why_not is None or not self.tree.all_hot():
            return
        try:
            self.hot.give_up_all()
        except BlockfsError as error:
            log.warning("hot.not_sealed", reason=str(error))

    def _tidy(self) -> None:
        """Give up hot files that nobody needs, and see what became of those that an earlier mount has left."""
        self.hot.tidy()
        self._left_files.look()

    def _sync(self) -> FlushFailedError | None:
        """Make everything durable; returns what was lost on the way. That is noted."""
        failure: FlushFailedError | None = None
        try:
            self._flusher.publish_older(0.0)
        except FlushFailedError as error:
            failure = error  # the others were tried
        self._committer.commit()
        return failure

    def clone(self, source: int, parent: int, name: bytes) -> int:
        """Make a file that shares the content of another one; see `Cloner.clone`. Returns its inode."""
        return self._cloner.clone(source, parent, name)

    def copy_range(
        self, source: int, offset: int, destination: int, to: int, length: int, *, by_pages: bool = False
    ) -> int:
        """Copy the beginning of a range from file to file; see `RangeCopier.copy`. Returns how many bytes."""
        copy = partial(self._range_copier.copy, source, offset, destination, to, length, by_pages=by_pages)
        return self.with_room(copy)

    def close(self, *, seal: bool = False) -> None:
        """Unmount: commit everything and let go of the volume. Idempotent. Staged data stay staged unless `seal`.

        Raises:
            FlushFailedError: Something that was written is lost since the last flush; all else is done.
            AbandonedError: A bug had stopped a change half-way: what was not durable is lost as by a crash.
            BlockfsError: The last commit (or sealing) failed. The volume is let go nevertheless; likewise.
        """
        if not self._is_open:
            return
        if self.read_only or self.fatal.has_struck:
            self.abandon()
            self.fatal.check()
            return
        with self._stopped():
            failure: FlushFailedError | None = None
            for end in (self._sealer.seal_all, self.hot.give_up_all) if seal else ():
                try:
                    end()
                except FlushFailedError as error:
                    failure = error  # all else is done
            self.namespace.store_atimes()
            failure = self._sync() or failure
            self.ballast.spend(self.tree.end_mount)
            if failure is not None:
                raise failure

    def abandon(self) -> None:
        """Let go of the volume as a killed process would: nothing is flushed or committed. Idempotent."""
        if not self._is_open:
            return
        self._stopped().close()

    def _stopped(self) -> ExitStack:
        """End the work in the background; closing what is returned lets go of the volume."""
        self._is_open = False
        self._background.stop()
        parts = ExitStack()
        parts.callback(self._volume_lock.release)  # last: whoever gets the lock finds all of it closed
        parts.callback(self.hot.forget)
        parts.callback(self.blocks.close)
        parts.callback(self.tree.close)
        parts.callback(self._stores.staging.close)
        return parts
