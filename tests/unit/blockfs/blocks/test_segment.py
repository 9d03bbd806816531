from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.ids import BlockId
from blockfs.blocks.segment import (
    ADOPTED,
    RAW,
    RECORD_BYTES,
    SEGMENT_HEADER_BYTES,
    SIDECAR_HEADER_BYTES,
    ZSTD,
    Record,
    align,
    check_segment_header,
    check_sidecar_header,
    decode_records,
    encode_record,
    encode_segment_header,
    encode_sidecar_header,
    is_adopted,
    payload_end,
    payload_start,
    whole_pages,
)
from blockfs.errors import CorruptionError, FormatTooNewError

UUID = bytes(range(16))

records = st.builds(
    Record,
    block_id=st.binary(min_size=32, max_size=32).map(BlockId),
    offset=st.integers(0, 2**64 - 1),
    stored_length=st.integers(0, 2**32 - 1),
    length=st.integers(0, 2**32 - 1),
    codec=st.integers(0, 255),
)


@given(st.lists(records, max_size=10), st.integers(0, RECORD_BYTES - 1))
def test_records_round_trip_and_a_torn_one_is_skipped(found: list[Record], torn: int) -> None:
    data = b"".join(encode_record(record) for record in found)
    assert len(data) == len(found) * RECORD_BYTES
    assert list(decode_records(data + encode_record(Record(BlockId(b"x" * 32), 1, 1, 1, 0))[:torn])) == found


@given(st.lists(records, min_size=1, max_size=4), st.data())
def test_a_flipped_bit_costs_one_record(found: list[Record], data: st.DataObject) -> None:
    raw = bytearray(b"".join(encode_record(record) for record in found))
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    hit = bit // 8 // RECORD_BYTES
    assert list(decode_records(bytes(raw))) == found[:hit] + found[hit + 1 :]


def test_the_bytes_of_format_1_never_change() -> None:
    record = Record(BlockId(bytes(range(32))), 0x1122334455667788, 0x01020304, 0x05060708, 0)
    assert encode_record(record).hex() == (
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
        "1122334455667788"
        "01020304"
        "05060708"
        "00" + "00" * 11 + RECORD_CRC
    )
    assert encode_sidecar_header(UUID, 7).hex() == SIDECAR_HEADER.ljust(2 * SIDECAR_HEADER_BYTES, "0")
    assert encode_segment_header(UUID, 7).hex() == SEGMENT_HEADER.ljust(2 * SEGMENT_HEADER_BYTES, "0")


def test_the_bytes_of_an_adopted_segment_never_change() -> None:
    header = encode_sidecar_header(UUID, 7, adopted=True)
    assert header.hex() == ADOPTED_HEADER.ljust(2 * SIDECAR_HEADER_BYTES, "0")
    assert check_sidecar_header(header, UUID, 7, "s")
    assert not check_sidecar_header(encode_sidecar_header(UUID, 7), UUID, 7, "s")
    with pytest.raises(CorruptionError):
        check_sidecar_header(header, UUID, 8, "s")


def test_a_sidecar_says_what_its_segment_is_also_if_its_header_is_damaged() -> None:
    adopted, common = (encode_record(Record(BlockId(bytes(32)), 4096, 1, 1, codec)) for codec in (ADOPTED, RAW))
    damaged = b"?" * SIDECAR_HEADER_BYTES
    assert is_adopted(encode_sidecar_header(UUID, 7, adopted=True)) is True
    assert is_adopted(encode_sidecar_header(UUID, 7) + adopted) is False
    assert is_adopted(damaged + b"?" * RECORD_BYTES + adopted) is True
    assert is_adopted(damaged + common) is False
    assert is_adopted(damaged) is None


RECORD_CRC = "4bb6b9b8"
SIDECAR_HEADER = "4253594e434944580000000100000000000102030405060708090a0b0c0d0e0f0000000000000007aca923ec"
ADOPTED_HEADER = "4253594e434944580000000200000000000102030405060708090a0b0c0d0e0f000000000000000709a14880"
SEGMENT_HEADER = "4253594e435345470000000100000000000102030405060708090a0b0c0d0e0f00000000000000077c2acef7"


def test_headers_are_accepted_for_what_they_are() -> None:
    check_segment_header(encode_segment_header(UUID, 7), UUID, 7, "s")
    check_sidecar_header(encode_sidecar_header(UUID, 7), UUID, 7, "s")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage" * 10,
        encode_sidecar_header(UUID, 7),
        encode_segment_header(UUID, 8),
        encode_segment_header(bytes(16), 7),
        encode_segment_header(UUID, 7)[:43],
        encode_segment_header(UUID, 7)[:40] + b"\0\0\0\0",
    ],
)
def test_other_headers_are_refused_by_name(data: bytes) -> None:
    with pytest.raises(CorruptionError, match="00000007"):
        check_segment_header(data, UUID, 7, "00000007.seg")


def test_a_newer_format_is_not_called_corruption(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockfs.blocks.segment.FORMAT", 2)
    newer = encode_segment_header(UUID, 7)
    monkeypatch.undo()
    with pytest.raises(FormatTooNewError):
        check_segment_header(newer, UUID, 7, "s")


@given(st.integers(0, 2**40), st.integers(1, 2**22))
def test_raw_payloads_own_whole_pages_and_packed_ones_their_bytes(page: int, length: int) -> None:
    end = payload_end(page * 4096, length, RAW)
    assert end % 4096 == 0
    assert length <= end - page * 4096 < length + 4096
    packed_end = payload_end(end, length, ZSTD)
    assert (payload_start(end, ZSTD), packed_end) == (end, end + length)
    assert payload_start(packed_end, ZSTD) == packed_end
    assert payload_start(packed_end, RAW) == align(packed_end)


@given(st.integers(0, 2**40), st.integers(0, 2**22))
def test_whole_pages_are_all_that_lie_inside(start: int, length: int) -> None:
    first, end = whole_pages(start, start + length)
    assert first % 4096 == end % 4096 == 0
    assert first - 4096 < start <= first
    assert end <= start + length < end + 4096
