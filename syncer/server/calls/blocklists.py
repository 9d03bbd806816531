"""HTTP for writing an object by its block list, in JSON or in binary, short or of any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from syncer.protocol.extensions import blocklists, hashmap_delta
from syncer.protocol.extensions.hashmap_delta import MAX_DELTA_BYTES, Delta
from syncer.protocol.pithos import hashmap
from syncer.protocol.pithos.hashmap_stream import BinaryReader, HashmapReader
from syncer.protocol.pithos.headers import ObjectState
from syncer.server.calls.call import Call, reply
from syncer.server.errors import MissingBlocks, TooLarge
from syncer.server.store.long_lists import LongList
from syncer.server.store.spool import IdSpool

_BASE_VERSION: Final = "base_version"
_LONG_BYTES: Final = 96 << 20  # needed to take a block list of any length, or a difference as a whole
_TIMES_BODY: Final = 8  # memory of a short one while it is read, in bytes for each byte
_SLICE_BYTES: Final = 64 << 10  # of a long one, read without letting others go first: a millisecond


async def put_block_list(call: Call, content_type: str) -> ObjectState | Response:
    """PUT /account/container/object?hashmap: the version it made, or a reply that names missing blocks."""
    is_binary = call.target.parameters.get("format") == blocklists.FORMAT
    base_version = call.serial_parameter(_BASE_VERSION)
    try:
        if base_version is None and not call.is_short:
            return await _put_long(call, content_type, is_binary=is_binary)
        return await _put_short(call, content_type, base_version, is_binary=is_binary)
    except MissingBlocks as refusal:
        if not is_binary:
            raise
        return _missing(refusal)


async def _put_short(call: Call, content_type: str, base_version: int | None, *, is_binary: bool) -> ObjectState:
    """One that is read as a whole."""
    place, conditions, meta = call.place, call.conditions(), call.own_meta()
    call.refuse_announced(MAX_DELTA_BYTES)
    await call.reserve(_TIMES_BODY * (MAX_DELTA_BYTES if call.length is None else call.length))
    body = await call.body(MAX_DELTA_BYTES)

    def put() -> ObjectState:
        delta, base = _told(body, call.store.block_size, base_version, is_binary=is_binary)
        return call.store.put_block_list(
            place, delta, base, content_type=content_type, meta=meta, conditions=conditions
        )

    return await call.run(put)


async def _put_long(call: Call, content_type: str, *, is_binary: bool) -> ObjectState:
    """One that is looked at as it comes."""
    limit = blocklists.MAX_BYTES if is_binary else hashmap.MAX_HASHMAP_BYTES
    call.refuse_announced(limit)
    await call.run(call.store.check_write, call.place, call.conditions(), None)
    await call.reserve(_LONG_BYTES)
    with call.store.long_list(call.place.account) as long:
        coming = _Coming(call, content_type, long, is_binary=is_binary)
        async for piece, last in call.pieces(limit):
            state = await call.run(coming.take, piece, last)
            if state is not None:
                return state
    raise AssertionError("a body ends with a last piece")


class _Coming:
    """A block list on its way in."""

    def __init__(self, call: Call, content_type: str, long: LongList, *, is_binary: bool) -> None:
        self._store = call.store
        self._place = call.place
        self._content_type = content_type
        self._meta = call.own_meta()
        self._conditions = call.conditions()
        self._long = long
        self._reader: BinaryReader | HashmapReader = (
            BinaryReader(call.store.block_size) if is_binary else HashmapReader(call.store.block_size)
        )
        self._whole = bytearray()  # of a difference, which is never that long

    def take(self, piece: bytes, last: bool) -> ObjectState | None:
        """Read a piece; the version that was made, with the last one."""
        for at in range(0, len(piece), _SLICE_BYTES):
            if self._reader.base_version is not None:
                break
            for ids in self._reader.feed(piece[at : at + _SLICE_BYTES]):
                self._long.feed(ids)
        if self._reader.base_version is not None:
            return self._collect(piece, last)
        return self._finish() if last else None

    def _finish(self) -> ObjectState:
        rest, size_bytes = self._reader.finish()
        for ids in rest:
            self._long.feed(ids)
        if not size_bytes:
            self._long.forget()
        return self._store.put_long(
            self._place,
            self._long,
            size_bytes,
            content_type=self._content_type,
            meta=self._meta,
            conditions=self._conditions,
            expected=self._reader.object_hash,
        )

    def _collect(self, piece: bytes, last: bool) -> ObjectState | None:
        """A difference is read as a whole; its head, in the first piece, says that it is one."""
        self._whole += piece
        if len(self._whole) > MAX_DELTA_BYTES:
            raise TooLarge(f"A difference of more than {MAX_DELTA_BYTES} bytes; send the whole block list")
        if not last:
            return None
        delta, base = _told(bytes(self._whole), self._store.block_size, None, is_binary=True)
        return self._store.put_block_list(
            self._place, delta, base, content_type=self._content_type, meta=self._meta, conditions=self._conditions
        )


def _told(body: bytes, block_size: int, base_version: int | None, *, is_binary: bool) -> tuple[Delta, int | None]:
    """What is put into the block list of which version (None: into holes), in whichever form it came."""
    if is_binary:
        told = blocklists.decode(body, block_size)
        return told.delta, told.base_version
    if base_version is not None:
        return hashmap_delta.decode_delta(body, block_size), base_version
    blocks = hashmap.decode_hashmap(body, block_size)
    return Delta(size_bytes=blocks.size_bytes, splices=((0, blocks.ids),) if blocks.ids else ()), None


def _missing(refusal: MissingBlocks) -> Response:
    """The ids of missing blocks, one behind the other."""
    if isinstance(refusal.ids, IdSpool):
        return StreamingResponse(_spooled(refusal.ids), 409, {"Content-Type": blocklists.TYPE})
    return reply(409, b"".join(refusal.ids), content_type=blocklists.TYPE)


def _spooled(spool: IdSpool) -> Iterator[bytes]:
    with spool:
        yield from spool.runs()
