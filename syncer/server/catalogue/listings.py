"""Which names of a container a listing shows: by marker, prefix and delimiter, of one snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, takewhile
from typing import Final, TypeVar

from msgspec.structs import replace

from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import ContainerRow, ObjectRow, SubdirectoryRow
from syncer.protocol.pithos.sharing import sharing_value
from syncer.protocol.segments import read_mark
from syncer.server.catalogue import objects, sharing
from syncer.server.catalogue.catalogue import Reading
from syncer.server.catalogue.orders import Selection
from syncer.server.catalogue.purge import version_at
from syncer.server.catalogue.schema import ContainerRecord, NameRecord, VersionRecord
from syncer.server.errors import Refusal

_ROW_BYTES: Final = 1024
_ITEM_BYTES: Final = 200  # two strings and their places in a dict
_COPIES: Final = 3  # of a text on its way: as it is, in JSON, in the reply


Row = TypeVar("Row")


class Heavy(Refusal):
    """The rows need more memory than was said. Never leaves the server: list again with more of it."""


def weight(state: ObjectState) -> int:
    """Bytes that a row takes at the most, with its text: what has no metadata takes 1 KiB."""
    meta = state.meta or {}
    return _ROW_BYTES + sum(_ITEM_BYTES + _COPIES * (len(key) + len(value)) for key, value in meta.items())


def select(
    view: Reading, container: ContainerRecord, wanted: Selection, most_bytes: int | None = None
) -> list[ObjectRow | SubdirectoryRow]:
    """The rows of one listing.

    Raises:
        Heavy: They take more than `most_bytes`.
    """
    if wanted.only_shared and wanted.visible is None:
        wanted = replace(wanted, visible=lambda name: any(sharing.granted_by(view, container.container_id, name)))
    found: deque[tuple[int, ObjectRow | SubdirectoryRow]] = deque()
    size_bytes = 0
    rows = _rows(view, container, wanted)
    for row in rows if wanted.is_reverse else islice(rows, wanted.limit):
        row_bytes = weight(row.state) if isinstance(row, ObjectRow) else _ROW_BYTES
        row_bytes += 0 if wanted.name_bytes is None else wanted.name_bytes(row.name)
        found.append((row_bytes, row))
        size_bytes += row_bytes
        if len(found) > wanted.limit:
            size_bytes -= found.popleft()[0]
        if most_bytes is not None and size_bytes > most_bytes:
            raise Heavy("too much metadata, or names that take too much room")
    return [row for _, row in (reversed(found) if wanted.is_reverse else found)]


def page(rows: Iterable[Row], wanted: Selection) -> Iterable[Row]:
    """The first rows, or backwards the last ones, as many as are wanted. Backwards all are looked at."""
    return reversed(deque(rows, maxlen=wanted.limit)) if wanted.is_reverse else islice(rows, wanted.limit)


def grouped(rows: Iterable[ContainerRow], wanted: Selection) -> Iterator[ContainerRow | SubdirectoryRow]:
    """Containers; those that have the delimiter behind the prefix are one row for all that agree up to it."""
    last = wanted.marker
    for row in rows:
        at = row.name.find(wanted.delimiter, len(wanted.prefix)) if wanted.delimiter else -1
        group = row.name[: at + len(wanted.delimiter)]
        if at < 0:
            yield row
        elif group != last:
            last = group
            yield SubdirectoryRow(name=group)


def names(view: Reading, container: ContainerRecord, wanted: Selection) -> list[NameRecord]:
    """The rows of existing names, by prefix alone."""
    head = wanted.prefix.encode("utf-8")
    found = takewhile(lambda row: row[0].startswith(head), view.names(container.container_id, head))
    return list(islice((row for _, row in found if not row.deleted), wanted.limit))


def _rows(view: Reading, container: ContainerRecord, wanted: Selection) -> Iterator[ObjectRow | SubdirectoryRow]:
    head, marker, end = (text.encode("utf-8") for text in (wanted.prefix, wanted.marker, wanted.end))
    start: bytes | None = max(head, marker + b"\0" if marker else b"")
    while start is not None:
        group = None
        for name, row in view.names(container.container_id, start):
            if not name.startswith(head) or (end and name >= end):
                return
            found = _version(view, name, row, wanted)
            if found is None:
                continue
            group = _group(name, len(head), wanted.delimiter.encode("utf-8"), ends=wanted.groups_ends)
            if group is not None:
                break
            yield _object(view, name, row, *found)
        # A group is looked at once: a directory of a million objects costs its listing one row.
        start = None if group is None else _behind(group)
        # A page that begins inside a group tells it, as in Pithos and Swift; the page before may have ended with it.
        if group is not None and group != marker and not wanted.hides_groups:
            yield SubdirectoryRow(name=group.decode("utf-8"))


def _group(name: bytes, skip: int, delimiter: bytes, *, ends: bool) -> bytes | None:
    """The part of a name that stands for its group, if it has more behind the delimiter, or may end there."""
    at = name.find(delimiter, skip) if delimiter else -1
    end = at + len(delimiter)
    return name[:end] if at >= 0 and (ends or end < len(name)) else None


def _behind(group: bytes) -> bytes:
    """The least name greater than all that begin with `group`. UTF-8 has no byte 0xff."""
    return group[:-1] + bytes([group[-1] + 1])


def _version(view: Reading, name: bytes, row: NameRecord, wanted: Selection) -> tuple[int, VersionRecord] | None:
    """Serial and record of the version of a name that is wanted, if one is."""
    if wanted.until_us is None:
        found = None if row.deleted else (row.newest, view.existing_version(row.newest))
    else:
        found = version_at(view, row, wanted.until_us)
    if found is None or not (wanted.visible is None or wanted.visible(name.decode("utf-8"))):
        return None
    return found if wanted.meta.matches(found[1].meta) else None


def _object(view: Reading, name: bytes, row: NameRecord, serial: int, record: VersionRecord) -> ObjectRow:
    readers = sharing.readers(view, row.slot) if view.count("grants") else []
    return ObjectRow(
        name=name.decode("utf-8"),
        state=objects.state_of(serial, record),
        sharing=sharing_value(readers) if readers else "",
        manifest="" if read_mark(record.manifest) is None else record.manifest,
    )
