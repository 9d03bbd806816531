"""Ring R2's local side: `LocalRoot` in memory, over the same ground truth as ring R0's.

A power cut undoes what no barrier made durable: names are kept as by a journal, in order, up to some change since then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_length
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.blocks.wanting import fetch_files
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath
from syncer.core.paths import split
from syncer.core.rows import Origin
from syncer.errors import LocalChangedError, SyncerError
from syncer.ports.blocks import BlockSource, Board, Fetcher
from syncer.ports.local import BlockReader
from syncer.ports.localvalues import (
    OWN,
    Applied,
    Change,
    ChangeMeta,
    Holders,
    Install,
    LocalCounters,
    MakeDirectory,
    MakeLink,
    Observation,
    Piece,
    Remove,
    Rename,
    Spill,
    Staged,
    StageOrder,
    content_of,
)
from tests.simulation.world import ActionRefusedError, Entry, Replica, written

BLOCK = 4096
_LIST: dict[int, BlockList] = {}
_PAYLOAD: dict[Content, int] = {}


def data_of(payload: int) -> bytes:
    """The bytes of a numbered content: some are of two blocks, the first of which they share."""
    head = b"" if payload % 4 else b"shared".ljust(BLOCK, b".")
    return head + b"content %d\n" % payload


def parts_of(payload: int) -> list[bytes]:
    """Its blocks."""
    data = data_of(payload)
    return [data[at : at + BLOCK] for at in range(0, len(data), BLOCK)]


def blocks_of(payload: int) -> BlockList:
    """Its block list."""
    if payload not in _LIST:
        data = data_of(payload)
        ids = b"".join(block_id(data[at : at + BLOCK]) for at in range(0, len(data), BLOCK))
        made = _LIST[payload] = BlockList(block_size=BLOCK, size_bytes=len(data), ids=ids)
        _PAYLOAD[content_of(made)] = payload
    return _LIST[payload]


def content(payload: int) -> Content:
    return content_of(blocks_of(payload))


def payload_of(found: Content) -> int:
    """The number of a content that somebody wrote; a mixture has none."""
    return _PAYLOAD[found]


Hook = Callable[[str], Awaitable[None]]


@dataclass
class StagedEntry:
    """A verified file without a name."""

    payload: int
    meta: Meta

    async def drop(self) -> None:
        """Nothing is kept of it."""


class NoLists:
    """No block list is kept."""

    def save(self, content: Content, blocks: BlockList) -> None:
        """See KeptLists."""

    def contents(self) -> set[Content]:
        """See KeptLists."""
        return set()


class Nothing:
    """The near source `own` of a root that finds no block by its id. One that looked would need threads."""

    name = "own"
    near = True

    async def run(self, board: Board) -> None:
        """See BlockSource: from now on it lacks everything."""


class MemoryRoot:
    """See `LocalRoot`.

    Attributes:
        before: Called before each method: users act, faults are raised.
        trashed: Payloads of files in the trash.
        log: Changes that were made.
        moments: The tree after each change since the last barrier, the durable one first.
        watcher: Is shown the tree after each change.
        marking: Extended attributes are synced.
    """

    CLOCK_NS = 1 << 62  # each change has a tick of its own here: nothing is racily clean
    block_size = BLOCK
    kind: Final = "folder"

    def __init__(self, replica: Replica, before: Hook) -> None:
        self.replica = replica
        self.before = before
        self.trashed: set[int] = set()
        self.log: list[str] = []
        self.moments: list[dict[bytes, Entry]] = []
        self.watcher: Callable[[dict[bytes, Entry]], None] = lambda _: None
        self.unknown: set[RelPath] = set()
        self.unstable: set[RelPath] = set()
        self.made = 1 << 20
        self.counters = LocalCounters()
        self.lists = NoLists()
        self.marking = False
        self.barrier_now()

    # --- durability

    def snapshot(self) -> dict[bytes, Entry]:
        return {path: replace(entry) for path, entry in self.replica.entries.items()}

    def barrier_now(self) -> None:
        self.moments = [self.snapshot()]

    def changed(self, text: str) -> None:
        self.log.append(f"local {text}")
        self.changed_by_somebody()

    def changed_by_somebody(self) -> None:
        """The tree is another one by now."""
        self.moments.append(self.snapshot())
        self.watcher(self.moments[-1])

    def power_cut(self, kept: int) -> None:
        """Keep the first `kept` changes since the barrier."""
        self.replica.entries = {path: replace(entry) for path, entry in self.moments[kept].items()}
        self.moments = self.moments[: kept + 1]

    # --- observing

    async def observe(self, base: BaseIndex, spill: Spill | None = None) -> Observation:
        await self.before("observe")
        return Observation(
            stats=self.everything(),
            unknown=sorted(self.unknown),
            problems=[],
            clock_ns=self.CLOCK_NS,
            rules=IgnoreRules(),
        )

    def everything(self) -> list[FileStat]:
        """All that can be seen now, with contents."""
        return [
            replace(stat, tag=self._tag(stat.path), content=self.content_now(stat.path))
            for stat in self.replica.observe_local(self.unknown, set())
        ]

    def tag_now(self, path: RelPath) -> LocalTag | None:
        """The evidence of what is at a path; None if nothing is."""
        return self._tag(path) if path in self.replica.entries else None

    def content_now(self, path: RelPath) -> Content | None:
        """A file's content; None if it can't be read in peace."""
        entry = self.replica.entries[path]
        return content(entry.payload) if entry.kind is Kind.FILE and path not in self.unstable else None

    def _tag(self, path: bytes) -> LocalTag:
        entry = self.replica.entries[path]
        size = len(data_of(entry.payload)) if entry.kind is Kind.FILE else 0
        return LocalTag(
            device=0, ino=entry.identity, btime_ns=0, size_bytes=size, mtime_ns=entry.mtime, ctime_ns=entry.version
        )

    def _require(self, path: RelPath, expect: LocalTag, *, inode_only: bool = False) -> Entry:
        entry = self.replica.entries.get(path)
        if entry is None:
            raise LocalChangedError(path, "it is gone")
        found = self._tag(path)
        if found.inode != expect.inode or not (inode_only or entry.kind is Kind.DIRECTORY or found == expect):
            raise LocalChangedError(path, "it was written to")
        return entry

    # --- reading

    def reader(self) -> BlockReader:
        return MemoryReader(self)

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        found: list[BlockList | Exception] = []
        for stat in stats:
            try:
                found.append(await self.block_list(stat))
            except OWN as error:
                found.append(error)
        return found

    async def block_list(self, stat: FileStat) -> BlockList:
        await self.before("block_list")
        self._require(stat.path, stat.tag)
        assert stat.content is not None
        return blocks_of(payload_of(stat.content))

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:
        return None

    async def read_block(self, stat: FileStat, blocks: BlockList, index: int) -> bytes:
        await self.before("read_block")
        entry = self.replica.entries.get(stat.path)
        if entry is None or entry.kind is not Kind.FILE:
            raise LocalChangedError(stat.path, "it is gone")
        length = block_length(index, blocks.size_bytes, BLOCK)
        return canonical(data_of(entry.payload)[index * BLOCK : index * BLOCK + length])

    async def verify_unchanged(self, stat: FileStat) -> None:
        await self.before("verify_unchanged")
        self._require(stat.path, stat.tag)

    # --- changing

    def own_blocks(self, holders: Holders) -> BlockSource:
        return Nothing()

    async def stage(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[Staged | Exception]:
        got: dict[BlockId, bytes] = {ZERO_BLOCK: b""}

        async def receive(came: Sequence[tuple[BlockId, bytes]]) -> None:
            assert all(block_id(data) == block and block not in got for block, data in came)
            got.update(came)

        async def fetch(numbers: Iterable[int]) -> dict[int, SyncerError]:
            lacking = {at: [i for i, block in enumerate(orders[at].blocks) if block not in got] for at in numbers}
            lacking = {at: indexes for at, indexes in lacking.items() if indexes}
            files = [(order.version, order.blocks) for order in orders]
            return await fetch_files(blocks, files, lacking, receive) if lacking else {}

        async def staged(at: int) -> StagedEntry:
            order = orders[at]
            await self.before("stage")
            origin = self._holder(order)
            if origin is None:
                for error in (await fetch([at])).values():  # it was here when we looked, and is gone meanwhile
                    raise error
                size = order.blocks.size_bytes
                pieces = (got[block].ljust(block_length(i, size, BLOCK), b"\0") for i, block in enumerate(order.blocks))
                whole = b"".join(pieces)
                assert whole == data_of(payload_of(order.content)), "what was assembled is not what was wanted"
            else:
                self.counters.own_blocks += order.own_blocks(origin, order.blocks)
            await self.before("staged")
            return StagedEntry(payload_of(order.content), order.meta)

        failed = await fetch(at for at, order in enumerate(orders) if self._holder(order) is None)
        done: list[Staged | Exception] = []
        for at in range(len(orders)):
            try:
                done.append(failed[at] if at in failed else await staged(at))
            except OWN as error:
                done.append(error)
        return done

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        return lambda _: None

    def _holder(self, order: StageOrder) -> Origin | None:
        there = (each for each in order.origins if each.content == order.content)
        return next((each for each in there if self._is_there(each.path, each.tag)), None)

    def _is_there(self, path: RelPath, tag: LocalTag) -> bool:
        return path in self.replica.entries and self._tag(path) == tag

    def _put(self, path: RelPath, entry: Entry) -> None:
        try:
            self.replica.put(path, entry)
        except ActionRefusedError:
            raise LocalChangedError(path, "the name is taken, or its directory is gone") from None

    def _new(self, kind: Kind, payload: int, meta: Meta) -> Entry:
        self.made += 1
        mode = 0o644 if meta.mode is None else meta.mode
        marks = written(() if self.marking and kind is not Kind.SYMLINK else None, meta.xattrs)
        return Entry(self.made, kind, payload, mode, meta.mtime_ns or 0, self.replica.tick(), marks)

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        done: list[Applied | Exception] = []
        for change in changes:
            try:
                done.append(await self._apply(change))
            except OWN as error:
                done.append(error)
        return done

    async def _apply(self, change: Change) -> Applied:
        match change:
            case Install(expect=None):
                made = self.create(change.path, change.staged)
            case Install():
                made = self.replace(change.path, change.staged, change.expect)
            case MakeDirectory():
                made = self.make_directory(change.path, change.meta)
            case MakeLink():
                made = self.make_symlink(change.path, change.target, change.expect)
            case Rename():
                made = self.move(change.source, change.target, change.expect)
            case Remove():
                made = self.trash(change.path, change.kind, change.expect)
            case ChangeMeta():
                made = self.set_meta(change.path, change.meta, change.expect)
        return await made

    async def create(self, path: RelPath, staged: StagedEntry) -> Applied:
        await self.before("create")
        self._put(path, self._new(Kind.FILE, staged.payload, staged.meta))
        self.changed(f"create {path!r}")
        return Applied(tag=self._tag(path))

    async def replace(self, path: RelPath, staged: StagedEntry, expect: LocalTag) -> Applied:
        await self.before("replace")
        old = self._require(path, expect)
        self._trash(old)
        new = self.replica.entries[path] = self._new(Kind.FILE, staged.payload, staged.meta)
        new.marks = written(old.marks, staged.meta.xattrs)
        self.changed(f"replace {path!r}")
        return Applied(tag=self._tag(path))

    async def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        await self.before("make_directory")
        self._put(path, self._new(Kind.DIRECTORY, 0, meta))
        self.changed(f"mkdir {path!r}")
        return Applied(tag=self._tag(path), meta=Meta(mode=self.replica.entries[path].mode, xattrs=meta.xattrs))

    async def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        await self.before("make_symlink")
        if expect is None:
            self._put(path, self._new(Kind.SYMLINK, int(target), Meta()))
        else:
            self._require(path, expect)
            self.replica.entries[path] = self._new(Kind.SYMLINK, int(target), Meta())
        self.changed(f"symlink {path!r}")
        return Applied(tag=self._tag(path))

    async def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        await self.before("move")
        entry = self._require(source, expect, inode_only=True)
        try:
            for _ in self.replica.moves(source, target):
                pass
        except ActionRefusedError:
            raise LocalChangedError(target, "the name is taken, or its directory is gone") from None
        self.changed(f"move {source!r} -> {target!r}")
        found = self._tag(target)
        # What was written to unseen goes along, but keeps the evidence of before: nothing but a look makes it known.
        same = entry.kind is Kind.DIRECTORY or found == expect
        return Applied(tag=found if same else replace(expect, ctime_ns=0))

    async def trash(self, path: RelPath, kind: Kind, expect: LocalTag) -> Applied:
        await self.before("trash")
        entry = self._require(path, expect)
        try:
            self.replica.remove(path)
        except ActionRefusedError:
            raise LocalChangedError(path, "it holds something that is not synced, or that is new") from None
        self._trash(entry)
        self.changed(f"trash {kind.value} {path!r}")
        return Applied(tag=None)

    def _trash(self, entry: Entry) -> None:
        if entry.kind is Kind.FILE:
            self.trashed.add(entry.payload)

    async def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag) -> Applied:
        await self.before("set_meta")
        entry = self._require(path, expect)
        entry.mode = entry.mode if meta.mode is None else meta.mode
        entry.mtime = entry.mtime if meta.mtime_ns is None else meta.mtime_ns
        entry.marks = written(entry.marks, meta.xattrs)
        entry.version = self.replica.tick()
        self.changed(f"set meta {path!r}")
        return Applied(tag=self._tag(path))

    async def barrier(self) -> None:
        await self.before("barrier")
        self.barrier_now()

    async def settle(self) -> list[RelPath]:
        await self.before("finish")
        return []

    async def close(self) -> None:
        """Nothing is open."""


@dataclass
class MemoryReader:
    """See `BlockReader`."""

    root: MemoryRoot
    same: set[RelPath] = field(default_factory=set)

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        found: list[bytes | Exception] = []
        for piece in pieces:
            try:
                found.append(await self._read(piece))
            except OWN as error:
                found.append(error)
        return found

    async def _read(self, piece: Piece) -> bytes:
        stat = piece.stat
        if len(piece.blocks) > 1 and stat.path not in self.same:
            await self.root.verify_unchanged(stat)
            self.same.add(stat.path)
        data = await self.root.read_block(stat, piece.blocks, piece.index)
        if block_id(data) != piece.id:
            raise LocalChangedError(stat.path, "it was written to")
        return data


def payloads(entries: Iterable[Entry]) -> set[int]:
    return {entry.payload for entry in entries if entry.kind is Kind.FILE}


def parent_of(path: bytes) -> bytes:
    return split(RelPath(path))[0]
