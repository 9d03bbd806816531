"""fsck of volumes with hot files."""

from __future__ import annotations

import os

from blockfs.engine.filesystem import Filesystem
from blockfs.service.repair import fsck
from blockfs.tree.schema import PLAIN_FORMAT, Table, hot_key
from tests.unit.blockfs.engine.hot.hosts import BLOCK, config, content, create, format_of, hot, killed
from tests.unit.blockfs.tree.damaged import apply


def written(filesystem: Filesystem) -> tuple[bytes, int]:
    """A volume that was killed when a file of it was sealed as "a" and written as "b"; with the file's inode."""
    ino = create(filesystem, b"f")
    fd = hot(filesystem, ino)
    os.pwrite(fd, b"a" * BLOCK, 0)
    filesystem.files.flush()
    os.pwrite(fd, b"b" * BLOCK, 0)
    filesystem.files.fsync(ino)
    return killed(filesystem), ino


def repair(path: bytes, *, does: bool = True) -> list[str]:
    return [found.kind for found in fsck(path, repair=does, now_ns=1, step=lambda _: None).findings]


def test_a_volume_with_hot_files_is_sound(filesystem: Filesystem) -> None:
    path, _ = written(filesystem)
    assert repair(path, does=False) == repair(path) == []
    again = Filesystem.open(path, config())
    assert content(again, b"f") == b"b" * BLOCK
    again.abandon()


def test_a_hot_file_that_is_gone_is_given_up_and_the_file_is_what_was_sealed(filesystem: Filesystem) -> None:
    path, _ = written(filesystem)
    (name,) = os.listdir(os.path.join(path, b"hot"))
    os.unlink(os.path.join(path, b"hot", name))
    assert "missing-staging" in repair(path)
    again = Filesystem.open(path, config())
    assert content(again, b"f") == b"a" * BLOCK
    assert format_of(again) == PLAIN_FORMAT
    again.close()


def test_a_hot_file_whose_row_is_lost_is_kept(filesystem: Filesystem) -> None:
    """Breaks if the next mount removes it: it may be all that is left."""
    path, ino = written(filesystem)
    (name,) = os.listdir(os.path.join(path, b"hot"))
    number = int(name.split(b".")[1])
    apply(os.path.join(path, b"tree"), [(Table.META, hot_key(ino, number), None)])
    assert "stray-hot-file" in repair(path)
    Filesystem.open(path, config()).close()
    with open(os.path.join(path, b"hot", b"kept-" + name), "rb") as kept:
        assert kept.read() == b"b" * BLOCK
