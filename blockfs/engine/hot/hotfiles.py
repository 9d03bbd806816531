"""Hot files of a mount: who gets one, and when it goes.

A file that has content gets its hot file in this order: seal what is staged → assemble → fsync of the hot file, of the
folder → the row in a change set → commit → only then may anybody write to it. An empty one promises nothing before its
first fsync: its row comes with that, or with the next flush.

It goes when nobody has it open and the leaves are its content: the row in a change set, the file when that is durable.
Clean ones are kept for the next open while the host has room, large ones only: a short one is assembled in no time. One
holds room of its own where its blocks were moved to another segment, and what tells where it lies.
"""

from __future__ import annotations

import os
import time
from functools import partial
from typing import Final

from blockfs.blocks.codec import Compression
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.hostfile import translated
from blockfs.engine.context import Stores
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.hot.addresses import PAGE, Run, moved
from blockfs.engine.hot.assemble import assemble
from blockfs.engine.hot.compare import changed_blocks
from blockfs.engine.hot.flush import HotFlusher
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.hotfile import HotFile
from blockfs.engine.hot.naming import block_id_of
from blockfs.engine.portions import Stop, never
from blockfs.engine.space.policy import is_low
from blockfs.errors import BlockfsError, WouldBlock
from blockfs.runtime import descriptors
from blockfs.runtime.logs import Log
from blockfs.runtime.reflink import clone_range, extents
from blockfs.runtime.space import host_space

log = Log()

_KEPT: Final = 256  # clean hot files that nobody has open: descriptors
_OTHERS: Final = 512  # descriptors besides those of staging files: 256 of segments, and what else there is
_KEPT_BYTES: Final = 1 << 20  # from this size on
_TRIES: Final = 8  # against writers that stage while a file is to be assembled


class HotFiles:
    """Hot files of one mount, for a front-end whose kernel can use them. Thread-safe.

    Attributes:
        why_not: Why no file gets one, and those that there are go; None: files do. A mount may learn it later.
        most: No further file gets one where there are so many: each is a descriptor, and while a snapshot is taken
            two. Files beyond go through us, which keeps few descriptors.
    """

    def __init__(
        self,
        stores: Stores,
        table: FileTable,
        folder: HotFolder,
        sealer: Sealer,
        flusher: HotFlusher,
        committer: Committer,
        *,
        why_not: str | None,
    ) -> None:
        self.why_not = why_not
        self.most = max(0, descriptors.limit() - stores.config.open_staging_files - _OTHERS) // 2
        self._stores = stores
        self._table = table
        self._folder = folder
        self._sealer = sealer
        self._flusher = flusher
        self._committer = committer

    def is_hot(self, ino: int) -> bool:
        """Whether a hot file is the content of a file now."""
        return ino in self._table.hot

    def is_durable(self, ino: int) -> bool:
        """Whether a file has no hot file, or has it after a crash, too."""
        with self._stores.lock:
            state = self._table.peek(ino)
            return state is None or state.hot is None or state.hot.is_durable

    def make_durable(self, ino: int) -> None:
        """Have a file's hot file, with what is in it, be its content after a crash, too. Waits for disks.

        Raises:
            BlockfsError: The host failed, or is full.
        """
        with self._stores.lock:
            state = self._table.peek(ino)
        if state is not None:
            with state.publishing:
                self._flusher.flush(state, publishes=True)
            self._committer.commit()

    def open(self, ino: int, *, may_block: bool = False, stop: Stop = never) -> int | None:
        """Note that the kernel opens a file, and give it the hot file.

        Args:
            ino: A regular file.
            may_block: Wait for disks: a file with content is sealed, assembled and committed.
            stop: Says when nobody wants it any more.

        Returns:
            The hot file's descriptor, which stays as it is until the last `release`; None: this file has none, and
            nothing is noted.

        Raises:
            WouldBlock: It must be assembled first, or a snapshot is being taken, and `may_block` is false.
            FsError: No such file.
        """
        if self.why_not is not None:
            return None
        for _ in range(_TRIES):
            with self._stores.lock:
                self._table.gate.enter(may_block=may_block)  # it comes with no file that could be written to meanwhile
                row = self._table.row(ino)
                state = self._table.get(ino)
                is_full = state.hot is None and len(self._table.hot) >= self.most
                has_failed = state.failures is not None or (state.hot is not None and state.hot.failed)
                if row.is_frozen or has_failed or is_full:
                    self._table.settle(state)
                    return None
                if state.hot is None and self._is_empty(state):
                    self._make_empty(state)
                hot = state.hot
                is_ready = hot is not None and (hot.is_durable or hot.is_new)
                if hot is not None and is_ready:
                    return _opened(hot)
            if not may_block:
                raise WouldBlock("a hot file must be assembled")
            try:
                if hot is None and not self._assemble(ino, stop):
                    return None
                self._committer.commit()
            except BlockfsError as error:
                log.warning("hot.not_assembled", ino=ino, reason=str(error))
                return None
        return None

    def release(self, ino: int) -> None:
        """Take back an `open`: the kernel has it open no more, and does not write to it any more."""
        with self._stores.lock:
            state = self._table.peek(ino)
            if state is not None and state.hot is not None:
                state.hot.opens -= 1
                state.hot.released_at_s = time.monotonic()

    # --- making one ---

    def _is_empty(self, state: FileState) -> bool:
        tree = self._stores.tree
        has_nothing = not state.generations and not state.size_bytes and not tree.allocated_blocks(state.ino)
        return has_nothing and state.is_published and not state.low_waters

    def _make_empty(self, state: FileState) -> None:
        """Under the lock, as a staging file is made. It has no row before its first flush."""
        key = self._folder.new_key(state.ino)
        try:
            hot = HotFile(key, self._folder.create(key))
        except (BlockfsError, OSError):
            return  # the slow path meets it, too
        hot.is_new = True
        hot.see(hot.status(), is_old=True)
        self._table.heat(state, hot)

    def _assemble(self, ino: int, stop: Stop = never) -> bool:
        """Make the hot file of a file with content; its row is in the change set then. False: it can't have one.

        Others may read and write the file meanwhile: from the moment on that it has the hot file they do so there.
        """
        with self._stores.lock:
            self._table.writable_row(ino)
            state = self._table.get(ino)
            state.handles += 1  # it is not forgotten meanwhile
        try:
            self._sealer.seal([ino])
            with state.sealing:
                return self._assemble_sealed(state, stop)
        finally:
            with self._stores.lock:
                state.handles -= 1
                if not state.discarded:
                    self._table.settle(state)

    def _assemble_sealed(self, state: FileState, stop: Stop) -> bool:
        with self._stores.lock:
            if state.discarded or state.hot is not None or not state.is_sealed:
                return not state.discarded
            row, stamp = self._table.row(state.ino), state.stamp
            key = self._folder.new_key(state.ino)
        is_used = False
        try:
            hot = HotFile(key, self._folder.create(key))
            if not assemble(self._stores, row, hot.file, stop):
                return False
            self._folder.sync(hot.file)
            self._folder.sync_names()
            with self._stores.lock:
                if not state.discarded and state.stamp == stamp and state.is_sealed:
                    hot.see(hot.status(), is_old=True)
                    self._table.heat(state, hot)
                    self._flusher.name(hot)
                    is_used = True
            return True
        finally:
            if not is_used:
                self._folder.unlink(key)

    # --- giving them up ---

    def tidy(self) -> None:
        """Give up hot files that nobody needs any more, and remove those that were given up. Waits for disks.

        On a host that is nearly full the older half of the clean ones goes, each time anew until it has room again.

        Raises:
            BlockfsError: The host failed; the others stay.
        """
        with self._stores.lock:
            idle = [one for one in self._hot_states() if one.hot is not None and not one.hot.opens and one.is_sealed]
            idle.sort(key=_released_at, reverse=True)
            large = [one for one in idle if self.why_not is None and self._is_large(one)]
            most = min(len(large), _KEPT, self.most // 2)
            if most and is_low(host_space(os.path.dirname(self._folder.path))):
                most //= 2
            kept = set(map(id, large[:most]))
        for state in idle:
            if id(state) not in kept:
                self.give_up(state)
        self._folder.sweep()

    def give_up_all(self) -> None:
        """Seal every hot file and give it up, but those that somebody has open. Waits for disks.

        Raises:
            BlockfsError: One could not be sealed; the others are done.
        """
        failure: BlockfsError | None = None
        with self._stores.lock:
            states = self._hot_states()
        for state in states:
            try:
                self._sealer.seal_existing([state.ino])
                self.give_up(state)
            except BlockfsError as error:
                failure = failure or error
        self._committer.commit()
        self._folder.sweep()
        if failure is not None:
            raise failure

    def forget(self) -> None:
        """Close all hot files: the mount has ended."""
        with self._stores.lock:
            for state in self._hot_states():
                self._table.cool(state)
        self._sealer.close()

    def _hot_states(self) -> list[FileState]:
        return [state for ino in self._table.hot if (state := self._table.peek(ino)) is not None]

    def _is_large(self, state: FileState) -> bool:
        return state.hot is not None and state.hot.status().st_size >= _KEPT_BYTES

    def give_up(self, state: FileState) -> bool:
        """Let the leaves be a file's content again, if they are and nobody has it open. Returns whether that was so.

        Raises:
            BlockfsError: The host failed.
        """
        with state.sealing, state.publishing:
            with self._stores.lock:
                hot = state.hot
                if hot is None or hot.is_in_use or hot.failed or state.discarded or not state.is_sealed:
                    return False
                opened = hot.opened
            # All doubt is dirty: what the file's times did not tell is found by where its bytes lie.
            if hot.sealed_opened != opened and not self._is_what_the_leaves_say(state, hot):
                with self._stores.lock:
                    hot.seen = None
                return False
            with self._stores.lock:
                if (
                    state.discarded
                    or state.hot is not hot
                    or hot.is_in_use
                    or hot.opened != opened
                    or not state.is_sealed
                ):
                    return False
                row = self._table.row(state.ino)
                state.size_bytes = row.size_bytes
                state.mtime_ns, state.ctime_ns = None, 0
                if hot.is_named:
                    self._stores.tree.drop_hot(*hot.key)
                self._stores.tree.on_durable(partial(self._folder.doom, hot.key))
                self._table.cool(state)
                self._table.settle(state)
        return True

    def _is_what_the_leaves_say(self, state: FileState, hot: HotFile) -> bool:
        """Compare a hot file that nobody has open with its leaves: by places, and by content where they differ."""
        self._folder.sync(hot.file)
        block_size, size = self._stores.block_size, hot.status().st_size
        for first, end in changed_blocks(self._stores, state.ino, hot.file.fd, size):
            for number in range(first, end):
                with self._stores.lock:
                    expected = self._stores.tree.block_ids(state.ino, number, 1)
                with translated("hot"):
                    data = os.pread(hot.file.fd, min(block_size, size - number * block_size), number * block_size)
                if block_id_of(data) != expected:
                    return False
        with self._stores.lock:
            return not state.discarded and self._table.row(state.ino).size_bytes == size


def _opened(hot: HotFile) -> int:
    hot.opens += 1
    hot.opened += 1
    return hot.file.fd


def _released_at(state: FileState) -> float:
    return 0.0 if state.hot is None else state.hot.released_at_s


def why_not_native(stores: Stores, folder: HotFolder) -> str | None:
    """Why the host can't give hot files to a volume; None: it can. Tries it, with nameless files."""
    blocks = stores.blocks
    if stores.config.read_only:
        return "the mount is read-only"
    if blocks.format.compression is not Compression.NONE:
        return "compressed blocks can't be shared with files of the host"
    try:
        one, other = (
            Descriptor(os.open(path, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600))
            for path in (os.path.dirname(folder.path), blocks.layout.segments)
        )
        os.pwrite(one.fd, b"\x01" * 2 * PAGE, 0)
        if not clone_range(one.fd, other.fd, PAGE, PAGE, to=0):
            return "the volume's filesystem has no reflinks (XFS and btrfs have)"
        folder.make()
        ours = list(moved(extents(one.fd, 2 * PAGE), Run(0, PAGE, 0, PAGE)))
        theirs = list(extents(other.fd, PAGE))
    except (BlockfsError, OSError) as error:
        return f"the volume's filesystem can't: {error}"
    if ours != theirs or len(ours) != 1 or ours[0][1] < PAGE:
        return "the volume's filesystem does not tell where bytes lie"
    return None
