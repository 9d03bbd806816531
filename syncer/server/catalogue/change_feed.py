"""What changed in a container since one of its versions: the extension `changes`, on one snapshot.

Each name that ever existed has one row in `changes`, at the serial of its newest version, a deletion included. So the
answer costs what changed, however many objects there are, and it is complete for every version that the container ever
had: nothing is pruned before the container itself is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from syncer.core.subtrees import SubtreeMove
from syncer.protocol.extensions.changes import ChangesPage, is_in
from syncer.protocol.pithos.listing import ObjectRow
from syncer.server.catalogue import containers, objects
from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.listings import weight
from syncer.server.catalogue.orders import ChangesOrder
from syncer.server.catalogue.schema import ContainerRecord, uuid_text
from syncer.server.errors import Gone

MAX_PAGE_BYTES: Final = 32 << 20
"""Memory of the rows of one answer."""


def changes(view: Reading, account: str, container: str, order: ChangesOrder) -> tuple[int, ChangesPage]:
    """The container's id, and what changed in it.

    Raises:
        NotFound: There is no such container.
        Gone: Another container, or a version that it never had.
    """
    _, record = containers.existing(view, account, container)
    identity = uuid_text(record.uuid)
    _require_known(view, record, identity, order)
    moves = _moves(view, record.container_id, order.since) if order.moves else []
    changed = _rows(view, record.container_id, order.since, moves)
    if order.without:
        changed = ((serial, name) for serial, name in changed if not is_in(serial, order.without))
    rows = list(islice(changed, order.limit + 1))
    more = len(rows) > order.limit
    found: list[ObjectRow] = []
    deleted: list[str] = []
    version, modified_us = record.version, record.modified_us
    size_bytes = 0
    for at, (serial, name) in enumerate(rows[: order.limit], start=1):
        state = view.existing_version(serial)
        if state.deleted:
            deleted.append(name)
        else:
            found.append(ObjectRow(name=name, state=objects.state_of(serial, state)))
            size_bytes += weight(found[-1].state)
        # Metadata may be long: then the rest comes with the next question.
        full = size_bytes >= MAX_PAGE_BYTES and at < len(rows)
        more = more or full
        if more:
            version, modified_us = serial, state.modified_us
        if full:
            break
    page = ChangesPage(
        identity=identity,
        version=version,
        modified_us=modified_us,
        more=more,
        object_count=record.object_count,
        bytes_used=record.bytes_used,
        objects=found,
        deleted=deleted,
        moves=tuple(move for move in moves if move.last <= version),
    )
    return record.container_id, page


def _moves(view: Reading, container_id: int, since: int) -> list[SubtreeMove]:
    """The moves that lie behind a version as a whole."""
    return [move for move in view.moves(container_id, since) if move.first > since]


def _rows(view: Reading, container_id: int, since: int, moves: Sequence[SubtreeMove]) -> Iterator[tuple[int, str]]:
    """What changed, without what a move tells. A name that changed after the move has its row behind it."""
    for move in moves:
        for serial, name in view.changed_names(container_id, since):
            if serial >= move.first:
                break
            yield serial, name
        since = move.last
    yield from view.changed_names(container_id, since)


def _require_known(view: Reading, record: ContainerRecord, identity: str, order: ChangesOrder) -> None:
    """Refuse a cursor of another container, or of another past: a restored backup gives serials out again.

    Raises:
        Gone: It is.
    """
    if order.identity is not None and order.identity != identity:
        raise Gone("This is another container than the one you know; list it")
    if order.since > record.version:
        raise Gone(f"This container has not had version {order.since} yet; list it")
    if order.modified_us is None or order.since == 0:
        return
    known = record.modified_us
    if order.since != record.version:
        version = view.version(order.since)
        known = -1 if version is None else version.modified_us
    if known != order.modified_us:
        raise Gone(f"Version {order.since} is not the one that you know; list the container")
