"""Records of the StateDB: byte layouts, in both directions. Pure. The tables are in docs/design/statedb.md.

All integers are big endian, so that keys sort by value; lengths precede what they measure. A record that does not end
where it should, or names something unknown, raises ValueError: the caller says which file is damaged.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from blockfs.blocks.ids import ID_SIZE, ObjectHash
from syncer.core.conflict import Written
from syncer.core.model import BaseRow, Content, Kind, LocalTag, Nid, Node, Position, RelPath, RemoteTag, meta_of
from syncer.core.planner.outcome import Booking
from syncer.core.planner.overwrites import Overwrite
from syncer.core.planner.safety import ContainerIdentity
from syncer.core.xattrs import pack, unpack

FORMAT: Final = 1
STAMP_KEY: Final = b"stamp"

NID_KEY: Final = struct.Struct(">Q")  # nid, or a running number
INODE_KEY: Final = struct.Struct(">QQq")  # device, ino, birth time in ns

_HEAD: Final = struct.Struct(">BBQH")  # flags, kind, parent nid, length of the name
_NAME_LENGTH_AT: Final = 10
_MODE: Final = struct.Struct(">I")
_TIME: Final = struct.Struct(">q")
_CONTENT: Final = struct.Struct(f">Q{ID_SIZE}s")  # size in bytes, object hash
_LOCAL: Final = struct.Struct(">QQqQqq")  # device, ino, birth, size, mtime, ctime
_NUMBER: Final = struct.Struct(">Q")
_LENGTH: Final = struct.Struct(">H")
_STAMP: Final = struct.Struct(">QQ")

_KINDS: Final = {Kind.FILE: 1, Kind.DIRECTORY: 2, Kind.SYMLINK: 3}
_KIND_OF: Final = {code: kind for kind, code in _KINDS.items()}

_DIRECTORY: Final = _KINDS[Kind.DIRECTORY]
_FILE: Final = _KINDS[Kind.FILE]

_HAS_LOCAL: Final = 1
_HAS_REMOTE: Final = 2
_HAS_MODE: Final = 4
_HAS_MTIME: Final = 8
_HAS_CONTENT: Final = 16
_HAS_TARGET: Final = 32
_HAS_VERSION: Final = 64  # of the local tag: a blockfs inode
_HAS_XATTRS: Final = 128
_HAS_TEXTS: Final = _HAS_XATTRS | _HAS_TARGET


class KnownContent(msgspec.Struct, frozen=True, kw_only=True):
    """What a local file was found to contain.

    Attributes:
        tag: The file's evidence before it was read; nothing of it changed while it was read.
        content: The result.
        observed_ns: The filesystem's clock when the reading began.
    """

    tag: LocalTag
    content: Content
    observed_ns: int

    @property
    def trustworthy(self) -> bool:
        """False if "racily clean": a write in the same clock tick as the last one would change no time stamp.

        A blockfs version counts every change, so it is always trusted.
        """
        return self.tag.version is not None or max(self.tag.mtime_ns, self.tag.ctime_ns) + RACY_NS <= self.observed_ns


RACY_NS: Final = 2_000_000_000  # 2 s: the coarsest time stamps we meet (FAT); ext4's tick is 4 ms


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could not be synced, for `status`; rewritten each cycle.

    Attributes:
        path: Where.
        kind: A `NoteKind` value, or an error's class name.
        text: What is wrong and what will happen.
        since_ns: When it was seen first.
    """

    path: RelPath
    kind: str
    text: str
    since_ns: int


class _Reader:
    """Takes a record apart from the front."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def unpack(self, form: struct.Struct) -> tuple[int, ...]:
        try:
            values = form.unpack_from(self.raw, self.at)
        except struct.error as error:
            raise ValueError(f"record of {len(self.raw)} bytes is too short: {error}") from None
        self.at += form.size
        return values

    def take(self, length: int) -> bytes:
        taken = self.raw[self.at : self.at + length]
        if len(taken) != length:
            raise ValueError(f"record of {len(self.raw)} bytes is too short: {length} more expected at {self.at}")
        self.at += length
        return taken

    def text(self) -> bytes:
        """Length (2 bytes) and as many bytes."""
        return self.take(self.unpack(_LENGTH)[0])

    def content(self) -> Content:
        (size_bytes,) = self.unpack(_NUMBER)
        return Content(size_bytes=size_bytes, object_hash=ObjectHash(self.take(ID_SIZE)))

    def local(self, *, versioned: bool) -> LocalTag:
        device, ino, btime_ns, size_bytes, mtime_ns, ctime_ns = self.unpack(_LOCAL)
        version = self.unpack(_NUMBER)[0] if versioned else None
        return LocalTag(
            device=device,
            ino=ino,
            btime_ns=btime_ns,
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            ctime_ns=ctime_ns,
            version=version,
        )

    def end(self) -> None:
        if self.at != len(self.raw):
            raise ValueError(f"record of {len(self.raw)} bytes is too long: it should end at {self.at}")


def _text(raw: bytes) -> bytes:
    return _LENGTH.pack(len(raw)) + raw


def _content(content: Content) -> bytes:
    return _CONTENT.pack(content.size_bytes, content.object_hash)


def _local(tag: LocalTag) -> bytes:
    fields = (tag.device, tag.ino, tag.btime_ns, tag.size_bytes, tag.mtime_ns, tag.ctime_ns)
    return _LOCAL.pack(*fields) + (b"" if tag.version is None else _NUMBER.pack(tag.version))


# --- base rows


def encode_row(row: BaseRow) -> bytes:
    """Value of the table `base`; its key is the nid."""
    node, parts, flags = row.node, [], 0
    mode = node.meta.full_mode  # bits on which nobody has an opinion are unset on the server
    optional: tuple[tuple[int, bytes | None], ...] = (
        (_HAS_MODE, _MODE.pack(mode) if mode is not None else None),
        (_HAS_MTIME, _TIME.pack(node.meta.mtime_ns) if node.meta.mtime_ns is not None else None),
        (_HAS_CONTENT, _content(node.content) if node.content is not None else None),
        (_HAS_XATTRS, _text(pack(node.meta.xattrs)) if node.meta.xattrs is not None else None),
        (_HAS_TARGET, _text(node.target) if node.target is not None else None),
        (_HAS_LOCAL, _local(row.local) if row.local is not None else None),
        (_HAS_REMOTE, _remote(row.remote) if row.remote is not None else None),
    )
    for flag, part in optional:
        if part is not None:
            flags |= flag
            parts.append(part)
    if row.local is not None and row.local.version is not None:
        flags |= _HAS_VERSION
    return b"".join((_HEAD.pack(flags, _KINDS[node.kind], node.parent, len(node.name)), node.name, *parts))


def _remote(tag: RemoteTag) -> bytes:
    return (
        _NUMBER.pack(tag.version) + _NUMBER.pack(tag.size_bytes) + _text(tag.uuid.encode()) + _text(tag.etag.encode())
    )


def decode_row(nid: Nid, raw: bytes) -> BaseRow:
    """The row of `nid`.

    Raises:
        ValueError: Not such a record.
    """
    reader = _Reader(raw)
    flags, kind, parent, length = reader.unpack(_HEAD)
    name = reader.take(length)
    mode = reader.unpack(_MODE)[0] if flags & _HAS_MODE else None
    mtime_ns = reader.unpack(_TIME)[0] if flags & _HAS_MTIME else None
    content = reader.content() if flags & _HAS_CONTENT else None
    xattrs = unpack(reader.text()) if flags & _HAS_XATTRS else None
    node = Node(
        parent=Nid(parent),
        name=name,
        kind=_kind(kind),
        content=content,
        target=reader.text() if flags & _HAS_TARGET else None,
        meta=meta_of(mode, mtime_ns=mtime_ns, xattrs=xattrs),
    )
    local = reader.local(versioned=bool(flags & _HAS_VERSION)) if flags & _HAS_LOCAL else None
    remote = _read_remote(reader) if flags & _HAS_REMOTE else None
    reader.end()
    return BaseRow(nid=nid, node=node, local=local, remote=remote)


def ends_with_remote(raw: bytes, tag: RemoteTag) -> bool:
    """Whether a row has exactly this remote evidence, which is its last part."""
    return bool(raw[0] & _HAS_REMOTE) and raw.endswith(_remote(tag))


def is_directory(raw: bytes) -> bool:
    """Whether a row is a directory's, without the rest."""
    return raw[1] == _DIRECTORY


def remote_version(raw: bytes) -> int:
    """The version of a row's object, without the rest; 0 if it has none."""
    at = _remote_at(raw)
    return int.from_bytes(raw[at : at + _NUMBER.size], "big") if at else 0


def with_remote_version(raw: bytes, version: int) -> bytes:
    """A row, which has one, with another version of its object."""
    at = _remote_at(raw)
    assert at
    return raw[:at] + _NUMBER.pack(version) + raw[at + _NUMBER.size :]


def _remote_at(raw: bytes) -> int:
    """Where a row's remote tag begins; 0 if it has none."""
    flags = raw[0]
    before = _BEFORE_REMOTE[flags]
    if not before:
        return 0
    at = before + (raw[_NAME_LENGTH_AT] << 8) + raw[_NAME_LENGTH_AT + 1]
    if flags & _HAS_TEXTS:
        text_at = at - before + _BEFORE_TEXTS[flags]
        for text in (_HAS_XATTRS, _HAS_TARGET):
            if flags & text:
                length = _LENGTH.size + int(_LENGTH.unpack_from(raw, text_at)[0])
                text_at += length
                at += length
    return at


def _before_texts(flags: int) -> int:
    """Bytes in front of the texts of a row with such flags, its name left out."""
    parts = ((_HAS_MODE, _MODE.size), (_HAS_MTIME, _TIME.size), (_HAS_CONTENT, _CONTENT.size))
    return _HEAD.size + sum(size for flag, size in parts if flags & flag)


def _before_remote(flags: int) -> int:
    """The same in front of the remote tag, texts left out, too; 0 if there is none."""
    if not flags & _HAS_REMOTE:
        return 0
    local = _LOCAL.size if flags & _HAS_LOCAL else 0
    return _before_texts(flags) + local + (_NUMBER.size if flags & _HAS_VERSION else 0)


_BEFORE_TEXTS: Final = tuple(map(_before_texts, range(256)))  # looked up: sweeps ask it of each of 100,000 rows
_BEFORE_REMOTE: Final = tuple(map(_before_remote, range(256)))


def content_in(raw: bytes) -> Content | None:
    """The content in a row, without the rest: for a look at all rows."""
    flags, _, _, length = _HEAD.unpack_from(raw)
    if not flags & _HAS_CONTENT:
        return None
    at = _BEFORE_TEXTS[flags] - _CONTENT.size + length
    size_bytes, object_hash = _CONTENT.unpack_from(raw, at)
    return Content(size_bytes=size_bytes, object_hash=ObjectHash(object_hash))


def _read_remote(reader: _Reader) -> RemoteTag:
    (version,), (size_bytes,) = reader.unpack(_NUMBER), reader.unpack(_NUMBER)
    return RemoteTag(uuid=reader.text().decode(), version=version, etag=reader.text().decode(), size_bytes=size_bytes)


def _kind(code: int) -> Kind:
    try:
        return _KIND_OF[code]
    except KeyError:
        raise ValueError(f"unknown kind {code}") from None


def slot_key(node: Node) -> bytes:
    """Key of the index `by-path`: parent nid and name, since a full path would change with every directory above."""
    return NID_KEY.pack(node.parent) + node.name


def inode_key(tag: LocalTag) -> bytes:
    """Key of the index `by-inode` and of the table `contents`."""
    return INODE_KEY.pack(tag.device, tag.ino, tag.btime_ns)


def uuid_key(uuid: str) -> bytes:
    """Key of the index `by-uuid`. A server may call its uuids what it likes; LMDB keys end at 511 bytes."""
    raw = uuid.encode()
    return raw if len(raw) <= 64 else hashlib.sha256(raw).digest()


def agreed_content(raw: bytes) -> Content | None:
    """The content of a row's file that the server has, too, without the rest; None of all else."""
    return content_in(raw) if raw[0] & _HAS_REMOTE and raw[1] == _FILE else None


# --- which transaction changed rows last


def after_write(before: bytes | None, number: int, *, rows: bool) -> bytes:
    """The stamp that a writing transaction leaves.

    Layout: number u64 of the last transaction that changed rows, or may have; number u64 of the last one of a program
    that keeps the stamp. LMDB counts transactions without gaps, so one that an older program made in between shows.

    Args:
        before: The stamp that was there; None: there was none.
        number: Of this transaction.
        rows: It changes base rows.
    """
    changed, last = _STAMP.unpack(before) if before is not None and len(before) == _STAMP.size else (0, 0)
    return _STAMP.pack(number if rows or last != number - 1 else changed, number)


def stamp_at(raw: bytes | None, number: int) -> int | None:
    """What names the base rows as transaction `number` left them; None if who wrote last did not keep the stamp."""
    if raw is None or len(raw) != _STAMP.size:
        return None
    changed, last = _STAMP.unpack(raw)
    return int(changed) if last == number else None


# --- bookings of writes


def encode_overwrite(write: Overwrite) -> bytes:
    """Value of the table `overwrites`; its key is the number."""
    flags = _HAS_REMOTE if write.replaced is not None else 0
    words = (write.path, write.uuid.encode(), write.etag.encode())
    replaced = b"" if write.replaced is None else _remote(write.replaced)
    numbers = _NUMBER.pack(write.size_bytes) + _NUMBER.pack(write.known)
    return bytes([flags, _KINDS[write.kind]]) + numbers + b"".join(map(_text, words)) + replaced


def decode_overwrite(number: int, raw: bytes) -> Overwrite:
    """Reverse of `encode_overwrite`; ValueError if it is none."""
    reader = _Reader(raw)
    flags, kind = reader.take(2)
    (size_bytes,), (known,) = reader.unpack(_NUMBER), reader.unpack(_NUMBER)
    path, uuid, etag = (reader.text() for _ in range(3))
    replaced = _read_remote(reader) if flags & _HAS_REMOTE else None
    reader.end()
    return Overwrite(
        path=RelPath(path),
        kind=_kind(kind),
        size_bytes=size_bytes,
        etag=etag.decode(),
        known=known,
        replaced=replaced,
        uuid=uuid.decode(),
        number=number,
    )


# --- bookings of orders


class _Booked(msgspec.Struct, frozen=True, array_like=True):
    """A `Booking` as an array of MessagePack, in this order. What is None is not known, or is not there.

    Attributes:
        nid: See there.
        uuid: See there.
        kind: As in `base`; 0: it will be gone, and nothing but the two above counts.
        parent: Nid.
        name: One segment.
        size_bytes: Of a file's content.
        object_hash: Of a file's content.
        target: Of a symlink.
        mode: All 12 bits.
        mtime_ns: Of a file.
        xattrs: As in `base`.
        local: Device, ino, birth, size, mtime, ctime, version of a blockfs inode.
    """

    nid: int
    uuid: str
    kind: int = 0
    parent: int = 0
    name: bytes = b""
    size_bytes: int = 0
    object_hash: bytes | None = None
    target: bytes | None = None
    mode: int | None = None
    mtime_ns: int | None = None
    xattrs: bytes | None = None
    local: tuple[int, int, int, int, int, int, int | None] | None = None


def encode_bookings(booked: Iterable[Booking]) -> bytes:
    """Value of the table `orders`, of orders that are sent together; its key is a running number."""
    return msgspec.msgpack.encode([_booked(each) for each in booked])


def _booked(booked: Booking) -> _Booked:
    node, tag = booked.node, booked.local
    if node is None:
        return _Booked(booked.nid, booked.uuid)
    content, meta = node.content, node.meta
    return _Booked(
        booked.nid,
        booked.uuid,
        _KINDS[node.kind],
        node.parent,
        node.name,
        0 if content is None else content.size_bytes,
        None if content is None else content.object_hash,
        node.target,
        meta.full_mode,
        meta.mtime_ns,
        None if meta.xattrs is None else pack(meta.xattrs),
        None if tag is None else (*tag.inode, tag.size_bytes, tag.mtime_ns, tag.ctime_ns, tag.version),
    )


def decode_bookings(raw: bytes) -> list[Booking]:
    """Reverse of `encode_bookings`; ValueError if it is none."""
    try:
        return [_booking(each) for each in msgspec.msgpack.decode(raw, type=list[_Booked])]
    except msgspec.MsgspecError as error:
        raise ValueError(f"record of {len(raw)} bytes: {error}") from None


def _booking(each: _Booked) -> Booking:
    nid, local, content = Nid(each.nid), None, None
    if not each.kind:
        return Booking(nid=nid, node=None, uuid=each.uuid)
    if each.object_hash is not None:
        content = Content(size_bytes=each.size_bytes, object_hash=ObjectHash(each.object_hash))
    if each.local is not None:
        device, ino, btime_ns, size_bytes, mtime_ns, ctime_ns, version = each.local
        local = LocalTag(
            device=device,
            ino=ino,
            btime_ns=btime_ns,
            size_bytes=size_bytes,
            mtime_ns=mtime_ns,
            ctime_ns=ctime_ns,
            version=version,
        )
    xattrs = None if each.xattrs is None else unpack(each.xattrs)
    node = Node(
        parent=Nid(each.parent),
        name=each.name,
        kind=_kind(each.kind),
        content=content,
        target=each.target,
        meta=meta_of(each.mode, mtime_ns=each.mtime_ns, xattrs=xattrs),
    )
    return Booking(nid=nid, node=node, uuid=each.uuid, local=local)


# --- whose versions kept their names


def encode_written(written: Written) -> bytes:
    """Value of the table `writers`; its key is the nid."""
    return _content(written.content) + _text(written.device.encode())


def decode_written(raw: bytes) -> Written:
    """Reverse of `encode_written`; ValueError if it is none."""
    reader = _Reader(raw)
    written = Written(content=reader.content(), device=reader.text().decode())
    reader.end()
    return written


# --- the container


class _Moment(msgspec.Struct, frozen=True, kw_only=True):
    """What of a position is kept, if it has a number."""

    version: int | None = None
    written: str = ""


class _Container(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A `ContainerIdentity` in JSON.

    Attributes:
        uuid: See there.
        version: Number of the moment of the latest look; 0 if it has none.
        seen: The moment, where it is no number: of a repository.
        written: UUID of the object that has this number, where this device has written it.
        block_size: See there.
        block_hash: See there.
    """

    uuid: str | None
    version: int
    block_size: int
    block_hash: str
    seen: str = ""
    written: str = ""


def encode_container(found: ContainerIdentity) -> bytes:
    """What a container is recognised by."""
    moment = msgspec.json.decode(found.seen.raw, type=_Moment)
    stored = _Container(
        uuid=found.uuid,
        version=moment.version or 0,
        block_size=found.block_size,
        block_hash=found.block_hash,
        seen="" if moment.version is not None else found.seen.raw.decode(),
        written=moment.written,
    )
    return msgspec.json.encode(stored)


def decode_container(raw: bytes) -> ContainerIdentity:
    """Reverse of `encode_container`; msgspec.DecodeError if it is none."""
    stored = msgspec.json.decode(raw, type=_Container)
    moment = _Moment(version=stored.version, written=stored.written)
    seen = Position(raw=stored.seen.encode() or msgspec.json.encode(moment))
    return ContainerIdentity(uuid=stored.uuid, seen=seen, block_size=stored.block_size, block_hash=stored.block_hash)


# --- contents, problems


def encode_known(known: KnownContent) -> bytes:
    """Value of the table `contents`; its key is the inode."""
    flags = bytes([known.tag.version is not None])
    return flags + _TIME.pack(known.observed_ns) + _content(known.content) + _local(known.tag)


def decode_known(raw: bytes) -> KnownContent:
    """Reverse of `encode_known`; ValueError if it is none."""
    reader = _Reader(raw)
    (versioned,) = reader.take(1)
    (observed_ns,) = reader.unpack(_TIME)
    content, tag = reader.content(), reader.local(versioned=bool(versioned))
    reader.end()
    return KnownContent(tag=tag, content=content, observed_ns=observed_ns)


def encode_problem(problem: Problem) -> bytes:
    """Value of the table `problems`; its key is a running number."""
    words = (problem.path, problem.kind.encode(), problem.text.encode("utf-8", "backslashreplace"))
    return _TIME.pack(problem.since_ns) + b"".join(map(_text, words))


def decode_problem(raw: bytes) -> Problem:
    """Reverse of `encode_problem`; ValueError if it is none."""
    reader = _Reader(raw)
    (since_ns,) = reader.unpack(_TIME)
    path, kind, text = (reader.text() for _ in range(3))
    reader.end()
    return Problem(path=RelPath(path), kind=kind.decode(), text=text.decode(), since_ns=since_ns)
