from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.engine import stagecheck
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.stagecheck import missing_staging
from tests.unit.blockfs.engine.volumes import config, create, make


@pytest.fixture
def filesystem(tmp_path: Path) -> Filesystem:
    opened = Filesystem.open(make(tmp_path / "volume"), config())
    ino = create(opened, b"f")
    opened.files.write(ino, 0, b"x")
    opened.files.fsync(ino)
    return opened


def test_staged_data_that_are_there_are_no_finding(filesystem: Filesystem) -> None:
    assert missing_staging(filesystem.tree, filesystem.volume.staging_path) == []
    filesystem.close()


def test_staged_data_that_are_gone_are_found(filesystem: Filesystem) -> None:
    path = filesystem.volume.staging_path
    (name,) = os.listdir(path)
    os.unlink(os.path.join(path, name))
    (found,) = missing_staging(filesystem.tree, path)
    assert b"%d.%d.%d" % (found.ino, found.range_index, found.generation) == name
    filesystem.abandon()


def test_what_is_sealed_meanwhile_is_no_finding(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.listdir
    once = iter([True])

    def listdir(path: bytes) -> list[bytes]:
        if next(once, False):
            filesystem.files.flush()
        return real(path)

    monkeypatch.setattr(stagecheck.os, "listdir", listdir)
    assert missing_staging(filesystem.tree, filesystem.volume.staging_path) == []
    filesystem.close()
