"""Conditions as tables: what is asked, what the object is, what is answered."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncer.protocol.pithos.headers import parse_etags
from syncer.server.catalogue.conditions import (
    UNCONDITIONAL,
    Conditions,
    Verdict,
    judge_read,
    judge_write,
    listing_is_unchanged,
    range_fits,
    settled_time,
)


class Now(msgspec.Struct, frozen=True):
    etag: str = "aa"
    version: int = 7
    modified_us: int = 5_300_000


NOW = Now()
STAR = parse_etags("*")
AA, BB = parse_etags('"aa"'), parse_etags("bb")


@pytest.mark.parametrize(
    ("conditions", "on_object", "on_nothing"),
    [
        (UNCONDITIONAL, True, True),
        (Conditions(if_match=AA), True, False),
        (Conditions(if_match=BB), False, False),
        (Conditions(if_match=STAR), True, False),
        (Conditions(if_none_match=AA), False, True),
        (Conditions(if_none_match=BB), True, True),
        (Conditions(if_none_match=STAR), False, True),
        (Conditions(if_version=7), True, False),
        (Conditions(if_version=6), False, False),
        (Conditions(if_version=0), False, True),
        (Conditions(if_unmodified_since=5), True, False),
        (Conditions(if_unmodified_since=4), False, False),
        (Conditions(if_match=AA, if_version=6), False, False),
        (Conditions(if_match=parse_etags("bb, aa"), if_version=7), True, False),
    ],
)
def test_a_write_goes_on_only_if_all_its_conditions_hold(
    conditions: Conditions, on_object: bool, on_nothing: bool
) -> None:
    assert (judge_write(conditions, NOW) is Verdict.GO_ON) == on_object
    assert (judge_write(conditions, None) is Verdict.GO_ON) == on_nothing


@pytest.mark.parametrize(
    ("conditions", "verdict"),
    [
        (UNCONDITIONAL, Verdict.GO_ON),
        (Conditions(if_match=BB), Verdict.FAILED),
        (Conditions(if_none_match=AA), Verdict.NOT_MODIFIED),
        (Conditions(if_none_match=STAR), Verdict.NOT_MODIFIED),
        (Conditions(if_none_match=BB), Verdict.GO_ON),
        (Conditions(if_match=BB, if_none_match=AA), Verdict.FAILED),
        (Conditions(if_version=8), Verdict.FAILED),
        (Conditions(if_modified_since=4), Verdict.GO_ON),
        (Conditions(if_modified_since=5), Verdict.NOT_MODIFIED),
        (Conditions(if_modified_since=5, if_none_match=BB), Verdict.GO_ON),
        (Conditions(if_modified_since=4, if_none_match=AA), Verdict.NOT_MODIFIED),
        (Conditions(if_modified_since=5, if_unmodified_since=4), Verdict.FAILED),
        (Conditions(if_unmodified_since=4, if_match=AA), Verdict.GO_ON),
        (Conditions(if_unmodified_since=5, if_match=BB), Verdict.FAILED),
    ],
)
def test_a_read_is_spared_what_the_client_has(conditions: Conditions, verdict: Verdict) -> None:
    assert judge_read(conditions, NOW) is verdict


@pytest.mark.parametrize(
    ("if_range", "fits"),
    [('"aa"', True), ("aa", True), ('W/"aa"', False), ('"bb"', False), ("Thu, 01 Jan 1970 00:00:05 GMT", False)],
)
def test_a_part_is_sent_only_to_who_has_parts_of_the_same_content(if_range: str, fits: bool) -> None:
    assert range_fits(if_range, "aa") == fits
    assert not range_fits('""', "")


@given(shown_us=st.integers(0, 5_000_000), floor_us=st.integers(0, 5_000_000), later_us=st.integers(0, 5_000_000))
def test_no_change_hides_behind_the_second_of_last_modified(shown_us: int, floor_us: int, later_us: int) -> None:
    """Breaks when a change in the same second as an earlier one is answered with 304."""
    settled = settled_time(shown_us, floor_us)
    assert settled <= shown_us
    hidden_us = max(later_us, floor_us, shown_us + 1)  # a change that the first listing did not show
    assert not listing_is_unchanged(settled // 1_000_000, hidden_us) or settled == 0


@given(shown_us=st.integers(1_000_000, 5_000_000), extra_us=st.integers(1_000_000, 9_000_000))
def test_an_old_change_is_answered_with_not_modified(shown_us: int, extra_us: int) -> None:
    settled = settled_time(shown_us, shown_us + extra_us)
    assert listing_is_unchanged(settled // 1_000_000, shown_us)
    assert not listing_is_unchanged(None, shown_us)
