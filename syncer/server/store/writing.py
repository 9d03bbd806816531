"""Writing the content of objects: bodies, block lists, differences and parts. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import uuid as uuids
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count, spans
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId, ObjectHash
from syncer.protocol.extensions.hashmap_delta import Delta
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue import contents, objects
from syncer.server.catalogue.catalogue import Catalogue, Reading
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.orders import Place, ReadOrder, WriteOrder, merged_meta
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
        self._record(account, ids)
        return ids

    def check_write(self, order: WriteOrder, size_bytes: int | None) -> None:
        """Refuse early what the commit would refuse, before a body is read or stored. The commit decides again.

        Args:
            order: What is to be written.
            size_bytes: Of the new content; None if that is not known yet.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
            OverQuota: There is no room for it.
        """
        with self._catalogue.reading() as view:
            _admitted(view, order, size_bytes)

    def put_content(self, order: WriteOrder, incoming: Incoming) -> ObjectState:
        """Make an object, or a new version, of content that was received.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold.
            OverQuota: There is no room for it.
            Unprocessable: The content has another MD5.
        """
        md5 = None
        if incoming.md5 is not None:
            md5 = incoming.md5.digest()
            if order.md5 not in {None, md5.hex()}:
                raise Unprocessable(f"The body has the MD5 {md5.hex()}; nothing was stored")
        spool = incoming.finish()
        self._blocks.sync()  # before the commit that names them
        if len(spool) > LONG_IDS:
            with self.long_list(order.place.account) as long:
                self._record_many(order.place.account, spool)
                for run in spool.runs():
                    long.feed(run)
                return self.put_long(order, long, incoming.size_bytes, md5=md5)
        block_list, uploaded = incoming.block_list(), tuple(spool)

        def prepare() -> contents.Prepared:
            with self._catalogue.reading() as view:
                found = _admitted(view, order, block_list.size_bytes)
                return contents.prepare(view, found.account_id, block_list, uploaded)

        return self._commit(order, prepare, md5=md5)

    def _record_many(self, account: str, ids: Iterable[BlockId]) -> None:
        """Note that an account has sent blocks, in transactions that are short. They are durable already."""
        left = iter(ids)
        while batch := list(islice(left, _RECORD_IDS)):
            self._record(account, batch)

    def _record(self, account: str, ids: Sequence[BlockId]) -> None:
        """The same in one transaction."""
        distinct = [block_id for block_id in dict.fromkeys(ids) if block_id != ZERO_BLOCK]
        if distinct:
            self._commits.run(lambda change: contents.record_uploads(change, change.make_account(account), distinct))

    def put_long(
        self,
        order: WriteOrder,
        long: LongList,
        size_bytes: int,
        *,
        expected: ObjectHash | None = None,
        md5: bytes | None = None,
    ) -> ObjectState:
        """As `put_block_list`, of a list that was taken piece by piece.

        Args:
            order: What is to be written.
            long: The list.
            size_bytes: Of the object.
            expected: The object hash that it must have; None: any.
            md5: Of the content, if it is known.

        Raises:
            Refusal: As put_block_list.
        """
        again = False

        def prepare() -> contents.Prepared:
            nonlocal again
            with self._catalogue.reading() as view:
                _admitted(view, order, size_bytes)
            content, again = long.prepared(size_bytes, again=again), True
            if expected not in {None, content.object_hash}:
                raise Unprocessable(f"The block list makes an object with hash {content.object_hash.hex()}")
            contents.require_fit(size_bytes, long.last, self._blocks)
            return content

        return self._commit(order, prepare, md5=md5)

    def update_content(self, place: Place, order: UpdateOrder, source: Incoming | ReadOrder) -> ObjectState:
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
                old = self.open_object(ReadOrder(place=place))
                with self._catalogue.reading() as view:
                    objects.require(order.conditions, objects.look(view, place))
                edit = order.edit(old.state.size_bytes, new.size_bytes, self.block_size)
                delta, brought = self._composed(old, new, edit, hold)
                self._blocks.sync()
                wanted = WriteOrder(
                    place=place,
                    conditions=order.conditions,
                    content_type=old.state.content_type,
                    meta=merged_meta((old.state.meta or {}) if order.keeps_meta else {}, order.meta),
                )
                uploaded = tuple(block_id for block_id in dict.fromkeys([*sent, *brought]) if block_id != ZERO_BLOCK)
                try:
                    prepare = partial(self._prepare_part, wanted, old.state.version, delta, uploaded, hold)
                    return self._commit(wanted, prepare, based_on=old.state.version)
                except objects.Overtaken:
                    continue

    def _prepare_part(
        self, order: WriteOrder, based_on: int, delta: Delta, uploaded: tuple[BlockId, ...], hold: EpochHold
    ) -> contents.Prepared:
        with self._catalogue.reading() as view:
            found = _admitted(view, order, delta.size_bytes)
            row, base = found.existing()
            if row.newest != based_on:
                raise objects.Overtaken("somebody else wrote meanwhile")
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
        self._record_many(account, spool)
        return new, []

    def _source(self, account: str, source: ReadOrder) -> NewBytes:
        """Another object."""
        if source.place.account != account:
            self.shares.require_readable(account, source.place, source.version)
        opened = self.open_object(source)
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

    def put_block_list(self, order: WriteOrder, delta: Delta, base_version: int | None) -> ObjectState:
        """Make an object, or a new version, of blocks that the account has sent before, or has in other objects.

        Args:
            order: What is to be written.
            delta: What is put into the block list of the base.
            base_version: The current version, which the write requires; None: holes.

        Raises:
            NotFound: There is no such container.
            PreconditionFailed: A condition doesn't hold, or `base_version` is not the current version.
            MissingBlocks: Blocks that the account has not sent; nothing was written.
            OverQuota: There is no room for it.
            BadRequest: The size cuts the last block short.
            Unprocessable: The result is not what the client thinks.
        """
        if base_version is not None:
            conditions = order.conditions
            if conditions.if_version not in {None, base_version} or base_version == 0:
                text = f"Precondition failed: it can't be at {base_version} and {conditions.if_version}"
                raise PreconditionFailed(text)
            order = replace(order, conditions=replace(conditions, if_version=base_version))

        def prepare() -> contents.Prepared:
            with self._catalogue.reading() as view:
                found = _admitted(view, order, delta.size_bytes)  # before blocks are asked for
                base = None if base_version is None else found.existing()[1]
                content = deltas.prepare_delta(view, found.account_id, base, delta, self.block_size)
                if delta.object_hash not in {None, content.object_hash}:
                    raise Unprocessable(f"The splices make an object with hash {content.object_hash.hex()}")
                contents.require_possession(view, found.account_id, content, self._blocks, hold)
                contents.require_fit(content.size_bytes, deltas.last_id(view, content), self._blocks)
            return content

        with self._blocks.hold() as hold:
            return self._commit(order, prepare)

    def _commit(
        self,
        order: WriteOrder,
        prepare: Callable[[], contents.Prepared],
        *,
        md5: bytes | None = None,
        based_on: int | None = None,
    ) -> ObjectState:
        fresh = uuids.uuid4().bytes
        while True:
            draft = objects.Draft(order=order, content=prepare(), fresh_uuid=fresh, md5=md5, based_on=based_on)
            act = partial(objects.put, draft=draft)
            try:
                return self._commits.run(act)
            except contents.LeafVanished:
                continue  # swept between our look and the commit: the next look finds it gone and checks its ids


def _admitted(view: Reading, order: WriteOrder, size_bytes: int | None) -> objects.Found:
    """What is at a place, if it may be written there so many bytes; early, a 412 says more than missing blocks."""
    found = objects.look(view, order.place)
    objects.require(order.conditions, found)
    if size_bytes is not None:
        objects.require_room_for(view, found, size_bytes)
    return found
