"""The object store: what requests ask for, on a catalogue and a block directory. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import hashlib
import secrets
import time
import uuid as uuids
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final, Self

from blockfs.blocks import gc
from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count, spans
from blockfs.blocks.gc import GcResult
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from syncer.protocol.changes import ChangesPage
from syncer.protocol.headers import ObjectState
from syncer.protocol.listing import ContainerRow, ObjectRow, SubdirectoryRow, VersionRow
from syncer.server import containers, contents, history, listings, objects, subtrees, sweep
from syncer.server.bell import Bell
from syncer.server.catalogue import Catalogue, Change
from syncer.server.commits import Commits
from syncer.server.conditions import (
    Conditions,
    Verdict,
    judge_read,
    listing_is_unchanged,
    settled_time,
)
from syncer.server.containers import AccountSummary
from syncer.server.contents import LeafVanished, Prepared
from syncer.server.folder import ServerFolder
from syncer.server.history import ChangesOrder
from syncer.server.listings import Selection
from syncer.server.objects import Draft, Place, TransferOrder
from syncer.server.refusals import NotModified, PreconditionFailed
from syncer.server.schema import ContainerRecord
from syncer.server.sweep import SweepResult

GRACE_US: Final = 24 * 3600 * 1_000_000
"""How long an uploaded block stays without a version that names it: an upload of 1 TiB takes a day at 100 Mbit/s."""

_READ_STEP_BYTES: Final = 1 << 20  # of content in one thread call: a call costs some 50 µs


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """What replies about a container tell.

    Attributes:
        record: Its row.
        settled_us: Its time of change, for Last-Modified; see `conditions.settled_time`.
    """

    record: ContainerRecord
    settled_us: int

    @property
    def identity(self) -> str:
        """UUID text of the container's life."""
        return str(uuids.UUID(bytes=self.record.uuid))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectView:
    """One version, open for reading. Its block list is immutable.

    Attributes:
        state: What replies tell.
        leaf_keys: Concatenated keys of its leaves.
    """

    state: ObjectState
    leaf_keys: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a garbage collection did."""

    catalogue: SweepResult
    blocks: GcResult


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store:
    """One open store. Closed by `close`; one process at a time (the folder's lock)."""

    def __init__(self, folder: ServerFolder, *, clock_us: Callable[[], int] = _clock_us) -> None:
        """Open the store in a locked folder, or make it there.

        Args:
            folder: Made and locked by `ServerFolder.open`; closed with the store.
            clock_us: Microseconds since the epoch.
        """
        self._folder = folder
        self._clock_us = clock_us
        self._blocks = BlockDirectory.open(folder.blocks)
        try:
            self._catalogue = Catalogue.open(folder.catalogue)
        except BaseException:
            self._blocks.close()
            raise
        self.bell: Final = Bell()
        self._commits = Commits(self._catalogue, clock_us, self.bell.ring)
        self.block_size: Final = self._blocks.block_size
        self.token_file: Final = folder.token

    def close(self) -> None:
        """Finish what is queued and close everything."""
        self.bell.close()
        self._commits.close()
        self._catalogue.close()
        self._blocks.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- accounts and containers

    def account(self, account: str) -> AccountSummary:
        """Sums over an account."""
        with self._catalogue.reading() as view:
            return containers.summary(view, account)

    def containers(self, account: str, *, marker: str, prefix: str, limit: int) -> list[ContainerRow]:
        """An account's containers behind `marker`, by name."""
        with self._catalogue.reading() as view:
            return list(islice(containers.all_of(view, account, marker, prefix), limit))

    def create_container(self, account: str, container: str) -> bool:
        """Make a container; False if it exists."""
        fresh = uuids.uuid4().bytes
        return self._commits.run(lambda change: containers.create(change, account, container, fresh))

    def delete_container(self, account: str, container: str) -> None:
        """Delete an empty container and, later, its history."""
        self._commits.run(lambda change: containers.delete(change, account, container))

    def container(self, account: str, container: str) -> ContainerView:
        """What a container is now."""
        floor_us = self._commits.floor_us()  # before the snapshot
        with self._catalogue.reading() as view:
            _, record = containers.existing(view, account, container)
        return ContainerView(record=record, settled_us=settled_time(record.modified_us, floor_us))

    def listing(
        self, account: str, container: str, wanted: Selection, *, since: int | None = None
    ) -> tuple[ContainerView, list[ObjectRow | SubdirectoryRow]]:
        """A container and what is wanted of its objects, by name, of one moment.

        Raises:
            NotFound: There is no such container.
            NotModified: It has not changed since `since` (seconds since the epoch).
        """
        floor_us = self._commits.floor_us()  # before the snapshot
        with self._catalogue.reading() as view:
            _, record = containers.existing(view, account, container)
            if listing_is_unchanged(since, record.modified_us):
                raise NotModified("Not modified")
            rows = listings.select(view, record, wanted)
        return ContainerView(record=record, settled_us=settled_time(record.modified_us, floor_us)), rows

    def changes(self, account: str, container: str, order: ChangesOrder) -> tuple[int, ChangesPage]:
        """A container's id (for `bell`) and what changed in it since a version; see `history.changes`."""
        with self._catalogue.reading() as view:
            return history.changes(view, account, container, order)

    # --- reading objects

    def open_object(self, place: Place, *, version: int | None, conditions: Conditions) -> ObjectView:
        """A version of an object, the current one for None.

        Raises:
            NotFound: No such container, object or version.
            PreconditionFailed: A condition doesn't hold.
            NotModified: The client has it already.
        """
        with self._catalogue.reading() as view:
            serial, record = objects.read_version(view, place, version)
            state = objects.state_of(serial, record)
            verdict = judge_read(conditions, state)
            if verdict is Verdict.FAILED:
                raise PreconditionFailed(f"Precondition failed: it is at version {serial}")
            if verdict is Verdict.NOT_MODIFIED:
                raise NotModified("Not modified", {"ETag": f'"{state.etag}"'})
            return ObjectView(state=state, leaf_keys=contents.leaf_keys(view, record, self.block_size))

    def history(self, place: Place) -> list[VersionRow]:
        """Versions of a name, ascending."""
        with self._catalogue.reading() as view:
            return objects.history(view, place)

    def ids(self, opened: ObjectView, first: int, count: int) -> bytes:
        """Some of an object's block ids, concatenated.

        Args:
            opened: The object.
            first: Index of the first.
            count: How many, within the object.
        """
        first_leaf, skip = divmod(first, LEAF_IDS)
        last_leaf = -(-(first + count) // LEAF_IDS)
        with self._catalogue.reading() as view:
            run = b"".join(contents.read_leaves(view, opened.leaf_keys[first_leaf * ID_SIZE : last_leaf * ID_SIZE]))
        return run[skip * ID_SIZE : (skip + count) * ID_SIZE]

    def id_runs(self, opened: ObjectView) -> Iterator[bytes]:
        """All of an object's ids, in runs; each `next` may wait for the disk."""
        total = block_count(opened.state.size_bytes, self.block_size)
        step = 16 * LEAF_IDS
        for first in range(0, total, step):
            yield self.ids(opened, first, min(step, total - first))

    def content(self, opened: ObjectView, start: int, length: int) -> Iterator[bytes]:
        """A byte range of an object, in pieces of about 1 MiB; each `next` may wait for the disk.

        Raises:
            CorruptBlockError: While iterating: a block is not readable. What was yielded before is right.
        """
        step = max(1, _READ_STEP_BYTES // self.block_size) * self.block_size
        end = start + length
        while start < end:
            piece_end = min(end, (start // step + 1) * step)
            yield self._piece(opened, start, piece_end - start)
            start = piece_end

    def _piece(self, opened: ObjectView, start: int, length: int) -> bytes:
        """Some bytes, within a few blocks."""
        parts = list(spans(start, length, self.block_size))
        first = parts[0].index
        ids = self.ids(opened, first, len(parts))
        pieces = []
        for at, span in enumerate(parts):
            block_id = BlockId(ids[at * ID_SIZE : (at + 1) * ID_SIZE])
            pieces.append(self._blocks.read(block_id, span.start, span.length))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    # --- writing objects

    def receive(self, *, md5: bool = False) -> Incoming:
        """Begin to take the content of an object, or blocks. Close it when done or given up."""
        return Incoming(self._blocks, md5=md5)

    def upload(self, account: str, incoming: Incoming) -> list[BlockId]:
        """Keep the blocks that were received for an account.

        Returns:
            Their ids, in order. From now on the account may name them; without a version that does, they stay 24 h.
        """
        ids = list(incoming.finish())
        self._blocks.sync()  # before the commit that lets versions name them
        distinct = [block_id for block_id in dict.fromkeys(ids) if block_id != ZERO_BLOCK]
        if distinct:
            self._commits.run(lambda change: contents.record_uploads(change, change.make_account(account), distinct))
        return ids

    def check_write(self, place: Place, conditions: Conditions) -> None:
        """Refuse early what the commit would refuse, before a body is read. The commit decides again.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
        """
        with self._catalogue.reading() as view:
            objects.require(conditions, objects.look(view, place))

    def put_content(
        self,
        place: Place,
        incoming: Incoming,
        *,
        content_type: str,
        meta: Mapping[str, str],
        conditions: Conditions,
    ) -> ObjectState:
        """Make an object, or a new version, of content that was received.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
        """
        block_list = incoming.finish()
        self._blocks.sync()  # before the commit that names them
        return self._commit_content(
            place, block_list, conditions, content_type=content_type, meta=meta, uploaded=tuple(block_list), hold=None
        )

    def put_hashmap(
        self,
        place: Place,
        block_list: BlockList,
        *,
        content_type: str,
        meta: Mapping[str, str],
        conditions: Conditions,
    ) -> ObjectState:
        """Make an object, or a new version, of blocks that the account has sent before, or has in other objects.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
            MissingBlocks: Blocks that the account has not sent; nothing was written.
            BadRequest: The size cuts the last block short.
        """
        with self._blocks.hold() as hold:
            return self._commit_content(
                place, block_list, conditions, content_type=content_type, meta=meta, uploaded=(), hold=hold
            )

    def _commit_content(
        self,
        place: Place,
        block_list: BlockList,
        conditions: Conditions,
        *,
        content_type: str,
        meta: Mapping[str, str],
        uploaded: Sequence[BlockId],
        hold: EpochHold | None,
    ) -> ObjectState:
        fresh = uuids.uuid4().bytes
        while True:
            content = self._prepare(place, block_list, conditions, uploaded, hold)
            draft = Draft(content=content, content_type=content_type, meta=meta, fresh_uuid=fresh)
            try:
                return self._commits.run(partial(objects.put, place=place, draft=draft, conditions=conditions))
            except LeafVanished:
                continue  # swept between our look and the commit: the next look finds it gone and checks its ids

    def _prepare(
        self,
        place: Place,
        block_list: BlockList,
        conditions: Conditions,
        uploaded: Sequence[BlockId],
        hold: EpochHold | None,
    ) -> Prepared:
        """Look at a block list; with a hold, also at who may name its blocks."""
        with self._catalogue.reading() as view:
            found = objects.look(view, place)
            objects.require(conditions, found)  # early: a 412 says more than a list of missing blocks
            content = contents.prepare(view, found.account_id, block_list, uploaded)
            if hold is not None:
                contents.require_possession(view, found.account_id, content, self._blocks, hold)
                contents.require_fit(block_list, self._blocks)  # after it: tells only about blocks of the account
        return content

    def set_meta(self, place: Place, meta: Mapping[str, str], conditions: Conditions, *, update: bool) -> ObjectState:
        """Change metadata; see `objects.set_meta`."""
        return self._commits.run(lambda change: objects.set_meta(change, place, meta, conditions, update=update))

    def delete(self, place: Place, conditions: Conditions, *, delimiter: str = "") -> int:
        """Delete an object; with a delimiter, all below it as well. See `objects.delete`, `subtrees.delete`."""
        if delimiter:
            return self._commits.run(lambda change: subtrees.delete(change, place, delimiter, conditions))
        return self._commits.run(lambda change: objects.delete(change, place, conditions))

    def empty_container(self, account: str, container: str) -> None:
        """Delete all objects of a container; see `subtrees.empty`."""
        self._commits.run(lambda change: subtrees.empty(change, account, container))

    def move(self, source: Place, destination: Place, order: TransferOrder, *, delimiter: str = "") -> ObjectState:
        """Move an object; with a delimiter, all below it as well. See `objects.move`, `subtrees.transfer`."""

        def act(change: Change) -> ObjectState:
            one = partial(objects.move, change)
            if delimiter:
                return subtrees.transfer(change, source, destination, delimiter, order, one)
            return one(source, destination, order)

        return self._commits.run(act)

    def copy(
        self,
        source: Place,
        destination: Place,
        order: TransferOrder,
        *,
        version: int | None = None,
        delimiter: str = "",
    ) -> ObjectState:
        """Copy an object, or an old version of it; with a delimiter, all below it as they are now.

        See `objects.copy`, `subtrees.transfer`.
        """

        def act(change: Change) -> ObjectState:
            def one(old: Place, new: Place, how: TransferOrder) -> ObjectState:
                wanted = version if old == source else None
                return objects.copy(change, old, new, how, version=wanted, fresh_uuid=uuids.uuid4().bytes)

            if delimiter:
                return subtrees.transfer(change, source, destination, delimiter, order, one)
            return one(source, destination, order)

        return self._commits.run(act)

    # --- keeping house

    def collect_garbage(self, *, stop: Callable[[], bool] = lambda: False) -> Collected:
        """Remove what no version names and nobody has uploaded within the last 24 h. Requests go on meanwhile.

        Order: rows of the catalogue, durably → blocks that no remaining row names.

        Args:
            stop: Asked now and then; True ends the run early (CollectionStopped).
        """
        offset = secrets.randbelow(ID_SIZE - 8)
        before_us = self._clock_us() - GRACE_US
        swept = sweep.sweep(self._catalogue, self._commits, uploaded_before_us=before_us, offset=offset)
        collected = gc.collect(self._blocks, lambda: sweep.live_blocks(self._catalogue), stop=stop)
        return Collected(catalogue=swept, blocks=collected)


class Incoming:
    """Content on its way in: blocks are stored as they fill, so that memory holds one block and one piece.

    Attributes:
        size_bytes: Taken so far.
        md5: Of that, if it was asked for.
    """

    def __init__(self, blocks: BlockDirectory, *, md5: bool) -> None:
        self._blocks = blocks
        self._hold = blocks.hold()
        self._rest = bytearray()
        self._ids: list[BlockId] = []
        self.size_bytes = 0
        self.md5 = hashlib.md5(usedforsecurity=False) if md5 else None

    def feed(self, data: bytes) -> None:
        """Take the next bytes; may wait for the disk."""
        self.size_bytes += len(data)
        if self.md5 is not None:
            self.md5.update(data)
        if self._rest:
            self._rest += data
            data = bytes(self._rest)
            self._rest.clear()
        size = self._blocks.block_size
        whole = len(data) // size * size
        self._ids += [self._blocks.put(data[at : at + size], self._hold) for at in range(0, whole, size)]
        self._rest += data[whole:]

    def finish(self) -> BlockList:
        """All of it, as a block list. The blocks are not durable yet."""
        if self._rest:
            self._ids.append(self._blocks.put(bytes(self._rest), self._hold))
            self._rest.clear()
        return BlockList(block_size=self._blocks.block_size, size_bytes=self.size_bytes, ids=b"".join(self._ids))

    def close(self) -> None:
        """Let go of the blocks: after the commit, or when there will be none."""
        self._hold.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
