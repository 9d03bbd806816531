"""Which twins a root has: the codec of what its state keeps of them. Pure."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from syncer.core.model import Content, LocalTag, RelPath

Inode: TypeAlias = tuple[int, int]
"""Inode number and birth time (ns since the epoch) of a file that has a twin."""


class Twin(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One twin.

    Attributes:
        name: Its name in the folder of twins. Random: no two files ever have the same one.
        tag: Its own evidence. With any other it is not what we made.
        content: What its bytes are.
        path: Where its file was when it was made; by now it may have moved.
    """

    name: bytes
    tag: LocalTag
    content: Content
    path: RelPath


class _Row(msgspec.Struct, frozen=True, array_like=True):
    ino: int
    btime_ns: int
    twin: Twin


_FORMAT: Final = b"1"  # before the rows; another one, or anything that is damaged, is as if there were none


def dump(twins: dict[Inode, Twin]) -> bytes:
    """As the state keeps them: the format, then MessagePack."""
    return _FORMAT + msgspec.msgpack.encode([_Row(*inode, twin) for inode, twin in twins.items()])


def load(raw: bytes | None) -> dict[Inode, Twin]:
    """What `dump` made. A table that can't be read is empty: its twins are then made anew."""
    if raw is None or not raw.startswith(_FORMAT):
        return {}
    try:
        rows = msgspec.msgpack.decode(raw[len(_FORMAT) :], type=list[_Row])
    except msgspec.MsgspecError:
        return {}
    return {(row.ino, row.btime_ns): row.twin for row in rows}


def inode_of(tag: LocalTag) -> Inode:
    """By what a file is known here."""
    return tag.ino, tag.btime_ns
