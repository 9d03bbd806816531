"""Static large objects of OpenStack's storage: an object that is made of others, which its manifest lists. Pure.

The manifest as it is asked for has a path, and maybe an MD5 and a size, of each segment. As it is stored, and told with
`multipart-manifest=get`, it has all of them, as they were when the manifest was put.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from syncer.protocol.jsontext import MALFORMED
from syncer.protocol.pithos.headers import HeaderError

PARAMETER: Final = "multipart-manifest"
MAX_SEGMENTS: Final = 1000  # as in Swift
MAX_BYTES: Final = 2 << 20
"""Of a manifest that is put."""

MAX_STORED_BYTES: Final = 8 << 20
"""Of one that is stored: names of 1024 characters, all of which JSON escapes, and types."""


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One segment of a manifest that is put.

    Attributes:
        path: `/CONTAINER/OBJECT`, not encoded.
        etag: The MD5 that it must have; None or "": any.
        size_bytes: The size that it must have; None: any.
    """

    path: str
    etag: str | None = None
    size_bytes: int | None = None

    @property
    def container(self) -> str:
        """Where it is."""
        return self.path.removeprefix("/").partition("/")[0]

    @property
    def name(self) -> str:
        """Of the object."""
        return self.path.removeprefix("/").partition("/")[2]


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One segment as it is stored and told.

    Attributes:
        name: `/CONTAINER/OBJECT`.
        hash: MD5 in hex; "": not known.
        bytes: Size.
        content_type: Of the segment.
        last_modified: Of the segment, as listings tell it.
    """

    name: str
    hash: str
    bytes: int
    content_type: str = ""
    last_modified: str = ""

    @property
    def container(self) -> str:
        """Where it is."""
        return self.name[1:].partition("/")[0]

    @property
    def object_name(self) -> str:
        """Which object it is there."""
        return self.name[1:].partition("/")[2]


_WANTED: Final = msgspec.json.Decoder(list[Wanted])
_SEGMENTS: Final = msgspec.json.Decoder(list[Segment])


def parse_wanted(body: bytes) -> list[Wanted]:
    """Read a manifest that is put.

    Raises:
        HeaderError: It is none, has no or too many segments, or something that is not supported, e.g. ranges.
    """
    try:
        found = _WANTED.decode(body)
    except MALFORMED as error:
        raise HeaderError(f"The manifest is not what this server reads: {error}") from None
    if not 0 < len(found) <= MAX_SEGMENTS:
        raise HeaderError(f"A manifest has 1 to {MAX_SEGMENTS} segments, not {len(found)}")
    return found


def encode(found: Sequence[Segment]) -> bytes:
    """Write a manifest."""
    return msgspec.json.encode(found)


def decode(body: bytes) -> list[Segment] | None:
    """Read a manifest that was stored; None: it is none."""
    try:
        return _SEGMENTS.decode(body)
    except MALFORMED:
        return None


def mark(size_bytes: int, etag: str) -> str:
    """What the record of such an object has in the place of `CONTAINER/PREFIX`: no container has an empty name.

    Args:
        size_bytes: Of all segments.
        etag: Of the object in hex: MD5 of the MD5s.
    """
    return f"/{size_bytes}/{etag}"


def read_mark(manifest: str) -> tuple[int, str] | None:
    """Size and ETag of a static large object; None: it is something else."""
    if not manifest.startswith("/"):
        return None
    size, _, etag = manifest[1:].partition("/")
    return (int(size), etag) if size.isdecimal() else None


def total(found: Iterable[Segment]) -> int:
    """Bytes of all."""
    return sum(segment.bytes for segment in found)
