"""Rows of the server's catalogue: byte layouts and codecs. Pure.

All integers are big endian. Names are UTF-8. docs/design/server.md has the same tables with the reasons.

Sub-databases:

| name | key | value |
| --- | --- | --- |
| meta | "format", "counters" | `Format`, `Counters` |
| accounts | account name | u32 account id |
| containers | u32 account id, container name | `ContainerRecord` |
| doomed | u64 container id | empty: deleted, its names and versions are still to be removed |
| names | see nameindex.py, root = container id | `NameRecord` |
| changes | u64 container id, u64 serial of a name's newest version | the name |
| moves | u64 container id, u64 last serial of a moved subtree | `MoveRecord` |
| versions | u64 serial | `VersionRecord` |
| contents | 32 B content key | concatenated 32 B leaf keys, at least two |
| leaves | 32 B leaf key | 32 B Merkle root of the leaf padded to 256 ids, then 1 to 256 ids |
| account_leaves | u32 account id, 32 B leaf key | empty: every id in the leaf is this account's |
| possessions | u32 account id, 32 B block id | u64 µs since the epoch of the last upload |
| settings | "a" and u32 account id, or "c" and u64 container id | `Settings` |
| grants | u64 slot | texts: accounts that may read the object, ascending |
| shared | SHA-256 of the reader's name, u32 owner, u64 container id, u64 slot | texts: owner, container, object |

Format 1 had no `changes`, `settings`, `grants` and `shared`, and no MD5 and manifest in versions; format 2 no `moves`.
They are read as they are: opening makes the tables and writes the new number.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from blockfs.blocks.ids import ObjectHash
from syncer.core.subtrees import Guard, SubtreeMove
from syncer.protocol.swift import KEPT_FIELDS

FORMAT: Final = 3
ID: Final = struct.Struct(">I")
SERIAL: Final = struct.Struct(">Q")

_FORMAT: Final = struct.Struct(">IQ")
_COUNTERS: Final = struct.Struct(">QQQIQ")
_CONTAINER: Final = struct.Struct(">Q16sQQQQQ")
_NAME: Final = struct.Struct(">QQB")
_VERSION: Final = struct.Struct(">BQQ16sQ32s32sQ")
_LENGTH: Final = struct.Struct(">H")
_CONTENT_TAG: Final = b"blocksync-content-1\0"  # separates content keys from leaf keys

_SETTINGS: Final = struct.Struct(">QB")
_MOVE: Final = struct.Struct(">QQ32s")
_SLOT_AND_PREVIOUS: Final = struct.Struct(">QQ")
_MD5_SIZE: Final = 16

_DELETED: Final = 1
_HAS_MD5: Final = 2
_HAS_MANIFEST: Final = 4
_NO_HISTORY: Final = 1


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """`meta` "format": u32 format number, u64 block size. Written once."""

    block_size: int

    def encode(self) -> bytes:
        """As stored."""
        return _FORMAT.pack(FORMAT, self.block_size)

    @staticmethod
    def decode(raw: bytes) -> tuple[int, Format]:
        """The format number, and the rest if the number is ours."""
        number, block_size = _FORMAT.unpack_from(raw)
        return number, Format(block_size=block_size)


@dataclass(slots=True, kw_only=True)
class Counters:
    """`meta` "counters": what was given out last. Mutable inside one write transaction.

    Attributes:
        serial: u64, last version serial. Never reused.
        node: u64, last node of the name index. Container ids are nodes. Never reused, so that a container made anew has
            nothing of its predecessor.
        slot: u64, last slot: one for each name that ever existed in a container.
        account: u32, last account id.
        stamp_us: u64, latest time given to a version, µs since the epoch: later ones are higher, whatever the clock
            does.
    """

    serial: int = 0
    node: int = 0
    slot: int = 0
    account: int = 0
    stamp_us: int = 0

    def encode(self) -> bytes:
        """As stored."""
        return _COUNTERS.pack(self.serial, self.node, self.slot, self.account, self.stamp_us)

    @staticmethod
    def decode(raw: bytes) -> Counters:
        """From the stored form."""
        serial, node, slot, account, stamp_us = _COUNTERS.unpack(raw)
        return Counters(serial=serial, node=node, slot=slot, account=account, stamp_us=stamp_us)


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`containers`: u64 id, 16 B uuid, then u64: objects, bytes, version, modified_us, created_us.

    Attributes:
        container_id: Root of its names in the name index.
        uuid: X-Container-Identity.
        object_count: Objects that exist.
        bytes_used: Sum of their sizes.
        version: Serial of the last change, deletions included; 0 for a new one.
        modified_us: Time of that change, of the creation for a new one.
        created_us: Time of the creation.
    """

    container_id: int
    uuid: bytes
    object_count: int
    bytes_used: int
    version: int
    modified_us: int
    created_us: int

    def encode(self) -> bytes:
        """As stored."""
        return _CONTAINER.pack(
            self.container_id,
            self.uuid,
            self.object_count,
            self.bytes_used,
            self.version,
            self.modified_us,
            self.created_us,
        )

    @staticmethod
    def decode(raw: bytes) -> ContainerRecord:
        """From the stored form."""
        container_id, uuid, count, used, version, modified_us, created_us = _CONTAINER.unpack(raw)
        return ContainerRecord(
            container_id=container_id,
            uuid=uuid,
            object_count=count,
            bytes_used=used,
            version=version,
            modified_us=modified_us,
            created_us=created_us,
        )


class NameRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`names`: u64 slot, u64 newest serial, u8 flags (1: that version is a deletion marker).

    A name keeps its row after the deletion: its history stays readable.
    """

    slot: int
    newest: int
    deleted: bool

    def encode(self) -> bytes:
        """As stored."""
        return name_row(self.slot, self.newest, deleted=self.deleted)

    @staticmethod
    def decode(raw: bytes) -> NameRecord:
        """From the stored form."""
        slot, newest, flags = _NAME.unpack(raw)
        return NameRecord(slot=slot, newest=newest, deleted=bool(flags & _DELETED))


class VersionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`versions`: one version of one object, immutable.

    u8 flags (1: deletion marker, 2: has an MD5, 4: has a manifest), u64 slot, u64 previous serial, 16 B uuid, u64
    size, 32 B object hash, 32 B content, u64 modified_us, 16 B MD5 if there is one, then texts to the end, each as u16
    length and bytes: content type, account that made it, manifest if there is one, key and value of each metadata
    item, keys ascending. Header fields that are kept stand among the metadata, under the names of `KEPT_FIELDS`: those
    have capital letters, which keys of metadata never have. A release before shows them as metadata.

    Attributes:
        slot: Whose history this belongs to.
        previous: Serial of the version before, 0 for the first.
        deleted: A deletion marker; of the rest only modified_us and modified_by mean something.
        uuid: X-Object-UUID, kept through updates and moves.
        size_bytes: Length of the object.
        object_hash: Merkle root.
        content: Where the ids are: 32 NUL bytes for an empty object, a leaf key for up to 256 blocks, else a content
            key.
        modified_us: Time of this version, µs since the epoch; rises with the serial.
        content_type: As sent.
        modified_by: Account that made it.
        meta: Lower-case keys.
        md5: Of the content, as OpenStack's clients check it; None where the content did not come as one body.
        manifest: `CONTAINER/PREFIX` of the objects that are this one's content, one after the other (OpenStack's
            dynamic large objects), or the mark of a static one (`protocol.segments`), whose content is the list of its
            segments; "" for an ordinary object.
        fields: Header fields that are told with it as they were sent, by their names of `KEPT_FIELDS`.
    """

    slot: int
    previous: int
    deleted: bool
    uuid: bytes
    size_bytes: int
    object_hash: ObjectHash
    content: bytes
    modified_us: int
    content_type: str
    modified_by: str
    meta: Mapping[str, str]
    md5: bytes | None = None
    manifest: str = ""
    fields: Mapping[str, str] = msgspec.field(default_factory=dict)

    def encode(self) -> bytes:
        """As stored."""
        texts = [self.content_type, self.modified_by, *([self.manifest] if self.manifest else [])]
        items = {**self.meta, **self.fields}
        for key in sorted(items):
            texts += (key, items[key])
        has_md5 = 0 if self.md5 is None else _HAS_MD5
        parts = [
            _VERSION.pack(
                (_DELETED if self.deleted else 0) | has_md5 | (_HAS_MANIFEST if self.manifest else 0),
                self.slot,
                self.previous,
                self.uuid,
                self.size_bytes,
                self.object_hash,
                self.content,
                self.modified_us,
            ),
            self.md5 or b"",
        ]
        return b"".join(parts) + encode_texts(texts)

    @staticmethod
    def decode(raw: bytes) -> VersionRecord:
        """From the stored form."""
        flags, slot, previous, uuid, size, object_hash, content, modified_us = _VERSION.unpack_from(raw)
        md5 = raw[_VERSION.size : _VERSION.size + _MD5_SIZE] if flags & _HAS_MD5 else None
        content_type, modified_by, *items = decode_texts(raw, _VERSION.size + len(md5 or b""))
        manifest = items.pop(0) if flags & _HAS_MANIFEST else ""
        meta = dict(zip(items[::2], items[1::2], strict=True))
        fields = {} if KEPT_FIELDS.isdisjoint(meta) else {key: meta.pop(key) for key in KEPT_FIELDS & meta.keys()}
        return VersionRecord(
            slot=slot,
            previous=previous,
            deleted=bool(flags & _DELETED),
            uuid=uuid,
            size_bytes=size,
            object_hash=ObjectHash(object_hash),
            content=content,
            modified_us=modified_us,
            content_type=content_type,
            modified_by=modified_by,
            meta=meta,
            md5=md5,
            manifest=manifest,
            fields=fields,
        )


def name_row(slot: int, newest: int, *, deleted: bool) -> bytes:
    """`NameRecord.encode`, without one."""
    return _NAME.pack(slot, newest, _DELETED if deleted else 0)


def name_fields(raw: bytes) -> tuple[int, int, bool]:
    """`NameRecord.decode`, without one: slot, newest, deleted."""
    slot, newest, flags = _NAME.unpack(raw)
    return slot, newest, bool(flags & _DELETED)


def version_fields(raw: bytes) -> tuple[int, int, bool]:
    """`VersionRecord.decode`, without one: serial of the version before, size, whether it is a deletion marker."""
    flags, _, previous, _, size_bytes, *_ = _VERSION.unpack_from(raw)
    return previous, size_bytes, bool(flags & _DELETED)


def moved_version(raw: bytes, *, slot: int, previous: int, modified_us: int) -> bytes:
    """A version's record as a version of another name: all else stays as it is."""
    times = _VERSION.size - SERIAL.size
    return b"".join(
        (
            raw[:1],
            _SLOT_AND_PREVIOUS.pack(slot, previous),
            raw[17:times],
            SERIAL.pack(modified_us),
            raw[_VERSION.size :],
        )
    )


class MoveRecord(msgspec.Struct, frozen=True, kw_only=True):
    """`moves`: a subtree that was moved: u64 first serial, u64 objects, 32 B digest, then two texts: from, to."""

    move: SubtreeMove

    def encode(self) -> bytes:
        """As stored."""
        move = self.move
        head = _MOVE.pack(move.first, move.guard.count, bytes.fromhex(move.guard.digest))
        return head + encode_texts((move.source, move.target))

    @staticmethod
    def decode(raw: bytes) -> MoveRecord:
        """From the stored form."""
        first, count, digest = _MOVE.unpack_from(raw)
        source, target = decode_texts(raw, _MOVE.size)
        guard = Guard(count=count, digest=digest.hex())
        return MoveRecord(move=SubtreeMove(source=source, target=target, first=first, guard=guard))


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """`settings`: what was set for an account or a container.

    u64 quota, u8 flags (1: no history), then texts: key and value of each metadata item, keys ascending.

    Attributes:
        quota_bytes: The sum of the current objects' sizes must not exceed this; 0: no bound. An account's comes from
            the token file and is written at the start of the server.
        keeps_history: Whether older versions stay (containers; Pithos calls it versioning `auto` or `none`).
        meta: Lower-case keys.
    """

    quota_bytes: int = 0
    keeps_history: bool = True
    meta: Mapping[str, str] = msgspec.field(default_factory=dict)

    def encode(self) -> bytes:
        """As stored."""
        items = [text for key in sorted(self.meta) for text in (key, self.meta[key])]
        return _SETTINGS.pack(self.quota_bytes, 0 if self.keeps_history else _NO_HISTORY) + encode_texts(items)

    @staticmethod
    def decode(raw: bytes) -> Settings:
        """From the stored form."""
        quota_bytes, flags = _SETTINGS.unpack_from(raw)
        items = decode_texts(raw, _SETTINGS.size)
        meta = dict(zip(items[::2], items[1::2], strict=True))
        return Settings(quota_bytes=quota_bytes, keeps_history=not flags & _NO_HISTORY, meta=meta)


def account_settings_key(account: int) -> bytes:
    """Key of an account's `Settings`."""
    return b"a" + ID.pack(account)


def container_settings_key(container_id: int) -> bytes:
    """Key of a container's `Settings`."""
    return b"c" + SERIAL.pack(container_id)


def change_key(container_id: int, serial: int) -> bytes:
    """Key in `changes`: a container's names in the order of their newest versions."""
    return SERIAL.pack(container_id) + SERIAL.pack(serial)


def content_key(leaf_keys: bytes) -> bytes:
    """Name a list of leaves: SHA-256 over a format tag and the concatenated leaf keys."""
    return hashlib.sha256(_CONTENT_TAG + leaf_keys).digest()


def uuid_text(raw: bytes) -> str:
    """The 16 bytes of a UUID as text; `uuid.UUID` takes four times as long, and a listing has many."""
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def encode_texts(texts: Iterable[str]) -> bytes:
    """Texts one after the other, each as u16 length and UTF-8."""
    return b"".join(_LENGTH.pack(len(raw)) + raw for raw in (text.encode("utf-8") for text in texts))


def decode_texts(raw: bytes, at: int = 0) -> list[str]:
    """Such texts, from a position to the end."""
    texts: list[str] = []
    while at < len(raw):
        (length,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        texts.append(raw[at : at + length].decode("utf-8"))
        at += length
    return texts
