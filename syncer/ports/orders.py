"""What is written to a remote, as lists of orders.

An order says what shall be true, and of which version that was decided. Orders of one list do not need each other: the
remote takes them in any order, as many in a request as it likes, and tells what became of each as soon as it knows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id
from blockfs.blocks.ids import BlockId, ObjectHash
from syncer.core.model import Content, FileStat, Kind, Meta, RelPath, RemoteTag
from syncer.core.planner.overwrites import ForeignVersion
from syncer.core.subtrees import Guard, SubtreeMove
from syncer.errors import LocalChangedError


class Store(msgspec.Struct, frozen=True, kw_only=True):
    """Make an object, or a new version of one.

    Attributes:
        path: Where.
        kind: What.
        meta: All metadata: a write replaces them.
        replaces: The version that it replaces; None: nothing may be there.
        content: Of a file; the `Reader` has its bytes.
        target: Of a symlink.
        older: The content of what it replaces, if that is known: only what differs from it need travel.
        source: Of a file: where it is here; or a version of this remote that gets a name of its own, with its metadata:
            then nothing travels, and that it is there already is fine.
        sent: The content, one block, went ahead (`Remote.send`): it travels again only if it was collected.
        device: Of a file: what the device is called that it comes from, told to people; empty: it is not told.
    """

    path: RelPath
    kind: Kind
    meta: Meta
    replaces: RemoteTag | None = None
    content: Content | None = None
    target: bytes | None = None
    older: Content | None = None
    source: FileStat | ForeignVersion | None = None
    sent: bool = False
    device: str = ""

    @property
    def size_bytes(self) -> int:
        """Of what it makes."""
        return self.content.size_bytes if self.content is not None else len(self.target or b"")

    @property
    def hash_hex(self) -> str:
        """Object hash in hex of what it makes."""
        return (block_id(self.target or b"") if self.content is None else self.content.object_hash).hex()


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """Rename one object without transferring content; its uuid stays. What lies below a directory stays where it is.

    Attributes:
        source: Where the object is.
        target: Its new name, which must be free.
        expect: The version that is moved.
    """

    source: RelPath
    target: RelPath
    expect: RemoteTag


class MoveTree(msgspec.Struct, frozen=True, kw_only=True):
    """Rename an object and all below it, in one go. Only where the remote can that.

    In doubt it is refused: then look at everything.

    Attributes:
        source: The root of the subtree.
        target: Its new name; nothing may be there, or below it.
        guard: What the subtree holds.
    """

    source: RelPath
    target: RelPath
    guard: Guard


class Delete(msgspec.Struct, frozen=True, kw_only=True):
    """Delete one object. Gone already is done.

    Attributes:
        path: Which.
        expect: Its version.
    """

    path: RelPath
    expect: RemoteTag


class SetMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Set metadata, content untouched.

    Attributes:
        path: Of which object.
        meta: All of them; None fields stay.
        expect: Its version.
    """

    path: RelPath
    meta: Meta
    expect: RemoteTag


Order: TypeAlias = Store | Move | MoveTree | Delete | SetMeta


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """An order that is carried out.

    Attributes:
        tag: The version that is now current, as our own write made it; None of what is deleted or kept beside.
        foreign: Versions of others that it replaced unseen; empty on a remote with atomic conditions.
        moved: The subtree, with its new versions.
        lacking: What the object had and has no more, as a sentence; None if nothing.
    """

    tag: RemoteTag | None = None
    foreign: tuple[ForeignVersion, ...] = ()
    moved: SubtreeMove | None = None
    lacking: str | None = None


Done: TypeAlias = Callable[[int, Stored | Exception], Awaitable[None]]
"""What became of an order, by its place in the list; may be told by several tasks at once. An error is one of
`errors.ONE_NODE`, and nothing was written, as far as is known."""


class Reader(Protocol):
    """The contents of `Store` orders, as they were when that was decided: compared with their ids as they are read."""

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        """Whole contents of at most one block each, or why they can't be had."""
        ...

    async def block_list(self, store: Store) -> BlockList:
        """The block list of a content. Of a file it is looked at once more before anything is sent.

        Raises:
            LocalChangedError: The file is not what it was.
        """
        ...

    async def older_list(self, store: Store) -> BlockList | None:
        """The block list of the version that is replaced, if it is known and long enough to matter."""
        ...

    async def blocks(self, store: Store, blocks: BlockList, indexes: Sequence[int]) -> list[bytes]:
        """Some blocks, canonical, each with the id that the list says: who sends need not hash them again.

        Raises:
            LocalChangedError: One is not what it was.
        """
        ...


class InMemory:
    """A `Reader` of one content, of which some blocks are at hand."""

    def __init__(self, blocks: BlockList, data: Mapping[int, bytes]) -> None:
        """Take the block list, and blocks by their index."""
        self._blocks = blocks
        self._data = data

    @classmethod
    def of(cls, data: bytes, block_size: int) -> InMemory:
        """All of a content."""
        cut = [data[at : at + block_size] for at in range(0, len(data), block_size)]
        ids = b"".join(map(block_id, cut))
        return cls(BlockList(block_size=block_size, size_bytes=len(data), ids=ids), dict(enumerate(cut)))

    @property
    def content(self) -> Content:
        """What an order says of it."""
        return Content(size_bytes=self._blocks.size_bytes, object_hash=ObjectHash(self._blocks.object_hash))

    async def contents(self, stores: Sequence[Store]) -> list[bytes | Exception]:
        """See Reader."""
        return [self._data.get(0, b"").ljust(store.size_bytes, b"\0") for store in stores]

    async def block_list(self, store: Store) -> BlockList:  # noqa: ARG002 - it has one
        """See Reader."""
        return self._blocks

    async def older_list(self, store: Store) -> BlockList | None:  # noqa: ARG002 - as above
        """See Reader."""
        return None

    async def blocks(self, store: Store, blocks: BlockList, indexes: Sequence[int]) -> list[bytes]:
        """See Reader."""
        found: list[bytes] = []
        for index in indexes:
            data = self._data.get(index)
            if data is None or block_id(data) != blocks[index]:
                raise LocalChangedError(store.path, f"block {index} is not at hand")
            found.append(data)
        return found


_NOTHING = InMemory(BlockList(block_size=1, size_bytes=0, ids=b""), {})


class Writes(Protocol):
    """The writing half of a remote. Safe for many tasks.

    After a lost reply it looks, compares and adopts; it never repeats blindly.
    """

    async def write(self, orders: Sequence[Order], reader: Reader, done: Done) -> None:
        """Carry out orders that do not need each other, in any order, blocks first; each under its own condition.

        What concerns one order is its outcome. A block that several files need is sent once. The list may be long:
        what is in memory of contents does not grow with it.

        Raises:
            SyncerError: What concerns all: the server is away or full, …. Every outcome that is known was told.
        """
        ...

    async def send(self, blocks: Mapping[BlockId, bytes]) -> None:
        """Bring blocks that orders will need soon, as far as they are not there. No object has them yet."""
        ...

    async def commit(self) -> None:
        """Return when everything written so far is visible to others, and durable. Idempotent."""
        ...


async def write_one(remote: Writes, order: Order, reader: Reader | None = None) -> Stored:
    """Carry out one order.

    Args:
        remote: Where.
        order: What.
        reader: Has its content, if it has any.

    Raises:
        SyncerError: As its outcome, or as `Writes.write` does.
    """
    told: list[Stored | Exception] = []

    async def done(_: int, outcome: Stored | Exception) -> None:
        told.append(outcome)

    await remote.write([order], reader or _NOTHING, done)
    (outcome,) = told
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
