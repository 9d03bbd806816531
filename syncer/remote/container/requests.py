"""The requests of a Pithos client. Pure: values in, `Request` out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final, TypeAlias
from urllib.parse import urlencode

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.extents import block_count
from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE
from syncer.core.model import NO_META, Kind, Meta, RelPath, RemoteTag
from syncer.core.paths import is_reserved, rel_path
from syncer.core.subtrees import Guard
from syncer.errors import UnsafeNameError
from syncer.ports.orders import Delete, Move, SetMeta, Store
from syncer.protocol.extensions import blocklists, bulk
from syncer.protocol.extensions.bulk_read import MAX_CONTENT_BYTES, Wanted, encode_wanted
from syncer.protocol.extensions.changes import encode_ranges
from syncer.protocol.extensions.hashmap_delta import Delta, encode_delta
from syncer.protocol.pithos import headers as wire
from syncer.protocol.pithos.byteranges import range_header, ranges_header
from syncer.protocol.pithos.hashmap import encode_hashmap, padded_blocks
from syncer.protocol.pithos.listing import MAX_ROWS
from syncer.protocol.pithos.names import name_from_path, quote_name
from syncer.remote.container.runs import Run
from syncer.remote.http.transport import Request
from syncer.remote.serials import Cursor
from syncer.remote.url import RemoteUrl

MAX_LISTING_BYTES: Final = 64 << 20  # 10,000 rows of ~450 bytes; names up to 6 KiB of JSON each still fit
_PART_HEAD_BYTES: Final = 512  # before each part of such a reply
_BYTES_PER_ID: Final = 70  # a quoted hex id with comma and some white space, as in protocol.hashmap
_HASHMAP_FRAME_BYTES: Final = 4096

_BYTES_PER_RESULT: Final = 1024
_BULK_TYPE: Final = "application/vnd.blocksync.bulk"

Condition = Mapping[str, str]
"""Condition headers; and metadata of others that a write would drop, if they are not sent again."""


Small: TypeAlias = Store | Move | Delete
"""What several of can share a request."""

NO_HEADERS: Final[Mapping[str, str]] = {}


class Requests:
    """Builds requests for one container.

    Attributes:
        url: Where it is.
    """

    def __init__(self, url: RemoteUrl) -> None:
        self.url = url
        self._container = url.container_path

    def operation(self, order: Small, data: bytes) -> bulk.Operation:
        """A small change as one of several in a request.

        Raises:
            UnsafeNameError: The remote can't hold such a name.
            XattrError: Its attributes are too large.
        """
        if isinstance(order, Store):
            version = order.replaces.version if order.replaces else 0
            meta = {**wire.encode_meta(order.meta), **wire.encode_device(order.device, order.hash_hex)}
            kind = wire.content_type_of(order.kind)
            return bulk.Put(name=object_name(order.path), data=data, content_type=kind, meta=meta, if_version=version)
        if isinstance(order, Delete):
            return bulk.Delete(name=object_name(order.path), if_version=order.expect.version)
        source, target = object_name(order.source), object_name(order.target)
        return bulk.Move(name=source, to=target, if_version=order.expect.version, if_to_version=0)

    def change(self, order: Small | SetMeta, data: bytes) -> Request:
        """The same as a request of its own, under the conditions of our own server.

        Raises:
            UnsafeNameError: As above.
            XattrError: As above.
        """
        if isinstance(order, Store):
            condition = {**version_condition(order.replaces), **device_headers(order)}
            return self.put_body(object_name(order.path), order.kind, data, order.meta, condition)
        condition = version_condition(order.expect)
        if isinstance(order, Delete):
            return self.delete(object_name(order.path), condition)
        if isinstance(order, SetMeta):
            return self.set_meta(object_name(order.path), order.meta, condition)
        source, target = object_name(order.source), object_name(order.target)
        return self.move(source, target, {**condition, wire.IF_DESTINATION_VERSION: "0"})

    def head_container(self) -> Request:
        """Block size, identity, extensions."""
        return Request(method="HEAD", target=self._container)

    def create_container(self) -> Request:
        """201 new, 202 exists."""
        return Request(method="PUT", target=self._container)

    def list_page(self, marker: str, *, whole: bool = True, limit: int = MAX_ROWS) -> Request:
        """Rows after `marker` (exclusive); reserved names are sorted out by the caller.

        Args:
            marker: A name, or "".
            whole: Of the whole container, also if the URL names a folder of it.
            limit: So many rows at most.
        """
        below = "" if whole or not self.url.prefix else f"{self.url.prefix}/"
        query = {
            "format": "json",
            "limit": str(min(limit, MAX_ROWS)),
            **({"marker": marker} if marker else {}),
            **({"prefix": below} if below else {}),
        }
        return Request(
            method="GET",
            target=f"{self._container}?{urlencode(query)}",
            max_reply_bytes=MAX_LISTING_BYTES,
        )

    def changes(self, since: Cursor, wait_s: float, *, moves: bool = False, without: Sequence[range] = ()) -> Request:
        """What changed since a cursor; the server may wait that long for the first change."""
        query = {
            "since": str(since.version),
            "timestamp": wire.timestamp_text(since.modified_us),
            "identity": since.identity,
            "limit": str(MAX_ROWS),
            **({"wait": str(ceil(wait_s))} if wait_s > 0 else {}),
            **({"moves": "1"} if moves else {}),
            **({"without": encode_ranges(without)} if without else {}),
        }
        return Request(
            method="GET",
            target=f"{self._container}?changes&{urlencode(query)}",
            max_reply_bytes=MAX_LISTING_BYTES,
            wait_s=wait_s,
        )

    def head(self, name: str, version: int | None = None) -> Request:
        """The current or one version's headers."""
        return Request(method="HEAD", target=self._object(name, _pin(version)))

    def versions(self, name: str) -> Request:
        """Serials of all versions, ascending."""
        return Request(
            method="GET",
            target=self._object(name, {"version": "list", "format": "json"}),
            max_reply_bytes=MAX_LISTING_BYTES,
        )

    def hashmap(
        self, name: str, tag: RemoteTag, block_size: int, since: int | None = None, *, binary: bool = False
    ) -> Request:
        """The hashmap of one version, or what differs from an older one; may be as long as its size justifies."""
        query = {"hashmap": "", "format": blocklists.FORMAT if binary else "json", **_pin(tag.version)}
        count = block_count(tag.size_bytes, block_size)
        if since is not None:
            query["since_version"] = str(since)
            count *= 2  # splices of one id each cost some more
        return Request(
            method="GET",
            target=self._object(name, query),
            max_reply_bytes=_HASHMAP_FRAME_BYTES + _BYTES_PER_ID * count,
        )

    def read(self, name: str, tag: RemoteTag) -> Request:
        """A whole version, with what a HEAD says of it."""
        return Request(method="GET", target=self._object(name, _pin(tag.version)), max_reply_bytes=tag.size_bytes)

    def read_run(self, name: str, version: int | None, run: Run) -> Request:
        """Adjacent blocks of one version, or of what is there now, as one byte range."""
        return Request(
            method="GET",
            target=self._object(name, _pin(version)),
            headers={"Range": range_header(run.start, run.length_bytes)},
            max_reply_bytes=run.length_bytes,
        )

    def read_runs(self, name: str, version: int, group: Sequence[Run]) -> Request:
        """Several runs of one version in one request."""
        return Request(
            method="GET",
            target=self._object(name, _pin(version)),
            headers={"Range": ranges_header(range(run.start, run.start + run.length_bytes) for run in group)},
            max_reply_bytes=sum(run.length_bytes + _PART_HEAD_BYTES for run in group) + _HASHMAP_FRAME_BYTES,
        )

    def put_blocks(self, blocks: Sequence[bytes], block_size: int) -> Request:
        """Store blocks. A zero block is sent as one NUL: a body must not be empty."""
        # Exactly this content type: with any parameter Synnefo answers 202 and stores nothing. And `update`, or the
        # container's metadata are wiped.
        return Request(
            method="POST",
            target=f"{self._container}?update&format=json",
            headers={"Content-Type": wire.FILE_TYPE},
            body=padded_blocks(blocks, block_size),
            max_reply_bytes=_HASHMAP_FRAME_BYTES + _BYTES_PER_ID * len(blocks),
        )

    def put_hashmap(self, name: str, blocks: BlockList, meta: Meta, condition: Condition) -> Request:
        """Write an object by its hashmap. The reply may list every block as missing."""
        return Request(
            method="PUT",
            target=self._object(name, {"hashmap": "", "format": "json"}),
            headers={**_object_headers(Kind.FILE, meta), **condition},
            body=encode_hashmap(blocks),
            max_reply_bytes=_HASHMAP_FRAME_BYTES + _BYTES_PER_ID * max(1, len(blocks)),
        )

    def put_block_list(
        self, name: str, block_size: int, delta: Delta, base: int | None, meta: Meta, condition: Condition
    ) -> Request:
        """Write an object by its block list in binary: what differs from its current version, or is no hole."""
        return Request(
            method="PUT",
            target=self._object(name, {"hashmap": "", "format": blocklists.FORMAT}),
            headers={**_object_headers(Kind.FILE, meta), **condition},
            body=blocklists.encode(delta, block_size, base),
            max_reply_bytes=_HASHMAP_FRAME_BYTES + ID_SIZE * max(1, len(delta)) * LEAF_IDS,
        )

    def put_delta(
        self, name: str, block_size: int, delta: Delta, base: int, meta: Meta, condition: Condition
    ) -> Request:
        """Write an object by what differs from its current version."""
        return Request(
            method="PUT",
            target=self._object(name, {"hashmap": "", "format": "json", "base_version": str(base)}),
            headers={**_object_headers(Kind.FILE, meta), **condition},
            body=encode_delta(delta, block_size),
            max_reply_bytes=_HASHMAP_FRAME_BYTES + _BYTES_PER_ID * max(1, len(delta)) * LEAF_IDS,
        )

    def put_body(self, name: str, kind: Kind, data: bytes, meta: Meta, condition: Condition) -> Request:
        """Write an object by its content."""
        return Request(
            method="PUT",
            target=self._object(name, {}),
            headers={**_object_headers(kind, meta), **condition},
            body=data,
        )

    def bulk(self, operations: Sequence[bulk.Operation]) -> Request:
        """Several small changes."""
        return Request(
            method="POST",
            target=f"{self._container}?bulk",
            headers={"Content-Type": _BULK_TYPE},
            body=bulk.encode_operations(operations),
            max_reply_bytes=_BYTES_PER_RESULT * (1 + len(operations)),
        )

    def bulk_read(self, wanted: Sequence[Wanted]) -> Request:
        """Several small contents."""
        return Request(
            method="POST",
            target=f"{self._container}?bulk-read",
            headers={"Content-Type": _BULK_TYPE},
            body=encode_wanted(wanted),
            max_reply_bytes=2 * MAX_CONTENT_BYTES,
            only_reads=True,
        )

    def set_meta(self, name: str, meta: Meta, condition: Condition) -> Request:
        """Set the metadata we know, leave others alone (`update`). No content type: that would mean content."""
        return Request(
            method="POST",
            target=self._object(name, {"update": ""}),
            headers={**wire.meta_headers(wire.encode_meta(meta)), **condition},
        )

    def move(self, source: str, target: str, condition: Condition, shared: Mapping[str, str] = NO_HEADERS) -> Request:
        """Rename; `condition` is on the source unless they say otherwise. `shared`: see `Current`."""
        return Request(
            method="MOVE",
            target=self._object(source, {}),
            headers={wire.DESTINATION: self.url.object_reference(target), **condition, **shared},
        )

    def share(self, name: str, shared: Mapping[str, str]) -> Request:
        """Give an object the sharing, and a public link, that it lost; `shared`: see `Current`."""
        return Request(method="POST", target=self._object(name, {"update": ""}), headers=dict(shared))

    def move_subtree(self, source: str, target: str, guard: Guard) -> Request:
        """Rename an object and all below it, if that is exactly what we think it is."""
        return Request(
            method="MOVE",
            target=self._object(source, {"delimiter": "/"}),
            headers={wire.DESTINATION: self.url.object_reference(target), wire.IF_SUBTREE: guard.text},
        )

    def copy(self, source: str, target: str, version: int | None = None, meta: Meta = NO_META) -> Request:
        """Copy an object, or a version of it, onto a name that must be free: as a PUT, Pithos checks that name.

        What the object has of metadata comes along; `meta` is set, too.
        """
        pinned = {} if version is None else {wire.SOURCE_VERSION: str(version)}
        return Request(
            method="PUT",
            target=self._object(target, {}),
            headers={
                wire.COPY_FROM: self.url.object_reference(source),
                **pinned,
                **wire.meta_headers(wire.encode_meta(meta)),
                "If-None-Match": "*",
            },
        )

    def delete(self, name: str, condition: Condition) -> Request:
        """Delete. Plain Pithos ignores every condition."""
        return Request(method="DELETE", target=self._object(name, {}), headers=dict(condition))

    def _object(self, name: str, query: Mapping[str, str]) -> str:
        path = f"{self._container}/{quote_name(name)}"
        # Synnefo tells `?hashmap` from `?hashmap=`: only by presence, but other servers may not; write the bare form.
        text = "&".join(urlencode({key: value}) if value else key for key, value in query.items())
        return f"{path}?{text}" if text else path


def version_condition(expect: RemoteTag | None) -> dict[str, str]:
    """Condition of our own server: exactly this version, or no object."""
    return {wire.IF_OBJECT_VERSION: str(expect.version if expect else 0)}


def etag_condition(etag: str | None) -> dict[str, str]:
    """Condition of plain Pithos, not atomic with the write: this ETag, or no object."""
    return {"If-None-Match": "*"} if etag is None else {"If-Match": f'"{etag}"'}


def device_headers(order: Store) -> dict[str, str]:
    """Of which device it is that is stored; with each PUT, as all metadata."""
    return wire.meta_headers(wire.encode_device(order.device, order.hash_hex))


def object_name(path: RelPath) -> str:
    """The object that holds `path`.

    Raises:
        UnsafeNameError: The remote can't hold such a name, or it is reserved.
    """
    if is_reserved(path):
        raise UnsafeNameError(path, "it is reserved for blocksync")
    return name_from_path(rel_path(path))


def _pin(version: int | None) -> dict[str, str]:
    return {} if version is None else {"version": str(version)}


def _object_headers(kind: Kind, meta: Meta) -> dict[str, str]:
    """Type and metadata go with every PUT: Pithos drops metadata that are not sent again."""
    return {"Content-Type": wire.content_type_of(kind), **wire.meta_headers(wire.encode_meta(meta))}
