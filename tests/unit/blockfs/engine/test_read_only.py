"""Read-only mounts: what is there is seen, and nothing of the volume changes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec.structs import replace

from blockfs.blocks.maintenance.scrub import scrub
from blockfs.engine.filesystem import Filesystem
from tests.unit.blockfs.engine.volumes import config, content, copy, create, findings, make

READ_ONLY = replace(config(), read_only=True)


def state(volume: bytes) -> dict[bytes, str]:
    """A digest of every file but locks: the volume's own and LMDB's table of readers."""
    found = {}
    for folder, _, names in os.walk(volume):
        for name in names:
            if name not in {b"lock", b"lock.mdb"}:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    found[path] = hashlib.sha256(file.read()).hexdigest() + str(os.fstat(file.fileno()).st_mtime_ns)
    return found


def volume_with_sealed_and_staged(tmp_path: Path) -> bytes:
    path = make(tmp_path / "volume")
    filesystem = Filesystem.open(path, config())
    filesystem.files.write(create(filesystem, b"sealed"), 0, b"s" * 5000)
    filesystem.files.flush()
    filesystem.files.write(create(filesystem, b"staged"), 0, b"t" * 5000)
    filesystem.close()
    return path


def test_a_read_only_mount_shows_everything_and_changes_nothing(tmp_path: Path) -> None:
    path = volume_with_sealed_and_staged(tmp_path)
    before = state(path)
    filesystem = Filesystem.open(path, READ_ONLY)
    assert filesystem.read_only
    assert content(filesystem, b"sealed") == b"s" * 5000
    assert content(filesystem, b"staged") == b"t" * 5000
    assert findings(filesystem) == []
    filesystem.sync()
    filesystem.commit()
    filesystem.close()
    filesystem.close()
    assert state(path) == before


def test_what_memory_holds_of_a_read_only_mount_never_reaches_the_disk(tmp_path: Path) -> None:
    """The kernel refuses writes; if one came through nevertheless, it must not become half a change."""
    path = volume_with_sealed_and_staged(tmp_path)
    before = state(path)
    filesystem = Filesystem.open(path, READ_ONLY)
    create(filesystem, b"new")
    filesystem.commit()
    filesystem.close()
    assert state(path) == before


def test_an_unclean_volume_is_recovered_before_it_is_read(tmp_path: Path) -> None:
    path = make(tmp_path / "volume")
    killed = Filesystem.open(path, config())
    ino = create(killed, b"f")
    killed.files.write(ino, 0, b"x" * 5000)
    killed.files.fsync(ino)
    image = copy(path, tmp_path / "image")
    killed.abandon()
    filesystem = Filesystem.open(image, READ_ONLY)
    assert content(filesystem, b"f") == b"x" * 5000
    recovered = state(image)
    filesystem.close()
    again = Filesystem.open(image, READ_ONLY)
    again.close()
    assert state(image) == recovered


def test_a_scrub_of_a_read_only_volume_only_looks(tmp_path: Path) -> None:
    path = volume_with_sealed_and_staged(tmp_path)
    (segment,) = (Path(os.fsdecode(path)) / "blocks" / "segments").glob("*.seg")
    with segment.open("r+b") as file:
        file.seek(4096)  # the first payload, raw or compressed
        file.write(b"!!!!")
    before = state(path)
    filesystem = Filesystem.open(path, READ_ONLY)
    assert len(scrub(filesystem.blocks).corrupt) == 1
    filesystem.close()
    assert state(path) == before
