"""Several programs share one file of a mount, in every way that a file can be read and written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import effort
from tests.kit.hostfs import REFLINKS, reflinking
from tests.race.shared import Race


def raced(home: Path, way: str) -> None:
    """Race, and be glad of the outcome."""
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    race = Race(home, way, seed)
    race.run(effort.count("programs on one file"))
    assert race.failures == []
    wanted = {"flush", "gc", "clone", "snapshot", "store", "write_directly", "cut", "replace"}
    assert race.done.keys() >= wanted | ({"punch", "copy"} if way != "pyfuse3" else set())


@pytest.mark.parametrize("frontend", ["kernel", "pyfuse3"])
def test_each_program_finds_what_it_wrote_beside_others_seals_and_collections(
    tmp_path: Path, fuse: None, frontend: str
) -> None:
    raced(tmp_path, frontend)


@pytest.mark.parametrize("kind", sorted(REFLINKS))
def test_each_program_finds_what_it_wrote_on_a_native_mount(tmp_path: Path, fuse: None, kind: str) -> None:
    with reflinking(tmp_path, kind) as host:
        (host / "home").mkdir()
        raced(host / "home", "native")
