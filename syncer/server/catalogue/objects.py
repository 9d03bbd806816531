"""Objects and versions: what a transaction reads and writes for them. Each writing function decides first, then writes.

A name has a chain of versions, newest first. A deletion is a version, too (a marker), so that the history of a deleted
name stays readable and the container's version rises.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from blockfs.blocks.ids import ZERO_BLOCK, ObjectHash
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import VersionRow
from syncer.server.catalogue import containers, contents, sharing
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.conditions import UNCONDITIONAL, Conditions, Verdict, judge_write
from syncer.server.catalogue.orders import MetaOrder, Place, TransferOrder, WriteOrder, merged_meta
from syncer.server.catalogue.schema import SERIAL, ContainerRecord, NameRecord, VersionRecord, uuid_text
from syncer.server.errors import BadRequest, Forbidden, NotFound, PreconditionFailed, Refusal


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A new content for an object.

    Attributes:
        order: What it is for.
        content: The block list.
        fresh_uuid: For an object that does not exist yet.
        md5: Of the content, None where it is not known.
        based_on: The version that the content was made from must still be the current one; None: any.
    """

    order: WriteOrder
    content: contents.Prepared
    fresh_uuid: bytes
    md5: bytes | None = None
    based_on: int | None = None


class Overtaken(Refusal):
    """Somebody else wrote what a draft is based on. Never leaves the server: make the draft again."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What is at a place.

    Attributes:
        account_id: Owner of the container.
        container: The container.
        row: Of the name, None if it never existed.
        version: The current version, None if there is no object.
    """

    account_id: int
    container: ContainerRecord
    row: NameRecord | None
    version: VersionRecord | None

    @property
    def state(self) -> ObjectState | None:
        """The current version as replies tell it."""
        return None if self.version is None or self.row is None else state_of(self.row.newest, self.version)

    @property
    def size_bytes(self) -> int:
        """Of the object, 0 for none."""
        return 0 if self.version is None else self.version.size_bytes

    def existing(self) -> tuple[NameRecord, VersionRecord]:
        """Row and current version of an object that must exist.

        Raises:
            NotFound: It doesn't.
        """
        if self.row is None or self.version is None:
            raise NotFound("Object does not exist")
        return self.row, self.version


def state_of(serial: int, record: VersionRecord) -> ObjectState:
    """A version as replies tell it."""
    return ObjectState(
        size_bytes=record.size_bytes,
        object_hash=record.object_hash,
        uuid=uuid_text(record.uuid),
        version=serial,
        modified_us=record.modified_us,
        content_type=record.content_type,
        modified_by=record.modified_by,
        meta=record.meta,
        md5=record.md5,
    )


# --- reading


def look(view: Reading, place: Place) -> Found:
    """What is at a place now.

    Raises:
        NotFound: There is no such container.
    """
    account_id, container = containers.existing(view, place.account, place.container)
    row = view.name(container.container_id, place.name)
    version = None if row is None or row.deleted else view.existing_version(row.newest)
    return Found(account_id=account_id, container=container, row=row, version=version)


def read_version(view: Reading, place: Place, serial: int | None) -> tuple[int, VersionRecord]:
    """One version of an object and its serial; the current one for None.

    Raises:
        NotFound: No container, no object, or no such version of this name.
    """
    found = look(view, place)
    if serial is None:
        row, current = found.existing()
        return row.newest, current
    record = None if found.row is None else view.version(serial)
    if found.row is None or record is None or record.slot != found.row.slot or record.deleted:
        raise NotFound("Version does not exist")
    return serial, record


def history(view: Reading, place: Place, most: int | None = None) -> list[VersionRow]:
    """The versions of a name, ascending, without deletion markers. Of a deleted object, too.

    Args:
        view: The catalogue.
        place: The name.
        most: The last so many; None: all.

    Raises:
        NotFound: No container, or the name never existed.
    """
    found = look(view, place)
    if found.row is None:
        raise NotFound("Object does not exist")
    rows: list[VersionRow] = []
    serial = found.row.newest
    while serial and len(rows) != most:
        record = view.existing_version(serial)
        if not record.deleted:
            rows.append(VersionRow(version=serial, modified_us=record.modified_us))
        serial = record.previous
    return rows[::-1]


def require_readable(view: Reading, reader: str, place: Place, version: int | None) -> None:
    """Go on for an account that is not the owner, or refuse, without telling whether there is such an object.

    Only the current version is shared: what an object was before may be nobody's business.

    Raises:
        Forbidden: Not shared with this account, or an older version.
    """
    try:
        found = look(view, place)
    except NotFound:
        raise Forbidden("This object is not shared with you") from None
    if found.row is None or not sharing.may_read(view, reader, found.container.container_id, place.name):
        raise Forbidden("This object is not shared with you")
    if version not in {None, found.row.newest}:
        raise Forbidden("Only the current version of this object is shared with you")


# --- writing


def put(change: Change, draft: Draft) -> ObjectState:
    """Make an object, or a new version of it.

    Raises:
        NotFound: There is no such container.
        PreconditionFailed: A condition doesn't hold.
        OverQuota: There is no room for it.
        LeafVanished: Prepare the content again.
        Overtaken: Make the draft again.
    """
    order = draft.order
    found = look(change, order.place)
    require(order.conditions, found)
    if draft.based_on is not None and (found.row is None or draft.based_on != found.row.newest):
        raise Overtaken("the object has changed")
    require_room_for(change, found, draft.content.size_bytes)
    contents.require_leaves(change, found.account_id, draft.content)
    content = contents.store(change, found.account_id, draft.content)
    record = VersionRecord(
        slot=change.next_slot() if found.row is None else found.row.slot,
        previous=0 if found.row is None else found.row.newest,
        deleted=False,
        uuid=draft.fresh_uuid if found.version is None else found.version.uuid,
        size_bytes=draft.content.size_bytes,
        object_hash=draft.content.object_hash,
        content=content,
        modified_us=change.stamp_us(),
        content_type=order.content_type,
        modified_by=order.place.account,
        meta=order.meta,
        md5=draft.md5,
        manifest=order.manifest,
        fields=order.fields,
    )
    state = _append(change, order.place, found, record)
    if order.readers is not None:
        share(change, order.place, order.readers)
    return state


def set_meta(change: Change, order: MetaOrder) -> ObjectState:
    """Change an object's metadata, type, header fields and readers: a new version with the same content.

    Raises:
        NotFound: No such container or object.
        PreconditionFailed: A condition doesn't hold.
        BadRequest: Too many items then.
    """
    place = order.place
    found = look(change, place)
    require(order.conditions, found)
    row, current = found.existing()
    merged = merged_meta(current.meta if order.keeps_meta else {}, order.meta)
    record = replace(
        current,
        previous=row.newest,
        content_type=current.content_type if order.content_type is None else order.content_type,
        meta=merged,
        fields={**current.fields, **order.fields} if order.keeps_meta else order.fields,
        modified_us=change.stamp_us(),
        modified_by=place.account,
    )
    if order.readers is not None:
        share(change, place, order.readers)
    return _append(change, place, found, record)


def delete(change: Change, place: Place, conditions: Conditions) -> int:
    """Delete an object; its versions stay readable.

    Returns:
        Serial of the deletion marker.

    Raises:
        NotFound: No such container or object.
        PreconditionFailed: A condition doesn't hold.
    """
    found = look(change, place)
    require(conditions, found)
    found.existing()
    return _bury(change, place, found)


def move(change: Change, source: Place, destination: Place, order: TransferOrder) -> ObjectState:
    """Move an object within an account; what is under the new name gets a new version. The UUID goes along.

    Raises:
        NotFound: No such container or object.
        PreconditionFailed: A condition doesn't hold.
        BadRequest: Source and destination are one, or too many metadata items.
    """
    assert source.account == destination.account
    if source == destination:
        raise BadRequest("Source and destination are the same object")
    found = look(change, source)
    require(order.source, found)
    _, current = found.existing()
    target = look(change, destination)
    require(order.destination, target)
    record = order.applied_to(current)
    if not order.has_room:
        require_room_for_transfers(change, [(found, target)], moves=True)
    _bury(change, source, found)
    _, container = containers.existing(change, destination.account, destination.container)  # may be the same one
    return _install(change, destination, replace(target, container=container), record, order)


def copy(
    change: Change,
    source: Place,
    destination: Place,
    order: TransferOrder,
    *,
    version: int | None,
    fresh_uuid: bytes,
    block_size: int,
) -> ObjectState:
    """Make an object, or a new version of it, with the content of another one.

    Args:
        change: The transaction.
        source: What is copied; of another account, if it may be read.
        destination: May be the source: a new version with other metadata, or an old version brought back.
        order: Conditions, type and metadata.
        version: Which version of the source; None for the current one.
        fresh_uuid: For a destination that does not exist yet.
        block_size: Of the store.

    Raises:
        NotFound: No such container, object or version.
        Forbidden: It is another account's, and not shared.
        PreconditionFailed: A condition doesn't hold.
        BadRequest: Too many metadata items.
    """
    if source.account != destination.account:
        require_readable(change, destination.account, source, version)
    require(order.source, look(change, source))
    _, original = read_version(change, source, version)
    target = look(change, destination)
    require(order.destination, target)
    if not order.has_room:
        require_room_for(change, target, original.size_bytes)
    if source.account != destination.account:
        contents.grant(change, target.account_id, contents.leaf_keys(change, original, block_size))
    uuid = fresh_uuid if target.version is None else target.version.uuid
    return _install(change, destination, target, replace(order.applied_to(original), uuid=uuid), order)


def _install(change: Change, place: Place, target: Found, record: VersionRecord, order: TransferOrder) -> ObjectState:
    """Make a version of another name the current one of this place."""
    installed = replace(
        record,
        slot=change.next_slot() if target.row is None else target.row.slot,
        previous=0 if target.row is None else target.row.newest,
        modified_us=change.stamp_us(),
        modified_by=place.account,
    )
    state = _append(change, place, target, installed)
    if order.readers is not None:
        share(change, place, order.readers)
    return state


def require(conditions: Conditions, found: Found) -> None:
    """Go on, or refuse.

    Raises:
        PreconditionFailed: A condition doesn't hold.
    """
    if conditions.if_version is not None and conditions == Conditions(if_version=conditions.if_version):
        failed = conditions.if_version != (0 if found.version is None or found.row is None else found.row.newest)
    else:
        failed = conditions != UNCONDITIONAL and judge_write(conditions, found.state) is Verdict.FAILED
    if failed:
        now = "it does not exist" if found.row is None or found.row.deleted else f"it is at version {found.row.newest}"
        raise PreconditionFailed(f"Precondition failed: {now}")


def require_room_for(view: Reading, found: Found, size_bytes: int) -> None:
    """Go on with a new content of so many bytes, or refuse.

    Raises:
        OverQuota: A quota is too small.
    """
    containers.require_room_in(view, found.account_id, found.container, size_bytes - found.size_bytes)


def require_room_for_transfers(view: Reading, pairs: Iterable[tuple[Found, Found]], *, moves: bool) -> None:
    """Go on with moves or copies of current objects, or refuse.

    Args:
        view: The transaction.
        pairs: What is at each source and at its destination.
        moves: The sources go away.

    Raises:
        OverQuota: A quota is too small.
    """
    growth: dict[int, tuple[ContainerRecord, int]] = {}
    account = 0
    for source, target in pairs:
        account = target.account_id
        changes = [(target.container, source.size_bytes - target.size_bytes)]
        for container, more in [*changes, (source.container, -source.size_bytes)] if moves else changes:
            _, before = growth.get(container.container_id, (container, 0))
            growth[container.container_id] = (container, before + more)
    containers.require_room(view, account, growth)


def _append(change: Change, place: Place, found: Found, record: VersionRecord) -> ObjectState:
    """Make a version the current one of its name."""
    serial = change.next_serial()
    if found.row is not None and not change.container_settings(found.container.container_id).keeps_history:
        forget(change, found.row.newest)
        record = replace(record, previous=0)
    change.put_version(serial, record)
    row = NameRecord(slot=record.slot, newest=serial, deleted=record.deleted)
    change.put_name(found.container.container_id, place.name, row)
    newest_before = 0 if found.row is None else found.row.newest
    change.put_change(found.container.container_id, place.name, serial, newest_before)
    before = found.version
    container = containers.record_change(
        found.container,
        objects=(0 if record.deleted else 1) - (0 if before is None else 1),
        size_bytes=record.size_bytes - (0 if before is None else before.size_bytes),
        version=serial,
        modified_us=record.modified_us,
    )
    change.put_container(found.account_id, place.container, container)
    return state_of(serial, record)


def forget(change: Change, serial: int) -> None:
    """Remove a version and all before it. The sweep then finds what nobody names any more."""
    while serial:
        previous = change.existing_version(serial).previous
        change.delete("versions", SERIAL.pack(serial))
        serial = previous


def share(change: Change, place: Place, readers: Sequence[str], conditions: Conditions = UNCONDITIONAL) -> None:
    """Let these accounts and no others read an object.

    Raises:
        NotFound: No such container or object.
        PreconditionFailed: A condition doesn't hold.
    """
    found = look(change, place)
    require(conditions, found)
    row, _ = found.existing()
    shown = sharing.SharedName(owner=place.account, container=place.container, name=place.name)
    sharing.share(change, found.account_id, found.container.container_id, row.slot, readers, shown)


def _bury(change: Change, place: Place, found: Found) -> int:
    """Append a deletion marker. Whoever it was shared with loses it."""
    row, current = found.existing()
    sharing.withdraw(change, found.account_id, found.container.container_id, row.slot)
    marker = VersionRecord(
        slot=row.slot,
        previous=row.newest,
        deleted=True,
        uuid=current.uuid,
        size_bytes=0,
        object_hash=ObjectHash(ZERO_BLOCK),
        content=contents.NO_CONTENT,
        modified_us=change.stamp_us(),
        content_type="",
        modified_by=place.account,
        meta={},
    )
    return _append(change, place, found, marker).version
