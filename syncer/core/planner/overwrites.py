"""Writes to a server whose conditions are not atomic: each may replace a version that nobody here has seen. Pure.

Such a version stays readable on the server, but nothing points to it. So a write is booked before it is sent, and the
booking goes when it was looked up what the write replaced and everything of that is kept. A cycle that ends in between,
however it ends, leaves the booking, and the next one looks. Why before, and not with the base row:
docs/adr/0009-bookings-of-writes.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from blockfs.blocks.ids import ObjectHash
from syncer.core.conflict import conflict_name
from syncer.core.model import NO_META, ROOT, Content, Kind, Meta, Node, RelPath, RemoteTag
from syncer.core.paths import join, split

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S: Final = 253_402_300_800  # year 10000: a server may say anything


class Overwrite(msgspec.Struct, frozen=True, kw_only=True):
    """One write, as it was about to be sent.

    Attributes:
        path: Of the object that it makes or changes; of a rename: its new name.
        kind: What it makes.
        size_bytes: Of what it makes.
        etag: Object hash in hex of what it makes.
        known: Serial up to which the versions of the object were known.
        replaced: The version that it was meant to replace; None if there was none.
        uuid: Of the object that a rename moved; "" for other writes.
        number: In the book; 0 before it is there.
    """

    path: RelPath
    kind: Kind
    size_bytes: int
    etag: str
    known: int
    replaced: RemoteTag | None = None
    uuid: str = ""
    number: int = 0

    def made(self, found: ForeignVersion) -> bool:
        """Whether a version is, or may be, what this write made."""
        same = found.kind is self.kind and _payload(found.tag) == (self.size_bytes, self.etag)
        return same and self.uuid in {"", found.tag.uuid}


def change_of(
    path: RelPath, kind: Kind, size_bytes: int, etag: str, expect: RemoteTag | None, newest: RemoteTag | None = None
) -> Overwrite:
    """A write that replaces `expect`, or has a free name; what such a name had before is no later than `newest`."""
    known = _serial(newest if expect is None else expect)
    return Overwrite(path=path, kind=kind, size_bytes=size_bytes, etag=etag, known=known, replaced=expect)


def rename_of(path: RelPath, kind: Kind, tag: RemoteTag, newest: RemoteTag | None) -> Overwrite:
    """A rename onto a free name; see `change_of`."""
    moved = change_of(path, kind, tag.size_bytes, tag.etag, None, newest)
    return replace(moved, uuid=tag.uuid)


def _serial(tag: RemoteTag | None) -> int:
    return 0 if tag is None else tag.version


class ForeignVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of an object, somebody else's as far as we know.

    Attributes:
        path: Whose; it is readable there by its serial.
        kind: What it was.
        tag: Names it.
        meta: Mode and mtime.
        modified_us: Microseconds since the epoch when it was made; 0 if that is not told.
        author: Account that made it; "" if that is not told.
    """

    path: RelPath
    kind: Kind
    tag: RemoteTag
    meta: Meta = NO_META
    modified_us: int = 0
    author: str = ""


def unseen(write: Overwrite, versions: Iterable[ForeignVersion], ours: RemoteTag | None = None) -> list[ForeignVersion]:
    """Which versions a write replaced although nobody here had seen them, and that must be kept.

    Args:
        write: The write.
        versions: All versions of its object that are later than `write.known`.
        ours: What it made; None if that was never heard: then what looks like it is taken for it, if anything does.

    Returns:
        Oldest first, each content once. Not those with the content that the write itself has, or that it was meant to
        replace: nothing of them is lost.
    """
    later = sorted(versions, key=lambda found: found.tag.version)
    if ours is None:
        ours = next((found.tag for found in reversed(later) if write.made(found)), None)
        if ours is None:
            return []  # it was never done
    told = {(write.kind, write.size_bytes, write.etag)}
    if write.replaced is not None:
        told.add((write.kind, *_payload(write.replaced)))
    kept: dict[tuple[Kind, int, str], ForeignVersion] = {}
    for found in later:
        payload = (found.kind, *_payload(found.tag))
        # What was made anew under the name has another uuid: earlier ones were deleted properly, and by somebody.
        earlier_life = write.replaced is None and not write.uuid and found.tag.uuid != ours.uuid
        if found.tag.version < ours.version and payload not in told and not earlier_life:
            kept[payload] = found
    return sorted(kept.values(), key=lambda found: found.tag.version)


def copy_path(found: ForeignVersion, taken: Iterable[bytes] = ()) -> RelPath:
    """Where a version is kept: beside its object, under the same name whoever finds it and however often.

    Args:
        found: The version.
        taken: Names that something else has.
    """
    above, name = split(found.path)
    content = None
    if found.kind is not Kind.DIRECTORY:
        # A link's six digits are those of its text, which is its content here.
        content = Content(size_bytes=found.tag.size_bytes, object_hash=ObjectHash(bytes.fromhex(found.tag.etag)))
    kind = Kind.DIRECTORY if content is None else Kind.FILE
    node = Node(parent=ROOT, name=name, kind=kind, content=content)
    return join(above, conflict_name(node, host=found.author or "server", utc=_utc(found), taken=frozenset(taken)))


def _utc(found: ForeignVersion) -> str:
    seconds = found.modified_us // 1_000_000
    moment = _EPOCH + timedelta(seconds=seconds) if seconds < _LAST_S else _EPOCH
    return moment.strftime("%Y%m%dT%H%M%SZ")


def _payload(tag: RemoteTag) -> tuple[int, str]:
    return tag.size_bytes, tag.etag
