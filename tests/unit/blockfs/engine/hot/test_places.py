"""What is kept of where blocks lie: of the leaves that were looked up last, and of a bounded number."""

from __future__ import annotations

import pytest

from blockfs.blocks.ids import LeafKey
from blockfs.engine.hot import places
from blockfs.engine.hot.addresses import Run
from blockfs.engine.hot.places import KnownPlaces, LeafPlaces


def leaf(runs: int, *unknown: int) -> LeafPlaces:
    return LeafPlaces(tuple(Run(1, 4096 * number, 4096 * number, 4096) for number in range(runs)), unknown)


def key(number: int) -> LeafKey:
    return LeafKey(b"%032d" % number)


def test_the_leaves_that_were_used_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "_RUNS", 10)
    known = KnownPlaces()
    for number in range(3):
        known.put(key(number), leaf(3))
    assert known.get(key(0)) == leaf(3)
    known.put(key(3), leaf(3))
    assert [known.get(key(number)) is not None for number in range(4)] == [True, False, True, True]
    known.put(key(3), leaf(2))
    known.put(key(4), leaf(2))
    assert [known.get(key(number)) is not None for number in range(5)] == [True, False, True, True, True]
    known.put(key(5), leaf(11))
    assert [known.get(key(number)) for number in range(6)] == [None] * 6


def test_what_nobody_knows_is_asked_for_again() -> None:
    known = KnownPlaces()
    known.put(key(1), leaf(3, 7))
    assert known.get(key(1)) is None
    known.put(key(1), leaf(3))
    known.forget([key(1), key(2)])
    assert known.get(key(1)) is None
