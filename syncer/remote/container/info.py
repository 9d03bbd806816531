"""What a Pithos server says of a container and of its objects, in the words of those who don't know Pithos. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from syncer.core.model import Content, Kind, Meta, RelPath, RemoteStat, RemoteTag
from syncer.core.paths import LAN_KEY, is_hidden, rel_path
from syncer.errors import UnsafeNameError
from syncer.ports.remote import Capabilities, Grid, RefusedName, RemoteInfo
from syncer.protocol.extensions import bulk_read, subtree
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.headers import ObjectState
from syncer.protocol.pithos.listing import ObjectRow
from syncer.protocol.pithos.names import path_from_name

MAX_TARGET_BYTES: Final = 4095  # PATH_MAX without its NUL: no longer link text can be made locally


class ContainerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the server says about the container.

    Attributes:
        identity: UUID text of the container's life; None where the server has none (plain Pithos).
        block_size: Bytes of a block on this server. Read, never assumed.
        block_hash: Name of the hash function, "sha256" (others are refused).
        atomic: Conditions are atomic with the write. False: the client checks afterwards.
        extensions: What the server announced beyond Pithos, lower case.
    """

    identity: str | None
    block_size: int
    block_hash: str
    atomic: bool
    extensions: frozenset[str] = frozenset()

    @property
    def told(self) -> RemoteInfo:
        """The same in the words of all remotes."""
        can = Capabilities(
            atomic=self.atomic,
            moves_trees=subtree.MAX_OBJECTS if wire.EXTENSION_SUBTREES in self.extensions else 0,
            holds_back=False,
            waits="told" if wire.EXTENSION_CHANGES in self.extensions else "polling",
            reads=bulk_read.MAX_OBJECTS if wire.EXTENSION_BULK_READ in self.extensions else 1,
        )
        return RemoteInfo(
            identity=self.identity,
            grid=Grid(block_size=self.block_size, block_hash=self.block_hash),
            can=can,
            text=", ".join(sorted(self.extensions)) or "plain Pithos",
        )


class RowStats(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a listing, sorted out.

    Attributes:
        objects: What can be synced.
        refused: What can't, with reasons.
        hidden: Rows with reserved names, among them objects that wait for their deletion.
    """

    objects: list[RemoteStat]
    refused: list[RefusedName]
    hidden: list[ObjectRow]


def tag_of(state: ObjectState) -> RemoteTag:
    """The condition for changing this version."""
    return RemoteTag(uuid=state.uuid, version=state.version, etag=state.etag, size_bytes=state.size_bytes)


def stat_of(path: RelPath, state: ObjectState) -> RemoteStat:
    """A remote observation from headers or a row; the symlink target is not in either."""
    kind = wire.kind_of(state.content_type)
    content = Content(size_bytes=state.size_bytes, object_hash=state.object_hash) if kind is Kind.FILE else None
    meta = None if state.meta is None else wire.decode_meta(state.meta)
    if meta is not None and meta.mtime_ns is None and kind is Kind.FILE:
        # Somebody wrote it who tells no mtime (kamaki): with the old one, programs that compare size and mtime would
        # miss the new content, and each device would have its own.
        meta = replace(meta, mtime_ns=wire.mtime_of(state.modified_us))
    return RemoteStat(
        path=path,
        kind=kind,
        meta=meta,
        content=content,
        tag=tag_of(state),
        modified_us=state.modified_us,
        device=wire.device_of(state),
    )


def same_payload(state: ObjectState, kind: Kind | None, size_bytes: int, etag: str, meta: Meta) -> bool:
    """Whether a version is what we were about to write: then a lost reply was a success."""
    return (
        kind in {None, wire.kind_of(state.content_type)}
        and state.size_bytes == size_bytes
        and state.etag == etag
        and wire.encode_meta(meta).items() <= (state.meta or {}).items()
    )


def sort_out(rows: Iterable[ObjectRow]) -> RowStats:
    """Split rows into what can be synced, what can't, and what is reserved. Names are checked here."""
    found = RowStats(objects=[], refused=[], hidden=[])
    for row in rows:
        try:
            path = rel_path(path_from_name(row.name))
        except UnsafeNameError as error:
            found.refused.append(RefusedName(name=row.name, reason=error.reason, size_bytes=row.state.size_bytes))
            continue
        if is_hidden(path):
            found.hidden.append(row)
            continue
        stat = stat_of(path, row.state)
        objection = _objection(stat)
        if objection is None:
            found.objects.append(stat)
        else:
            found.refused.append(RefusedName(name=row.name, reason=objection, size_bytes=row.state.size_bytes))
    return found


def lan_key_in(hidden: Iterable[ObjectRow]) -> RemoteStat | None:
    """The share's key among reserved rows."""
    return next((stat_of(RelPath(LAN_KEY), row.state) for row in hidden if row.name.encode() == LAN_KEY), None)


def _objection(stat: RemoteStat) -> str | None:
    """Why an object of a good name can't be synced."""
    size_bytes = stat.tag.size_bytes
    if stat.kind is Kind.DIRECTORY and size_bytes:
        return f"it is a directory by its type, but has {size_bytes} bytes of content"
    if stat.kind is Kind.SYMLINK and not 0 < size_bytes <= MAX_TARGET_BYTES:
        return f"it is a symlink by its type, but its target has {size_bytes} bytes"
    return None
