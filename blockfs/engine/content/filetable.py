"""All file states of a mount, and how much is staged."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from functools import partial

from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.generation import StagedGeneration, StagedPages
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.staging import StagingFile
from blockfs.engine.context import Stores
from blockfs.engine.gate import WriteGate
from blockfs.engine.hot.hotfile import HotFile
from blockfs.engine.space.policy import STAGED_FREE_SHARE, STAGED_LITTLE_SHARE, STAGED_MIN_BYTES, STAGED_SPARE_SHARE
from blockfs.errors import BlockfsError, FsError
from blockfs.tree.schema import Inode, Kind


class HasHotFileError(BlockfsError):
    """The file has got a hot file meanwhile: what is done to its content is done to that.

    Expected, as `WouldBlock` is: it leaves a hold of the engine's lock, and whoever began begins again.
    """


class FileTable:
    """All file states of a mount, and how much is staged. Guarded by the engine's lock."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._states: dict[int, FileState] = {}
        self.hot: set[int] = set()
        """Files that have a hot file: to be asked without the lock, before what looks again under it."""
        self._last_generation = 0
        self._staged = StagedPages()
        self.staged_limit_bytes = stores.config.staged_limit_bytes
        self.gate = WriteGate(stores.lock)
        self.on_failure: Callable[[int], None] = lambda _ino: None
        """Called after the host failed to write pages of an inode, without any lock: the kernel still shows them."""
        self.on_cold: Callable[[tuple[int, int]], None] = lambda _key: None
        """Called under the lock with the key of a hot file that nothing names any more, not even durably."""
        self.drained = threading.Condition(stores.lock)
        """Notified when staged data went away."""

    @property
    def staged_bytes(self) -> int:
        """Bytes of all staged pages."""
        return self._staged.count * PAGE

    def fit_limit(self, free_bytes: int) -> None:
        """Stage less where the host has little room: the blocks that sealing makes come on top."""
        share = max((free_bytes + self.staged_bytes) // STAGED_FREE_SHARE, STAGED_MIN_BYTES)
        self.staged_limit_bytes = min(self._stores.config.staged_limit_bytes, share)

    def has_room(self, ino: int, length: int) -> bool:
        """Whether `length` more bytes of a file may be staged now.

        A file that has little staged waits later than others: a database's page need not stand behind somebody's
        stream, for as long as it takes to seal a group of blocks.
        """
        staged_bytes, limit = self.staged_bytes, self.staged_limit_bytes
        if not staged_bytes or staged_bytes + length <= limit:
            return True
        state = self._states.get(ino)
        has_little = state is None or state.staged_bytes <= limit // STAGED_LITTLE_SHARE
        return has_little and staged_bytes + length <= limit + limit // STAGED_SPARE_SHARE

    def all(self) -> list[FileState]:
        """The states of now: a copy, to be looked through without the lock."""
        return list(self._states.values())

    def peek(self, ino: int) -> FileState | None:
        """The state of a file, if it has one."""
        return self._states.get(ino)

    def get(self, ino: int) -> FileState:
        """The state of a file; made from its row if it has none.

        Raises:
            FsError: ENOENT: no such inode; EISDIR or EINVAL: not a regular file.
        """
        state = self._states.get(ino)
        if state is None:
            state = self._states[ino] = FileState(self.row(ino))
        return state

    def get_cold(self, ino: int) -> FileState:
        """As `get`, for a change of what is staged or sealed of a file.

        Raises:
            FsError: As `get`.
            HasHotFileError: It has a hot file.
        """
        state = self.get(ino)
        if state.hot is not None:
            raise HasHotFileError
        return state

    def row(self, ino: int) -> Inode:
        """The inode's row of a regular file.

        Raises:
            FsError: ENOENT: no such inode; EISDIR or EINVAL: not a regular file.
        """
        inode = self._stores.tree.inode(ino)
        if inode is None:
            raise FsError(errno.ENOENT, f"inode {ino}")
        if inode.kind is not Kind.FILE:
            raise FsError(errno.EISDIR if inode.kind is Kind.DIRECTORY else errno.EINVAL, f"inode {ino}")
        return inode

    def writable_row(self, ino: int) -> Inode:
        """The inode's row of a regular file that may change.

        Raises:
            FsError: As `row`; EROFS: it is in a snapshot.
        """
        inode = self.row(ino)
        if inode.is_frozen:
            raise FsError(errno.EROFS, f"inode {ino} is in a snapshot")
        return inode

    # --- hot files ---

    def heat(self, state: FileState, hot: HotFile) -> None:
        """A hot file becomes the content of a file. It has no generations then."""
        assert not state.generations
        state.hot = hot
        state.close_generation()
        self.hot.add(state.ino)

    def cool(self, state: FileState) -> None:
        """The leaves are the content of a file again, or nothing is any more."""
        state.hot = None
        self.hot.discard(state.ino)

    def look(self) -> None:
        """Note what the kernel has written into hot files."""
        for ino in self.hot:
            self._states[ino].look()

    def settle(self, state: FileState) -> None:
        """Forget a state that says nothing the tree doesn't. One that was forgotten may have a successor: not that."""
        if state.is_idle and self._states.get(state.ino) is state:
            del self._states[state.ino]

    # --- staged generations ---

    def add_generation(self, state: FileState, number: int) -> StagedGeneration:
        """A new generation above all others of the file, closed, and without files: one of an earlier mount."""
        self._last_generation = max(self._last_generation, number)
        generation = StagedGeneration(number, self._stores.block_size, self._staged)
        state.generations.append(generation)
        return generation

    def open_generation(self, state: FileState) -> StagedGeneration:
        """The generation that takes a file's writes; a new one if there is none."""
        if not state.is_open:
            self.add_generation(state, self._last_generation + 1)
            state.is_open = True
        return state.generations[-1]

    def staging_file(self, state: FileState, generation: StagedGeneration, range_index: int) -> StagingFile:
        """The staging file of a range; made if there is none.

        Raises:
            NoSpaceError: The host is full.
        """
        file = generation.files.get(range_index)
        if file is None:
            file = self._stores.staging.create((state.ino, range_index, generation.number))
            generation.files[range_index] = file
        return file

    def cut_generations(self, state: FileState, size_bytes: int) -> list[StagedGeneration]:
        """Void what is staged of a file from a byte offset on, also for the next mount; returns those that had some.

        Their files still have the old bytes: nothing may be written there any more.
        """
        cut = [generation for generation in state.generations if generation.cut(size_bytes)]
        for generation in cut:
            for range_index in generation.named:
                self._stores.tree.put_generation(generation.row(state.ino, range_index))
        return cut

    def drop_generations(self, state: FileState, dropped: list[StagedGeneration]) -> None:
        """Take generations out of a file whose data are elsewhere, or void.

        Their rows go with the current change set; their files go when that is durable: a crash before finds both.
        """
        tree, staging = self._stores.tree, self._stores.staging
        for generation in dropped:
            for range_index in generation.named:
                tree.drop_generation(generation.row(state.ino, range_index))
            generation.drop()
            for file in generation.files.values():
                tree.on_durable(partial(staging.doom, file))
        if state.newest in dropped:
            state.close_generation()
        state.generations = [kept for kept in state.generations if kept not in dropped]
        self.drained.notify_all()

    def discard(self, state: FileState) -> None:
        """Drop everything of a file whose inode is being removed."""
        state.discarded = True
        self.drop_generations(state, list(state.generations))
        if state.hot is not None:
            self._stores.tree.on_durable(partial(self.on_cold, state.hot.key))
            self.cool(state)
        self._states.pop(state.ino, None)
