"""Packs: each chunk opened is the one of its id, and few bytes travel that nobody wants."""

from __future__ import annotations

import hashlib
import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.keys import ChunkId, Content, MasterKey, derive
from syncer.remote.repository.format.packs import (
    FOOT_BYTES,
    MAX_BYTES,
    MAX_GAP_BYTES,
    TARGET_BYTES,
    Entry,
    Pack,
    PackBuilder,
    PackReader,
    plan,
    read_pack,
)
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.sealed import HEAD_BYTES, Envelope, Kind, object_name

KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))
OTHERS = derive(MasterKey(bytes(32)), bytes(range(16)))
SALT = bytes(range(50, 66))
CODEC = Codec()
CHUNKS = [b"one", b"", bytes(5000), random.Random(1).randbytes(20_000)]


def packed(chunks: list[bytes], content: Content = Content.FILES) -> tuple[Pack, bytes]:
    builder = PackBuilder(KEYS, content, SALT, CODEC)
    for chunk in chunks:
        builder.add(KEYS.chunk_id(content, chunk), chunk)
    return builder.finish()


PACK, RAW = packed(CHUNKS)
READER = PackReader(KEYS, Content.FILES, PACK.ref)


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 9000).map(bytes)), min_size=1, max_size=9))
def test_chunks_come_out_as_they_went_in(chunks: list[bytes]) -> None:
    pack, raw = packed(chunks)
    found, reader = read_pack(KEYS, Content.FILES, pack.ref.name, raw)
    assert msgspec.structs.asdict(found) == msgspec.structs.asdict(pack)
    assert [reader.open(each, raw[each.offset : each.end], CODEC) for each in found.entries] == chunks
    assert len(raw) == pack.size_bytes == padded(len(raw))


def test_a_name_is_the_digest_and_says_nothing() -> None:
    assert PACK.ref.name == object_name(Kind.PACK, hashlib.sha256(RAW).digest())
    assert PACK.ref.name.startswith(f"packs/{PACK.ref.digest[:1].hex()}/")


def test_what_is_in_it_can_be_read_from_its_end() -> None:
    """By two ranges, for who has lost the index."""
    length = READER.trailer_length(len(RAW), RAW[-FOOT_BYTES:])
    assert READER.entries(len(RAW), RAW[-length:]) == PACK.entries


def test_a_chunk_is_refused_at_another_place_or_under_another_id() -> None:
    """A store that swaps ranges, an index that is wrong: neither puts one chunk in another's place."""
    one, other = PACK.entries[0], PACK.entries[3]
    assert READER.open(one, RAW[one.offset : one.end], CODEC) == CHUNKS[0]
    for wrong in (
        msgspec.structs.replace(one, offset=one.offset + 1),
        msgspec.structs.replace(one, id=other.id),
        msgspec.structs.replace(one, plain=one.plain + 1),
        msgspec.structs.replace(one, length=one.length + 1),
    ):
        with pytest.raises(DamagedObjectError, match=r"packs/"):
            READER.open(wrong, RAW[one.offset : one.end], CODEC)
    with pytest.raises(DamagedObjectError):
        READER.open(one, RAW[other.offset : other.end], CODEC)


def test_another_kind_of_content_or_repository_opens_nothing() -> None:
    entry = PACK.entries[0]
    for reader in (PackReader(KEYS, Content.TREES, PACK.ref), PackReader(OTHERS, Content.FILES, PACK.ref)):
        with pytest.raises(DamagedObjectError):
            reader.open(entry, RAW[entry.offset : entry.end], CODEC)
        with pytest.raises(DamagedObjectError):
            reader.trailer_length(len(RAW), RAW[-FOOT_BYTES:])


def test_every_flipped_byte_is_noticed_by_who_reads_it() -> None:
    rng = random.Random(3)
    for at in [*range(HEAD_BYTES), *(rng.randrange(len(RAW)) for _ in range(300)), *range(len(RAW) - 200, len(RAW))]:
        damaged = bytearray(RAW)
        damaged[at] ^= 1 << rng.randrange(8)
        with pytest.raises((DamagedObjectError, FormatTooNewError)):
            read_pack(KEYS, Content.FILES, PACK.ref.name, bytes(damaged))
        name = object_name(Kind.PACK, hashlib.sha256(damaged).digest())
        with pytest.raises((DamagedObjectError, FormatTooNewError)):
            everything(name, bytes(damaged))


def everything(name: str, raw: bytes) -> None:
    pack, reader = read_pack(KEYS, Content.FILES, name, raw)
    for each in pack.entries:
        reader.open(each, raw[each.offset : each.end], CODEC)


def test_a_newer_versions_pack_is_left_alone() -> None:
    newer = RAW[:5] + b"\2" + RAW[6:]
    with pytest.raises(FormatTooNewError):
        read_pack(KEYS, Content.FILES, object_name(Kind.PACK, hashlib.sha256(newer).digest()), newer)


@pytest.mark.parametrize("length", [0, 1, 19, 24, 43, 44, 60])
def test_what_is_too_short_is_no_pack(length: int) -> None:
    raw = RAW[:length]
    with pytest.raises(DamagedObjectError):
        read_pack(KEYS, Content.FILES, object_name(Kind.PACK, hashlib.sha256(raw).digest()), raw)


def _with_trailer(table: bytes, length: int | None = None) -> bytes:
    """A pack of one chunk whose trailer somebody with the key has written wrongly."""
    envelope = Envelope(KEYS, Kind.PACK, SALT, bytes([Content.FILES.value]))
    raw = envelope.head + envelope.seal(HEAD_BYTES, b"e", b"\0one")
    raw += envelope.seal(len(raw), b"t", table)
    return raw + envelope.seal(len(raw), b"f", (len(table) + 16 if length is None else length).to_bytes(4, "big"))


@pytest.mark.parametrize(
    ("table", "length"),
    [
        (b"", None),
        (b"\0\0\0", None),
        (b"\0\0\0\1" + bytes(39), None),
        (b"\xff\xff\xff\xff" + bytes(40), None),
        (b"\0\0\0\1" + bytes(32) + b"\0\0\0\x13\0\0\0\3", None),
        (b"\0\0\0\1" + bytes(32) + b"\0\0\0\x14\xff\0\0\3", None),
        (b"\0\0\0\0", None),
        (b"\0\0\0\0", 3),
        (b"\0\0\0\0", 1 << 31),
    ],
)
def test_a_trailer_that_can_not_be_is_refused(table: bytes, length: int | None) -> None:
    raw = _with_trailer(table, length)
    with pytest.raises(DamagedObjectError):
        read_pack(KEYS, Content.FILES, object_name(Kind.PACK, hashlib.sha256(raw).digest()), raw)
    good = _with_trailer(b"\0\0\0\1" + bytes(32) + b"\0\0\0\x14\0\0\0\3")
    found, _ = read_pack(KEYS, Content.FILES, object_name(Kind.PACK, hashlib.sha256(good).digest()), good)
    assert found.entries == [Entry(ChunkId(bytes(32)), HEAD_BYTES, 20, 3)]


def test_a_pack_is_full_near_its_target_whatever_the_chunks_are() -> None:
    """Tiny chunks fill the trailer: it counts."""
    large = random.Random(4).randbytes(1 << 20)
    for data in (b"", large):
        builder = PackBuilder(KEYS, Content.FILES, SALT, CODEC)
        message = CODEC.encode(data)
        while not builder.is_full:
            builder.add_encoded(ChunkId(bytes(32)), message, len(data))
        pack, raw = builder.finish()
        assert TARGET_BYTES <= len(raw) == pack.size_bytes <= TARGET_BYTES + 4 * len(large) < MAX_BYTES


def test_a_chunk_moves_to_another_pack_without_being_compressed_again() -> None:
    entry = PACK.entries[2]
    message = READER.open_encoded(entry, RAW[entry.offset : entry.end])
    builder = PackBuilder(KEYS, Content.FILES, bytes(16), CODEC)
    moved = builder.add_encoded(entry.id, message, entry.plain)
    pack, raw = builder.finish()
    assert PackReader(KEYS, Content.FILES, pack.ref).open(moved, raw[moved.offset : moved.end], CODEC) == CHUNKS[2]


# --- which ranges to fetch


@st.composite
def places(draw: st.DrawFn) -> list[Entry]:
    entries, at = [], HEAD_BYTES
    for length, gap in draw(st.lists(st.tuples(st.integers(17, 70_000), st.sampled_from([0, 0, 1, 500, 300_000])))):
        at += gap
        entries.append(Entry(ChunkId(at.to_bytes(32, "big")), at, length, length))
        at += length
    return entries


@given(places(), st.randoms(), st.sampled_from([0, 1000, MAX_GAP_BYTES]))
def test_all_that_is_wanted_is_fetched_once_and_little_else(
    wanted: list[Entry], rng: random.Random, gap_bytes: int
) -> None:
    shuffled = rng.sample(wanted, len(wanted)) + wanted[:1]
    fetches = plan(shuffled, gap_bytes=gap_bytes)
    assert [each for fetch in fetches for each in fetch.entries] == wanted
    for fetch in fetches:
        assert fetch.start == fetch.entries[0].offset
        assert fetch.end == fetch.entries[-1].end
        wasted = fetch.end - fetch.start - sum(each.length for each in fetch.entries)
        assert wasted * 50 < fetch.end - fetch.start
        gaps = [after.offset - before.end for before, after in pairwise(fetch.entries)]
        assert max(gaps, default=0) <= gap_bytes
    for before, after in pairwise(fetches):
        assert before.end < after.start  # neighbours are one request


def test_a_small_range_joins_a_long_one_behind_it() -> None:
    ids = [ChunkId(bytes([n]) * 32) for n in range(3)]
    small, long = Entry(ids[0], 24, 1000, 1), Entry(ids[1], 3024, 1 << 20, 1)
    far = Entry(ids[2], long.end + MAX_GAP_BYTES + 1, 16 << 20, 1)
    assert [fetch.entries for fetch in plan([far, small, long])] == [[small, long], [far]]
