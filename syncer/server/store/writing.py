"""Writing the content of objects: bodies, block lists, differences and parts. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count, spans
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, ObjectHash
from syncer.protocol.extensions.hashmap_delta import Delta
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue import contents, objects
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions
from syncer.server.catalogue.contents import LeafVanished, Prepared
from syncer.server.catalogue.objects import Draft, Overtaken, Place, Source
from syncer.server.catalogue.settings import merged_meta
from syncer.server.errors import PreconditionFailed, TooLarge, Unprocessable
from syncer.server.store import deltas
from syncer.server.store.incoming import Incoming
from syncer.server.store.long_lists import LongList
from syncer.server.store.reading import ObjectReader, ObjectView
from syncer.server.store.sharing import Shares
from syncer.server.store.updates import Edit, Part, UpdateOrder

LONG_IDS: Final = 1 << 14
"""Block lists with more are not held in memory: 1 GiB in blocks of 64 KiB."""

MAX_PART_BLOCKS: Final = 1 << 20
"""Of one change of a part; its ids are held in memory."""

_RECORD_IDS: Final = 1 << 12  # of a body, noted as sent in one transaction: some milliseconds


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A new version but for its content; see `Draft`."""

    place: Place
    conditions: Conditions
    content_type: str
    meta: Mapping[str, str]
    md5: bytes | None = None
    manifest: str = ""
    based_on: int | None = None

    def draft(self, content: Prepared, fresh_uuid: bytes) -> Draft:
        """With the content."""
        return Draft(
            content=content,
            content_type=self.content_type,
            meta=self.meta,
            fresh_uuid=fresh_uuid,
            md5=self.md5,
            manifest=self.manifest,
            based_on=self.based_on,
        )


class NewBytes:
    """Bytes that go into an object: which blocks they are made of, looked up a leaf at a time."""

    def __init__(self, size_bytes: int, block_size: int, ids: Callable[[int, int], bytes]) -> None:
        """Begin.

        Args:
            size_bytes: How many.
            block_size: Of a block.
            ids: Gives ids by index of the first and count.
        """
        self.size_bytes: Final = size_bytes
        self._block_size = block_size
        self._ids = ids
        self._first, self._leaf = 0, b""

    def id(self, index: int) -> BlockId:
        """The id of one block."""
        if not self._first <= index < self._first + len(self._leaf) // ID_SIZE:
            self._first = index // LEAF_IDS * LEAF_IDS
            count = min(LEAF_IDS, block_count(self.size_bytes, self._block_size) - self._first)
            self._leaf = self._ids(self._first, count)
        at = (index - self._first) * ID_SIZE
        return BlockId(self._leaf[at : at + ID_SIZE])


class ObjectWriter(ObjectReader):
    """What a store does to contents."""

    def __init__(self, catalogue: Catalogue, blocks: BlockDirectory, commits: Commits, folder: str) -> None:
        """Begin.

        Args:
            catalogue: The rows.
            blocks: The blocks.
            commits: Who writes rows.
            folder: For what is too long for memory.
        """
        super().__init__(catalogue, blocks)
        self._commits = commits
        self._spools = folder
        self.shares: Final = Shares(catalogue, commits)

    def long_list(self, account: str) -> LongList:
        """Begin to take a long block list. Close it."""
        return LongList(self._catalogue, self._commits, self._blocks, account, self._spools)

    def receive(self, *, md5: bool = False) -> Incoming:
        """Begin to take the content of an object, or blocks. Close it when done or given up."""
        return Incoming(self._blocks, md5=md5, folder=self._spools)

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

    def check_write(self, place: Place, conditions: Conditions, size_bytes: int | None) -> None:
        """Refuse early what the commit would refuse, before a body is read or stored. The commit decides again.

        Args:
            place: What is to be written.
            conditions: On it.
            size_bytes: Of the new content; None if that is not known yet.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
            OverQuota: There is no room for it.
        """
        with self._catalogue.reading() as view:
            found = objects.look(view, place)
            objects.require(conditions, found)
            if size_bytes is not None:
                objects.require_room_for(view, found, size_bytes)

    def put_content(
        self,
        place: Place,
        incoming: Incoming,
        *,
        content_type: str,
        meta: Mapping[str, str],
        conditions: Conditions,
        manifest: str = "",
    ) -> ObjectState:
        """Make an object, or a new version, of content that was received.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
            OverQuota: There is no room for it.
        """
        spool = incoming.finish()
        self._blocks.sync()  # before the commit that names them
        md5 = None if incoming.md5 is None else incoming.md5.digest()
        wanted = Wanted(
            place=place, conditions=conditions, content_type=content_type, meta=meta, md5=md5, manifest=manifest
        )
        if len(spool) <= LONG_IDS:
            return self._commit_content(wanted, incoming.block_list(), uploaded=tuple(spool), hold=None)
        with self.long_list(place.account) as long:
            self._record(place.account, spool)
            for run in spool.runs():
                long.feed(run)
            return self._commit_long(wanted, long, incoming.size_bytes)

    def _record(self, account: str, ids: Iterable[BlockId]) -> None:
        """Note that an account has sent blocks, in transactions that are short. They are durable already."""
        left = iter(ids)
        while batch := list(islice(left, _RECORD_IDS)):
            distinct = [block_id for block_id in dict.fromkeys(batch) if block_id != ZERO_BLOCK]
            if distinct:
                self._commits.run(partial(_record_uploads, account, distinct))

    def put_long(
        self,
        place: Place,
        long: LongList,
        size_bytes: int,
        *,
        content_type: str,
        meta: Mapping[str, str],
        conditions: Conditions,
        expected: ObjectHash | None = None,
    ) -> ObjectState:
        """As `put_block_list`, of a list that was taken piece by piece.

        Args:
            place: Which.
            long: The list.
            size_bytes: Of the object.
            content_type: Its type.
            meta: Its metadata.
            conditions: On what it replaces.
            expected: The object hash that it must have; None: any.

        Raises:
            Refusal: As put_block_list.
        """
        wanted = Wanted(place=place, conditions=conditions, content_type=content_type, meta=meta)
        return self._commit_long(wanted, long, size_bytes, expected)

    def _commit_long(
        self, wanted: Wanted, long: LongList, size_bytes: int, expected: ObjectHash | None = None
    ) -> ObjectState:
        again = False

        def prepare() -> Prepared:
            nonlocal again
            with self._catalogue.reading() as view:
                found = objects.look(view, wanted.place)
                objects.require(wanted.conditions, found)
                objects.require_room_for(view, found, size_bytes)
            content, again = long.prepared(size_bytes, again=again), True
            if expected not in {None, content.object_hash}:
                raise Unprocessable(f"The block list makes an object with hash {content.object_hash.hex()}")
            contents.require_fit(size_bytes, long.last, self._blocks)
            return content

        return self._commit_prepared(wanted, prepare)

    def update_content(self, place: Place, order: UpdateOrder, source: Incoming | Source) -> ObjectState:
        """Put new bytes over a part of an object, behind its end, or cut it.

        If somebody else writes meanwhile, it is done again on what they wrote: of several appends all are there.

        Args:
            place: Which object.
            order: Where, and under which conditions.
            source: The new bytes: a body that was received, or another object.

        Raises:
            NotFound: There is no such container or object, or no such source.
            PreconditionFailed: A condition doesn't hold.
            OverQuota: There is no room for it.
            RangeNotSatisfiable: The offset is behind the end, or the object has another size than was said.
            BadRequest: The source is shorter than the range.
        """
        with self._blocks.hold() as hold:
            if isinstance(source, Incoming):
                new, sent = self._received(place.account, source)
            else:
                new, sent = self._source(place.account, source), []
            while True:
                old = self.open_object(place, version=None, conditions=UNCONDITIONAL)
                self._require(place, order.conditions)
                edit = order.edit(old.state.size_bytes, new.size_bytes, self.block_size)
                delta, brought = self._composed(old, new, edit, hold)
                self._blocks.sync()
                wanted = Wanted(
                    place=place,
                    conditions=order.conditions,
                    content_type=old.state.content_type,
                    meta=merged_meta((old.state.meta or {}) if order.keeps_meta else {}, order.meta),
                    based_on=old.state.version,
                )
                uploaded = tuple(block_id for block_id in dict.fromkeys([*sent, *brought]) if block_id != ZERO_BLOCK)
                try:
                    return self._commit_prepared(wanted, partial(self._prepare_part, wanted, delta, uploaded, hold))
                except Overtaken:
                    continue

    def _prepare_part(self, wanted: Wanted, delta: Delta, uploaded: tuple[BlockId, ...], hold: EpochHold) -> Prepared:
        with self._catalogue.reading() as view:
            found = objects.look(view, wanted.place)
            objects.require(wanted.conditions, found)
            objects.require_room_for(view, found, delta.size_bytes)
            row, base = found.existing()
            if row.newest != wanted.based_on:
                raise Overtaken("somebody else wrote meanwhile")
            content = deltas.prepare_delta(view, found.account_id, base, delta, self.block_size)
            content = replace(content, uploaded=uploaded)
            contents.require_possession(view, found.account_id, content, self._blocks, hold)
            contents.require_fit(content.size_bytes, deltas.last_id(view, content), self._blocks)
        return content

    def check_update(self, place: Place, order: UpdateOrder, available: int) -> None:
        """Refuse early what `update_content` would refuse; like `check_write`.

        Args:
            place: Which object.
            order: What is to be done.
            available: New bytes that will come.
        """
        with self._catalogue.reading() as view:
            found = objects.look(view, place)
            objects.require(order.conditions, found)
            _, current = found.existing()
            objects.require_room_for(view, found, order.edit(current.size_bytes, available, self.block_size).size)

    def _received(self, account: str, incoming: Incoming) -> tuple[NewBytes, list[BlockId]]:
        """A body, and which of its blocks must be noted as sent with the version."""
        spool = incoming.finish()
        new = NewBytes(incoming.size_bytes, self.block_size, spool.ids)
        if len(spool) <= LONG_IDS:
            return new, list(spool)
        self._blocks.sync()
        self._record(account, spool)
        return new, []

    def _source(self, account: str, source: Source) -> NewBytes:
        """Another object."""
        if source.place.account != account:
            self.shares.require_readable(account, source.place, source.version)
        opened = self.open_object(source.place, version=source.version, conditions=UNCONDITIONAL)
        if source.place.account != account:
            self.shares.possess(account, opened.state, self.leaf_keys(opened))
        return NewBytes(opened.state.size_bytes, self.block_size, partial(self.ids, opened))

    def _composed(self, old: ObjectView, new: NewBytes, edit: Edit, hold: EpochHold) -> tuple[Delta, list[BlockId]]:
        """What an edit changes of the block list, and the blocks that had to be composed for it."""
        if edit.length > MAX_PART_BLOCKS * self.block_size:
            raise TooLarge(f"A part of {edit.length} bytes is too long; at most {MAX_PART_BLOCKS} blocks")
        before = NewBytes(old.state.size_bytes, self.block_size, partial(self.ids, old))
        runs: list[tuple[int, bytearray]] = []
        brought = []
        for index in edit.changed():
            parts = edit.parts(index)
            whole = edit.whole_block(parts, new.size_bytes)
            if whole is not None:
                block_id = new.id(whole)
            else:
                data = b"".join(self._bytes(new if part.is_new else before, part, hold) for part in parts)
                block_id = self._blocks.put(data, hold)
                brought.append(block_id)
            if not runs or runs[-1][0] + len(runs[-1][1]) // ID_SIZE != index:
                runs.append((index, bytearray()))
            runs[-1][1].extend(block_id)
        splices = tuple((first, bytes(run)) for first, run in runs)
        return Delta(size_bytes=edit.size, splices=splices), brought

    def _bytes(self, blocks: NewBytes, part: Part, hold: EpochHold) -> bytes:
        """Some bytes of one or two blocks, which stay while the hold lasts."""
        found = list(spans(part.start, part.length, self.block_size))
        ids = [blocks.id(span.index) for span in found]
        self._blocks.missing(ids, hold)
        return b"".join(
            self._blocks.read(block_id, span.start, span.length) for block_id, span in zip(ids, found, strict=True)
        )

    def _require(self, place: Place, conditions: Conditions) -> None:
        with self._catalogue.reading() as view:
            objects.require(conditions, objects.look(view, place))

    def put_block_list(
        self,
        place: Place,
        delta: Delta,
        base_version: int | None,
        *,
        content_type: str,
        meta: Mapping[str, str],
        conditions: Conditions,
    ) -> ObjectState:
        """Make an object, or a new version, of blocks that the account has sent before, or has in other objects.

        Args:
            place: Which.
            delta: What is put into the block list of the base.
            base_version: The current version, which the write requires; None: holes.
            content_type: Its type.
            meta: Its metadata.
            conditions: On what it replaces.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold, or `base_version` is not the current version.
            MissingBlocks: Blocks that the account has not sent; nothing was written.
            OverQuota: There is no room for it.
            BadRequest: The size cuts the last block short.
            Unprocessable: The result is not what the client thinks.
        """
        on_base = conditions
        if base_version is not None:
            if conditions.if_version not in {None, base_version} or base_version == 0:
                text = f"Precondition failed: it can't be at {base_version} and {conditions.if_version}"
                raise PreconditionFailed(text)
            on_base = replace(conditions, if_version=base_version)
        wanted = Wanted(place=place, conditions=on_base, content_type=content_type, meta=meta)

        def prepare() -> Prepared:
            with self._catalogue.reading() as view:
                found = objects.look(view, place)
                objects.require(on_base, found)
                objects.require_room_for(view, found, delta.size_bytes)
                base = None if base_version is None else found.existing()[1]
                content = deltas.prepare_delta(view, found.account_id, base, delta, self.block_size)
                if delta.object_hash not in {None, content.object_hash}:
                    raise Unprocessable(f"The splices make an object with hash {content.object_hash.hex()}")
                contents.require_possession(view, found.account_id, content, self._blocks, hold)
                contents.require_fit(content.size_bytes, deltas.last_id(view, content), self._blocks)
            return content

        with self._blocks.hold() as hold:
            return self._commit_prepared(wanted, prepare)

    def _commit_content(
        self, wanted: Wanted, block_list: BlockList, *, uploaded: Sequence[BlockId], hold: EpochHold | None
    ) -> ObjectState:
        return self._commit_prepared(wanted, partial(self._prepare, wanted, block_list, uploaded, hold))

    def _commit_prepared(self, wanted: Wanted, prepare: Callable[[], Prepared]) -> ObjectState:
        fresh = uuids.uuid4().bytes
        while True:
            draft = wanted.draft(prepare(), fresh)
            act = partial(objects.put, place=wanted.place, draft=draft, conditions=wanted.conditions)
            try:
                return self._commits.run(act)
            except LeafVanished:
                continue  # swept between our look and the commit: the next look finds it gone and checks its ids

    def _prepare(
        self, wanted: Wanted, block_list: BlockList, uploaded: Sequence[BlockId], hold: EpochHold | None
    ) -> Prepared:
        """Look at a block list; with a hold, also at who may name its blocks."""
        with self._catalogue.reading() as view:
            found = objects.look(view, wanted.place)
            objects.require(wanted.conditions, found)  # early: a 412 says more than a list of missing blocks
            objects.require_room_for(view, found, block_list.size_bytes)  # before blocks are asked for
            content = contents.prepare(view, found.account_id, block_list, uploaded)
            if hold is not None:
                contents.require_possession(view, found.account_id, content, self._blocks, hold)
                last = BlockId(block_list.ids[-ID_SIZE:]) if block_list.ids else None
                contents.require_fit(block_list.size_bytes, last, self._blocks)  # after it: only of own blocks
        return content


def _record_uploads(account: str, ids: Sequence[BlockId], change: Change) -> None:
    contents.record_uploads(change, change.make_account(account), ids)
