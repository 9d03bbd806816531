"""How many versions a container keeps, and what the old ones come to. Counted from the histories, up to a bound.

No row has these figures: a container's row would have to be another one for it, and each write would pay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

import msgspec

from syncer.protocol.pithos.listing import ContainerRow
from syncer.server.catalogue import containers
from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.schema import SERIAL, name_fields, version_fields

MOST: Final = 1 << 18
"""Rows of versions that are looked at in all: who asks does not wait for the whole past of a server."""

_BATCH: Final = 1000  # names whose histories are read side by side


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """The versions of a container. That something was deleted is none.

    Attributes:
        versions: Current and old ones.
        old_bytes: Sizes of the old ones, each as if it were alone: what they share is stored once.
        is_whole: That is all of them; else there are more.
    """

    versions: int
    old_bytes: int
    is_whole: bool


def all_kept(view: Reading, account: str, most: int | None = MOST) -> Iterator[tuple[ContainerRow, Kept, int]]:
    """An account's containers with what they keep, and how many rows were looked at.

    Args:
        view: A snapshot.
        account: Whose.
        most: Rows that are looked at for all of them together, about; None: as many as there are.
    """
    account_id = view.account(account)
    for row in containers.all_of(view, account):
        record = None if account_id is None else view.container(account_id, row.name)
        assert record is not None  # of the same snapshot
        found, looked_at = kept(view, record.container_id, most)
        most = None if most is None else max(0, most - looked_at)
        yield row, found, looked_at


def kept(view: Reading, container_id: int, most: int | None = MOST) -> tuple[Kept, int]:
    """What one keeps, and how many rows were looked at. Arguments as above."""
    names = view.name_rows(container_id)
    versions = old_bytes = looked_at = 0
    while batch := list(islice(names, _BATCH)):
        newest = {name_fields(raw)[1] for _, raw in batch}
        serials = newest
        while serials:  # one step back in each of these histories
            if most is not None and looked_at + len(serials) > most:
                return Kept(versions=versions, old_bytes=old_bytes, is_whole=False), looked_at
            before = set()
            for raw in view.some("versions", map(SERIAL.pack, sorted(serials))).values():
                previous, size_bytes, is_deleted = version_fields(raw)
                versions += not is_deleted
                if serials is not newest:
                    old_bytes += size_bytes
                if previous:
                    before.add(previous)
            looked_at += len(serials)
            serials = before
    return Kept(versions=versions, old_bytes=old_bytes, is_whole=True), looked_at
