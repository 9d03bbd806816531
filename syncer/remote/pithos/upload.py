"""Sending a whole file: first its block list, then what the server lacks, then the block list again.

Of a file whose older list is known only what differs travels. Files that are sent side by side share what they bring: a
block that is on its way for one of them is waited for by the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Final

import trio

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.hashing import block_id, canonical
from blockfs.blocks.ids import BlockId
from blockfs.runtime.output import shown
from syncer.core.model import NO_META, Kind
from syncer.core.paths import PARK_FOLDER
from syncer.errors import ForbiddenError
from syncer.ports.orders import Reader, Store, Stored
from syncer.protocol.extensions.hashmap_delta import MAX_DELTA_IDS, Delta, delta_between, delta_of
from syncer.protocol.pithos import headers as wire
from syncer.remote.container.replies import Written
from syncer.remote.container.requests import NO_HEADERS, Condition, device_headers, object_name
from syncer.remote.container.session import Session
from syncer.remote.http.transport import BadReplyError
from syncer.remote.parallel import for_each
from syncer.remote.pithos.alone import Alone, Payload

BATCH_BYTES: Final = 4 << 20
"""Of one POST: large enough that the server's sync of a batch costs little, small enough to repeat after a loss."""

BATCH_BLOCKS: Final = 64
BATCHES_AT_ONCE: Final = 4

_ROUNDS: Final = 5
"""A second 409 is possible (the server collected a block meanwhile); a fifth means that it keeps nothing."""

_ASKING: Final = (PARK_FOLDER + b"/ahead").decode()
"""Where a block list is put to ask what the server lacks. It names a block that nobody has, so nothing is made."""

Missing = tuple[BlockId, ...]
"""Blocks that the server lacks, distinct, in the order of the list: nothing was written. May contain `ZERO_BLOCK`."""


class _RefusedDelta:
    """The server makes something else of our splices: nothing was written."""


class Uploads:
    """Files of one container that are being sent."""

    def __init__(self, session: Session, alone: Alone) -> None:
        self._session = session
        self._alone = alone
        self._coming: dict[BlockId, trio.Event] = {}  # set when who sends the block has done so, or given up
        self._asking: list[set[BlockId]] = []  # of each question under way: what arrived since it was asked

    async def upload(self, order: Store, reader: Reader) -> Stored:
        """Create or replace a file; only blocks that the server lacks travel. Memory: four batches.

        Raises:
            ConflictOnRemoteError: The current object is not what the order expects.
            LocalChangedError: The file is not what it was. Nothing became visible.
        """
        blocks = await reader.block_list(order)
        if order.sent:
            done = await self._put(order, blocks, None)
            if isinstance(done, Stored):
                return done
            (data,) = await reader.contents([order])  # it was collected, and is sent as any other
            if isinstance(data, Exception):
                raise data
            self._session.counters.blocks_sent += 1
            return await self._alone.settle(order, data)
        older = await reader.older_list(order) if order.replaces is not None else None
        rounds = 0
        while rounds < _ROUNDS:
            with self._question() as arrived:
                done = await self._put(order, blocks, older)
            if isinstance(done, Stored):
                return done
            rounds += await self._bring(order, reader, blocks, older, [one for one in done if one not in arrived])
        raise BadReplyError(
            f"{shown(order.path)}: after {_ROUNDS} rounds the server still lacks blocks that it accepted"
        )

    async def send(self, blocks: Mapping[BlockId, bytes]) -> None:
        """See Writes.send."""
        info = await self._session.info()
        nobodys = block_id(os.urandom(32))
        size_bytes = (len(blocks) + 1) * info.block_size
        asked = BlockList(block_size=info.block_size, size_bytes=size_bytes, ids=b"".join([*blocks, nobodys]))
        request = self._session.make.put_hashmap(_ASKING, asked, NO_META, NO_HEADERS)
        reply = await self._session.ask(request, 409, 201)
        # A server that accepts that list accepts anything; whatever it says, who writes asks again.
        lacking = self._session.judge.missing(request, reply) if reply.status == 409 else tuple(blocks)
        names = [name for name in lacking if name in blocks]

        async def post(batch: Sequence[int]) -> None:
            await self.put_named([(names[at], blocks[names[at]]) for at in batch])

        await for_each(batches(range(len(names)), info.block_size), post, BATCHES_AT_ONCE)

    async def put_blocks(self, blocks: Sequence[bytes]) -> list[BlockId]:
        """Store blocks, in one request.

        Args:
            blocks: At most block_size bytes each, canonical or not; b"" stores the zero block. At least one.

        Returns:
            Their ids, in order.
        """
        sent = [canonical(block) for block in blocks]
        ids = await trio.to_thread.run_sync(lambda: [block_id(block) for block in sent])
        await self.put_named(list(zip(ids, sent, strict=True)))
        return ids

    async def put_named(self, blocks: Sequence[tuple[BlockId, bytes]]) -> None:
        """Store blocks, in one request, and compare the ids that are answered.

        Args:
            blocks: Ids and canonical blocks of at most block_size bytes each, at least one.

        Raises:
            BadReplyError: The server stored something else, or nothing.
        """
        assert blocks
        block_size = (await self._session.info()).block_size
        assert all(len(data) <= block_size for _, data in blocks)
        # The shortest goes last: only there it travels without padding.
        sent = sorted(blocks, key=lambda block: len(block[1]), reverse=True)
        request = self._session.make.put_blocks([data for _, data in sent], block_size)
        self._session.counters.blocks_sent += len(sent)
        reply = await self._session.ask(request, 202, 403)
        if reply.status == 403:  # only the owner of a container may: that ends no cycle of who else may write objects
            raise ForbiddenError(str(self._session.judge.failure(request, reply)))
        # Even 202 proves nothing: a wrong content type is answered so, with an empty body.
        if self._session.judge.stored(reply) != [name for name, _ in sent]:
            raise BadReplyError(f"{self._session.judge.origin} did not store the blocks that it was sent")

    # --- what the server lacks

    @contextmanager
    def _question(self) -> Iterator[set[BlockId]]:
        """Note what arrives while the server is asked what it lacks: the answer may be older."""
        arrived: set[BlockId] = set()
        self._asking.append(arrived)
        try:
            yield arrived
        finally:
            self._asking = [each for each in self._asking if each is not arrived]

    async def _bring(
        self, order: Store, reader: Reader, blocks: BlockList, older: BlockList | None, lacking: Sequence[BlockId]
    ) -> int:
        """Send what nobody else is sending, and wait for the rest; returns 1, or 0 if all of it was others'."""
        others = [self._coming[name] for name in lacking if name in self._coming]
        ours = [name for name in lacking if name not in self._coming]  # no await since the look: it is atomic
        sent = trio.Event()
        self._coming.update(dict.fromkeys(ours, sent))
        try:
            if ours:
                await self._send_missing(order, reader, blocks, older, ours)
        finally:
            for name in ours:
                del self._coming[name]
            sent.set()
        for event in others:  # who waits has nothing under way, so there is no deadlock
            await event.wait()
        return 1 if ours or not others else 0

    async def _send_missing(
        self, order: Store, reader: Reader, blocks: BlockList, older: BlockList | None, wanted: Sequence[BlockId]
    ) -> None:
        places = {} if older is None else places_of_changes(older, blocks, wanted)
        if len(places) != len(wanted):
            places = first_places(blocks, wanted)  # a block of the old version, too, may have been collected
        if len(places) != len(wanted):
            raise BadReplyError(f"{shown(order.path)}: the server asks for blocks that the file does not have")

        async def send(batch: Sequence[int]) -> None:
            names = [blocks[index] for index in batch]
            await self.put_named(list(zip(names, await reader.blocks(order, blocks, batch), strict=True)))
            for arrived in self._asking:
                arrived.update(names)

        await for_each(batches(sorted(places.values()), blocks.block_size), send, BATCHES_AT_ONCE)

    # --- the list

    async def _put(self, order: Store, blocks: BlockList, older: BlockList | None) -> Stored | Missing:
        """Write the object by its block list."""
        name, info = object_name(order.path), await self._session.info()
        binary = wire.EXTENSION_BLOCK_LISTS in info.extensions and blocks.block_size == info.block_size
        if older is not None and order.replaces is not None:
            done = await self._put_changed(order, name, blocks, older, binary=binary)
            if done is not None:
                return done
        delta = await trio.to_thread.run_sync(delta_of, blocks) if binary else None

        async def send(condition: Condition) -> Written | Missing:
            condition = {**condition, **device_headers(order)}
            if delta is None:
                request = self._session.make.put_hashmap(name, blocks, order.meta, condition)
            else:
                request = self._session.make.put_block_list(name, blocks.block_size, delta, None, order.meta, condition)
            reply = await self._session.send(request)
            if reply.status == 409:
                return self._session.judge.missing(request, reply)
            return self._alone.written(request, reply, order.path, order.replaces)

        return await self._alone.guarded(order.path, name, _payload(order), order.replaces, send)

    async def _put_changed(
        self, order: Store, name: str, blocks: BlockList, older: BlockList, *, binary: bool
    ) -> Stored | Missing | None:
        """Write what differs from the older version; None if that saves nothing, or if what we know of it is wrong."""
        info, replaces = await self._session.info(), order.replaces
        known = older.block_size == blocks.block_size == info.block_size
        if not known or not (binary or wire.EXTENSION_DELTA in info.extensions):
            return None
        assert replaces is not None
        assert order.content is not None
        object_hash = order.content.object_hash
        delta: Delta = await trio.to_thread.run_sync(delta_between, older, blocks, object_hash)
        if 2 * len(delta) > len(blocks) or len(delta) > MAX_DELTA_IDS:
            return None

        async def send(condition: Condition) -> Written | Missing | _RefusedDelta:
            put = self._session.make.put_block_list if binary else self._session.make.put_delta
            told = {**condition, **device_headers(order)}
            request = put(name, blocks.block_size, delta, replaces.version, order.meta, told)
            reply = await self._session.send(request)
            if reply.status == 409:
                return self._session.judge.missing(request, reply)
            if reply.status == 422:
                return _RefusedDelta()
            return self._alone.written(request, reply, order.path, replaces)

        done: Stored | Missing | _RefusedDelta
        done = await self._alone.guarded(order.path, name, _payload(order), replaces, send)
        return None if isinstance(done, _RefusedDelta) else done


def _payload(order: Store) -> Payload:
    return Payload(kind=Kind.FILE, size_bytes=order.size_bytes, etag=order.hash_hex, meta=order.meta)


def first_places(blocks: BlockList, wanted: Sequence[BlockId]) -> dict[BlockId, int]:
    """Where each wanted id first stands in a block list; ids that don't are left out."""
    left = set(wanted)
    places: dict[BlockId, int] = {}
    a_hole = islice((first for first, _ in blocks.holes()), 1)
    for index in chain(a_hole, blocks.filled()):
        if not left:
            break
        if (name := blocks[index]) in left:
            left.remove(name)
            places[name] = index
    return places


def places_of_changes(old: BlockList, new: BlockList, wanted: Sequence[BlockId]) -> dict[BlockId, int]:
    """The same among what differs from an older list: no look at each id of a long one."""
    if old.block_size != new.block_size:
        return {}
    left = set(wanted)
    return {name: index for index, name in reversed(new.changed_from(old).items()) if name in left}


def batches(indexes: Sequence[int], block_size: int) -> Iterator[Sequence[int]]:
    """Cut indexes into runs for one POST each."""
    step = max(1, min(BATCH_BLOCKS, BATCH_BYTES // block_size))
    return (indexes[at : at + step] for at in range(0, len(indexes), step))
