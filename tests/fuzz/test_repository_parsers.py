"""Hostile bytes from a store, or from a client with faults: whatever comes is read as what it is, or named."""

from __future__ import annotations

import math

import pytest

from tests import effort
from tests.fuzz.repository import TARGETS
from tests.fuzz.search import Target, search

_SEED = 16
_PROMISED = {"commit", "section", "index", "trailer", "pack", "chunk"}  # what reads packs, indexes and commits
_SHARE = 0.85  # of all inputs, for these


def _inputs(target: Target, count: int) -> int:
    """Of one target, of so many for all."""
    if target.name in _PROMISED:
        return math.ceil(count * _SHARE / len(_PROMISED))
    return math.ceil(count * (1 - _SHARE) / (len(TARGETS) - len(_PROMISED)))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_read_or_named(target: Target) -> None:
    inputs = _inputs(target, effort.count("repository parsers"))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_input_is_borne_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)


def test_packs_indexes_and_commits_have_a_million_inputs_of_their_own_at_full_effort() -> None:
    promised = [target for target in TARGETS if target.name in _PROMISED]
    assert len(promised) == len(_PROMISED)
    assert sum(_inputs(target, effort.KNOB["repository parsers"].full) for target in promised) >= 1_000_000
