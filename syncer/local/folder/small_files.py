"""Several new small files on their way into an ordinary directory. Blocking methods, for one worker thread at a time.

A file alone costs nine thread calls and a commit of the filesystem's journal of its own (assembly.py). Here each step
is done for all files before the next one begins. Small: a content is one block, so it is in memory and it comes as a
whole or not at all. Each file has its own outcome.

Order, each step a fault point of the crash tests: all temp files are written, with their attributes → write-back of all
is begun → each is fsynced, of which the first commits the journal for all → renames (changes.py) → later, for a
group of changes, fsync of the directories → the engine's StateDB commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from blockfs.runtime.linux import write_back
from syncer.core.model import Content, LocalTag
from syncer.core.rows import Origin
from syncer.local.folder.assembly import set_attributes
from syncer.local.folder.changes import Changes, NewName, unlink_if_there
from syncer.local.folder.filehash import read_exactly
from syncer.local.folder.sources import Sources
from syncer.local.safe_open import FILE_FLAGS, tag_of
from syncer.local.syscalls import cannot, clone_file, status
from syncer.ports.localvalues import OWN, Applied, Wanted

_NEW: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True, eq=False, kw_only=True)
class _File:
    """One of them.

    Attributes:
        wanted: What it is to be.
        temp: Name of its temp file.
        data: Its content, without NULs at its end; None as long as it is nowhere here.
        origin: The file that the content was found in, if it was one at the same index.
        tag: Evidence of the temp file, once that is durable.
        outcome: What became of it.
    """

    wanted: Wanted
    temp: bytes
    data: bytes | None = None
    origin: Origin | None = None
    tag: LocalTag | None = None
    lacking: str | None = None
    outcome: Applied | Exception | None = None

    def has(self, index: int) -> bool:
        """See Arriving."""
        return index == 0 and self.data is not None

    def held(self, index: int) -> bytes | None:
        """See Arriving: its only block, as long as it is in memory."""
        return self.data if index == 0 else None


class Portion:
    """Some files: gathered, completed by what is fetched, written, named."""

    def __init__(self, sources: Sources, changes: Changes, tmp: int, files: Sequence[tuple[Wanted, bytes]]) -> None:
        """Nothing is done yet.

        Args:
            sources: Where contents may be found.
            changes: Makes the names.
            tmp: Descriptor of the temp folder (not closed here).
            files: Each with the name of its temp file, which is used by nobody else.
        """
        self._sources = sources
        self._changes = changes
        self._tmp = tmp
        self._files = [_File(wanted=wanted, temp=temp) for wanted, temp in files]
        self._equal: dict[Content, list[_File]] = {}
        for file in self._files:
            self._equal.setdefault(file.wanted.content, []).append(file)

    def gather(self) -> None:
        """Find what this root has at places that are known."""
        for file in self._files:
            self._sources.begin(file.wanted.content, file.wanted.blocks, file)
        for equal in self._equal.values():
            for file in equal:
                with _own(file):
                    file.data = self._find(file)
                if file.data is not None:
                    self._give(equal, file.data, file.origin)
                    break

    def missing(self) -> list[int]:
        """Which files lack their content."""
        return [at for at, file in enumerate(self._files) if file.data is None and file.outcome is None]

    def take(self, got: Sequence[tuple[BlockId, bytes]]) -> None:
        """Contents were fetched, verified: for all that want them."""
        came = dict(got)
        for file in self._files:
            if file.data is None and file.outcome is None:
                file.data = came.get(file.wanted.blocks[0])

    def fail(self, failed: Mapping[int, Exception]) -> None:
        """Contents can't be had for some of the files."""
        for at, error in failed.items():
            if self._files[at].data is None:
                self._files[at].outcome = error

    def write(self) -> None:
        """Make all temp files that are complete, durably."""
        descriptors: dict[int, _File] = {}
        try:
            for file in self._going():
                with _own(file):
                    self._open(file, descriptors)
                    self._changes.step("staged")
            for descriptor, file in descriptors.items():
                # Else each fsync would begin to write its own file only: a commit of the journal for each.
                with _own(file):
                    _begin_writing(descriptor)
            for descriptor, file in descriptors.items():
                with _own(file):
                    if file.outcome is None:
                        # Content, size and times must be on disk before any name says that this is the file.
                        os.fsync(descriptor)
                        file.tag = tag_of(status(b"", descriptor))
                        self._changes.step("synced")
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        for file in self._going():
            self._sources.lists.save(file.wanted.content, file.wanted.blocks)

    def install(self) -> None:
        """Give all that are durable their names."""
        ready = [(file, file.tag) for file in self._going() if file.tag is not None]
        names = [NewName(path=file.wanted.path, temp=file.temp, tag=tag) for file, tag in ready]
        for (file, _), outcome in zip(ready, self._changes.create_all(names), strict=True):
            file.outcome = outcome if isinstance(outcome, Exception) else told(outcome, file.wanted, file.lacking)
        for file in self._files:
            if isinstance(file.outcome, Exception):
                with suppress(OSError):  # a stale one is found, and used or removed, by a later run
                    unlink_if_there(file.temp, self._tmp)

    def end(self) -> None:
        """Nothing more is done: what has a name is found there. Idempotent."""
        for file in self._files:
            content, installed = file.wanted.content, None
            if isinstance(file.outcome, Applied):
                installed = Origin(path=file.wanted.path, tag=file.outcome.tag, content=content)
            self._sources.end(content, file, installed)

    def outcomes(self) -> list[Applied | Exception]:
        """What became of each file."""
        found: list[Applied | Exception] = []
        for file in self._files:
            assert file.outcome is not None
            found.append(file.outcome)
        return found

    @staticmethod
    def _give(equal: Sequence[_File], data: bytes, origin: Origin | None) -> None:
        for file in equal:
            file.data, file.origin = data, origin

    def _going(self) -> Iterator[_File]:
        """Those that have their content, and no outcome yet."""
        return (file for file in self._files if file.data is not None and file.outcome is None)

    def _find(self, file: _File) -> bytes | None:
        wanted = file.wanted
        if not wanted.content.size_bytes or wanted.blocks[0] == ZERO_BLOCK:
            return b""
        left = self._left_over(file)
        if left is not None:
            return left
        for origin in (*wanted.origins, *self._sources.displaced(wanted.content)):
            data = self._sources.read_at(origin, 0, wanted.content.size_bytes)
            if data is not None and block_id(data) == wanted.blocks[0]:
                file.origin = origin
                return data
        return None

    def _left_over(self, file: _File) -> bytes | None:
        """What a killed run left of the same temp file, if it is all."""
        try:
            descriptor = os.open(file.temp, FILE_FLAGS, dir_fd=self._tmp)
        except OSError:
            return None
        try:
            data = read_exactly(descriptor, 0, file.wanted.content.size_bytes)
        finally:
            os.close(descriptor)
        self._sources.counters.bytes_read += len(data)
        return data if block_id(data) == file.wanted.blocks[0] else None

    def _open(self, file: _File, descriptors: dict[int, _File]) -> None:
        """Make and fill a temp file; `descriptors` gets it as soon as it is open."""
        try:
            descriptor = os.open(file.temp, _NEW, 0o600, dir_fd=self._tmp)
        except FileExistsError:  # a killed run's, perhaps with a mode that forbids to open it
            os.unlink(file.temp, dir_fd=self._tmp)
            descriptor = os.open(file.temp, _NEW, 0o600, dir_fd=self._tmp)
        descriptors[descriptor] = file
        if not self._shares(descriptor, file):
            _fill(descriptor, file)
        file.lacking = set_attributes(descriptor, file.wanted.path, file.wanted.meta)

    def _shares(self, descriptor: int, file: _File) -> bool:
        """Have it share the space of the file that its content was found in, where the filesystem can that."""
        opened = None if file.origin is None else self._sources.open(file.origin)
        if opened is None:
            return False
        size_bytes = file.wanted.content.size_bytes
        try:
            if not clone_file(opened, descriptor):
                return False
        finally:
            os.close(opened)
        if os.fstat(descriptor).st_size == size_bytes:
            data = read_exactly(descriptor, 0, size_bytes)
            self._sources.counters.bytes_read += len(data)
            if block_id(data) == file.wanted.blocks[0]:
                return True
        os.ftruncate(descriptor, 0)  # it was written to since
        return False


def told(applied: Applied, wanted: Wanted, lacking: str | None) -> Applied:
    """With what a file lacks: its attributes are then not what was asked for."""
    if lacking is None:
        return applied
    return replace(applied, meta=replace(wanted.meta, xattrs=()), lacking=lacking)


@contextmanager
def _own(file: _File) -> Iterator[None]:
    """What goes wrong is that file's outcome."""
    try:
        yield
    except OWN as error:
        file.outcome = error


def _fill(descriptor: int, file: _File) -> None:
    assert file.data is not None
    size_bytes = file.wanted.content.size_bytes
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
