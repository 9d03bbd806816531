"""Random histories of native mounts, on each host with reflinks: no byte is another than a model says."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests import effort
from tests.kit.hostfs import REFLINKS, reflinking
from tests.race.native import WEIGHTS, Step, lived, shortened, steps_of


@pytest.mark.parametrize("kind", sorted(REFLINKS))
def test_no_byte_is_wrong_whatever_is_done_to_files(tmp_path: Path, fuse: None, kind: str) -> None:
    """What fails names its seed: python -m tests.race.native SEED --host KIND --shorten."""
    first = int.from_bytes(os.urandom(4), "big")
    done: Counter[str] = Counter()
    with reflinking(tmp_path, kind) as host:
        for number in range(effort.count("histories of native mounts")):
            done += lived(host, first + number)
    assert done.keys() <= WEIGHTS.keys()
    assert done["make"] >= 2


# Cut off within a page, btrfs shared the last page of the block as before: its leaf kept what lay behind the end.
FAILED = [1627057294]


@pytest.mark.parametrize("kind", sorted(REFLINKS))
@pytest.mark.parametrize("seed", FAILED)
def test_what_failed_once_is_right(tmp_path: Path, fuse: None, kind: str, seed: int) -> None:
    with reflinking(tmp_path, kind) as host:
        assert lived(host, seed)


def test_a_seed_is_a_history() -> None:
    assert steps_of(15) == steps_of(15)
    assert steps_of(15) != steps_of(16)


def test_a_history_is_shortened_to_the_steps_that_it_takes_to_fail() -> None:
    steps = [Step(str(number), number) for number in range(72)]
    needed = {steps[3], steps[40], steps[71]}
    assert shortened(steps, lambda fewer: needed <= set(fewer)) == [steps[3], steps[40], steps[71]]
