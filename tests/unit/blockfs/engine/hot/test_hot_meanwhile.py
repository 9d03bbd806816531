"""What others do to a file while its hot file is made: it is in that, and as durable as without."""

from __future__ import annotations

import os

import pytest

from blockfs.engine.content.filestate import FileState
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot import hotfiles
from blockfs.engine.portions import Stop
from tests.unit.blockfs.engine.hot.hosts import BLOCK, config, content, create, find, killed
from tests.unit.blockfs.engine.volumes import findings


def file_with(filesystem: Filesystem, data: bytes) -> int:
    """A sealed file that was never opened by the kernel."""
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, data, may_block=True)
    filesystem.files.flush(ino)
    filesystem.commit()
    return ino


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_written_while_it_is_made_is_in_it(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    data = os.urandom(4 * BLOCK)
    ino = file_with(filesystem, data)
    real, written = hotfiles.HotFiles._assemble_sealed, []

    def assemble(self: hotfiles.HotFiles, state: FileState, stop: Stop) -> bool:
        if when == "after":
            done = real(self, state, stop)
        if len(written) < 3:
            written.append(filesystem.files.write(ino, len(written), b"!", may_block=True))
        return done if when == "after" else real(self, state, stop)

    monkeypatch.setattr(hotfiles.HotFiles, "_assemble_sealed", assemble)
    descriptor = filesystem.hot.open(ino, may_block=True)
    assert descriptor is not None
    wanted = b"!" * len(written) + data[len(written) :]
    assert os.pread(descriptor, len(data), 0) == content(filesystem, b"f") == wanted
    assert written


@pytest.mark.parametrize("datasync", [False, True])
def test_an_fsync_before_the_hot_file_has_a_durable_row_waits_for_that(
    filesystem: Filesystem, *, datasync: bool
) -> None:
    """Breaks as a write that was synced, and went away with a hot file that nothing names."""
    data = os.urandom(4 * BLOCK)
    ino = file_with(filesystem, data)
    assert filesystem.hot._assemble(ino)
    filesystem.files.write(ino, 0, b"synced", may_block=True)
    filesystem.files.fsync(ino, datasync=datasync)
    again = Filesystem.open(killed(filesystem), config())
    try:
        assert content(again, b"f") == b"synced" + data[6:]
        assert find(again, b"f") == ino
        assert findings(again) == []
    finally:
        again.abandon()


def test_a_mount_that_ends_lets_go_of_what_it_makes(filesystem: Filesystem) -> None:
    data = os.urandom(4 * BLOCK)
    ino = file_with(filesystem, data)
    assert filesystem.hot.open(ino, may_block=True, stop=lambda: True) is None
    assert not filesystem.hot.is_hot(ino)
    assert os.listdir(filesystem.volume.hot_path) == []
    assert content(filesystem, b"f") == data
