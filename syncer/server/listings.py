"""Which names of a container a listing shows: by marker, prefix and delimiter, of one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from syncer.protocol.listing import MAX_ROWS, ObjectRow, SubdirectoryRow
from syncer.protocol.sharing import sharing_value
from syncer.server import grants, objects
from syncer.server.catalogue import Reading
from syncer.server.schema import ContainerRecord, NameRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What a listing is to show, in byte order of the names (UTF-8).

    Attributes:
        marker: Only what is behind this name, which need not exist.
        prefix: Only names that begin so.
        delimiter: Names that have it behind the prefix are grouped: one row stands for all that agree up to and with
            the first one. "" groups nothing.
        hides_groups: Leave the rows of groups out: what lies directly in a directory.
        limit: At most so many rows.
        visible: Whether a name may be shown at all.
        only_shared: Only what is shared with others, by itself or with a directory above it.
    """

    marker: str = ""
    prefix: str = ""
    delimiter: str = ""
    hides_groups: bool = False
    limit: int = MAX_ROWS
    visible: Callable[[str], bool] | None = None
    only_shared: bool = False


def select(view: Reading, container: ContainerRecord, wanted: Selection) -> list[ObjectRow | SubdirectoryRow]:
    """The rows of one listing."""
    if wanted.only_shared and wanted.visible is None:
        wanted = replace(wanted, visible=lambda name: grants.granted_by(view, container.container_id, name) is not None)
    return list(islice(_rows(view, container, wanted), wanted.limit))


def _rows(view: Reading, container: ContainerRecord, wanted: Selection) -> Iterator[ObjectRow | SubdirectoryRow]:
    head, marker = wanted.prefix.encode("utf-8"), wanted.marker.encode("utf-8")
    start: bytes | None = max(head, marker + b"\0" if marker else b"")
    while start is not None:
        group = None
        for name, row in view.names(container.container_id, start):
            if not name.startswith(head):
                return
            if row.deleted or not (wanted.visible is None or wanted.visible(name.decode("utf-8"))):
                continue
            group = _group(name, len(head), wanted.delimiter.encode("utf-8"))
            if group is not None:
                break
            yield _object(view, name, row)
        # A group is looked at once: a directory of a million objects costs its listing one row.
        start = None if group is None else _behind(group)
        if group is not None and group > marker and not wanted.hides_groups:
            yield SubdirectoryRow(name=group.decode("utf-8"))


def _group(name: bytes, skip: int, delimiter: bytes) -> bytes | None:
    """The part of a name that stands for its group, if it has more behind the delimiter."""
    at = name.find(delimiter, skip) if delimiter else -1
    end = at + len(delimiter)
    return name[:end] if at >= 0 and end < len(name) else None


def _behind(group: bytes) -> bytes:
    """The least name greater than all that begin with `group`. UTF-8 has no byte 0xff."""
    return group[:-1] + bytes([group[-1] + 1])


def _object(view: Reading, name: bytes, row: NameRecord) -> ObjectRow:
    state = objects.state_of(row.newest, view.existing_version(row.newest))
    readers = grants.readers(view, row.slot) if view.count("grants") else []
    return ObjectRow(name=name.decode("utf-8"), state=state, sharing=sharing_value(readers) if readers else "")
