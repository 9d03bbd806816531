"""Requests with `?delimiter=`: an object together with all whose names begin with its name and the delimiter.

Each is one transaction: all of it, or nothing. The object itself need not exist, if something below it does.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.names import object_name_problem
from syncer.server.catalogue import objects
from syncer.server.catalogue.catalogue import Change
from syncer.server.catalogue.conditions import UNCONDITIONAL
from syncer.server.catalogue.containers import existing
from syncer.server.catalogue.orders import DeleteOrder, Place, Transfer, TransferOrder
from syncer.server.errors import BadRequest, NotFound

Act = Callable[[Place, Place, TransferOrder], ObjectState]
"""Moves or copies one object."""


def delete(change: Change, order: DeleteOrder) -> int:
    """Delete an object and all below it; the conditions are on the object itself.

    Returns:
        Serial of the last deletion marker.

    Raises:
        NotFound: No such container, or nothing there.
        PreconditionFailed: A condition doesn't hold.
    """
    found = objects.look(change, order.place)
    objects.require(order.conditions, found)
    places = _existing_below(change, order.place, order.delimiter)
    if found.version is not None:
        places.append(order.place)
    if not places:
        raise NotFound("Object does not exist")
    return [objects.delete(change, one, UNCONDITIONAL) for one in places][-1]


def empty(change: Change, account: str, container: str) -> None:
    """Delete all objects of a container.

    Raises:
        NotFound: There is no such container.
    """
    for place in _existing_below(change, Place(account=account, container=container, name=""), ""):
        objects.delete(change, place, UNCONDITIONAL)


def transfer(change: Change, wanted: Transfer, act: Act) -> ObjectState:
    """Move or copy an object and all below it; those below keep their metadata.

    Args:
        change: The transaction.
        wanted: What is to be done; its order is for the object itself.
        act: Does it to one object.

    Returns:
        The object's new version, or that of the last one below it if it doesn't exist.

    Raises:
        NotFound: No such container, or nothing there.
        PreconditionFailed: A condition doesn't hold.
        OverQuota: There is no room for all of it.
        BadRequest: The destination lies below the source, or a name would become too long.
    """
    source, destination, delimiter, order = wanted.source, wanted.destination, wanted.delimiter, wanted.order
    inside = destination.container == source.container and destination.name.startswith(source.name + delimiter)
    if inside or source == destination:
        raise BadRequest("The destination is, or lies below, the source")
    found, target = objects.look(change, source), objects.look(change, destination)
    below = [
        (one, replace(destination, name=destination.name + one.name[len(source.name) :]))
        for one in _existing_below(change, source, delimiter)
    ]
    # A new name may be the old one of another, e.g. with a/b to a: that one has to go first.
    below.sort(key=lambda pair: len(pair[0].name), reverse=len(destination.name) > len(source.name))
    for _, new in below:
        problem = object_name_problem(new.name)
        if problem is not None:
            raise BadRequest(f"Unsafe object name {new.name[:100]!r}: {problem}")
    objects.require(order.source, found)
    objects.require(order.destination, target)
    if found.version is None and not below:
        raise NotFound("Object does not exist")
    pairs = [(objects.look(change, old), objects.look(change, new)) for old, new in below]
    objects.require_room_for_transfers(change, [(found, target), *pairs], moves=wanted.moves)
    plain = TransferOrder(has_room=True)
    if found.version is None:
        return [act(old, new, plain) for old, new in below][-1]
    state = act(source, destination, replace(order, has_room=True))
    for old, new in below:
        act(old, new, plain)
    return state


def _existing_below(change: Change, place: Place, delimiter: str) -> list[Place]:
    """The objects below a place, by name."""
    _, container = existing(change, place.account, place.container)
    head = (place.name + delimiter).encode("utf-8")
    places = []
    for name, row in change.names(container.container_id, head):
        if not name.startswith(head):
            break
        if not row.deleted:
            places.append(replace(place, name=name.decode("utf-8")))
    return places
