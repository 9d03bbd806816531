"""Frames: what is sealed is opened by who has the key, and nothing else is."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from hypothesis import given
from hypothesis import strategies as st

from syncer.peer.wire import frames
from syncer.peer.wire.bodies import WhoHas
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import (
    BUCKETS,
    Carrier,
    FrameType,
    Header,
    body_bound,
    bucket,
    open_body,
    padded,
    parse_header,
    seal,
)
from syncer.peer.wire.keys import derive

KEYS = derive(bytes(range(32)), 2_900_000)
SENDER = bytes(range(100, 116))
BODY = padded(b"content", 1440)
FRAME = seal(KEYS, FrameType.HELLO, SENDER, 9, BODY)

bodies = st.binary(max_size=1440).map(lambda content: padded(content, 1440))


def opened(frame: bytes) -> bytes | Drop:
    """What a receiver with the key makes of it."""
    header = parse_header(frame)
    if isinstance(header, Drop):
        return header
    if header.hint != KEYS.hint(header.sender):
        return Drop.HINT
    if header.epoch16 != KEYS.epoch % 65_536:
        return Drop.EPOCH
    return open_body(KEYS, frame, header)


@given(st.sampled_from(FrameType), st.binary(min_size=16, max_size=16), st.integers(1, (1 << 64) - 1), bodies)
def test_who_has_the_key_reads_what_was_sealed(kind: FrameType, sender: bytes, counter: int, body: bytes) -> None:
    frame = seal(KEYS, kind, sender, counter, body)
    assert parse_header(frame) == Header(
        type=kind,
        epoch16=2_900_000 % 65_536,
        hint=KEYS.hint(sender),
        sender=sender,
        counter=counter,
        length=len(body),
    )
    assert opened(frame) == body
    assert len(frame) == len(body) + 60


def test_a_frame_is_laid_out_as_the_page_says() -> None:
    assert FRAME[:8] == bytes.fromhex("b5b10c 01 03 00") + (2_900_000 % 65_536).to_bytes(2, "big")
    assert FRAME[8:16] == KEYS.hint(SENDER)
    assert FRAME[16:32] == SENDER
    assert FRAME[32:44] == (9).to_bytes(8, "big") + (64).to_bytes(2, "big") + b"\0\0"
    assert len(FRAME) == 124


def test_a_frame_of_another_release_reads_the_same() -> None:
    assert FRAME.hex() == (
        "b5b10c0103004020272304dc3c1ac6756465666768696a6b6c6d6e6f7071727300000000000000090040000040f28afb"
        "751d10a29c520e75eaf7eb4fac7fc315c58a4ac6c317c72a4c7a105c6e4a0c7a9844680fc0abead4bf625049f72622b7"
        "11a6bc5c39f7bb65169a2ff944a27e266d577a67ab7db41cdc4e9dd2"
    )


@given(st.data())
def test_a_frame_with_any_bit_flipped_is_dropped(data: st.DataObject) -> None:
    frame = bytearray(seal(KEYS, FrameType.WHOHAS, SENDER, 1, data.draw(bodies)))
    for bit in data.draw(st.lists(st.integers(0, 8 * len(frame) - 1), min_size=64, max_size=64)):
        frame[bit >> 3] ^= 1 << (bit & 7)
        assert isinstance(opened(bytes(frame)), Drop)
        frame[bit >> 3] ^= 1 << (bit & 7)


def test_a_frame_with_any_bit_of_its_header_flipped_is_dropped() -> None:
    for bit in range(8 * 44):
        frame = bytearray(FRAME)
        frame[bit >> 3] ^= 1 << (bit & 7)
        assert isinstance(opened(bytes(frame)), Drop)


def test_who_has_another_shares_key_can_not_open_it() -> None:
    header = parse_header(FRAME)
    assert isinstance(header, Header)
    other = derive(bytes(32), KEYS.epoch)
    assert other.hint(SENDER) != header.hint
    assert open_body(other, FRAME, header) is Drop.TAG


@pytest.mark.parametrize(
    ("begin", "replacement", "reason"),
    [
        (0, b"\xb5\xb1\x0d", Drop.MAGIC),
        (3, b"\x02", Drop.VERSION),
        (4, b"\x00", Drop.TYPE),
        (4, b"\x05", Drop.TYPE),
        (5, b"\x01", Drop.FLAGS),
        (42, b"\x00\x01", Drop.FLAGS),
        (40, b"\x00\x3f", Drop.LENGTH),
        (40, b"\x00\x41", Drop.LENGTH),
        (32, bytes(8), Drop.REPLAY),
    ],
)
def test_what_is_wrong_with_a_header_is_named(begin: int, replacement: bytes, reason: Drop) -> None:
    frame = FRAME[:begin] + replacement + FRAME[begin + len(replacement) :]
    assert parse_header(frame) is reason


@pytest.mark.parametrize("size", [0, 1, 43, 44, 60, 123, 1501, 9000, 65_535])
def test_what_no_frame_is_as_long_as_is_dropped_first(size: int) -> None:
    assert parse_header(FRAME[:4].ljust(size, b"\0")[:size]) is Drop.SIZE


@given(st.binary(max_size=1600))
def test_any_bytes_are_a_header_or_a_reason(data: bytes) -> None:
    assert isinstance(parse_header(data), Header | Drop)
    assert isinstance(opened(FRAME[:44] + data), Drop)


@pytest.mark.parametrize(
    ("mtu", "carrier", "bound"),
    [
        (1500, Carrier.ETHERNET, 1440),
        (9000, Carrier.ETHERNET, 1440),
        (1400, Carrier.ETHERNET, 1340),
        (1500, Carrier.UDP6, 1392),
        (1500, Carrier.UDP4, 1412),
        (1280, Carrier.UDP6, 1172),
        (9000, Carrier.UDP6, 1440),
        (50, Carrier.UDP4, 0),
    ],
)
def test_a_frame_fits_into_one_packet_of_its_link(mtu: int, carrier: Carrier, bound: int) -> None:
    assert body_bound(mtu, carrier) == bound


@given(st.integers(0, 1440), st.integers(64, 1440))
def test_a_bucket_is_the_next_of_four_or_the_links_bound(size: int, bound: int) -> None:
    length = bucket(size, bound)
    assert (length is None) == (size > bound)
    if length is not None:
        assert size <= length <= bound
        assert length in (*BUCKETS, bound)
        assert not [each for each in BUCKETS if size <= each < length]


def test_a_link_too_narrow_for_the_least_bucket_carries_nothing() -> None:
    assert bucket(1, 63) is None


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=179), st.integers(1, 1 << 40))
def test_no_part_of_an_id_that_is_asked_for_is_seen_on_the_wire(ids: list[bytes], counter: int) -> None:
    """Ids with few different bytes, such as zeros, appear by chance and in headers: those are left out."""
    tokens = tuple(each[:8] for each in ids)
    frame = seal(KEYS, FrameType.WHOHAS, SENDER, counter, WhoHas(qid=7, tokens=tokens).encode(1440))
    windows = {frame[at : at + 8] for at in range(len(frame) - 7)}
    varied = [each for each in ids if len(set(each)) > 24]
    assert not [each for each in varied for at in range(25) if each[at : at + 8] in windows]


@given(
    st.sets(
        st.tuples(st.sampled_from([b"k" * 32, b"K" * 32]), st.integers(7, 9), st.integers(1, 9), st.integers(1, 9)),
        min_size=2,
    )
)
def test_no_key_and_nonce_come_twice_as_long_as_a_sender_counts(sent: set[tuple[bytes, int, int, int]]) -> None:
    """Of share, epoch, sender and counter at least one differs between any two frames: then so do key and nonce."""
    used: list[tuple[bytes, bytes]] = []

    def cipher(key: bytes) -> object:
        real = ChaCha20Poly1305(key)

        class Recorder:
            def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes:
                used.append((key, nonce))
                return real.encrypt(nonce, data, associated_data)

        return Recorder()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frames, "_cipher", lambda keys, sender: cipher(keys.frame_key(sender)))
        for root, epoch, sender, counter in sent:
            seal(derive(root, epoch), FrameType.HELLO, bytes([sender]) * 16, counter, BODY)
    assert len(set(used)) == len(used) == len(sent)
