"""Whether a process may have the kernel read and write files itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockfs.mount.choice import Choice
from blockfs.mount.native import why_not


def status(tmp_path: Path, capabilities: int) -> str:
    path = tmp_path / "status"
    path.write_text(f"Name:\tblocksync\nCapInh:\t0\nCapEff:\t{capabilities:016x}\nCapBnd:\t0\n")
    return str(path)


@pytest.mark.parametrize("frontend", [Choice.AUTO, Choice.KERNEL])
def test_root_may(tmp_path: Path, frontend: Choice) -> None:
    assert why_not(frontend, wanted=True, status=status(tmp_path, (1 << 41) - 1)) is None


def test_it_takes_the_right_to_administrate(tmp_path: Path) -> None:
    told = why_not(Choice.AUTO, wanted=True, status=status(tmp_path, ~(1 << 21) & ((1 << 41) - 1)))
    assert told is not None
    assert "CAP_SYS_ADMIN" in told


def test_nobody_gets_it_who_forbids_it_and_pyfuse3_never(tmp_path: Path) -> None:
    root = status(tmp_path, (1 << 41) - 1)
    assert why_not(Choice.AUTO, wanted=False, status=root) == "--no-native was asked for"
    assert "pyfuse3" in (why_not(Choice.PYFUSE3, wanted=True, status=root) or "")
