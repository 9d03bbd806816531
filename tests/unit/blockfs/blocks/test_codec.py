from __future__ import annotations

import os

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.codec import Compression, DecodeError, Payload, decode, encode, holds, raw
from blockfs.blocks.hashing import block_id
from blockfs.blocks.segment import RAW, ZSTD
from blockfs.blocks.segments.reader import BlockCache

TEXT = b"the same words again and again; " * 2048


@given(st.binary(min_size=1, max_size=9000), st.integers(1, 40), st.sampled_from(Compression))
def test_a_block_comes_back_whatever_the_codec(part: bytes, times: int, compression: Compression) -> None:
    canonical = part * times
    payload = encode(canonical, compression)
    assert decode(payload) == canonical
    assert holds(payload, block_id(canonical.rstrip(b"\0"))) == (canonical == canonical.rstrip(b"\0"))
    assert compression is Compression.ZSTD or payload == raw(canonical)


def test_what_saves_little_is_stored_raw() -> None:
    noise = os.urandom(65536)
    assert encode(noise, Compression.ZSTD) == raw(noise)
    assert encode(noise[:62900] + bytes(2636), Compression.ZSTD).codec == RAW  # saves 4 %
    assert encode(noise[:60000] + bytes(5536), Compression.ZSTD).codec == ZSTD  # saves 8 %


def test_a_short_block_is_packed_rather_than_given_a_page() -> None:
    """What counts is what the host allocates: a raw payload owns its page."""
    payload = encode(os.urandom(100), Compression.ZSTD)
    assert payload.codec == ZSTD
    assert len(payload.data) < 120


@given(st.binary(max_size=300), st.integers(1, 65536), st.integers(0, 3))
def test_garbage_is_refused_and_never_anything_else(data: bytes, length: int, codec: int) -> None:
    try:
        assert len(decode(Payload(data, length, codec))) == length
    except DecodeError:
        assert not holds(Payload(data, length, codec), bytes(32))


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_a_damaged_frame_gives_no_wrong_block(at: int, damage: bytes) -> None:
    payload = encode(TEXT, Compression.ZSTD)
    data = bytearray(payload.data)
    at %= len(data)
    data[at : at + len(damage)] = damage
    torn = Payload(bytes(data), payload.length, payload.codec)
    if holds(torn, block_id(TEXT)):
        assert decode(torn) == TEXT  # a bit that means nothing to zstd may be another
    else:
        assert bytes(data) != payload.data


@pytest.mark.parametrize("claimed", [0, len(TEXT) - 1, len(TEXT) + 1, 1 << 40])
def test_a_frame_that_claims_another_length_is_not_decompressed(claimed: int) -> None:
    """A bomb would allocate what it claims."""
    header = b"\x28\xb5\x2f\xfd\xe0" + claimed.to_bytes(8, "little")  # single segment, 8 bytes of content size
    body = zstandard.ZstdCompressor().compress(TEXT)
    with pytest.raises(DecodeError, match=str(len(TEXT))):
        decode(Payload(header + body[6:], len(TEXT), ZSTD))


def test_a_frame_without_a_length_is_refused() -> None:
    body = zstandard.ZstdCompressor(write_content_size=False).compress(TEXT)
    with pytest.raises(DecodeError):
        decode(Payload(body, len(TEXT), ZSTD))


def test_bytes_behind_a_frame_are_damage() -> None:
    data, length, codec = encode(TEXT, Compression.ZSTD)
    with pytest.raises(DecodeError):
        decode(Payload(data + b"\0", length, codec))


def test_cached_blocks_are_bounded_and_the_unused_go_first() -> None:
    cache = BlockCache(300)
    for number in range(3):
        cache.add((1, number), bytes(100))
    assert cache.get((1, 0)) is not None
    cache.add((1, 3), bytes(100))
    cache.add((1, 3), bytes(100))
    assert [number for number in range(4) if cache.get((1, number)) is not None] == [0, 2, 3]
    cache.add((2, 0), bytes(301))
    assert [cache.get((1, number)) for number in range(4)] == [None] * 4
    cache.add((1, 1), b"x")
    assert cache.get((1, 1)) == b"x"
    cache.clear()
    assert cache.get((1, 1)) is None
