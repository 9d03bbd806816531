from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.errors import UsageError
from blockfs.runtime.units import counted, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("65536", 65536),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("64K", 65536),
        (" 64 KiB ", 65536),
        ("1.5GiB", 3 << 29),
        ("4M", 4 << 20),
        ("10MB", 10_000_000),
        ("1kB", 1000),
        ("512b", 512),
        ("2TiB", 2 << 40),
        ("0.5K", 512),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "KiB", "-1", "1e3", "64 KiBs", "0x10", "1.5", "0.3K", "1,5K", "٣", "64 K iB", "1.", "9" * 5000]
)
def test_other_texts_are_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match="not a"):
        parse_size(text)


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (65536, "64 KiB"),
        (1023 * 1024 + 1000, "1 MiB"),
        (1 << 30, "1 GiB"),
        (1643241472, "1.53 GiB"),
        (10**15, "909 TiB"),
        (1 << 70, "1048576 PiB"),
        (-2048, "-2 KiB"),
    ],
)
def test_sizes_are_written_for_people(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@given(st.integers(0, 2**60))
def test_a_written_size_reads_back_within_a_percent(size_bytes: int) -> None:
    number, unit = format_size(size_bytes).split()
    assert abs(float(number) * parse_size(f"1{unit}") - size_bytes) <= size_bytes * 0.01


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30d", 2592000), ("12h", 43200), ("90m", 5400), ("45s", 45), ("0.5D", 43200), (" 2 w ", 1209600), ("0", 0)],
)
def test_spans_of_time_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1e3s", "1.d", "3 days", "inf"])
def test_other_spans_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="span of time"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["365001d", "99999999d", "9" * 90 + "s", "9" * 400 + "d"])
def test_a_span_after_which_there_is_no_date_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="span of time"):
        parse_duration(text)
    assert parse_duration("365000d") == 365000 * 86400


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 blocks"), (1, "1 block"), (2, "2 blocks"), (12_345_678, "12345678 blocks")]
)
def test_what_is_counted_has_the_word_for_one_or_for_many(count: int, text: str) -> None:
    assert counted(count, "block", "blocks") == text
    assert counted(count, "block", "blocks", between=",").replace(",", "") == text


def test_thousands_stand_apart_where_that_is_asked_for() -> None:
    assert counted(12_345_678, "block", "blocks", between=" ") == "12 345 678 blocks"
