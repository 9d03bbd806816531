"""A key file is the only copy of what it holds: it must be there after a power cut that the key itself survives."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from syncer.cli.repo.key import _write


def test_a_key_file_is_synced_and_then_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[int, bytes]] = []

    def fsync(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        synced.append((os.fstat(descriptor).st_ino, b"" if is_folder else (tmp_path / "key").read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.chdir(tmp_path)
    _write("key", "secret")
    assert synced == [((tmp_path / "key").stat().st_ino, b"secret\n"), (tmp_path.stat().st_ino, b"")]
