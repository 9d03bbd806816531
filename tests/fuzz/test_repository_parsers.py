"""Hostile bytes from a store, or from a client with faults: whatever comes is read as what it is, or named."""

from __future__ import annotations

import pytest

from tests import effort
from tests.fuzz.repository import TARGETS
from tests.fuzz.search import Target, search

_SEED = 16


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_whatever_comes_is_read_or_named(target: Target) -> None:
    inputs = -(-effort.count("repository parsers") // len(TARGETS))
    assert search(target, inputs, _SEED).inputs == inputs


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_valid_input_is_borne_too(target: Target) -> None:
    for seed in target.seeds:
        target.read(seed)
