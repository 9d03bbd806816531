"""Conditional requests: may this request go on, given what the object is now? Pure.

The verdict on a mutating request is taken inside the transaction that does the write, so it is atomic with it.

`X-If-Object-Version` is our extension. An ETag is the object hash, which does not name content (1000 bytes and the
same 1000 bytes with 500 NUL bytes behind share it); a version does.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from syncer.protocol.pithos.headers import ETags, ObjectState


class Verdict(Enum):
    """What to do with the request."""

    GO_ON = "go on"
    NOT_MODIFIED = "not modified"  # 304
    FAILED = "failed"  # 412


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """The conditions of one request about one object.

    Attributes:
        if_match: The object exists and has one of these ETags.
        if_none_match: It doesn't.
        if_version: It is at exactly this version; 0: it doesn't exist.
        if_unmodified_since: Seconds since the epoch: exists, and was not changed in a later second. Not looked at
            beside If-Match.
        if_modified_since: Seconds since the epoch; of reads only: it was changed in a later second. Not looked at
            beside If-None-Match. Two changes in one second look like one to whoever asks by time.
        by_md5: The tags are MD5s, as in OpenStack's storage.
    """

    if_match: ETags | None = None
    if_none_match: ETags | None = None
    if_version: int | None = None
    if_unmodified_since: int | None = None
    if_modified_since: int | None = None
    by_md5: bool = False

    def tag_of(self, current: ObjectState | None) -> str | None:
        """What entity tags are compared with; None if there is no object."""
        if current is None or not self.by_md5:
            return None if current is None else current.etag
        return "" if current.md5 is None else current.md5.hex()

    def told_tag(self, current: ObjectState) -> str | None:
        """The same as the ETag of a reply; None if none is known."""
        tag = self.tag_of(current)
        return (tag or None) if self.by_md5 else f'"{tag}"'


UNCONDITIONAL: Final = Conditions()


def judge_read(conditions: Conditions, current: ObjectState) -> Verdict:
    """Judge a GET or HEAD of an object that exists, in the order of RFC 9110, section 13.2.2."""
    if _refused(conditions, current):
        return Verdict.FAILED
    if conditions.if_none_match is not None:
        known = conditions.if_none_match.matches(conditions.tag_of(current))
    else:
        since = conditions.if_modified_since
        known = since is not None and current.modified_us // 1_000_000 <= since
    return Verdict.NOT_MODIFIED if known else Verdict.GO_ON


def judge_write(conditions: Conditions, current: ObjectState | None) -> Verdict:
    """Judge a request that changes an object; None: there is none under that name."""
    if _refused(conditions, current):
        return Verdict.FAILED
    if conditions.if_none_match is not None and conditions.if_none_match.matches(conditions.tag_of(current)):
        return Verdict.FAILED
    return Verdict.GO_ON


def range_fits(if_range: str, tag: str) -> bool:
    """Judge If-Range of a GET with a range: whether the parts that the client has are of this content.

    An object hash does not tell contents apart that differ in NUL bytes at the end only. Parts of such fit together all
    the same, and Content-Range tells the length. A date never fits: two contents may be of one second.

    Args:
        if_range: The header.
        tag: The object's entity tag, "" if none is known.
    """
    return bool(tag) and if_range.strip() in (f'"{tag}"', tag)  # bare, as If-Match may be; W/"…" does not fit


def listing_is_unchanged(since: int | None, modified_us: int) -> bool:
    """Judge If-Modified-Since of a listing.

    Sound only with a `settled_time` as Last-Modified of the earlier reply.

    Args:
        since: Seconds since the epoch, None without the header.
        modified_us: Last change of the container.
    """
    return since is not None and modified_us // 1_000_000 <= since


def settled_time(modified_us: int, floor_us: int) -> int:
    """Last-Modified for a listing, so that no change can hide behind its granularity.

    A Last-Modified has one second. If another change may still get a time within the same second, the reply shows the
    second before: the next If-Modified-Since is then answered in full.

    Args:
        modified_us: Last change of the container that the listing shows.
        floor_us: Every change that the listing does not show gets a later time, or at least this one.

    Returns:
        Microseconds since the epoch.
    """
    if modified_us // 1_000_000 < floor_us // 1_000_000:
        return modified_us
    return max(0, modified_us - 1_000_000)


def _refused(conditions: Conditions, current: ObjectState | None) -> bool:
    """Conditions that read the same for reads and writes."""
    if conditions.if_version is not None and conditions.if_version != (0 if current is None else current.version):
        return True
    if conditions.if_match is not None:
        return not conditions.if_match.matches(conditions.tag_of(current))
    since = conditions.if_unmodified_since
    return since is not None and (current is None or current.modified_us // 1_000_000 > since)
