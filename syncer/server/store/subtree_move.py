"""A subtree that moves as one (`protocol.extensions.subtree`): guarded, in one transaction, told as one change.

What it does to the rows is what moving its objects one by one in byte order would do, serials included; it only does so
without decoding each version twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final, TypeAlias

import msgspec

from blockfs.blocks.ids import ZERO_BLOCK, ObjectHash
from syncer.core.subtrees import Guard, SubtreeMove, guard_of, version_of
from syncer.protocol.extensions.subtree import MAX_OBJECTS, inside
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.names import object_name_problem
from syncer.server.catalogue import containers, objects, sharing
from syncer.server.catalogue.catalogue import Change, Reading
from syncer.server.catalogue.contents import NO_CONTENT
from syncer.server.catalogue.orders import Place, TransferOrder
from syncer.server.catalogue.schema import (
    SERIAL,
    ContainerRecord,
    VersionRecord,
    change_key,
    moved_version,
    name_fields,
    name_row,
)
from syncer.server.errors import BadRequest, PreconditionFailed

_Found: TypeAlias = tuple[bytes, int, int]
"""An object: what is behind the root in its name, slot, newest version. (A tuple: there may be 262,144.)"""

_AT_ONCE: Final = 4096  # objects whose rows are in memory, read and written together


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """What was done.

    Attributes:
        move: As `changes` tells it.
        state: The root's new version.
    """

    move: SubtreeMove
    state: ObjectState


def move(change: Change, source: Place, destination: Place, guard: Guard) -> Moved:
    """Move a subtree to a free place.

    Raises:
        NotFound: There is no such container.
        PreconditionFailed: The subtree is not the one of the guard, or something is in its new place.
        BadRequest: Into itself, into another container, or a name would become too long.
    """
    if (source.account, source.container) != (destination.account, destination.container):
        raise BadRequest("A guarded subtree moves within its container")
    if inside(destination.name, source.name) or inside(source.name, destination.name):
        raise BadRequest("The destination is, or lies below, the source, or above it")
    account_id, container = containers.existing(change, source.account, source.container)
    found = list(_objects(change, container.container_id, source.name))
    rests = [rest for rest, _, _ in found]
    if guard_of((rest, newest) for rest, _, newest in found) != guard or not found or rests[0]:
        raise PreconditionFailed("Precondition failed: the subtree is another one")
    if next(_objects(change, container.container_id, destination.name), None) is not None:
        raise PreconditionFailed("Precondition failed: something is in the new place")
    longest = max(rests, key=lambda rest: len(rest.decode("utf-8")))
    problem = object_name_problem(destination.name + longest.decode("utf-8"))
    if problem is not None:
        raise BadRequest(f"Unsafe object name {destination.name[:100]!r}: {problem}")
    done = SubtreeMove(source=source.name, target=destination.name, first=change.numbers.serial + 1, guard=guard)
    if change.container_settings(container.container_id).keeps_history:
        _move_rows(change, account_id, container, source, destination.name, found)
    else:
        for rest in rests:
            old = Place(account=source.account, container=source.container, name=source.name + rest.decode("utf-8"))
            new = Place(
                account=source.account, container=source.container, name=destination.name + rest.decode("utf-8")
            )
            objects.move(change, old, new, TransferOrder(has_room=True))
    assert change.numbers.serial == done.last
    change.put_move(container.container_id, done)
    root = version_of(done.first, 0)
    return Moved(move=done, state=objects.state_of(root, change.existing_version(root)))


def _objects(view: Reading, container_id: int, root: str) -> Iterator[_Found]:
    """The objects of a subtree in byte order; one more than may move."""
    return islice(_all_objects(view, container_id, root), MAX_OBJECTS + 1)


def _all_objects(view: Reading, container_id: int, root: str) -> Iterator[_Found]:
    own = view.name(container_id, root)
    if own is not None and not own.deleted:
        yield b"", own.slot, own.newest
    head = root.encode("utf-8")
    below, length = head + b"/", len(head)
    for name, row in view.name_rows(container_id, below):
        if not name.startswith(below):
            return
        slot, newest, deleted = name_fields(row)
        if not deleted:
            yield name[length:], slot, newest


def _move_rows(
    change: Change,
    account_id: int,
    container: ContainerRecord,
    source: Place,
    target: str,
    found: list[_Found],
) -> None:
    """Give each object a deletion marker under its old name and a version under the new one."""
    container_id, shares = container.container_id, change.count("grants") > 0
    marker = VersionRecord(
        slot=0,
        previous=0,
        deleted=True,
        uuid=bytes(16),
        size_bytes=0,
        object_hash=ObjectHash(ZERO_BLOCK),
        content=NO_CONTENT,
        modified_us=0,
        content_type="",
        modified_by=source.account,
        meta={},
    ).encode()
    stamp_us = 0
    for start in range(0, len(found), _AT_ONCE):
        part = found[start : start + _AT_ONCE]
        olds, news = ([head.encode("utf-8") + rest for rest, _, _ in part] for head in (source.name, target))
        old_keys, new_keys = ([change.name_key(container_id, name) for name in names] for names in (olds, news))
        there = change.some("names", new_keys)  # deleted ones: their history goes on
        raws = change.some("versions", (SERIAL.pack(newest) for _, _, newest in part))
        versions, names, changes = [], [], []
        for (_, old_slot, newest), old, new, old_key, new_key in zip(part, olds, news, old_keys, new_keys, strict=True):
            if shares:
                sharing.withdraw(change, account_id, container_id, old_slot)
            raw = raws.get(SERIAL.pack(newest)) or change.existing_row(newest)
            buried, stamp_us = change.next_serial(), change.stamp_us()
            gone = marker[:17] + raw[17:33] + marker[33:]  # the marker has the object's uuid
            gone = moved_version(gone, slot=old_slot, previous=newest, modified_us=stamp_us)
            versions.append((SERIAL.pack(buried), gone))
            names.append((old_key, name_row(old_slot, buried, deleted=True)))
            change.delete("changes", change_key(container_id, newest))
            changes.append((change_key(container_id, buried), old))
            before = there.get(new_key)
            slot, previous = (change.next_slot(), 0) if before is None else name_fields(before)[:2]
            serial, stamp_us = change.next_serial(), change.stamp_us()
            come = moved_version(raw, slot=slot, previous=previous, modified_us=stamp_us)
            versions.append((SERIAL.pack(serial), come))
            names.append((new_key, name_row(slot, serial, deleted=False)))
            if previous:
                change.delete("changes", change_key(container_id, previous))
            changes.append((change_key(container_id, serial), new))
        for table, rows in (("versions", versions), ("names", sorted(names)), ("changes", changes)):
            change.put_all(table, rows)
    record = containers.record_change(
        container, objects=0, size_bytes=0, version=change.numbers.serial, modified_us=stamp_us
    )
    change.put_container(account_id, source.container, record)
