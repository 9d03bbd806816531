"""What a tree says of one name: the entries of the map that a commit's root names.

Key: the directory's id (16 bytes) and the name in it. Value: an `Entry`. So a directory that moves is two keys,
whatever is below it, a directory's entries lie together, and a path is looked up name by name. Key of a directory's id
alone, its first: where the directory is (`Up`).

The top has the id `TOP`; what is parked (`core.paths.PARK_FOLDER`) is in `PARKED`. Neither has an `Up`.

Each of the three things that can be said of an object, where it is, what it holds, and its metadata, carries a *dot*:
the commit that said so. By dots and by what a commit has seen (`history.Vector`) two trees are merged without a third.

Source: docs/design/repository.md.
"""

from __future__ import annotations

import hashlib
from typing import Final, TypeAlias

import msgspec

from blockfs.blocks.ids import ObjectHash
from syncer.core.model import PERMISSION_BITS, SPECIAL_BITS, Content, Kind, Meta, RelPath, RemoteStat, RemoteTag
from syncer.core.paths import target_objection, unsafe_segment
from syncer.core.xattrs import Xattrs
from syncer.errors import DamagedObjectError
from syncer.remote.repository.format.history import Dot
from syncer.remote.repository.format.prolly import Root

ID_BYTES: Final = 16
HASH_BYTES: Final = 32
TOP: Final = bytes(ID_BYTES)
PARKED: Final = bytes(ID_BYTES - 1) + b"\1"
_KINDS: Final = (Kind.FILE, Kind.DIRECTORY, Kind.SYMLINK)
_MAX_SIZE: Final = 1 << 62

Listed: TypeAlias = bytes | Root
"""A list: as it is if it is short, else a map of its parts."""


class Bytes(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a file holds.

    Attributes:
        size_bytes: Length of the file.
        object_hash: Merkle root over its block ids, 32 bytes.
        blocks: The block list, see `lists`.
        chunks: Which chunks of which packs, see `lists`.
    """

    size_bytes: int
    object_hash: bytes
    blocks: Listed
    chunks: Listed

    @property
    def content(self) -> Content:
        """Its identity in the share's grid."""
        return Content(size_bytes=self.size_bytes, object_hash=ObjectHash(self.object_hash))


class Entry(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One object.

    Attributes:
        object: Its id, 16 bytes: stays through renames and new contents.
        kind: 0 file, 1 directory, 2 symlink.
        number: Of the commit that made this version, or of the view in which devices first met it, if none of them had
            it so before: larger than that of any earlier version that somebody may have seen.
        placed: Who put it where it is.
        filled: Who gave it what it holds; of a directory, who made it.
        noted: Who set its metadata.
        made_us: When this version was made, microseconds since the epoch by its maker's clock.
        mode: Permission bits; None is "no opinion", as of all metadata.
        special: The setuid, setgid and sticky bits.
        mtime_ns: Of a file.
        xattrs: Extended attributes.
        file: Of a file.
        target: Of a symlink.
        implied: A directory that nobody made: something was put below its name.
    """

    object: bytes
    kind: int
    number: int
    placed: Dot
    filled: Dot
    noted: Dot
    made_us: int
    mode: int | None = None
    special: int | None = None
    mtime_ns: int | None = None
    xattrs: Xattrs | None = None
    file: Bytes | None = None
    target: bytes | None = None
    implied: bool = False

    @property
    def meta(self) -> Meta:
        """Its metadata."""
        return Meta(mode=self.mode, special=self.special, mtime_ns=self.mtime_ns, xattrs=self.xattrs)

    @property
    def what(self) -> Kind:
        """Its kind."""
        return _KINDS[self.kind]

    @property
    def size_bytes(self) -> int:
        """As a listing says it."""
        return self.file.size_bytes if self.file is not None else len(self.target or b"")

    def tag(self) -> RemoteTag:
        """Names this version: equal tags, equal kind, content and metadata. Where chunks are is no part of it."""
        said = self if self.file is None else msgspec.structs.replace(self, file=_without_lists(self.file))
        digest = hashlib.blake2b(_encoder.encode(said), digest_size=16).hexdigest()
        return RemoteTag(uuid=self.object.hex(), version=self.number, etag=digest, size_bytes=self.size_bytes)

    def stat(self, path: RelPath) -> RemoteStat:
        """As an observation."""
        return RemoteStat(
            path=path,
            kind=self.what,
            meta=self.meta,
            content=self.file.content if self.file is not None else None,
            target=self.target,
            tag=self.tag(),
            modified_us=self.made_us,
        )


class Up(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Where a directory is.

    Attributes:
        parent: Id of the directory that holds it.
        name: Its name there.
    """

    parent: bytes
    name: bytes


_encoder: Final = msgspec.msgpack.Encoder()
_entries: Final = msgspec.msgpack.Decoder(Entry)
_ups: Final = msgspec.msgpack.Decoder(Up)


def kind_number(kind: Kind) -> int:
    """The number that an entry has for a kind."""
    return _KINDS.index(kind)


def key_of(parent: bytes, name: bytes) -> bytes:
    """Key of a name in a directory."""
    assert len(parent) == ID_BYTES
    return parent + name


def split_key(key: bytes) -> tuple[bytes, bytes]:
    """Directory and name; an empty name is that of the directory's `Up`.

    Raises:
        DamagedObjectError: It is no key of ours, or a name that no directory can have.
    """
    parent, name = key[:ID_BYTES], key[ID_BYTES:]
    if len(parent) < ID_BYTES or (name and unsafe_segment(name) is not None):
        raise DamagedObjectError(f"entry {key[:ID_BYTES].hex()}", "is malformed: it is none of a directory")
    return parent, name


def encode(value: Entry | Up) -> bytes:
    """The bytes of a value."""
    return _encoder.encode(value)


def decode_entry(key: bytes, raw: bytes) -> Entry:
    """The entry of a key.

    Raises:
        DamagedObjectError: It is none, or says what can't be.
    """
    try:
        entry = _entries.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _damaged(key) from None
    if not _is_sound(entry):
        raise _damaged(key)
    return entry


def decode_up(key: bytes, raw: bytes) -> Up:
    """Where the directory of a key is.

    Raises:
        DamagedObjectError: It does not say that.
    """
    try:
        up = _ups.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _damaged(key) from None
    if len(up.parent) != ID_BYTES or unsafe_segment(up.name) is not None:
        raise _damaged(key)
    return up


def _without_lists(file: Bytes) -> Bytes:
    return msgspec.structs.replace(file, blocks=b"", chunks=b"")


def _is_sound(entry: Entry) -> bool:
    file, target = entry.file, entry.target
    return (
        len(entry.object) == ID_BYTES
        and entry.object not in (TOP, PARKED)
        and 0 <= entry.kind < len(_KINDS)
        and (file is not None) == (entry.kind == 0)
        and (target is not None) == (entry.kind == len(_KINDS) - 1)
        and entry.number >= 0
        and (entry.kind == 1 or not entry.implied)
        and (file is None or (0 <= file.size_bytes <= _MAX_SIZE and len(file.object_hash) == HASH_BYTES))
        and (target is None or target_objection(target) is None)
        and (entry.mode is None or entry.mode & ~PERMISSION_BITS == 0)
        and (entry.special is None or entry.special & ~SPECIAL_BITS == 0)
    )


def _damaged(key: bytes) -> DamagedObjectError:
    return DamagedObjectError(
        f"entry {key[:ID_BYTES].hex()}/{key[ID_BYTES:]!r}", "is malformed: it is no entry of a tree"
    )
