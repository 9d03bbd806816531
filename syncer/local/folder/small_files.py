"""Small files on their way into an ordinary directory, many at once. Blocking methods, for one worker thread at a time.

A file alone costs nine thread calls and a commit of the filesystem's journal of its own (assembly.py). Here each step
is done for all files before the next one begins. Small: a content is one block, so it is in memory and it comes as a
whole or not at all. Each file has its own outcome.

Order, each step a fault point of the crash tests: all temp files are written, with their attributes → all are made
durable as a group (group_sync.py); or write-back of all is begun, and each is fsynced, of which the first commits the
journal for all → renames or exchanges (changes.py) → later, for a group of changes, fsync of the directories → the
engine's StateDB commit. (A content of one block has no list to be kept.)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.runtime.linux import check_written, write_back
from blockfs.runtime.reflink import clone_file
from syncer.core.model import Content, LocalTag
from syncer.core.rows import Origin
from syncer.local.folder.assembly import set_attributes
from syncer.local.folder.changes import unlink_if_there
from syncer.local.folder.filehash import read_exactly
from syncer.local.folder.group_sync import sync_together
from syncer.local.folder.sources import Sources
from syncer.local.safe_open import FILE_FLAGS, tag_of
from syncer.local.syscalls import cannot, status
from syncer.ports.localvalues import OWN, StageOrder

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, eq=False, kw_only=True)
class SmallFile:
    """One of them.

    Attributes:
        order: What it is to be.
        temp: Name of its temp file.
        data: Its content, without NULs at its end; None as long as it is nowhere here.
        origin: The file that the content was found in, if it was one at the same index.
        tag: Evidence of the temp file, once that is durable.
        lacking: Why not all of its attributes could be set.
        error: Why it can't be staged.
    """

    order: StageOrder
    temp: bytes
    data: bytes | None = None
    origin: Origin | None = None
    tag: LocalTag | None = None
    lacking: str | None = None
    error: Exception | None = None

    def has(self, index: int) -> bool:
        """See Arriving."""
        return index == 0 and self.data is not None

    def held(self, index: int) -> bytes | None:
        """See Arriving: its only block, as long as it is in memory."""
        return self.data if index == 0 else None


class SmallFiles:
    """Some files: gathered, completed by what is fetched, written."""

    def __init__(
        self, sources: Sources, tmp: int, files: Sequence[tuple[StageOrder, bytes]], step: Callable[[str], None]
    ) -> None:
        """Nothing is done yet.

        Args:
            sources: Where contents may be found.
            tmp: Descriptor of the temp folder (not closed here).
            files: Each with the name of its temp file, which is used by nobody else.
            step: Fault points.
        """
        self.files = [SmallFile(order=order, temp=temp) for order, temp in files]
        self._sources = sources
        self._tmp = tmp
        self._step = step
        self._leftovers: frozenset[str] = frozenset()
        self._descriptors: dict[int, SmallFile] = {}  # of temp files that are not durable yet
        self._equal: dict[Content, list[SmallFile]] = {}
        for file in self.files:
            self._equal.setdefault(file.order.content, []).append(file)

    def gather(self) -> None:
        """Find what this root has at places that are known."""
        self._leftovers = frozenset(os.listdir(self._tmp))  # mostly few: one look instead of one for each file
        for file in self.files:
            self._sources.begin(file.order.content, file.order.blocks, file)
        for equal in self._equal.values():
            for file in equal:
                with _own(file):
                    file.data = self._find(file)
                if file.data is not None:
                    self._give(equal, file.data, file.origin)
                    self._sources.counters.own_blocks += 0 if file.origin is None else len(equal)
                    break

    def missing(self) -> list[int]:
        """Which files lack their content."""
        return [at for at, file in enumerate(self.files) if file.data is None and file.error is None]

    def take(self, got: Sequence[tuple[BlockId, bytes]]) -> None:
        """Contents were fetched, verified: for all that want them."""
        came = dict(got)
        for file in self.files:
            if file.data is None and file.error is None:
                file.data = came.get(file.order.blocks[0])

    def fail(self, failed: Mapping[int, Exception]) -> None:
        """Contents can't be had for some of the files."""
        for at, error in failed.items():
            if self.files[at].data is None:
                self.files[at].error = error

    def fill(self) -> None:
        """Make all temp files that are complete; their descriptors stay open."""
        for file in self._going():
            with _own(file):
                self._open(file)
                self._step("staged")

    def sync(self) -> None:
        """Make them durable."""
        try:
            together = sync_together(list(self._descriptors))
            for descriptor, file in self._descriptors.items() if not together else ():
                # Else each fsync would begin to write its own file only: a commit of the journal for each.
                with _own(file):
                    _begin_writing(descriptor)
            for descriptor, file in self._descriptors.items():
                with _own(file):
                    if file.error is None:
                        # Content, size and times must be on disk before any name says that this is the file.
                        (check_written if together else os.fsync)(descriptor)
                        file.tag = tag_of(status(b"", descriptor))
                        self._step("synced")
        finally:
            self.close()
        for file in self.files:
            if file.error is not None:
                with suppress(OSError):  # a stale one is found, and used or removed, by a later run
                    unlink_if_there(file.temp, self._tmp)

    def close(self) -> None:
        """Close descriptors. Idempotent."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[0])

    @staticmethod
    def _give(equal: Sequence[SmallFile], data: bytes, origin: Origin | None) -> None:
        for file in equal:
            file.data, file.origin = data, origin

    def _going(self) -> Iterator[SmallFile]:
        """Those that have their content, and no outcome yet."""
        return (file for file in self.files if file.data is not None and file.error is None)

    def _find(self, file: SmallFile) -> bytes | None:
        order = file.order
        if not order.content.size_bytes or order.blocks[0] == ZERO_BLOCK:
            return b""
        left = self._left_over(file)
        if left is not None:
            return left
        for origin in (*order.origins, *self._sources.displaced(order.content)):
            data = self._sources.read_at(origin, 0, order.content.size_bytes)
            if data is not None and block_id(data) == order.blocks[0]:
                file.origin = origin
                return data
        return None

    def _left_over(self, file: SmallFile) -> bytes | None:
        """What a killed run left of the same temp file, if it is all."""
        if os.fsdecode(file.temp) not in self._leftovers:
            return None
        try:
            descriptor = os.open(file.temp, FILE_FLAGS, dir_fd=self._tmp)
        except OSError:
            return None
        try:
            data = read_exactly(descriptor, 0, file.order.content.size_bytes)
        finally:
            os.close(descriptor)
        self._sources.counters.bytes_read += len(data)
        return data if block_id(data) == file.order.blocks[0] else None

    def _open(self, file: SmallFile) -> None:
        """Make and fill a temp file; it is noted as soon as it is open."""
        try:
            descriptor = os.open(file.temp, _NEW, 0o600, dir_fd=self._tmp)
        except FileExistsError:  # a killed run's, perhaps with a mode that forbids to open it
            os.unlink(file.temp, dir_fd=self._tmp)
            descriptor = os.open(file.temp, _NEW, 0o600, dir_fd=self._tmp)
        self._descriptors[descriptor] = file
        if not self._shares(descriptor, file):
            _fill(descriptor, file)
        file.lacking = set_attributes(descriptor, file.order.path, file.order.meta)

    def _shares(self, descriptor: int, file: SmallFile) -> bool:
        """Have it share the space of the file that its content was found in, where the filesystem can that."""
        opened = None if file.origin is None else self._sources.open(file.origin)
        if opened is None:
            return False
        size_bytes = file.order.content.size_bytes
        try:
            if not clone_file(opened, descriptor):
                return False
        finally:
            os.close(opened)
        if os.fstat(descriptor).st_size == size_bytes:
            data = read_exactly(descriptor, 0, size_bytes)
            self._sources.counters.bytes_read += len(data)
            if block_id(data) == file.order.blocks[0]:
                return True
        os.ftruncate(descriptor, 0)  # it was written to since
        return False


@contextmanager
def _own(file: SmallFile) -> Iterator[None]:
    """What goes wrong is that file's outcome."""
    try:
        yield
    except OWN as error:
        file.error = error


def _fill(descriptor: int, file: SmallFile) -> None:
    assert file.data is not None
    size_bytes = file.order.content.size_bytes
    view = memoryview(file.data)[:size_bytes]  # it may be longer only by NULs
    while view:
        view = view[os.write(descriptor, view) :]
    if len(file.data) < size_bytes:
        os.ftruncate(descriptor, size_bytes)


def _begin_writing(descriptor: int) -> None:
    try:
        write_back(descriptor, 0, 0, wait=False)  # 0: to its end
    except OSError as error:
        if not cannot(error):  # then fsync alone does it
            raise
