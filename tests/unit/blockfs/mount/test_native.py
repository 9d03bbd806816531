"""Whether a process may have the kernel read and write files itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.mount import native
from blockfs.mount.choice import Choice
from blockfs.mount.native import why_not


def status(tmp_path: Path, capabilities: int) -> str:
    path = tmp_path / "status"
    path.write_text(f"Name:\tblocksync\nCapInh:\t0\nCapEff:\t{capabilities:016x}\nCapBnd:\t0\n")
    return str(path)


@pytest.mark.parametrize("frontend", [Choice.AUTO, Choice.KERNEL])
def test_root_may(tmp_path: Path, frontend: Choice) -> None:
    assert why_not(frontend, wanted=True, volume=os.fsencode(tmp_path), status=status(tmp_path, (1 << 41) - 1)) is None


def test_where_a_full_disk_would_kill_the_mount_it_has_to_be_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """btrfs: `tests/power/test_full_host.py` uses a quota up."""
    root, volume = status(tmp_path, (1 << 41) - 1), os.fsencode(tmp_path)
    monkeypatch.setattr(native, "charges_mapped_pages", lambda _: True)
    told = why_not(Choice.AUTO, wanted=None, volume=volume, status=root)
    assert told is not None
    assert "--native asks" in told
    assert why_not(Choice.AUTO, wanted=True, volume=volume, status=root) is None
    monkeypatch.setattr(native, "charges_mapped_pages", lambda _: False)
    assert why_not(Choice.AUTO, wanted=None, volume=volume, status=root) is None


def test_it_takes_the_right_to_administrate(tmp_path: Path) -> None:
    user = status(tmp_path, ~(1 << 21) & ((1 << 41) - 1))
    told = why_not(Choice.AUTO, wanted=True, volume=os.fsencode(tmp_path), status=user)
    assert told is not None
    assert "CAP_SYS_ADMIN" in told


def test_nobody_gets_it_who_forbids_it_and_pyfuse3_never(tmp_path: Path) -> None:
    root = status(tmp_path, (1 << 41) - 1)
    assert why_not(Choice.AUTO, wanted=False, volume=b"/", status=root) == "--no-native was asked for"
    assert "pyfuse3" in (why_not(Choice.PYFUSE3, wanted=True, volume=b"/", status=root) or "")
