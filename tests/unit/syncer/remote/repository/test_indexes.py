"""Indexes: found is what was put in, whatever was merged, and there are never many of them."""

from __future__ import annotations

import hashlib
import random
import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format import indexes
from syncer.remote.repository.format.codec import Codec
from syncer.remote.repository.format.indexes import (
    EMPTY,
    FIRST_BYTES,
    MERGED_BYTES,
    Index,
    Section,
    decode,
    decode_trees,
    encode,
    index_of,
    live,
    merged,
    section,
    to_merge,
    trees_end,
)
from syncer.remote.repository.format.keys import ChunkId, MasterKey, derive
from syncer.remote.repository.format.packs import Entry, Pack, PackRef
from syncer.remote.repository.format.padding import padded
from syncer.remote.repository.format.sealed import Kind, object_name

KEYS = derive(MasterKey(bytes(range(32))), bytes(range(16)))
OTHERS = derive(MasterKey(bytes(32)), bytes(range(16)))
SALT = bytes(range(50, 66))
CODEC = Codec()


def pack_of(number: int, ids: list[int]) -> Pack:
    """A pack that says that it has these chunks."""
    entries, at = [], 24
    for each in ids:
        entries.append(Entry(ChunkId(hashlib.sha256(str(each).encode()).digest()), at, 20 + each % 7, each))
        at += 20 + each % 7
    return Pack(PackRef(hashlib.sha256(bytes([number])).digest(), bytes([number]) * 16), at + 100, entries)


packs = st.dictionaries(st.integers(0, 20), st.lists(st.integers(0, 40), unique=True), max_size=5).map(
    lambda found: [pack_of(number, ids) for number, ids in found.items()]
)


def told(packs: list[Pack]) -> set[tuple[PackRef, tuple[object, ...]]]:
    return {(pack.ref, msgspec.structs.astuple(each)) for pack in packs for each in pack.entries}


def places(section: Section) -> list[tuple[PackRef, tuple[object, ...]]]:
    return [(each.pack, msgspec.structs.astuple(each.entry)) for each in section.places()]


@given(packs)
def test_every_chunk_is_found_and_no_other(packs: list[Pack]) -> None:
    made = section(packs)
    assert set(places(made)) == told(packs)
    assert len(made) == len(places(made)) == len(told(packs))
    assert made.packs == {pack.ref: pack.size_bytes for pack in packs}
    for pack in packs:
        for entry in pack.entries:
            found = made.find(entry.id)
            assert found is not None
            assert found.entry.id == entry.id
            assert (found.pack, msgspec.structs.astuple(found.entry)) in told(packs)
    for other in (bytes(32), b"\xff" * 32, b"\x80" * 32):
        assert made.find(ChunkId(other)) is None


@given(st.lists(packs, max_size=4), st.integers(0, 20))
def test_what_was_merged_says_what_its_parts_said(parts: list[list[Pack]], gone: int) -> None:
    unlike = {pack.ref: pack for part in parts for pack in part}
    parts = [[unlike[pack.ref] for pack in part] for part in parts]  # one pack has one content
    whole = section([pack for part in parts for pack in part])
    assert merged([section(part) for part in parts]).body == whole.body
    dropped = pack_of(gone, []).ref
    left = [pack for pack in unlike.values() if pack.ref != dropped]
    assert merged([section(part) for part in parts], without=[dropped]).body == section(left).body


@given(packs, packs, st.sets(st.integers(0, 9).map(lambda n: bytes([n]) * 32)))
def test_an_index_is_read_as_it_was_written(trees: list[Pack], files: list[Pack], replaces: set[bytes]) -> None:
    index = Index(section(trees, replaces), section(files))
    digest, raw = encode(KEYS, SALT, index, CODEC)
    assert index_of(object_name(Kind.INDEX, digest)) == digest == hashlib.sha256(raw).digest()
    assert len(raw) == padded(len(raw))
    read = decode(KEYS, digest, raw, CODEC)
    assert (read.trees.body, read.files.body) == (index.trees.body, index.files.body)
    assert set(read.trees.replaces) == replaces
    end = trees_end(KEYS, digest, raw[:48])
    assert decode_trees(KEYS, digest, raw[:end], CODEC).body == index.trees.body
    assert decode_trees(KEYS, digest, raw[:FIRST_BYTES], CODEC).body == index.trees.body


INDEX = Index(section([pack_of(1, [1, 2, 3])], [b"r" * 32]), section([pack_of(2, list(range(40)))]))
DIGEST, RAW = encode(KEYS, SALT, INDEX, CODEC)


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    for at in range(len(RAW)):
        damaged = bytearray(RAW)
        damaged[at] ^= 1 << at % 8
        with pytest.raises((DamagedObjectError, FormatTooNewError)):
            decode(KEYS, DIGEST, bytes(damaged), CODEC)
        with pytest.raises(DamagedObjectError):
            decode(KEYS, DIGEST, RAW[:at], CODEC)
    end = trees_end(KEYS, DIGEST, RAW)
    for at in range(end):
        damaged = bytearray(RAW[:end])
        damaged[at] ^= 1 << at % 8
        with pytest.raises((DamagedObjectError, FormatTooNewError)):
            decode_trees(KEYS, DIGEST, bytes(damaged), CODEC)
        with pytest.raises(DamagedObjectError):
            decode_trees(KEYS, DIGEST, RAW[:at], CODEC)


def test_another_key_reads_nothing() -> None:
    for read in (decode, decode_trees):
        with pytest.raises(DamagedObjectError, match="key"):
            read(OTHERS, DIGEST, RAW, CODEC)


def test_a_newer_versions_index_is_left_alone() -> None:
    newer = RAW[:5] + b"\2" + RAW[6:]
    with pytest.raises(FormatTooNewError):
        decode(KEYS, hashlib.sha256(newer).digest(), newer, CODEC)
    with pytest.raises(FormatTooNewError):
        trees_end(KEYS, DIGEST, newer)


def _body(replaces: int = 0, packs: int = 1, chunks: int = 1, *, more: bytes = b"", row: tuple[int, ...] = ()) -> bytes:
    pack, offset, length, plain = row or (0, 24, 20, 3)
    return (
        struct.pack(">III", replaces, packs, chunks)
        + bytes(32) * replaces
        + b"".join(bytes([n]) * 48 + (100).to_bytes(4, "big") for n in range(packs))
        + struct.pack(">32sIIII", bytes(32), pack, offset, length, plain) * chunks
        + more
    )


def test_a_section_that_can_not_be_is_refused() -> None:
    assert len(Section(_body())) == 1
    for wrong in (
        b"",
        bytes(11),
        _body()[:-1],
        _body(more=b"\0"),
        _body(chunks=2),
        _body(replaces=2),
        _body(row=(1, 24, 20, 3)),
        _body(row=(0, 81, 20, 3)),
        _body(row=(0, 24, 20, 1 << 30)),
        b"\xff" * 12,
        struct.pack(">III", 0, 1, 0) + bytes(48) + b"\xff" * 4,
    ):
        with pytest.raises(ValueError, match=r"^(it|its) "):
            Section(wrong)


def test_an_index_whose_second_section_replaces_others_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the first section only would not know it."""
    assert INDEX.trees.replaces
    sneaky = section([], [bytes(32)])
    with pytest.raises(AssertionError):
        encode(KEYS, SALT, Index(EMPTY, sneaky), CODEC)
    monkeypatch.setattr(indexes, "_ROLES", dict(zip(indexes._ROLES, reversed(indexes._ROLES.values()), strict=True)))
    digest, raw = encode(KEYS, SALT, Index(sneaky, EMPTY), CODEC)
    monkeypatch.undo()
    with pytest.raises(DamagedObjectError):
        decode(KEYS, digest, raw, CODEC)


class TestToMerge:
    def pushes(self, count: int, most: int, seed: int) -> tuple[dict[bytes, int], int, int, int]:
        """So many pushes: what is left, the most there ever were, and what was put and what was new, in bytes."""
        rng, sizes, highest, put, new = random.Random(seed), dict[bytes, int](), 0, 0, 0
        for number in range(count):
            size = rng.randrange(256, most)
            total = size + sum(sizes.pop(digest) for digest in to_merge(size, sizes))
            sizes[number.to_bytes(32, "big")] = total
            highest, put, new = max(highest, len(sizes)), put + total, new + size
        assert sum(sizes.values()) == new
        return sizes, highest, put, new

    @pytest.mark.parametrize(("count", "most", "many"), [(250, 24 << 10, 12), (3000, 1000, 12), (2000, 400 << 10, 120)])
    def test_there_are_never_many_and_little_is_written_again(self, count: int, most: int, many: int) -> None:
        sizes, highest, put, new = self.pushes(count, most, seed=1)
        assert highest <= many
        assert put <= 16 * new
        assert max(sizes.values()) <= MERGED_BYTES

    def test_a_long_one_is_left_alone(self) -> None:
        long, short = b"l" * 32, b"s" * 32
        assert to_merge(300, {long: 1 << 20, short: 512}) == [short]
        assert to_merge(MERGED_BYTES, {short: 512}) == []


def test_an_index_that_is_replaced_is_not_looked_into() -> None:
    one, two, three, gone = (bytes([n]) * 32 for n in range(4))
    assert live({one: [], two: [one, gone], three: []}) == {two, three}
    assert live({}) == set()


def test_a_hundred_thousand_chunks_take_48_bytes_each() -> None:
    """What a client holds of a repository of a million files must stay under 200 MB."""
    rng = random.Random(5)
    entries = [Entry(ChunkId(rng.randbytes(32)), 24 + 20 * n, 20, n % 1000) for n in range(100_000)]
    made = section([Pack(PackRef(bytes(32), bytes(16)), 24 + 20 * len(entries) + 60, entries)])
    assert len(made.body) == 12 + 52 + 48 * len(entries)
    digest, raw = encode(KEYS, SALT, Index(EMPTY, made), CODEC)
    files = decode(KEYS, digest, raw, CODEC).files
    assert all(files.find(each.id) is not None for each in entries[:1000])
