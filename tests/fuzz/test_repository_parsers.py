"""Hostile bytes from a store, or from a client with faults: whatever comes is read as what it is, or named."""

from __future__ import annotations

import pytest

from tests import effort
from tests.fuzz.repository import PROMISED, TARGETS
from tests.fuzz.search import Target, search, share

_SEED = 16


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_read_or_named(target: Target) -> None:
    inputs = share(target, TARGETS, effort.count("repository parsers"))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_input_is_borne_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)


def test_packs_indexes_and_commits_have_a_million_inputs_of_their_own_at_full_effort() -> None:
    promised = [target for target in TARGETS if target.name in PROMISED]
    assert len(promised) == len(PROMISED)
    inputs = effort.KNOB["repository parsers"].full
    assert sum(share(target, TARGETS, inputs) for target in promised) >= 1_000_000
