"""Byte ranges of an object: the Range header, and replies of several parts (RFC 9110, section 14). Pure."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

MAX_RANGES: Final = 1024  # a header of some 30 KB; each costs a look at the block list

_RANGE: Final = re.compile(r"(\d*)-(\d*)", re.ASCII)
_CONTENT_RANGE: Final = re.compile(r"bytes (?:(\d+)-(\d*)|\*)/(\d+|\*)", re.ASCII)
_POSITION_DIGITS: Final = 19
_UNIT: Final = "bytes="
_BOUNDARY: Final = re.compile(r"boundary=(?:\"([^\"]{1,200})\"|([^\s;\"]{1,200}))", re.IGNORECASE)
_PART_RANGE: Final = re.compile(rb"content-range:\s*bytes\s+(\d{1,19})-(\d{1,19})/", re.IGNORECASE)


class RangeError(ValueError):
    """Ranges that can't be served (416)."""


def parse_ranges(value: str, size_bytes: int) -> list[range]:
    """Read a Range header.

    Args:
        value: `bytes=` and one or more of `a-b`, `a-` and `-n`, separated by commas.
        size_bytes: Of the object.

    Returns:
        Byte positions in the order asked for, none empty, all cut at the end of the object.

    Raises:
        RangeError: Another form; a range without a byte of the object, as in Pithos also among others; more than 1024
            ranges; or together more bytes than twice the object: overlapping ranges must not multiply a reply.
    """
    text = value.strip().lower()  # a unit may be written either way (RFC 9110, section 14.1)
    if not text.startswith(_UNIT):
        raise RangeError(f"expected bytes=FIRST-LAST, got {value[:100]!r}")
    asked = text.removeprefix(_UNIT).split(",")
    if len(asked) > MAX_RANGES:
        raise RangeError(f"at most {MAX_RANGES} ranges, not {len(asked)}")
    found = [_parse(one.strip(), size_bytes) for one in asked]
    if sum(map(len, found)) > 2 * size_bytes:
        raise RangeError("the ranges overlap too often")
    return found


def parse_ranges_or_none(value: str, size_bytes: int) -> list[range] | None:
    """Read a Range header as OpenStack's storage does (RFC 9110): what is malformed counts as not sent.

    Args:
        value: As for `parse_ranges`.
        size_bytes: Of the object.

    Returns:
        Byte positions of the ranges that have some, at least one, in the order asked for, cut at the end of the object;
        None: the whole.

    Raises:
        RangeError: None has a byte of the object; more than 1024 ranges, or together more bytes than twice the object.
    """
    text = value.replace(" ", "").lower()
    asked = text.removeprefix(_UNIT).split(",")
    matches = [_RANGE.fullmatch(one) for one in asked]
    if not text.startswith(_UNIT) or any(match is None or not _is_range(*match.groups()) for match in matches):
        return None
    if size_bytes == 0 and any(one.startswith("-") and _position(one[1:]) for one in asked):
        return None
    if len(asked) > MAX_RANGES:
        raise RangeError(f"at most {MAX_RANGES} ranges, not {len(asked)}")
    found = []
    for one in asked:
        with contextlib.suppress(RangeError):
            found.append(_parse(one, size_bytes))
    if not found:
        raise RangeError(f"{value[:100]!r} covers no byte of an object of {size_bytes} bytes")
    if sum(map(len, found)) > 2 * size_bytes:
        raise RangeError("the ranges overlap too often")
    return found


def _is_range(first: str, last: str) -> bool:
    """Whether the two sides of a hyphen make a range."""
    return bool(first or last) and not (first and last and _position(last) < _position(first))


def _parse(text: str, size_bytes: int) -> range:
    match = _RANGE.fullmatch(text)
    if match is None or match.groups() == ("", ""):
        raise RangeError(f"expected bytes=FIRST-LAST, got {text[:100]!r}")
    first, last = match.groups()
    if first:
        found = range(_position(first), min(_position(last) + 1 if last else size_bytes, size_bytes))
        if last and _position(last) < _position(first):
            found = range(0)
    else:
        found = range(max(0, size_bytes - _position(last)), size_bytes)
    if not found:
        raise RangeError(f"{text[:100]!r} covers no byte of an object of {size_bytes} bytes")
    return found


def _position(digits: str) -> int:
    """A byte position or count. Of longer numbers than any object needs, the first digits are large enough."""
    return int(digits.lstrip("0")[:_POSITION_DIGITS] or "0")


def parse_content_range(value: str) -> tuple[int | None, int | None, int | None]:
    """Read the Content-Range of a POST: where its bytes go.

    Args:
        value: `bytes FIRST-LAST/SIZE`, `bytes FIRST-/SIZE` (as many as come) or `bytes */SIZE` (behind the end); SIZE
            is the object's, or `*`.

    Returns:
        The first byte's position (None: behind the end), how many bytes (None: as many as come), the object's size
        (None: any).

    Raises:
        RangeError: Another form.
    """
    match = _CONTENT_RANGE.fullmatch(value.strip())
    if match is None:
        raise RangeError(f"expected bytes FIRST-LAST/*, or bytes */* to append, got {value[:100]!r}")
    first, last, size = match.groups()
    start = None if first is None else _position(first)
    length = _position(last) + 1 - (start or 0) if last else None
    if length is not None and length < 1:
        raise RangeError(f"the range {value[:100]!r} ends before it begins")
    return start, length, None if size == "*" else _position(size)


def range_header(start: int, length: int) -> str:
    """Ask for `length` bytes (at least 1) from `start` on."""
    return f"{_UNIT}{start}-{start + length - 1}"


def ranges_header(parts: Iterable[range]) -> str:
    """Ask for several parts at once; none is empty."""
    return _UNIT + ",".join(f"{part.start}-{part.stop - 1}" for part in parts)


def parse_parts(body: bytes, content_type: str) -> dict[int, memoryview]:
    """Read a reply of several parts.

    Args:
        body: The whole of it.
        content_type: Its Content-Type, with the boundary.

    Returns:
        The bytes by the position of the first one, as a part of `body`: nothing is copied.

    Raises:
        RangeError: It is no such reply.
    """
    match = _BOUNDARY.search(content_type)
    if match is None or not content_type.lower().startswith("multipart/byteranges"):
        raise RangeError(f"expected multipart/byteranges, got {content_type[:100]!r}")
    mark = b"--" + (match[1] or match[2]).encode("latin-1", "replace")
    found: dict[int, memoryview] = {}
    view = memoryview(body)
    at = body.find(mark)
    while at >= 0 and not body.startswith(b"--", at + len(mark)):
        head_end = body.find(b"\r\n\r\n", at)
        where = _PART_RANGE.search(body[at:head_end]) if head_end >= 0 else None
        if where is None:
            raise RangeError("a part of the reply does not say what it is")
        start, stop = int(where[1]), int(where[2]) + 1
        data = view[head_end + 4 : head_end + 4 + stop - start]
        found[start] = data
        # By length, not by looking for the boundary: nobody promises that the data don't contain it.
        at = body.find(mark, head_end + 4 + len(data))
    if at < 0:
        raise RangeError("the reply ends before its last boundary")
    return found


def content_range(part: range, size_bytes: int) -> str:
    """The Content-Range of a reply, or of one of its parts."""
    return f"bytes {part.start}-{part.stop - 1}/{size_bytes}"


class Multipart:
    """A reply of several parts, `multipart/byteranges`.

    Args:
        parts: What each of them covers.
        size_bytes: Of the object.
        content_type: Of the object.
        boundary: Text that separates the parts; random enough not to be in the data.
    """

    def __init__(self, parts: Sequence[range], size_bytes: int, content_type: str, boundary: str) -> None:
        self._parts = parts
        self._heads = [
            f"\r\n--{boundary}\r\nContent-Type: {content_type}\r\n"
            f"Content-Range: {content_range(part, size_bytes)}\r\n\r\n".encode("latin-1", "replace")
            for part in parts
        ]
        self._end = f"\r\n--{boundary}--\r\n".encode("latin-1")
        self.content_type = f"multipart/byteranges; boundary={boundary}"

    @property
    def length(self) -> int:
        """Bytes of the whole body."""
        return sum(map(len, self._heads)) + sum(map(len, self._parts)) + len(self._end)

    def body(self, content: Callable[[range], Iterable[bytes]]) -> Iterator[bytes]:
        """The body, in pieces.

        Args:
            content: The bytes of a part, in pieces.
        """
        for head, part in zip(self._heads, self._parts, strict=True):
            yield head
            yield from content(part)
        yield self._end
