from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from blockfs.engine.durable import staging_check as stagecheck
from blockfs.engine.durable.staging_check import missing_staging, staged_files
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import CorruptionError
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


def test_without_the_directory_all_that_is_named_is_gone_and_the_mount_says_so(filesystem: Filesystem) -> None:
    path, volume = filesystem.volume.staging_path, filesystem.volume.path
    shutil.rmtree(path)
    assert len(missing_staging(filesystem.tree, path)) == 1
    assert staged_files(path) == {}
    filesystem.abandon()
    with pytest.raises(CorruptionError):
        Filesystem.open(volume, config())


def test_an_empty_staging_directory_that_is_gone_is_made_again(tmp_path: Path) -> None:
    volume = make(tmp_path / "volume")
    Filesystem.open(volume, config()).close()
    os.rmdir(os.path.join(volume, b"staging"))
    opened = Filesystem.open(volume, config())
    opened.files.write(create(opened, b"f"), 0, b"x")
    opened.close()


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
