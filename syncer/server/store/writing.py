"""Writing the content of objects: bodies, block lists and differences. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import threading
import uuid as uuids
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import islice
from typing import Final

from msgspec.structs import replace

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.extents import block_count
from blockfs.blocks.ids import ZERO_BLOCK, BlockId, ObjectHash
from syncer.protocol import segments, swift
from syncer.protocol.extensions.hashmap_delta import Delta
from syncer.protocol.pithos import byteranges
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.segments import Segment, Wanted
from syncer.server.catalogue import contents, objects
from syncer.server.catalogue.catalogue import Catalogue, Reading
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.orders import Place, ReadOrder, Transfer, WriteOrder
from syncer.server.catalogue.schema import VersionRecord
from syncer.server.errors import BadRequest, NotFound, PreconditionFailed, RangeNotSatisfiable, TooLarge, Unprocessable
from syncer.server.store import deltas
from syncer.server.store.incoming import Incoming
from syncer.server.store.long_lists import LongList
from syncer.server.store.reading import ObjectReader
from syncer.server.store.sharing import Shares

LONG_IDS: Final = 1 << 14
"""Block lists with more are not held in memory: 1 GiB in blocks of 64 KiB."""

MAX_COPIED_BYTES: Final = 5 << 30
"""Of a copy that is read and stored anew, as in Swift: more is had by a copy of the manifest."""

_RECORD_IDS: Final = 1 << 12  # of a body, noted as sent in one transaction: some milliseconds


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
        # Several at once only hand Python's lock to and fro, and who has small requests waits behind each of them.
        self._wide_turn: Final = threading.Lock()

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
            admitted(view, order, size_bytes)

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
                found = admitted(view, order, block_list.size_bytes)
                return contents.prepare(view, found.account_id, block_list, uploaded)

        return self._commit(order, prepare, md5=md5)

    def put_static(self, order: WriteOrder, wanted: Sequence[Wanted]) -> tuple[ObjectState, str]:
        """Make an object of segments that are there; its content is the manifest that lists them.

        Args:
            order: What is to be written; an MD5 is that of the segments' MD5s.
            wanted: Which they are, in order.

        Returns:
            The version, and the object's ETag in hex.

        Raises:
            BadRequest: A segment is not there, not as it should be, or the very object that is made.
            Unprocessable: The object has another ETag.
            Refusal: As `put_content`.
        """
        with self._catalogue.reading() as view:
            admitted(view, order, None)
            if (order.place.container, order.place.name) in {(one.container, one.name) for one in wanted}:
                raise BadRequest("A manifest must not list itself: it would replace the content of that segment")
            found = [_checked(view, order.place.account, one) for one in wanted]
        etag = swift.joined_md5(bytes.fromhex(segment.hash) or None for segment in found).hex()
        if order.md5 not in {None, etag}:
            raise Unprocessable(f"The object has the ETag {etag}; nothing was stored")
        incoming = self.receive(md5=True)
        try:
            incoming.feed((segments.encode(found),))
            made = replace(order, md5=None, manifest=segments.mark(segments.total(found), etag))
            return self.put_content(made, incoming), etag
        finally:
            incoming.close()

    def rewrites(self, wanted: Transfer) -> bool:
        """Whether a copy is not of a version as it is: of a part of it, or of the segments that it names.

        Raises:
            NotFound: No such container, object or version.
            Forbidden: It is another account's, and not shared.
        """
        if wanted.ranges is not None or not wanted.joins:
            return wanted.ranges is not None
        source = wanted.source
        if source.account != wanted.destination.account:
            self.shares.require_readable(wanted.destination.account, source, wanted.version)
            return False  # of what is another's, the manifest may name what is not shared
        with self._catalogue.reading() as view:
            return bool(objects.read_version(view, source, wanted.version)[1].manifest)

    def copy_content(self, wanted: Transfer) -> ObjectState:
        """Make an object of what a GET of another would send: its segments, joined, or a part of it.

        Raises:
            Refusal: As `put_content` and `open_object`.
            Forbidden: It is another account's, and not shared.
            RangeNotSatisfiable: The range covers nothing.
            TooLarge: It is more than `MAX_COPIED_BYTES`.
        """
        source, order = wanted.source, wanted.order
        is_foreign = source.account != wanted.destination.account
        if is_foreign:
            self.shares.require_readable(wanted.destination.account, source, wanted.version)
        with self._catalogue.reading() as view:
            objects.require(order.source, objects.look(view, source))
        joins = wanted.joins and not is_foreign  # see `rewrites`
        reader = wanted.destination.account if is_foreign else ""  # it may be newer than what was looked at
        opened = self.open_object(ReadOrder(place=source, version=wanted.version, joins=joins, reader=reader))
        part = _part(wanted.ranges, opened.state.size_bytes)
        made = order.applied_to(opened.record)
        write = WriteOrder(
            place=wanted.destination,
            content_type=made.content_type,
            meta=made.meta,
            fields=made.fields,
            conditions=order.destination,
            readers=order.readers,
        )
        self.check_write(write, len(part))
        incoming = self.receive(md5=True)
        try:
            for piece in self.content(opened, part.start, len(part)):
                incoming.feed((piece,))
            return self.put_content(write, incoming)
        finally:
            incoming.close()

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
                admitted(view, order, size_bytes)
            content, again = long.prepared(size_bytes, again=again), True
            if expected not in {None, content.object_hash}:
                raise Unprocessable(f"The block list makes an object with hash {content.object_hash.hex()}")
            contents.require_fit(size_bytes, long.last, self._blocks)
            return content

        return self._commit(order, prepare, md5=md5)

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
                found = admitted(view, order, delta.size_bytes)  # before blocks are asked for
                base = None if base_version is None else found.existing()[1]
                content = self._prepared_delta(view, found.account_id, base, delta)
                if delta.object_hash not in {None, content.object_hash}:
                    raise Unprocessable(f"The splices make an object with hash {content.object_hash.hex()}")
                contents.require_possession(view, found.account_id, content, self._blocks, hold)
                contents.require_fit(content.size_bytes, deltas.last_id(view, content), self._blocks)
            return content

        with self._blocks.hold() as hold:
            return self._commit(order, prepare)

    def _prepared_delta(
        self, view: Reading, account: int | None, base: VersionRecord | None, delta: Delta
    ) -> contents.Prepared:
        """As `deltas.prepare_delta`; of those about very many blocks, one at a time, however few bytes tell them."""
        is_wide = block_count(delta.size_bytes, self.block_size) > LONG_IDS
        with self._wide_turn if is_wide else nullcontext():
            return deltas.prepare_delta(view, account, base, delta, self.block_size)

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


def admitted(view: Reading, order: WriteOrder, size_bytes: int | None) -> objects.Found:
    """What is at a place, if it may be written there so many bytes; early, a 412 says more than missing blocks."""
    found = objects.look(view, order.place)
    objects.require(order.conditions, found)
    if size_bytes is not None:
        objects.require_room_for(view, found, size_bytes)
    return found


def _part(ranges: str | None, size_bytes: int) -> range:
    """Which bytes of a source are copied."""
    found: list[range] | None = None
    if ranges is not None:
        try:
            found = byteranges.parse_ranges_or_none(ranges, size_bytes)
        except byteranges.RangeError as error:
            raise RangeNotSatisfiable(str(error), {"Content-Range": f"bytes */{size_bytes}"}) from None
    if found is not None and len(found) != 1:
        raise BadRequest("A copy is of one range")
    part = range(size_bytes) if found is None else found[0]
    if len(part) > MAX_COPIED_BYTES:
        raise TooLarge(f"A copy of {len(part)} bytes is too long; with multipart-manifest=get the manifest is copied")
    return part


def _checked(view: Reading, account: str, wanted: Wanted) -> Segment:
    """A segment as it is now, if it is what is wanted.

    Raises:
        BadRequest: It is not.
    """
    asked = wanted.path[:200]
    told = f"The segment {asked!r}"
    try:
        place = Place(account=account, container=wanted.container, name=wanted.name)
        _, record = objects.read_version(view, place, None)
    except NotFound:
        raise BadRequest(f"{told}: 404 Not Found") from None
    md5 = "" if record.md5 is None else record.md5.hex()
    if wanted.etag and wanted.etag.strip('"').lower() != md5:
        raise BadRequest(f"{told}: Etag Mismatch")
    if wanted.size_bytes not in {None, record.size_bytes}:
        raise BadRequest(f"{told}: Size Mismatch")
    if not record.size_bytes or record.manifest:
        raise BadRequest(f"{told} is empty, or made of segments itself")
    return Segment(
        name=f"/{wanted.container}/{wanted.name}",
        hash=md5,
        bytes=record.size_bytes,
        content_type=record.content_type,
        last_modified=swift.iso(record.modified_us),
    )
