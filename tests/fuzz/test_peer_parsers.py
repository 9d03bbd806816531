"""Hostile bytes from the LAN: whatever comes is read as what it is, or dropped; nothing raises."""

from __future__ import annotations

import pytest

from tests import effort
from tests.fuzz.peer import TARGETS
from tests.fuzz.search import Target, search, share

_SEED = 13


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_read_or_dropped(target: Target) -> None:
    inputs = share(target, TARGETS, effort.count("peer parsers"))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_input_is_borne_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)


def _fragile(data: bytes) -> None:
    """Four conditions, one behind the other: one input in 2^32 meets all by chance."""
    if data[:1] != b"\x11":
        return
    if data[1:2] != b"\x22":
        return
    if data[2:3] != b"\x33":
        return
    if data[3:4] == b"\x44":
        raise ValueError("found")


def test_a_guided_search_finds_what_chance_does_not() -> None:
    """If this fails, the soak's search is blind."""
    target = Target("fragile", (bytes(8),), _fragile, watched="test_peer_parsers")
    with pytest.raises(AssertionError, match=r"fragile, seed 1: 11223344.*found"):
        search(target, 500_000, 1, guided=True)
    assert search(target, 20_000, 1).inputs == 20_000


def test_a_guided_search_keeps_what_reaches_new_code() -> None:
    message = next(target for target in TARGETS if target.name == "message")
    found = search(message, 2000, _SEED, guided=True)
    assert len(found.corpus) > len(message.seeds)
    assert found.steps
