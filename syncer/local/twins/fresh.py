"""A look at one large file by its twin: what is hashed is a copy as of one moment, which nobody writes to.

With a twin of an earlier look: what lies at the same place of the disk in the copy and in the twin is what it was, the
rest is read from the copy. Without one the file is read through its own pages, which may be in memory; afterwards the
copy shows whether that was what it holds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from blockfs.blocks.blocklist import BlockList
from blockfs.runtime.fiemap import OddMapError
from blockfs.runtime.reflink import apart
from syncer.core.model import Content, FileStat
from syncer.local.folder.filehash import data_bytes, hash_changes
from syncer.local.twins.twins import Twins, finished

_PROOF_BYTES: Final = 64 << 20  # more than this can't be told by its place (compression): a twin would be of no use


class Fresh:
    """A copy of a file as it was when this was made. For one thread."""

    def __init__(self, twins: Twins, name: bytes, descriptor: int, stat: FileStat) -> None:
        """Take over a copy: its name in the folder of twins, and its descriptor, which is closed with this."""
        self._twins = twins
        self._name = name
        self._descriptor = descriptor
        self._stat = stat
        self._is_read = False  # all that is said of it was read from it, or from its twin before
        self._is_kept = False

    def close(self) -> None:
        """Delete it if it was not kept."""
        os.close(self._descriptor)
        if not self._is_kept:
            self._twins.unlink(self._name)

    def hashed(self, seen: Callable[[bytes, bytes], None] | None) -> tuple[BlockList, int] | None:
        """What is in it, by what the file's twin was.

        Args:
            seen: As for `hash_file`.

        Returns:
            As `hash_file`; None: there is no twin that can be relied on.

        Raises:
            OSError: It can't be read.
        """
        twin = self._twins.of(self._stat.tag)
        old = None if twin is None else self._twins.lists.load(twin.content)
        if twin is None or old is None:
            return None
        size = self._stat.tag.size_bytes
        with self._twins.opened(twin) as descriptor:
            if descriptor is None:
                return None
            changed = _apart(descriptor, self._descriptor, _comparable(old, size))
        # Looked at once more: what was compared still was what we made.
        with self._twins.opened(twin) as descriptor:
            if descriptor is None or changed is None:
                return None
        found = hash_changes(self._descriptor, size, old, [*changed, (_comparable(old, size), size)], seen)
        self._is_read = True
        return found

    def keep(self, live: int, content: Content, blocks: BlockList) -> None:
        """Let it be the file's twin, if it is known to hold what was hashed. It is closed as ever.

        Args:
            live: Descriptor of the file. Who calls has seen that its evidence was the same before and after.
            content: What was hashed.
            blocks: Its block list.
        """
        with suppress(OSError):
            if self._is_read or self._holds(live, blocks):
                twin = finished(self._name, self._descriptor, content, self._stat.path)
                self._twins.book(self._stat.tag, twin)
                self._is_kept = True

    def _holds(self, live: int, blocks: BlockList) -> bool:
        """Whether it holds what was read from the file.

        A page that still lies where the copy's lies was not written to since the copy was made; what was read was
        that. All else, such as room that is reserved, is read from the copy and compared.
        """
        size = self._stat.tag.size_bytes
        changed = _apart(self._descriptor, live, size)
        if changed is None or data_bytes(self._descriptor, changed, blocks.block_size, size) > _PROOF_BYTES:
            return False
        return hash_changes(self._descriptor, size, blocks, changed)[0] == blocks


def take(twins: Twins, live: int, stat: FileStat) -> Fresh | None:
    """Copy a file as of this moment, before it is hashed.

    Args:
        twins: Of its root.
        live: Descriptor of the file.
        stat: What was seen of it. Who calls looks again afterwards.

    Returns:
        None: it is read as ever.
    """
    copied = twins.copy(live, stat.tag.size_bytes)
    return None if copied is None else Fresh(twins, *copied, stat)


def _apart(still: int, other: int, end: int) -> list[tuple[int, int]] | None:
    try:
        return apart(still, other, end)
    except (OSError, OddMapError):
        return None


def _comparable(old: BlockList, size_bytes: int) -> int:
    """Up to where a file of another size can have blocks that it had before: an end within a block changes it."""
    common = min(old.size_bytes, size_bytes)
    return common if old.size_bytes == size_bytes else common // old.block_size * old.block_size
