"""Forgetting history on purpose: versions that were made before some moment, and are not the current ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from msgspec.structs import replace

from syncer.server.catalogue import objects
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.orders import Place
from syncer.server.catalogue.schema import NameRecord, VersionRecord
from syncer.server.errors import NotFound

BATCH = 1000  # names in one transaction: what other requests have to wait for


def purge_object(change: Change, place: Place, until_us: int) -> None:
    """Forget an object's older versions, also a deleted object's.

    Raises:
        NotFound: No such container, or the name never existed.
    """
    found = objects.look(change, place)
    if found.row is None:
        raise NotFound("Object does not exist")
    _purge(change, found.row, until_us)


def purge_some(change: Change, account: str, container: str, start: bytes, until_us: int) -> bytes | None:
    """Forget the older versions of some names of a container.

    Args:
        change: The transaction.
        account: Whose.
        container: Which.
        start: The first name.
        until_us: Versions of later moments stay.

    Returns:
        Where to go on, None at the end.
    """
    record = objects.look(change, Place(account=account, container=container, name="")).container
    rows = list(islice(change.names(record.container_id, start), BATCH))
    for _, row in rows:
        _purge(change, row, until_us)
    return rows[-1][0] + b"\0" if len(rows) == BATCH else None


def version_at(view: Reading, row: NameRecord, until_us: int) -> tuple[int, VersionRecord] | None:
    """What a name was at some moment; None if it did not exist then, or if that is forgotten."""
    for serial, record in _chain(view, row.newest):
        if record.modified_us <= until_us:
            return None if record.deleted else (serial, record)
    return None


def _purge(change: Change, row: NameRecord, until_us: int) -> None:
    kept_serial, kept = row.newest, change.existing_version(row.newest)
    for serial, record in _chain(change, kept.previous):
        if record.modified_us <= until_us:
            change.put_version(kept_serial, replace(kept, previous=0))
            objects.forget(change, serial)
            return
        kept_serial, kept = serial, record


def _chain(view: Reading, serial: int) -> Iterator[tuple[int, VersionRecord]]:
    """A version and those before it, newest first."""
    while serial:
        record = view.existing_version(serial)
        yield serial, record
        serial = record.previous
