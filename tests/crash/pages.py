"""Pages that say what they are: whatever is read back can be told from garbage, and from another time or place."""

from __future__ import annotations

import hashlib
import struct
from typing import Final

PAGE: Final = 4096
_HEADER: Final = struct.Struct(">4sIQQ")  # magic, file, page, version
_MAGIC: Final = b"page"


def make_page(file: int, page: int, version: int) -> bytes:
    """The page of a file, of one version: a header, and noise that follows from it."""
    header = _HEADER.pack(_MAGIC, file, page, version)
    return header + hashlib.shake_128(header).digest(PAGE - _HEADER.size)


def make_pages(file: int, first: int, count: int, version: int) -> bytes:
    """Adjacent pages of one version."""
    return b"".join(make_page(file, page, version) for page in range(first, first + count))


def describe(data: bytes) -> str:
    """What a page claims to be, for a failure's message."""
    if not data.strip(b"\0"):
        return f"{len(data)} NUL bytes"
    if len(data) < _HEADER.size or data[:4] != _MAGIC:
        return f"garbage {data[:32].hex()}…"
    _, file, page, version = _HEADER.unpack(data[: _HEADER.size])
    genuine = make_page(file, page, version)
    same = next((at for at, (ours, theirs) in enumerate(zip(data, genuine, strict=False)) if ours != theirs), len(data))
    return f"file {file} page {page} version {version}, true to {same} of {len(data)} bytes"
