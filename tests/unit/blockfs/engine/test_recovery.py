from __future__ import annotations

import os
from pathlib import Path

import pytest

from blockfs.engine.filesystem import Filesystem
from blockfs.errors import CorruptionError
from blockfs.tree.schema import ROOT_INO, Cursor
from tests.unit.blockfs.engine.volumes import Killer, PowerCut, config, content, copy, create, find, findings, make

pytestmark = pytest.mark.usefixtures("both_ways")


def staging_names(path: bytes) -> list[bytes]:
    return sorted(os.listdir(os.path.join(path, b"staging")))


def cursor_of(filesystem: Filesystem) -> Cursor:
    with filesystem.tree.committed() as view:
        return view.cursor


def test_staged_data_survive_a_clean_unmount_unsealed(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    first.files.write(create(first, b"f"), 0, b"x" * 5000)
    first.close()
    second = Filesystem.open(path, config())
    assert second.staged_bytes == 8192
    assert content(second, b"f") == b"x" * 5000
    second.close(seal=True)
    assert staging_names(path) == []


def test_a_clean_remount_changes_no_version(tmp_path: Path) -> None:
    """Otherwise every restart of a daemon would make the syncer look at every staged file."""
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    ino = create(first, b"f")
    first.files.write(ino, 0, b"x")
    first.close()
    second = Filesystem.open(path, config())
    cursor = cursor_of(second)
    second.close()
    third = Filesystem.open(path, config())
    with third.tree.committed() as view:
        assert view.changes(cursor) == ([], cursor)
    third.close()


def test_an_unclean_end_journals_every_file_with_staged_data(tmp_path: Path) -> None:
    """Pages may have changed after the version was handed out."""
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    ino = create(first, b"f")
    first.files.write(ino, 0, b"x" * 4096)
    first.files.fsync(ino)
    before = first.tree.inode(ino)
    assert before is not None
    first.files.write(ino, 0, b"y" * 4096)
    first.abandon()
    second = Filesystem.open(path, config())
    after = second.tree.inode(ino)
    assert after is not None
    assert after.content_version > before.content_version
    assert cursor_of(second).mount_generation > 1
    second.close()


def test_fsync_after_a_kill_makes_durable_what_is_seen(tmp_path: Path) -> None:
    """A killed mount leaves its writes in the page cache: recovered is not yet on disk."""
    path = make(tmp_path / "volume")
    power = PowerCut()
    first = Filesystem.open(path, config())
    power.watch(first)
    ino = create(first, b"f")
    first.files.write(ino, 0, b"x" * 4096)
    first.files.fsync(ino)
    first.files.write(ino, 0, b"y" * 4096)
    first.abandon()
    second = Filesystem.open(path, config())
    power.watch(second)
    assert content(second, b"f") == b"y" * 4096
    second.files.fsync(ino)
    second.abandon()
    for seed in range(5):
        lost = copy(path, tmp_path / f"copy{seed}")
        power.strike(os.path.join(lost, b"staging"), seed)
        third = Filesystem.open(lost, config())
        assert content(third, b"f") == b"y" * 4096
        third.close()


def test_unnamed_files_are_removed(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    filesystem = Filesystem.open(path, config())
    filesystem.files.write(create(filesystem, b"f"), 0, b"never synced")
    filesystem.commit()
    filesystem.abandon()
    assert staging_names(path) != []
    again = Filesystem.open(path, config())
    assert content(again, b"f") == b""
    assert staging_names(path) == []
    again.close()


def test_a_named_file_that_is_gone_is_corruption_and_nothing_is_overwritten(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    filesystem = Filesystem.open(path, config())
    filesystem.files.write(create(filesystem, b"f"), 0, b"data")
    filesystem.close()
    (name,) = staging_names(path)
    here = os.path.join(path, b"staging", name)
    os.rename(here, here + b".hidden")
    with pytest.raises(CorruptionError):
        Filesystem.open(path, config())
    os.rename(here + b".hidden", here)
    again = Filesystem.open(path, config())
    assert content(again, b"f") == b"data"
    again.close()


def test_bytes_beyond_the_published_size_stay_void_when_the_file_grows(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    ino = create(first, b"f")
    first.files.write(ino, 0, b"a" * 100)
    first.files.fsync(ino)
    first.files.write(ino, 100, b"b" * 9000)
    first.abandon()
    second = Filesystem.open(path, config())
    assert content(second, b"f") == b"a" * 100
    second.files.truncate(ino, 20000)
    assert content(second, b"f") == b"a" * 100 + bytes(19900)
    second.files.fsync(ino)
    second.abandon()
    third = Filesystem.open(path, config())
    assert content(third, b"f") == b"a" * 100 + bytes(19900)
    third.close()


def test_staged_nul_bytes_hide_sealed_data_after_a_crash(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    ino = create(first, b"f")
    first.files.write(ino, 0, b"secret" * 1000)
    first.files.flush()
    first.files.write(ino, 0, bytes(6000))
    first.files.fsync(ino)
    first.abandon()
    second = Filesystem.open(path, config())
    assert content(second, b"f") == bytes(6000)
    second.files.flush()
    assert content(second, b"f") == bytes(6000)
    second.close()


def test_orphans_go_with_their_staged_data(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    ino = create(first, b"f")
    first.files.write(ino, 0, b"x")
    first.files.fsync(ino)
    first.namespace.inodes.remember(ino)
    first.namespace.unlink(ROOT_INO, b"f")
    assert first.files.read(ino, 0, 9) == b"x"
    first.commit()
    first.abandon()
    second = Filesystem.open(path, config())
    assert second.tree.inode(ino) is None
    assert staging_names(path) == []
    assert findings(second) == []
    second.close()


def test_recovery_may_be_killed_too(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    first = Filesystem.open(path, config())
    for name in (b"f", b"g"):
        ino = create(first, name)
        first.files.write(ino, 0, name * 5000)
        first.files.fsync(ino)
    first.files.write(create(first, b"h"), 0, b"unsynced")
    first.abandon()
    killer = Killer()
    killer.arm(0)
    with pytest.raises(BaseException, match=r"staging\.unlink"):
        Filesystem.open(path, config(killer))
    again = Filesystem.open(path, config())
    assert content(again, b"f") == b"f" * 5000
    assert content(again, b"g") == b"g" * 5000
    assert find(again, b"h") is None
    again.close()
