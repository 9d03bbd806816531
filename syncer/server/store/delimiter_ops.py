"""Requests with `?delimiter=`: an object together with all whose names begin with its name and the delimiter.

Each is one transaction: all of it, or nothing. The object itself need not exist, if something below it does.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final

from msgspec.structs import replace

from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.names import object_name_problem
from syncer.server.catalogue import objects
from syncer.server.catalogue.catalogue import Change
from syncer.server.catalogue.conditions import UNCONDITIONAL
from syncer.server.catalogue.containers import existing
from syncer.server.catalogue.orders import DeleteOrder, Place, Transfer, TransferOrder
from syncer.server.errors import BadRequest, NotFound, TooLarge

MAX_OBJECTS: Final = 10_000
"""Below one that is moved or copied. All other writes wait meanwhile: for 4096 half a second, or up to three with as
long metadata as there may be (2 cores at a load of 9). A guarded move (`subtree_move`) is many times as fast, and has a
bound of its own."""

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
        TooLarge: More than `MAX_OBJECTS` lie below it.
        BadRequest: The destination lies below the source, or a name would become too long.
    """
    source, destination, delimiter, order = wanted.source, wanted.destination, wanted.delimiter, wanted.order
    inside = destination.container == source.container and destination.name.startswith(source.name + delimiter)
    if inside or source == destination:
        raise BadRequest("The destination is, or lies below, the source")
    found, target = objects.look(change, source), objects.look(change, destination)
    found_below = _existing_below(change, source, delimiter, MAX_OBJECTS + 1)
    if len(found_below) > MAX_OBJECTS:
        advice = "in parts (what is below it, one after the other)" + (", or with X-If-Subtree" if wanted.moves else "")
        verb = "move" if wanted.moves else "copy"
        raise TooLarge(f"More than {MAX_OBJECTS} objects lie below {source.name[:100]!r}: {verb} them {advice}")
    below = [(one, replace(destination, name=destination.name + one.name[len(source.name) :])) for one in found_below]
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
    pairs = ((objects.look(change, old), objects.look(change, new)) for old, new in below)  # one by one in memory
    objects.require_room_for_transfers(change, chain([(found, target)], pairs), moves=wanted.moves)
    plain = TransferOrder(has_room=True)
    state = None if found.version is None else act(source, destination, replace(order, has_room=True))
    last = state
    for old, new in below:
        last = act(old, new, plain)
    made = last if state is None else state
    assert made is not None, "there is something, as was looked at above"
    return made


def _existing_below(change: Change, place: Place, delimiter: str, most: int | None = None) -> list[Place]:
    """The objects below a place, by name; the first so many."""
    _, container = existing(change, place.account, place.container)
    head = (place.name + delimiter).encode("utf-8")
    places: list[Place] = []
    for name, row in change.names(container.container_id, head):
        if not name.startswith(head) or len(places) == most:
            break
        if not row.deleted:
            places.append(replace(place, name=name.decode("utf-8")))
    return places
