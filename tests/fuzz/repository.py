"""Hostile bytes for everything that reads a repository: objects as a store may give them, and, behind the seals, what a
client with the key but with faults may have written.

Each reader is asked whether bytes end in a value or an error that names the object, and whether a value is written with
its bytes: bodies have one form.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Final

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format import (
    condemned,
    config,
    entries,
    history,
    indexes,
    lists,
    packs,
    prolly,
    settings,
    slots,
)
from syncer.remote.repository.format.codec import BadMessage, Codec
from syncer.remote.repository.format.condemned import Condemned
from syncer.remote.repository.format.config import Config
from syncer.remote.repository.format.entries import Bytes, Entry, Up
from syncer.remote.repository.format.history import Commit, CommitId, DeviceId, Dot, Head, Vector
from syncer.remote.repository.format.indexes import EMPTY, Index, Section
from syncer.remote.repository.format.keys import ChunkId, Content, MasterKey, derive
from syncer.remote.repository.format.packs import FOOT_BYTES, PackBuilder
from syncer.remote.repository.format.prolly import Root, Shape
from syncer.remote.repository.format.sealed import HEAD_BYTES, Envelope, Kind, object_name, seal_whole
from tests.fuzz.search import Target

_MASTER: Final = MasterKey(bytes(range(32)))
KEYS: Final = derive(_MASTER, bytes(range(16)))
SALT: Final = bytes(range(50, 66))
_CODEC: Final = Codec()
_DEVICES: Final = DeviceId(b"a" * 16), DeviceId(b"b" * 16)
_PLAIN_BYTES: Final = 24  # of a config
_WATCHED: Final = "syncer/remote/repository/"

_COMMIT: Final = Commit(
    parents=(CommitId(b"1" * 32), CommitId(b"2" * 32)),
    vector=Vector({_DEVICES[0]: 3, _DEVICES[1]: 7}),
    root=b"root" * 9,
    number=7,
    device=_DEVICES[1],
    time_ns=1_790_000_000_000_000_000,
    tool="0.1.0",
    name="laptop",
)
_HEAD: Final = Head(device=_DEVICES[0], sequence=9, commit=CommitId(b"c" * 32))
_CONDEMNED: Final = Condemned(device=_DEVICES[0], time_ns=5, packs=(b"p" * 32,), commits=(b"c" * 32, b"d" * 32))
_CONFIG: Final = Config(grid=65536, chunks=(4096, 16384, 65536), made_s=1_790_000_000)
_CHUNKS: Final = (b"one", bytes(300), b"")
_SLOT: Final = slots.new_slot(_MASTER, KEYS.repository, "correct horse", SALT, made_s=5, label="laptop", log2_n=10)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def _built() -> tuple[packs.Pack, bytes]:
    builder = PackBuilder(KEYS, Content.FILES, SALT, _CODEC)
    for chunk in _CHUNKS:
        builder.add(KEYS.chunk_id(Content.FILES, chunk), chunk)
    return builder.finish()


_PACK, _PACKED = _built()
_SECTION: Final = indexes.section([_PACK], [b"r" * 32])
_INDEXED: Final = indexes.encode(KEYS, SALT, Index(_SECTION, indexes.section([_PACK])), _CODEC)[1]
_ENTRY: Final = Entry(
    object=b"o" * 16,
    kind=0,
    number=3,
    placed=Dot(_DEVICES[0], 1),
    filled=Dot(_DEVICES[0], 2),
    noted=Dot(_DEVICES[1], 3),
    made_us=1,
    mode=0o644,
    file=Bytes(size_bytes=3, object_hash=bytes(32), blocks=b"", chunks=b""),
)
_KEY: Final = entries.key_of(bytes(16), b"name")


def _refused(read: Callable[[], object]) -> bool:
    """Whether it is named as damaged or too new; nothing else may happen but a value."""
    try:
        read()
    except (DamagedObjectError, FormatTooNewError):
        return True
    return False


def _read_commit(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.COMMIT, SALT, body, _CODEC)
    commit = CommitId(_digest(raw))
    if not _refused(lambda: history.decode_commit(KEYS, commit, raw, _CODEC)):
        assert history.encode_commit(KEYS, SALT, history.decode_commit(KEYS, commit, raw, _CODEC), _CODEC)[1] == raw


def _read_head(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.HEAD, SALT, body, _CODEC, _DEVICES[0])
    if not _refused(lambda: history.decode_head(KEYS, _DEVICES[0], raw, _CODEC)):
        assert history.encode_head(KEYS, SALT, history.decode_head(KEYS, _DEVICES[0], raw, _CODEC), _CODEC)[1] == raw


def _read_condemned(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.CONDEMNED, SALT, body, _CODEC)
    name = object_name(Kind.CONDEMNED, _digest(raw))
    if not _refused(lambda: condemned.decode(KEYS, name, raw, _CODEC)):
        assert condemned.encode(KEYS, SALT, condemned.decode(KEYS, name, raw, _CODEC), _CODEC)[1] == raw


def _read_section(body: bytes) -> None:
    try:
        found = Section(body)
    except ValueError:
        return
    assert indexes.merged([found], replaces=found.replaces).body == body
    for each in islice(found.places(), 8):
        assert found.find(each.entry.id) is not None


def _read_index(raw: bytes) -> None:
    """As the store may give it: nothing without a seal is read."""
    assert _refused(lambda: indexes.decode(KEYS, _digest(raw), raw, _CODEC)) or raw == _INDEXED
    _refused(lambda: indexes.decode_trees(KEYS, _digest(raw), raw, _CODEC))


def _read_trailer(table: bytes) -> None:
    """Behind its seal: of what it says nothing is beyond the pack."""
    envelope = Envelope(KEYS, Kind.PACK, SALT, bytes([Content.FILES.value]))
    raw = _PACKED[: _PACK.entries[-1].end]
    raw += envelope.seal(len(raw), b"t", table)
    raw += envelope.seal(len(raw), b"f", (len(table) + 16).to_bytes(4, "big"))
    name = object_name(Kind.PACK, _digest(raw))
    if _refused(lambda: packs.read_pack(KEYS, Content.FILES, name, raw)):
        return
    pack, reader = packs.read_pack(KEYS, Content.FILES, name, raw)
    for entry in pack.entries:
        assert HEAD_BYTES <= entry.offset < entry.end <= len(raw) - FOOT_BYTES
        _refused(lambda entry=entry: reader.open(entry, raw[entry.offset : entry.end], _CODEC))  # type: ignore[misc]
    for fetch in packs.plan(pack.entries):
        assert HEAD_BYTES <= fetch.start <= fetch.end <= len(raw)


def _read_pack(raw: bytes) -> None:
    """As the store may give it, under a name that is right."""
    name = object_name(Kind.PACK, _digest(raw))
    assert (
        _refused(lambda: packs.read_pack(KEYS, Content.FILES, name, raw)) or raw[-FOOT_BYTES:] == _PACKED[-FOOT_BYTES:]
    )
    reader = packs.PackReader(KEYS, Content.FILES, _PACK.ref)
    for entry in _PACK.entries:
        sealed = raw[entry.offset : entry.end]
        right = sealed == _PACKED[entry.offset : entry.end]
        assert _refused(lambda entry=entry, sealed=sealed: reader.open(entry, sealed, _CODEC)) != right  # type: ignore[misc]


def _read_chunk(message: bytes) -> None:
    """Behind its seal: never more bytes than were promised, and never others than the id's."""
    with suppress(BadMessage):
        assert len(_CODEC.decode(message, 1000)) <= 1000
    envelope = Envelope(KEYS, Kind.PACK, SALT, bytes([Content.FILES.value]))
    entry = packs.Entry(_PACK.entries[1].id, HEAD_BYTES, len(message) + 16, len(_CHUNKS[1]))
    sealed = envelope.seal(HEAD_BYTES, b"e", message)
    reader = packs.PackReader(KEYS, Content.FILES, _PACK.ref)
    if not _refused(lambda: reader.open(entry, sealed, _CODEC)):
        assert reader.open(entry, sealed, _CODEC) == _CHUNKS[1]


def _read_object(raw: bytes) -> None:
    """As the store may give it, of each kind that is one message."""
    _refused(lambda: config.decode(KEYS, raw, _CODEC))
    _refused(lambda: history.decode_commit(KEYS, CommitId(_digest(raw)), raw, _CODEC))
    _refused(lambda: history.decode_head(KEYS, _DEVICES[0], raw, _CODEC))
    _refused(lambda: condemned.decode(KEYS, object_name(Kind.CONDEMNED, _digest(raw)), raw, _CODEC))
    _refused(lambda: slots.read_slot("keys/" + _digest(raw)[:8].hex(), raw))
    _refused(lambda: settings.decode(KEYS, raw, _CODEC))


def _read_settings(body: bytes) -> None:
    raw = seal_whole(KEYS, Kind.SETTINGS, SALT, body, _CODEC)
    if not _refused(lambda: settings.decode(KEYS, raw, _CODEC)):
        told = settings.decode(KEYS, raw, _CODEC)
        assert settings.decode(KEYS, settings.encode(KEYS, SALT, told, _CODEC), _CODEC) == told


def _read_config(body: bytes) -> None:
    raw = _CONFIGURED[:_PLAIN_BYTES] + seal_whole(KEYS, Kind.CONFIG, SALT, body, _CODEC)
    if not _refused(lambda: config.decode(KEYS, raw, _CODEC)):
        told = config.decode(KEYS, raw, _CODEC)
        assert config.decode(KEYS, config.encode(KEYS, SALT, told, _CODEC), _CODEC) == told


def _read_entry(raw: bytes) -> None:
    _refused(lambda: entries.decode_entry(_KEY, raw))
    _refused(lambda: entries.decode_up(_KEY[:16], raw))
    _refused(lambda: entries.split_key(raw))


class _OneNode:
    """A tree of which only the top is there, as somebody with the key may have written it."""

    def __init__(self, node: bytes) -> None:
        self._node = node

    def read(self, ids: Sequence[ChunkId]) -> list[bytes]:
        if any(each != _TOP.node for each in ids):
            raise DamagedObjectError("tree", "is missing")
        return [self._node] * len(ids)

    def write(self, node: bytes) -> ChunkId:
        self._node = node
        return _TOP.node


def _read_node(raw: bytes) -> None:
    for level in (0, 1):
        root = Root(level, _TOP.node)
        _refused(lambda root=root: [*prolly.items(_OneNode(raw), root)])  # type: ignore[misc]
        _refused(lambda root=root: prolly.get(_OneNode(raw), root, [_KEY, b"", b"k"]))  # type: ignore[misc]
        _refused(lambda root=root: [*prolly.reachable(_OneNode(raw), root, set())])  # type: ignore[misc]


def _read_chunk_list(raw: bytes) -> None:
    """Chunks lie in the file and behind each other, whatever the list says."""
    for size, chunks in ((3 << 20, raw), (100_000, raw)):
        file = Bytes(size_bytes=size, object_hash=bytes(32), blocks=b"", chunks=chunks)
        if not _refused(lambda file=file: [*lists.chunks_of(_OneNode(raw), file)]):  # type: ignore[misc]
            behind = 0
            for chunk in lists.chunks_of(_OneNode(raw), file):
                assert behind <= chunk.start < chunk.end <= size
                behind = chunk.end
    file = Bytes(size_bytes=3 << 20, object_hash=bytes(32), blocks=b"", chunks=_TOP)
    _refused(lambda: [*lists.chunks_of(_OneNode(raw), file, 1 << 20)])


def _read_block_list(raw: bytes) -> None:
    for blocks in (raw, _TOP):
        file = Bytes(size_bytes=(2 << 20) + 1, object_hash=bytes(32), blocks=blocks, chunks=b"")
        assert _refused(lambda file=file: lists.blocks_of(_OneNode(raw), file, 65536))  # type: ignore[misc]


def _node(entries: dict[bytes, bytes]) -> bytes:
    nodes = _OneNode(b"")
    prolly.update(nodes, Shape(split=bytes(32), entries=1 << 20), None, entries)
    return nodes.read([_TOP.node])[0]


def _body_of(raw: bytes, kind: Kind, bound: bytes = b"") -> bytes:
    plain = Envelope(KEYS, kind, SALT, bound).open(HEAD_BYTES, b"w", raw[HEAD_BYTES:]) or b""
    return _CODEC.decode(plain[4 : 4 + int.from_bytes(plain[:4], "big")], 1 << 20)


_TOP: Final = Root(0, ChunkId(b"t" * 32))
_CHUNK_LIST: Final = (
    b"\0\1"
    + _PACK.ref.digest
    + _PACK.ref.salt
    + b"".join(struct.pack(">IIHII32s", start, 5000, 0, 24, 900, bytes(32)) for start in (0, 5000, 70_000))
)
_COMMITTED: Final = history.encode_commit(KEYS, SALT, _COMMIT, _CODEC)[1]
_HEADED: Final = history.encode_head(KEYS, SALT, _HEAD, _CODEC)[1]
_LISTED: Final = condemned.encode(KEYS, SALT, _CONDEMNED, _CODEC)[1]
_CONFIGURED: Final = config.encode(KEYS, SALT, _CONFIG, _CODEC)
_SET: Final = settings.encode(KEYS, SALT, settings.Settings(keep_s=1), _CODEC)
_TABLE: Final = len(_PACK.entries).to_bytes(4, "big") + b"".join(
    each.id + each.length.to_bytes(4, "big") + each.plain.to_bytes(4, "big") for each in _PACK.entries
)


PROMISED: Final = {"commit", "section", "index", "trailer", "pack", "chunk"}
"""What reads packs, indexes and commits: a million inputs for these at full effort."""


def _target(name: str, seeds: tuple[bytes, ...], read: Callable[[bytes], None]) -> Target:
    return Target(name, seeds, read, watched=_WATCHED, weight=8 if name in PROMISED else 1)


TARGETS: Final = (
    _target("commit", (_body_of(_COMMITTED, Kind.COMMIT),), _read_commit),
    _target("head", (_body_of(_HEADED, Kind.HEAD, _DEVICES[0]),), _read_head),
    _target("condemned", (_body_of(_LISTED, Kind.CONDEMNED),), _read_condemned),
    _target("section", (_SECTION.body, EMPTY.body), _read_section),
    _target("index", (_INDEXED,), _read_index),
    _target("trailer", (_TABLE,), _read_trailer),
    _target("pack", (_PACKED,), _read_pack),
    _target("chunk", (_CODEC.encode(_CHUNKS[0]), _CODEC.encode(_CHUNKS[1])), _read_chunk),
    _target("object", (_CONFIGURED, _COMMITTED, _HEADED, _LISTED, _SET, _SLOT[1]), _read_object),
    _target("config", (_body_of(_CONFIGURED[_PLAIN_BYTES:], Kind.CONFIG),), _read_config),
    _target("settings", (_body_of(_SET, Kind.SETTINGS),), _read_settings),
    _target("node", (_node({_KEY: entries.encode(_ENTRY), b"k": b"v"}),), _read_node),
    _target(
        "chunk list", (_CHUNK_LIST, _node({bytes(5): _CHUNK_LIST, bytes(4) + b"\4": _CHUNK_LIST})), _read_chunk_list
    ),
    _target(
        "block list", (bytes(32 * 33), _node({bytes(4): bytes(512), bytes(3) + b"\1": bytes(512)})), _read_block_list
    ),
    _target("entry", (entries.encode(_ENTRY), entries.encode(Up(parent=bytes(16), name=b"name"))), _read_entry),
)
