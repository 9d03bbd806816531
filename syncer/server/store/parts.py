"""Changing a part of an object: new bytes over some of it, or behind its end. Thread-safe, synchronous.

The new block list is composed of the version that was read, and the commit requires that it still is the current one.
Otherwise it is composed anew. The order of what becomes durable is that of every write (writing.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import block_count, spans
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from syncer.protocol.extensions.hashmap_delta import Delta
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue import contents, objects
from syncer.server.catalogue.orders import Place, ReadOrder, WriteOrder, merged_meta
from syncer.server.errors import TooLarge
from syncer.server.store import deltas, writing
from syncer.server.store.incoming import Incoming
from syncer.server.store.reading import ObjectView
from syncer.server.store.updates import Edit, Part, UpdateOrder
from syncer.server.store.writing import ObjectWriter, admitted

MAX_PART_BLOCKS: Final = 1 << 20
"""Of one change of a part; its ids are held in memory."""


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


class PartWriter(ObjectWriter):
    """What a store does to parts of contents."""

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
                    fields=old.record.fields,
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
            found = admitted(view, order, delta.size_bytes)
            row, base = found.existing()
            if row.newest != based_on:
                raise objects.Overtaken("somebody else wrote meanwhile")
            content = self._prepared_delta(view, found.account_id, base, delta)
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
        if len(spool) <= writing.LONG_IDS:
            return new, list(spool)
        self._blocks.sync()
        self._record_many(account, spool)
        return new, []

    def _source(self, account: str, source: ReadOrder) -> NewBytes:
        """Another object."""
        opened = self.open_object(source if source.place.account == account else replace(source, reader=account))
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
