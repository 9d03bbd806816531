"""The object store: what requests ask for, on a catalogue and a block directory. Thread-safe, synchronous.

Durability order of every write: blocks appended → synced (`BlockDirectory.sync`) → catalogue commit that names them →
reply. An epoch hold spans from the first block to the commit, so the collector leaves them alone. A crash leaves blocks
that nobody names (collected later), never a name without its blocks.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import uuid as uuids
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Final, Self

import msgspec

from blockfs.blocks.directory import BlockDirectory
from blockfs.blocks.ids import ID_SIZE
from blockfs.blocks.maintenance import gc
from syncer.core.subtrees import Guard
from syncer.protocol.extensions.bulk import Operation, Result
from syncer.protocol.extensions.changes import ChangesPage
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.server.catalogue import change_feed, containers, listings, objects, purge, sweep
from syncer.server.catalogue.catalogue import Catalogue, Change
from syncer.server.catalogue.commits import Commits
from syncer.server.catalogue.conditions import (
    listing_is_unchanged,
    settled_time,
)
from syncer.server.catalogue.contents import Prepared
from syncer.server.catalogue.orders import (
    NO_SETTINGS,
    ChangesOrder,
    DeleteOrder,
    MetaOrder,
    Place,
    PurgeOrder,
    Selection,
    SettingsOrder,
    Transfer,
    TransferOrder,
)
from syncer.server.catalogue.schema import ContainerRecord, Settings, uuid_text
from syncer.server.errors import NotModified
from syncer.server.folder import ServerFolder
from syncer.server.notifier import Notifier
from syncer.server.store import bulk, delimiter_ops, subtree_move
from syncer.server.store.parts import PartWriter

GRACE_US: Final = 24 * 3600 * 1_000_000
"""How long an uploaded block stays without a version that names it: an upload of 1 TiB takes a day at 100 Mbit/s."""


class ContainerView(msgspec.Struct, frozen=True, kw_only=True):
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


class StoreFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over all accounts.

    Attributes:
        accounts: That have ever written.
        containers: Of all of them.
        objects: That exist now.
        bytes_used: Sum of their sizes.
        versions: That can still be read, deletions included.
        blocks: Stored blocks.
        stored_bytes: What they take on the host.
        free_bytes: Room that is left on the host.
    """

    accounts: int
    containers: int
    objects: int
    bytes_used: int
    versions: int
    blocks: int
    stored_bytes: int
    free_bytes: int


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a garbage collection did."""

    catalogue: sweep.SweepResult
    blocks: gc.GcResult


def _clock_us() -> int:
    return time.time_ns() // 1000


class Store(PartWriter):
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
            catalogue = Catalogue.open(folder.catalogue)
        except BaseException:
            blocks.close()
            raise
        self.notifier: Final = Notifier()
        super().__init__(catalogue, blocks, Commits(catalogue, clock_us, self.notifier.ring), folder.path)
        # LMDB lets go of Python's lock for each row: two bulks that hand it to and fro take longer than one by one.
        self._bulk_turn: Final = threading.Lock()  # not held while the disk is waited for
        self.token_file: Final = folder.token

    def close(self) -> None:
        """Finish what is queued and close everything."""
        self.notifier.close()
        self._commits.close()
        self._catalogue.close()
        self._blocks.close()
        self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def probe(self) -> int:
        """Read something of the catalogue, which raises if it can't be read: the last version's serial."""
        with self._catalogue.reading() as view:
            return view.counters().serial

    def figures(self) -> StoreFigures:
        """Sums over all accounts: costs a look at each container and each segment."""
        with self._catalogue.reading() as view:
            records = [ContainerRecord.decode(raw) for _, raw in view.rows("containers")]
            accounts, versions = view.count("accounts"), view.count("versions")
        blocks, host = self._blocks.statistics(), os.statvfs(self._folder.path)
        return StoreFigures(
            accounts=accounts,
            containers=len(records),
            objects=sum(record.object_count for record in records),
            bytes_used=sum(record.bytes_used for record in records),
            versions=versions,
            blocks=blocks.blocks,
            stored_bytes=blocks.stored_bytes,
            free_bytes=host.f_bavail * host.f_frsize,
        )

    # --- accounts and containers

    def account(self, account: str) -> containers.AccountSummary:
        """Sums over an account."""
        with self._catalogue.reading() as view:
            return containers.summary(view, account)

    def containers(self, account: str, wanted: Selection) -> list[ContainerRow | SubdirectoryRow]:
        """An account's containers by name: those behind the marker that have the prefix, grouped by the delimiter."""
        with self._catalogue.reading() as view:
            found = containers.all_of(view, account, wanted.marker, wanted.prefix)
            before = takewhile(lambda row: not wanted.end or row.name < wanted.end, found)
            return list(listings.page(listings.grouped(before, wanted), wanted))

    def create_container(self, account: str, container: str, order: SettingsOrder = NO_SETTINGS) -> bool:
        """Make a container; False if it exists. Its settings are changed either way."""
        fresh = uuids.uuid4().bytes

        def act(change: Change) -> bool:
            order.applied_to(Settings())  # refuses before anything is written
            made = containers.create(change, account, container, fresh)
            containers.set_for_container(change, account, container, order)
            return made

        return self._commits.run(act)

    def set_container(self, account: str, container: str, order: SettingsOrder) -> None:
        """Change a container's settings."""
        self._commits.run(lambda change: containers.set_for_container(change, account, container, order))

    def set_quotas(self, quotas: Mapping[str, int]) -> None:
        """Set the quotas of accounts, bytes by name; 0 for none. Those not named keep theirs: nobody can use them."""
        self._commits.run(lambda change: containers.set_quotas(change, quotas))

    def set_account(self, account: str, order: SettingsOrder) -> None:
        """Change an account's settings."""
        self._commits.run(lambda change: containers.set_for_account(change, account, order))

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
        self,
        account: str,
        container: str,
        wanted: Selection,
        *,
        since: int | None = None,
        most_bytes: int | None = None,
    ) -> tuple[ContainerView, list[ObjectRow | SubdirectoryRow]]:
        """A container and what is wanted of its objects, by name, of one moment.

        Raises:
            Heavy: The rows take more than `most_bytes`.
            NotFound: There is no such container.
            NotModified: It has not changed since `since` (seconds since the epoch).
        """
        floor_us = self._commits.floor_us()  # before the snapshot
        with self._catalogue.reading() as view:
            _, record = containers.existing(view, account, container)
            if listing_is_unchanged(since, record.modified_us):
                raise NotModified
            rows = listings.select(view, record, wanted, most_bytes)
            found = view.container_settings(record.container_id)
        return ContainerView(record=record, settings=found, settled_us=settled_time(record.modified_us, floor_us)), rows

    def changes(self, account: str, container: str, order: ChangesOrder) -> tuple[int, ChangesPage]:
        """A container's id (for `notifier`) and what changed in it since a version; see `change_feed.changes`."""
        with self._catalogue.reading() as view:
            return change_feed.changes(view, account, container, order)

    # --- changing objects

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

    def set_meta(self, order: MetaOrder) -> ObjectState:
        """Change metadata; see `objects.set_meta`."""
        return self._commits.run(lambda change: objects.set_meta(change, order))

    def delete(self, order: DeleteOrder) -> int:
        """Delete an object; with a delimiter, all below it as well. See `objects.delete`, `delimiter_ops.delete`."""
        if order.delimiter:
            return self._commits.run(lambda change: delimiter_ops.delete(change, order))
        return self._commits.run(lambda change: objects.delete(change, order.place, order.conditions))

    def purge(self, order: PurgeOrder) -> None:
        """Forget an object's versions up to a moment, but for the current one; see `purge.purge_object`.

        Of a container, the same for all names, deleted ones too; not in one transaction.
        """
        place, start = order.place, b"" if not order.place.name else None
        if start is None:
            self._commits.run(lambda change: purge.purge_object(change, place, order.until_us))
        while start is not None:
            act = partial(
                purge.purge_some,
                account=place.account,
                container=place.container,
                start=start,
                until_us=order.until_us,
            )
            start = self._commits.run(act)

    def empty_container(self, account: str, container: str) -> None:
        """Delete all objects of a container; see `delimiter_ops.empty`."""
        self._commits.run(lambda change: delimiter_ops.empty(change, account, container))

    def transfer(self, wanted: Transfer) -> ObjectState:
        """Move or copy an object, or copy an old version of it; with a delimiter, all below it too, as they are now.

        See `objects.move`, `objects.copy`, `delimiter_ops.transfer`; what `rewrites` is about is read and stored anew.
        """
        if self.rewrites(wanted):
            return self.copy_content(wanted)

        def copy(change: Change, old: Place, new: Place, how: TransferOrder) -> ObjectState:
            version = wanted.version if old == wanted.source else None
            fresh = uuids.uuid4().bytes
            return objects.copy(change, old, new, how, version=version, fresh_uuid=fresh, block_size=self.block_size)

        def act(change: Change) -> ObjectState:
            one = partial(objects.move if wanted.moves else copy, change)
            if wanted.delimiter:
                return delimiter_ops.transfer(change, wanted, one)
            return one(wanted.source, wanted.destination, wanted.order)

        return self._commits.run(act)

    def move_subtree(self, source: Place, destination: Place, guard: Guard) -> subtree_move.Moved:
        """Move a subtree that is exactly what a guard says; see `subtree_move.move`."""
        return self._commits.run(lambda change: subtree_move.move(change, source, destination, guard))

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
