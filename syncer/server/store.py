"""The object store: what requests ask for, on a catalogue and a block directory. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import secrets
import threading
import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, Self

from blockfs.blocks import gc
from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.extents import spans
from blockfs.blocks.gc import GcResult
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK, BlockId
from syncer.core.subtrees import Guard
from syncer.protocol.bulk import Operation, Result
from syncer.protocol.changes import ChangesPage
from syncer.protocol.hashmap_delta import Delta
from syncer.protocol.headers import ObjectState
from syncer.protocol.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.server import (
    bulk,
    containers,
    contents,
    deltas,
    history,
    listings,
    objects,
    purge,
    settings,
    subtrees,
    sweep,
    whole_moves,
)
from syncer.server.bell import Bell
from syncer.server.catalogue import Catalogue, Change
from syncer.server.commits import Commits
from syncer.server.conditions import (
    UNCONDITIONAL,
    Conditions,
    listing_is_unchanged,
    settled_time,
)
from syncer.server.containers import AccountSummary
from syncer.server.contents import LeafVanished, Prepared
from syncer.server.folder import ServerFolder
from syncer.server.history import ChangesOrder
from syncer.server.incoming import Incoming
from syncer.server.listings import Selection
from syncer.server.objects import Draft, Overtaken, Place, Source, TransferOrder
from syncer.server.reading import ObjectReader, ObjectView
from syncer.server.refusals import NotModified, PreconditionFailed, Unprocessable
from syncer.server.schema import ContainerRecord, Settings, uuid_text
from syncer.server.settings import NO_SETTINGS, SettingsOrder, merged_meta
from syncer.server.shares import Shares
from syncer.server.sweep import SweepResult
from syncer.server.updates import Edit, Part, UpdateOrder
from syncer.server.whole_moves import Moved

GRACE_US: Final = 24 * 3600 * 1_000_000
"""How long an uploaded block stays without a version that names it: an upload of 1 TiB takes a day at 100 Mbit/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerView:
    """What replies about a container tell.

    Attributes:
        record: Its row.
        settings: What was set for it.
        settled_us: Its time of change, for Last-Modified; see `conditions.settled_time`.
    """

    record: ContainerRecord
    settings: Settings
    settled_us: int

    @property
    def identity(self) -> str:
        """UUID text of the container's life."""
        return uuid_text(self.record.uuid)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    """What a garbage collection did."""

    catalogue: SweepResult
    blocks: GcResult


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store(ObjectReader):
    """One open store. Closed by `close`; one process at a time (the folder's lock)."""

    def __init__(self, folder: ServerFolder, *, clock_us: Callable[[], int] = _clock_us) -> None:
        """Open the store in a locked folder, or make it there.

        Args:
            folder: Made and locked by `ServerFolder.open`; closed with the store.
            clock_us: Microseconds since the epoch.
        """
        self._folder = folder
        self._clock_us = clock_us
        blocks = BlockDirectory.open(folder.blocks)
        try:
            super().__init__(Catalogue.open(folder.catalogue), blocks)
        except BaseException:
            blocks.close()
            raise
        self.bell: Final = Bell()
        # LMDB lets go of Python's lock for each row: two bulks that hand it to and fro take longer than one by one.
        self._bulk_turn: Final = threading.Lock()  # not held while the disk is waited for
        self._commits = Commits(self._catalogue, clock_us, self.bell.ring)
        self.shares: Final = Shares(self._catalogue, self._commits)
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

    def create_container(self, account: str, container: str, order: SettingsOrder = NO_SETTINGS) -> bool:
        """Make a container; False if it exists. Its settings are changed either way."""
        fresh = uuids.uuid4().bytes

        def act(change: Change) -> bool:
            order.applied_to(Settings())  # refuses before anything is written
            if containers.exists(change, account, container):
                settings.set_for_container(change, account, container, order)
                return False
            containers.create(change, account, container, fresh)
            settings.set_for_container(change, account, container, order)
            return True

        return self._commits.run(act)

    def set_container(self, account: str, container: str, order: SettingsOrder) -> None:
        """Change a container's settings."""
        self._commits.run(lambda change: settings.set_for_container(change, account, container, order))

    def set_quotas(self, quotas: Mapping[str, int]) -> None:
        """Set the quotas of accounts, bytes by name; 0 for none. Those not named keep theirs: nobody can use them."""
        self._commits.run(lambda change: settings.set_quotas(change, quotas))

    def set_account(self, account: str, order: SettingsOrder) -> None:
        """Change an account's settings."""
        self._commits.run(lambda change: settings.set_for_account(change, account, order))

    def delete_container(self, account: str, container: str) -> None:
        """Delete an empty container and, later, its history."""
        self._commits.run(lambda change: containers.delete(change, account, container))

    def container(self, account: str, container: str) -> ContainerView:
        """What a container is now."""
        floor_us = self._commits.floor_us()  # before the snapshot
        with self._catalogue.reading() as view:
            _, record = containers.existing(view, account, container)
            found = view.container_settings(record.container_id)
        return ContainerView(record=record, settings=found, settled_us=settled_time(record.modified_us, floor_us))

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
            found = view.container_settings(record.container_id)
        return ContainerView(record=record, settings=found, settled_us=settled_time(record.modified_us, floor_us)), rows

    def changes(self, account: str, container: str, order: ChangesOrder) -> tuple[int, ChangesPage]:
        """A container's id (for `bell`) and what changed in it since a version; see `history.changes`."""
        with self._catalogue.reading() as view:
            return history.changes(view, account, container, order)

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
        block_list = incoming.finish()
        self._blocks.sync()  # before the commit that names them
        md5 = None if incoming.md5 is None else incoming.md5.digest()
        wanted = _Wanted(place=place, conditions=conditions, content_type=content_type, meta=meta)
        return self._commit_content(
            replace(wanted, md5=md5, manifest=manifest), block_list, uploaded=tuple(block_list), hold=None
        )

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
            new = source.finish() if isinstance(source, Incoming) else self._source(place.account, source, hold)
            while True:
                old = self.open_object(place, version=None, conditions=UNCONDITIONAL)
                self._require(place, order.conditions)
                edit = order.edit(old.state.size_bytes, new.size_bytes, self.block_size)
                block_list, brought = self._composed(old, new, edit, hold)
                self._blocks.sync()
                uploaded = brought if not isinstance(source, Incoming) else [*brought, *new]
                wanted = _Wanted(
                    place=place,
                    conditions=order.conditions,
                    content_type=old.state.content_type,
                    meta=merged_meta((old.state.meta or {}) if order.keeps_meta else {}, order.meta),
                    based_on=old.state.version,
                )
                try:
                    return self._commit_content(wanted, block_list, uploaded=uploaded, hold=hold)
                except Overtaken:
                    continue

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

    def _source(self, account: str, source: Source, hold: EpochHold) -> BlockList:
        """Another object's block list. Its blocks stay while the hold lasts."""
        if source.place.account != account:
            self.shares.require_readable(account, source.place, source.version)
        opened = self.open_object(source.place, version=source.version, conditions=UNCONDITIONAL)
        if source.place.account != account:
            self.shares.possess(account, opened.state, opened.leaf_keys)
        found = self.block_list(opened)
        self._blocks.missing(found, hold)
        return found

    def _composed(
        self, old: ObjectView, new: BlockList, edit: Edit, hold: EpochHold
    ) -> tuple[BlockList, list[BlockId]]:
        """The block list after an edit, and the blocks that had to be composed for it."""
        before = self.block_list(old)
        ids = bytearray(before.ids[: edit.blocks * ID_SIZE].ljust(edit.blocks * ID_SIZE, b"\0"))
        brought = []
        for index in edit.changed():
            parts = edit.parts(index)
            whole = edit.whole_block(parts, new.size_bytes)
            if whole is not None:
                block_id = new[whole]
            else:
                data = b"".join(self._bytes(new if part.is_new else before, part) for part in parts)
                block_id = self._blocks.put(data, hold)
                brought.append(block_id)
            ids[index * ID_SIZE : (index + 1) * ID_SIZE] = block_id
        return BlockList(block_size=self.block_size, size_bytes=edit.size, ids=bytes(ids)), brought

    def _bytes(self, blocks: BlockList, part: Part) -> bytes:
        """Some bytes of one or two blocks."""
        return b"".join(
            self._blocks.read(blocks[span.index], span.start, span.length)
            for span in spans(part.start, part.length, self.block_size)
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
        wanted = _Wanted(place=place, conditions=on_base, content_type=content_type, meta=meta)

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

    def bulk(self, at: Place, operations: Sequence[Operation]) -> list[Result]:
        """Do several small changes of one container in one durable transaction; each succeeds or fails on its own.

        Raises:
            NotFound: There is no such container.
        """
        results: list[Result] = []
        with self._blocks.hold() as hold:
            with self._bulk_turn:
                lists = bulk.store_blocks(operations, self._blocks, hold)
            self._blocks.sync()  # before the commit that names them
            while len(results) < len(operations):  # again only for contents whose leaf was swept meanwhile
                with self._bulk_turn, self._catalogue.reading() as view:
                    account, _ = containers.existing(view, at.account, at.container)
                    prepared = bulk.prepare(view, account, lists[len(results) :])
                done = self._commits.run(partial(self._carry_out, at, operations[len(results) :], prepared))
                results += [done[index] for index in range(len(done))]
        return results

    def _carry_out(
        self, at: Place, operations: Sequence[Operation], prepared: Sequence[Prepared | None], change: Change
    ) -> dict[int, Result]:
        with self._bulk_turn:
            return bulk.carry_out(change, at, operations, prepared)

    def _commit_content(
        self, wanted: _Wanted, block_list: BlockList, *, uploaded: Sequence[BlockId], hold: EpochHold | None
    ) -> ObjectState:
        return self._commit_prepared(wanted, partial(self._prepare, wanted, block_list, uploaded, hold))

    def _commit_prepared(self, wanted: _Wanted, prepare: Callable[[], Prepared]) -> ObjectState:
        fresh = uuids.uuid4().bytes
        while True:
            draft = wanted.draft(prepare(), fresh)
            act = partial(objects.put, place=wanted.place, draft=draft, conditions=wanted.conditions)
            try:
                return self._commits.run(act)
            except LeafVanished:
                continue  # swept between our look and the commit: the next look finds it gone and checks its ids

    def _prepare(
        self, wanted: _Wanted, block_list: BlockList, uploaded: Sequence[BlockId], hold: EpochHold | None
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

    def set_meta(self, place: Place, meta: Mapping[str, str], conditions: Conditions, *, update: bool) -> ObjectState:
        """Change metadata; see `objects.set_meta`."""
        return self._commits.run(lambda change: objects.set_meta(change, place, meta, conditions, update=update))

    def delete(self, place: Place, conditions: Conditions, *, delimiter: str = "") -> int:
        """Delete an object; with a delimiter, all below it as well. See `objects.delete`, `subtrees.delete`."""
        if delimiter:
            return self._commits.run(lambda change: subtrees.delete(change, place, delimiter, conditions))
        return self._commits.run(lambda change: objects.delete(change, place, conditions))

    def purge_object(self, place: Place, until_us: int) -> None:
        """Forget an object's versions up to a moment, but for the current one; see `purge.purge_object`."""
        self._commits.run(lambda change: purge.purge_object(change, place, until_us))

    def purge(self, account: str, container: str, until_us: int) -> None:
        """The same for all names of a container, deleted ones too; not in one transaction."""
        start: bytes | None = b""
        while start is not None:
            act = partial(purge.purge_some, account=account, container=container, start=start, until_us=until_us)
            start = self._commits.run(act)

    def empty_container(self, account: str, container: str) -> None:
        """Delete all objects of a container; see `subtrees.empty`."""
        self._commits.run(lambda change: subtrees.empty(change, account, container))

    def move(self, source: Place, destination: Place, order: TransferOrder, *, delimiter: str = "") -> ObjectState:
        """Move an object; with a delimiter, all below it as well. See `objects.move`, `subtrees.transfer`."""

        def act(change: Change) -> ObjectState:
            one = partial(objects.move, change)
            if delimiter:
                return subtrees.transfer(change, source, destination, delimiter, order, one, moves=True)
            return one(source, destination, order)

        return self._commits.run(act)

    def move_whole(self, source: Place, destination: Place, guard: Guard) -> Moved:
        """Move a subtree that is exactly what a guard says; see `whole_moves.move`."""
        return self._commits.run(lambda change: whole_moves.move(change, source, destination, guard))

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
                fresh = uuids.uuid4().bytes
                return objects.copy(change, old, new, how, version=wanted, fresh_uuid=fresh, block_size=self.block_size)

            if delimiter:
                return subtrees.transfer(change, source, destination, delimiter, order, one, moves=False)
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
