"""Directories that move as a whole: what is below them is neither looked at nor planned, only named anew. Pure.

On the server a *subtree* is an object and all objects whose names begin with its name and a slash. What it holds is
said by a guard: how many objects, and a digest over what is behind the root in their names ("" for the root itself,
"/a/b" below) and their versions, in byte order. Whoever moves a subtree sends the guard of what it has seen; a server
on which it is anything else moves nothing.

A move gives out serials without a gap: the i-th object's deletion marker under the old name gets `first + 2 i`, its
version under the new name `first + 2 i + 1`. So `first` alone tells all of them.

In the base, what lies below a directory keeps its parent, its name and its content when the directory moves; only the
versions are new.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.model import Nid, RelPath, RemoteTag
from syncer.core.paths import ancestors

_TAG: Final = b"blocksync-subtree-1\0"
_LENGTH: Final = struct.Struct(">I")
_VERSION: Final = struct.Struct(">Q")


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """What a subtree holds.

    Attributes:
        count: Objects, the root included.
        digest: Over names and versions, in hex.
    """

    count: int
    digest: str

    @property
    def text(self) -> str:
        """As a header's value."""
        return f"{self.count}-{self.digest}"


class SubtreeMove(msgspec.Struct, frozen=True, kw_only=True):
    """A subtree that was moved within a container.

    Attributes:
        source: Name of its root before.
        target: Name of its root afterwards.
        first: The first of the serials that were given out.
        guard: What it held, with the versions before.
    """

    source: str
    target: str
    first: int
    guard: Guard

    @property
    def last(self) -> int:
        """The last of the serials."""
        return self.first + 2 * self.guard.count - 1

    def root_tag(self, before: RemoteTag) -> RemoteTag:
        """The root's version under its new name."""
        return replace(before, version=version_of(self.first, 0))

    def gave(self, tag: RemoteTag) -> bool:
        """Whether a version may be one that it gave out."""
        return self.first <= tag.version <= self.last


def version_of(first: int, rank: int) -> int:
    """The new version of the object at a rank in byte order."""
    return first + 2 * rank + 1


def guard_of(entries: Iterable[tuple[bytes, int]]) -> Guard:
    """The guard of a subtree.

    Args:
        entries: What is behind the root in each object's name, and its version; in byte order.
    """
    hasher = hashlib.sha256(_TAG)
    count = 0
    parts: list[bytes] = []
    for rest, version in entries:
        parts += (_LENGTH.pack(len(rest)), rest, _VERSION.pack(version))
        count += 1
        if len(parts) > 1 << 14:
            hasher.update(b"".join(parts))
            parts.clear()
    hasher.update(b"".join(parts))
    return Guard(count=count, digest=hasher.hexdigest())


class Retagged(msgspec.Struct, frozen=True, kw_only=True):
    """A change of base rows: all below a directory have new versions on the server, and are as they were.

    Attributes:
        nid: The directory. Its own row is a change of its own.
        first: The first serial of the move.
        count: Nodes of the subtree, the directory included.
    """

    nid: Nid
    first: int
    count: int


class Subtree:
    """The nodes at and below a directory, by what the base says. Not an object for each: there may be a million.

    Attributes:
        rests: What is behind the root's path in each one's, in byte order: b"", or with a slash in front.
        nids: Which nodes, in the same order.
        versions: Of their objects, in the same order, as the base knows them; 0 if it knows none.
    """

    def __init__(self, rests: Sequence[bytes], nids: Sequence[Nid], versions: Sequence[int]) -> None:
        """Take over what the attributes hold."""
        self.rests, self.nids, self.versions = rests, nids, versions

    def __len__(self) -> int:
        return len(self.nids)

    @property
    def guard(self) -> Guard:
        """What the server must have."""
        return guard_of(zip(self.rests, self.versions, strict=True))

    def after(self, move: SubtreeMove) -> Subtree:
        """The same after it was moved."""
        return Subtree(self.rests, self.nids, _versions(move.first, len(self)))

    def is_after(self, move: SubtreeMove, *, root: bool) -> bool:
        """Whether the versions are those that a move gave out.

        Args:
            move: The move.
            root: Look at the root, too: its row is written apart from the others'.
        """
        least = 0 if root else 1
        return len(self) == move.guard.count and list(self.versions[least:]) == list(
            _versions(move.first, len(self))[least:]
        )


def _versions(first: int, count: int) -> range:
    """`version_of` for all ranks."""
    return range(version_of(first, 0), version_of(first, count), 2)


def touches(path: RelPath, roots: frozenset[RelPath]) -> bool:
    """Whether a path is one of some subtrees' roots, or below one."""
    return path in roots or any(above in roots for above in ancestors(path))
