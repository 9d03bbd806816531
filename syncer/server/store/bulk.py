"""Many small changes in one transaction: each decides and writes, or refuses, on its own."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import BlockId
from syncer.protocol.extensions.bulk import Delete, Move, Operation, Put, Result
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.catalogue import contents, objects
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.conditions import Conditions
from syncer.server.catalogue.orders import Place, TransferOrder, WriteOrder
from syncer.server.errors import Refusal


def store_blocks(operations: Sequence[Operation], blocks: BlockDirectory, hold: EpochHold) -> list[BlockList | None]:
    """Store the contents, one block each; not durable before `blocks.sync`.

    Returns:
        For each operation its content's block list; None for those that have none.
    """
    ids = blocks.put_all([one.data if isinstance(one, Put) else b"" for one in operations], hold)
    return [
        BlockList(block_size=blocks.block_size, size_bytes=len(one.data), ids=block_id if one.data else b"")
        if isinstance(one, Put)
        else None
        for one, block_id in zip(operations, ids, strict=True)
    ]


def prepare(view: Reading, account: int | None, lists: Sequence[BlockList | None]) -> list[contents.Prepared | None]:
    """Make the block lists ready to be committed. The blocks come with the request: nothing is asked for."""
    return [
        None if one is None else contents.prepare(view, account, one, [BlockId(one.ids)] if one.ids else ())
        for one in lists
    ]


def carry_out(
    change: Change, at: Place, operations: Sequence[Operation], prepared: Sequence[contents.Prepared | None]
) -> dict[int, Result]:
    """Do the operations in order.

    Args:
        change: The transaction.
        at: Their container.
        operations: What to do.
        prepared: The contents.

    Returns:
        Results by position, up to and without the first operation whose content must be prepared again.
    """
    results: dict[int, Result] = {}
    fresh = _fresh_uuids(len(operations))
    for index, (one, content) in enumerate(zip(operations, prepared, strict=True)):
        before = change.writes
        try:
            results[index] = _done(change, at, one, content, fresh[index])
        except contents.LeafVanished:
            return results
        except Refusal as refusal:
            assert change.writes == before, "an operation that wrote can't refuse any more"
            results[index] = Result(status=refusal.status, message=refusal.message)
    return results


def _fresh_uuids(count: int) -> list[bytes]:
    """As `uuid.uuid4().bytes`, which takes as long as two rows in the database."""
    raw = bytearray(os.urandom(16 * count))
    raw[6::16] = bytes([byte & 0x0F | 0x40 for byte in raw[6::16]])  # version 4
    raw[8::16] = bytes([byte & 0x3F | 0x80 for byte in raw[8::16]])  # variant of RFC 9562
    return [bytes(raw[start : start + 16]) for start in range(0, len(raw), 16)]


def _done(change: Change, at: Place, one: Operation, content: contents.Prepared | None, fresh_uuid: bytes) -> Result:
    place = Place(account=at.account, container=at.container, name=one.name)
    conditions = Conditions(if_version=one.if_version)
    match one:
        case Put():
            assert content is not None
            order = WriteOrder(place=place, content_type=one.content_type, meta=one.meta, conditions=conditions)
            md5 = hashlib.md5(one.data, usedforsecurity=False).digest()
            draft = objects.Draft(order=order, content=content, fresh_uuid=fresh_uuid, md5=md5)
            return _made(objects.put(change, draft))
        case Delete():
            return Result(status=204, version=objects.delete(change, place, conditions))
        case Move():
            target = Place(account=at.account, container=at.container, name=one.to)
            how = TransferOrder(source=conditions, destination=Conditions(if_version=one.if_to_version))
            return _made(objects.move(change, place, target, how))


def _made(state: ObjectState) -> Result:
    return Result(status=201, version=state.version, uuid=state.uuid, object_hash=state.etag)
