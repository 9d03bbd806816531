"""Extended attributes as a part of a node's metadata: compared and merged one by one. Pure.

None instead of a set is "no opinion", as with every other part of `Meta`. Within a set a value of None is the same for
one attribute: it is there, but too large to travel (`blockfs.xattrs`), so nothing is concluded from it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final

from blockfs.xattrs import OVERHEAD, PREFIX, Carried, carried

Xattrs = Carried

NAME_MAX: Final = 255 - len(PREFIX)  # of Linux, with the prefix
MAX_BYTES: Final = 5373
"""Packed bytes of one node's attributes: what 28 items of object metadata hold in base64 (`pithos.headers`)."""

_LENGTHS: Final = struct.Struct(">BH")
assert _LENGTHS.size == OVERHEAD


class XattrError(ValueError):
    """Not a packed set of attributes, or more than fit."""


def fitting(attributes: Iterable[tuple[bytes, bytes]]) -> Xattrs:
    """A node's attributes, by full name, as they are synced."""
    return carried(attributes, MAX_BYTES)


def too_large(xattrs: Xattrs | None) -> list[bytes]:
    """Full names of those that do not fit."""
    return [PREFIX + name for name, value in xattrs or () if value is None]


def known(xattrs: Xattrs | None) -> dict[bytes, bytes]:
    """Those whose values are known."""
    return {name: value for name, value in xattrs or () if value is not None}


def settled(xattrs: Xattrs | None) -> Xattrs | None:
    """Without those that do not fit: what can be agreed on."""
    return None if xattrs is None else as_xattrs(known(xattrs))


def as_xattrs(attributes: Mapping[bytes, bytes]) -> Xattrs:
    """A set, in its order."""
    return tuple(sorted(attributes.items()))


def same(one: Xattrs | None, other: Xattrs | None) -> bool:
    """Equal, as far as both are known."""
    if one is None or other is None:
        return one is other
    if one == other:
        return True
    left, right = dict(one), dict(other)
    skipped = {name for side in (left, right) for name, value in side.items() if value is None}
    return all(left.get(name) == right.get(name) for name in (left.keys() | right.keys()) - skipped)


def merge(base: Xattrs | None, local: Xattrs | None, remote: Xattrs | None) -> Xattrs | None:
    """Attribute by attribute: what changed wins, the remote if both did.

    Without a base nothing was removed, so both sets are united. Of none nothing is said, unless some were removed.
    """
    return _merged(base, local, remote) or (() if base else None)


def _merged(base: Xattrs | None, local: Xattrs | None, remote: Xattrs | None) -> Xattrs | None:
    if local is None or remote is None:
        found = remote if remote is not None and (local is None or not same(remote, base)) else local
        found = base if found is None else found
        if found is None:
            return None
        large = {name for name, value in found if value is None}  # nothing is said of them: not that they were removed
        return as_xattrs(known(found) | {name: value for name, value in known(base).items() if name in large})
    was, ours, theirs = known(base), dict(local), known(remote)
    merged: dict[bytes, bytes] = {}
    for name in was.keys() | ours.keys() | theirs.keys():
        here = was.get(name) if name in ours and ours[name] is None else ours.get(name)
        there = theirs.get(name)
        value = there if there != was.get(name) else here
        if value is not None:
            merged[name] = value
    return as_xattrs(merged)


def united(one: Xattrs | None, other: Xattrs | None, was: Xattrs | None = None) -> Xattrs | None:
    """Those of two nodes that become the other one: all are kept, the other's value if both have it.

    What the other one had, by its base `was`, and has no more was removed by somebody: it does not come back.
    """
    if one is None or other is None:
        return settled(one if other is None else other)
    added = {name: value for name, value in known(one).items() if name not in known(was)}
    return as_xattrs(added | known(other))


def change(have: Xattrs | None, want: Xattrs | None, base: Xattrs | None) -> Xattrs | None:
    """The set to write, or None for nothing. A side that has no opinion is written to only if the other changed it."""
    if want is None or (have is not None and same(have, want)):
        return None
    if have is None and (base is None or same(base, want)) and (base is not None or not want):
        return None
    return want


def pack(xattrs: Xattrs) -> bytes:
    """A set as bytes; attributes that do not fit are left out.

    Raises:
        XattrError: Together they are too large.
    """
    parts: list[bytes] = []
    for name, value in sorted(known(xattrs).items()):
        parts += (_LENGTHS.pack(len(name), len(value)), name, value)
    raw = b"".join(parts)
    if len(raw) > MAX_BYTES:
        raise XattrError(f"its extended attributes take {len(raw)} bytes; at most {MAX_BYTES} travel with a node")
    return raw


def unpack(raw: bytes) -> Xattrs:
    """Reverse of `pack`.

    Raises:
        XattrError: Not such bytes, or a name that no file could have.
    """
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(raw):
        if at + OVERHEAD > len(raw):
            raise XattrError("extended attributes end too early")
        name_length, value_length = _LENGTHS.unpack_from(raw, at)
        at += OVERHEAD
        name, value = raw[at : at + name_length], raw[at + name_length : at + name_length + value_length]
        at += name_length + value_length
        if at > len(raw) or not 0 < name_length <= NAME_MAX or b"\0" in name or name in found:
            raise XattrError("extended attributes with an impossible name or length")
        found[name] = value
    return as_xattrs(found)
