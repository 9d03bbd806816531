"""Reading a root's files to hash them: how far that is, and their blocks for the push that follows.

A new file is read to learn its content, and what it holds is wanted again a moment later, when the server lacks it. So
blocks of new files are held (held.py) until they are sent; the ids that the server answers are compared with theirs.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import trio
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import BlockId
from blockfs.runtime.linux import stamp_stores
from syncer.core.model import Content, FileStat
from syncer.errors import LocalChangedError
from syncer.local.blocklists import BlockLists
from syncer.local.folder.filehash import hash_file
from syncer.local.folder.held import HeldBlocks
from syncer.local.options import RootOptions
from syncer.local.safe_open import Opener, tag_of
from syncer.local.syscalls import status
from syncer.local.twins.fresh import Fresh, take
from syncer.local.twins.twins import Twins
from syncer.ports.localvalues import MAX_BLOCKS, LocalCounters, Problem, content_of

_HASHERS: Final = 2  # SHA-256 of 64 KiB blocks scales to two threads and no further on small machines
_LIST_BYTES: Final = 4 << 20  # of small files hashed in one thread call
_LIST_FILES: Final = 64
_SMALL_BYTES: Final = 64 << 10
_REMEMBERED_BYTES: Final = 16 << 20  # hashing this takes longer than the durable write that remembers it

IsNew = Callable[[FileStat], bool]
"""Whether a file was not in the base: then the server most likely lacks its blocks."""


class Reading:
    """Hashes files of one root. Safe for many threads.

    Attributes:
        held: Blocks of new files, until they are sent.
    """

    def __init__(
        self, root: int, lists: BlockLists, options: RootOptions, counters: LocalCounters, twins: Twins
    ) -> None:
        """Take the root's descriptor (not closed here), its cache of block lists, its options, counters and twins."""
        self._twins = twins
        self._root = root
        self._lists = lists
        self._counters = counters
        self._block_size = options.block_size
        self._state = options.state
        self._hashers = trio.CapacityLimiter(_HASHERS)
        self._lock = threading.Lock()
        self.held = HeldBlocks()

    async def hash_all(
        self, stats: list[FileStat], problems: list[Problem], clock_ns: int, *, is_new: IsNew
    ) -> list[FileStat]:
        """Complete files with their contents.

        Args:
            stats: Which.
            problems: What can't be read is added here.
            clock_ns: The filesystem's time before the look.
            is_new: See `IsNew`.
        """
        hashed: list[FileStat] = []
        self._counters.total_bytes, self._counters.done_bytes = sum(stat.tag.size_bytes for stat in stats), 0
        waiting = _lists(stats)
        working = 0

        def contents(some: Sequence[FileStat]) -> tuple[list[tuple[Content | None, str | None]], bool]:
            """What is in the files, and whether a second thread is of use.

            Hashing large blocks and waiting for a disk leave Python's lock to others. Small files in memory don't: two
            threads that hand it to and fro at each system call take twice the time of one.
            """
            began_s, began_cpu_s = time.monotonic(), time.thread_time()
            with Opener(self._root) as opener:
                found = [self._content(stat, clock_ns, opener, is_new) for stat in some]
            waited = time.monotonic() - began_s > 2 * (time.thread_time() - began_cpu_s)
            return found, waited or sum(stat.tag.size_bytes for stat in some) > len(some) * _SMALL_BYTES

        async def work() -> None:
            nonlocal working
            for some in waiting:
                found, is_apart = await trio.to_thread.run_sync(contents, some, limiter=self._hashers)
                for stat, (content, reason) in zip(some, found, strict=True):
                    hashed.append(replace(stat, content=content))
                    if reason is not None:
                        problems.append(Problem(path=stat.path, reason=reason))
                if is_apart and working < _HASHERS:
                    working += 1
                    nursery.start_soon(work)

        try:
            async with trio.open_nursery() as nursery:
                self.held.nursery = nursery
                working = 1
                nursery.start_soon(work)
        finally:
            self.held.nursery = None
        return hashed

    async def hash_again(self, stat: FileStat) -> tuple[Content, BlockList]:
        """The content of a file whose block list is lost.

        Raises:
            LocalChangedError: It was written to meanwhile.
        """

        def again() -> tuple[Content, BlockList]:
            with Opener(self._root) as opener:
                return self._hash_unchanged(stat, opener, None)

        return await trio.to_thread.run_sync(again, limiter=self._hashers)

    def _content(
        self, stat: FileStat, clock_ns: int, opener: Opener, is_new: IsNew
    ) -> tuple[Content | None, str | None]:
        """The content of a large file from memory if it is there, else by hashing."""
        size_bytes = stat.tag.size_bytes
        seen = _Seen(self, size_bytes, keep=is_new(stat))
        state = None if size_bytes < _REMEMBERED_BYTES else self._state
        known = None if state is None else state.content(stat.tag)
        content, reason = (known, None) if known is not None else self._hash(stat, opener, seen)
        if state is not None and known is None and content is not None:
            state.contents_found([(stat.tag, content)], clock_ns)
        self.saw(size_bytes - seen.size_bytes)
        return content, reason

    def _hash(self, stat: FileStat, opener: Opener, seen: _Seen) -> tuple[Content | None, str | None]:
        """The content of a file, or why it can't be had."""
        if block_count(stat.tag.size_bytes, self._block_size) > MAX_BLOCKS:
            return None, f"it has more than {MAX_BLOCKS} blocks of {self._block_size} bytes: too large to be synced"
        try:
            return self._hash_unchanged(stat, opener, seen)[0], None
        except LocalChangedError:
            return None, "it changes while it is read; left alone until it is quiet"
        except OSError as error:
            return None, f"can't be read ({error.strerror}); left alone until it can"

    def _hash_unchanged(self, stat: FileStat, opener: Opener, seen: _Seen | None) -> tuple[Content, BlockList]:
        fresh: Fresh | None = None
        descriptor = opener.open(stat.path)
        try:
            if stat.tag.size_bytes > self._block_size:  # of a small one, the look after the only read says as much
                _require(descriptor, stat)
            if self._twins.least_bytes <= stat.tag.size_bytes:
                fresh = take(self._twins, descriptor, stat)
            if fresh is None:  # else the copy has done it
                with suppress(OSError):  # a disk that takes nothing: what can be read is read all the same
                    stamp_stores(descriptor)
            found = None if fresh is None else fresh.hashed(seen)
            blocks, read = found or hash_file(descriptor, stat.tag.size_bytes, self._block_size, seen)
            self._counters.bytes_read += read
            # Look again after the last read: a block list of a file that changed in between mixes two versions.
            _require(descriptor, stat)
            content = content_of(blocks)
            self._lists.save(content, blocks)
            if fresh is not None:
                fresh.keep(descriptor, content, blocks)
            return content, blocks
        finally:
            if fresh is not None:
                fresh.close()
            os.close(descriptor)

    def saw(self, size_bytes: int) -> None:
        """So many bytes more are done."""
        with self._lock:
            self._counters.done_bytes += size_bytes


class _Seen:
    """What `hash_file` tells while it reads one file."""

    def __init__(self, reading: Reading, file_bytes: int, *, keep: bool) -> None:
        self.size_bytes = 0
        self._reading = reading
        self._file_bytes = file_bytes
        self._keep = keep

    def __call__(self, name: bytes, data: bytes) -> None:
        """One more block."""
        self.size_bytes += len(data)
        self._reading.saw(len(data))
        if self._keep:
            self._reading.held.keep(BlockId(name), data, file_bytes=self._file_bytes)


def _require(descriptor: int, stat: FileStat) -> None:
    if tag_of(status(b"", descriptor)) != stat.tag:
        raise LocalChangedError(stat.path, "it was written to")


def _lists(stats: Sequence[FileStat]) -> Iterator[list[FileStat]]:
    """Cut files into lists for one thread call each: a call costs as much as hashing several small files."""
    some: list[FileStat] = []
    size = 0
    for stat in stats:
        some.append(stat)
        size += stat.tag.size_bytes
        if size >= _LIST_BYTES or len(some) == _LIST_FILES:
            yield some
            some, size = [], 0
    if some:
        yield some
