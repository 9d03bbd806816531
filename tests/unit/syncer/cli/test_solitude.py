"""Who was alone lately: after a few looks in a row that heard nobody, for a day, until somebody is heard."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from syncer.cli.lan.solitude import FRESH_S, LATER_S, LOOKS, Solitude


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "alone"


def test_only_looks_in_a_row_count(file: Path) -> None:
    solitude = Solitude(str(file))
    for _ in range(LOOKS - 1):
        solitude.looked(heard=False)
    assert solitude.later_s() == 0
    solitude.looked(heard=True)
    assert not file.exists()
    for _ in range(LOOKS - 1):
        solitude.looked(heard=False)
    assert solitude.later_s() == 0
    solitude.looked(heard=False)
    assert solitude.later_s() == LATER_S


@pytest.mark.parametrize("away_s", [FRESH_S + 10, -FRESH_S - 10])
def test_it_is_forgotten_after_a_day_also_where_the_clock_was_put_back(file: Path, away_s: float) -> None:
    for _ in range(LOOKS + 5):
        Solitude(str(file)).looked(heard=False)
    assert Solitude(str(file)).later_s() == LATER_S
    later = Solitude(str(file), lambda: time.time() + away_s)
    assert later.later_s() == 0
    later.looked(heard=False)
    assert file.stat().st_size == 1


def test_where_nothing_can_be_written_it_is_looked_each_time(tmp_path: Path) -> None:
    solitude = Solitude(str(tmp_path / "gone" / "alone"))
    solitude.looked(heard=False)
    solitude.looked(heard=True)
    assert solitude.later_s() == 0
