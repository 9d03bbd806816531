"""Taking an object's block list over HTTP, in JSON or in binary, short or of any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.responses import Response

from syncer.protocol.extensions import blocklists, hashmap_delta
from syncer.protocol.pithos import hashmap
from syncer.protocol.pithos.hashmap_stream import BinaryReader, HashmapReader
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.calls.call import JSON, Call, StreamedResponse, reply
from syncer.server.errors import MissingBlocks, TooLarge
from syncer.server.http.object_orders import BlockListOrder
from syncer.server.store.long_lists import LongList
from syncer.server.store.spool import IdSpool
from syncer.server.store.store import Store

_SLICE_BYTES: Final = 64 << 10  # of a long one, read without letting others go first: a millisecond


async def take_block_list(call: Call, order: BlockListOrder) -> ObjectState:
    """The version that was made.

    Raises:
        MissingBlocks: Nothing was made; they are to be told in the form in which the list came.
    """
    try:
        if order.is_long:
            return await _take_long(call, order)
        await call.reserve()
        body = await call.body(order.limit_bytes)
        return await call.run(_put, call.store, order, body)
    except MissingBlocks as refusal:
        refusal.in_binary = order.is_binary
        raise


async def _take_long(call: Call, order: BlockListOrder) -> ObjectState:
    """One that is looked at as it comes."""
    await call.run(call.store.check_write, order.write, None)
    await call.reserve()
    reader = (BinaryReader if order.is_binary else HashmapReader)(call.store.block_size)
    whole = bytearray()  # of a difference, which is never that long; its head, in the first piece, says that it is one

    def take(pieces: list[bytes], last: bool) -> ObjectState | None:
        """Read some; the version that was made, with the last of them."""
        piece = b"".join(pieces)
        for at in range(0, len(piece), _SLICE_BYTES):
            if reader.base_version is not None:
                break
            for ids in reader.feed(piece[at : at + _SLICE_BYTES]):
                long.feed(ids)
        if reader.base_version is not None:
            whole.extend(piece)
            if len(whole) > hashmap_delta.MAX_DELTA_BYTES:
                raise TooLarge(
                    f"A difference of more than {hashmap_delta.MAX_DELTA_BYTES} bytes; send the whole block list"
                )
            return _put(call.store, order, bytes(whole)) if last else None
        return _finish(call.store, order, long, reader) if last else None

    with call.store.long_list(order.write.place.account) as long:
        async for pieces, last in call.pieces(order.limit_bytes):
            state = await call.run(take, pieces, last)
            if state is not None:
                return state
    raise AssertionError("a body ends with a last piece")


def _finish(store: Store, order: BlockListOrder, long: LongList, reader: BinaryReader | HashmapReader) -> ObjectState:
    rest, size_bytes = reader.finish()
    for ids in rest:
        long.feed(ids)
    if not size_bytes:
        long.forget()
    return store.put_long(order.write, long, size_bytes, expected=reader.object_hash)


def _put(store: Store, order: BlockListOrder, body: bytes) -> ObjectState:
    """What came as a whole, in whichever form, is put into the block list of a version, or into holes."""
    base_version = order.base_version
    if order.is_binary:
        told = blocklists.decode(body, store.block_size)
        delta, base_version = told.delta, told.base_version
    elif base_version is not None:
        delta = hashmap_delta.decode_delta(body, store.block_size)
    else:
        blocks = hashmap.decode_hashmap(body, store.block_size)
        delta = hashmap_delta.Delta(size_bytes=blocks.size_bytes, splices=((0, blocks.ids),) if blocks.ids else ())
    return store.put_block_list(order.write, delta, base_version)


def missing_reply(refusal: MissingBlocks) -> Response:
    """Which blocks are missing: a list of ids in JSON, or the ids one behind the other."""
    is_binary = refusal.in_binary
    kind = blocklists.TYPE if is_binary else JSON
    if isinstance(refusal.ids, IdSpool):
        return StreamedResponse(_told(refusal.ids, is_binary=is_binary), 409, {"Content-Type": kind})
    return reply(409, b"".join(refusal.ids) if is_binary else hashmap.encode_ids(refusal.ids), content_type=kind)


def _told(spool: IdSpool, *, is_binary: bool) -> Iterator[bytes]:
    """Many of them, piece by piece."""
    with spool:
        if is_binary:
            yield from spool.runs()
            return
        separator = b"["
        for run in spool.runs():
            yield separator + hashmap.encode_items(run)
            separator = b","
        yield b"]"
