"""Hostile bytes from a store, or from a client with faults: whatever comes is read as what it is, or named."""

from __future__ import annotations

import pytest

from tests import effort
from tests.fuzz.repository import TARGETS
from tests.fuzz.search import Target, search

_SEED = 16
_PROMISED = {"commit", "section", "index", "trailer", "pack", "chunk"}  # what reads packs, indexes and commits


def _inputs(count: int) -> int:
    """Of each target."""
    return -(-count // len(TARGETS))


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_read_or_named(target: Target) -> None:
    inputs = _inputs(effort.count("repository parsers"))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_input_is_borne_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)


def test_packs_indexes_and_commits_have_a_million_inputs_of_their_own_at_full_effort() -> None:
    """Breaks when another target comes, and takes its inputs from theirs."""
    assert {target.name for target in TARGETS} >= _PROMISED
    assert len(_PROMISED) * _inputs(effort.KNOB["repository parsers"].full) >= 1_000_000
