"""What others do to a file while its hot file is made: it is in that, and as durable as without."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from blockfs.engine.content import holes
from blockfs.engine.content.filestate import FileState
from blockfs.engine.content.holes import Holes
from blockfs.engine.content.resize import Resizer
from blockfs.engine.content.writer import ContentWriter
from blockfs.engine.copies import ranges
from blockfs.engine.durable.sealer import Sealer
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


def change(filesystem: Filesystem, ino: int, way: str) -> None:
    """A change that looks twice whether the file has a hot file: without the engine's lock, and under it."""
    if way == "cut":
        filesystem.files.truncate(ino, BLOCK + 5, may_block=True)
    elif way == "write":
        filesystem.files.write(ino, 5, b"written", may_block=True)
    elif way in {"hole", "zeros"}:
        filesystem.files.zero(ino, 5, 2 * BLOCK, keeps_size=True)
    elif way == "longer":
        filesystem.files.allocate(ino, 0, 5 * BLOCK, keeps_size=False)
    else:
        source = create(filesystem, b"source")
        filesystem.files.write(source, 0, b"c" * 2 * BLOCK, may_block=True)
        assert filesystem.copy_range(source, 0, ino, 0, 2 * BLOCK) == 2 * BLOCK


@pytest.mark.parametrize(
    ("way", "owner", "last_step"),
    [
        ("cut", Resizer, "_cut_block"),
        ("write", ContentWriter, "_wait_for_room"),
        ("hole", holes, "checked_end"),
        ("zeros", Holes, "_void_some"),
        ("longer", ContentWriter, "ask"),
        ("copy", Sealer, "seal"),
    ],
)
def test_a_change_during_which_the_file_becomes_hot_is_made_to_the_hot_file(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, way: str, owner: object, last_step: str
) -> None:
    """Breaks as the end of the mount, with what nobody has synced: the engine's lock met what it did not expect.

    `last_step` is what the change does without the lock, before it takes that and finds the hot file.
    """
    data = os.urandom(4 * BLOCK)
    ino = file_with(filesystem, data)
    real: Callable[..., object] = getattr(owner, last_step)

    def step(*args: Any, **keywords: Any) -> object:
        done = real(*args, **keywords)
        monkeypatch.undo()
        assert filesystem.hot.open(ino, may_block=True) is not None
        return done

    monkeypatch.setattr(ranges, "_WORTH_SEALING", 0)
    monkeypatch.setattr(owner, last_step, step)
    change(filesystem, ino, way)
    assert filesystem.hot.is_hot(ino)
    wanted = {
        "cut": data[: BLOCK + 5],
        "write": data[:5] + b"written" + data[12:],
        "hole": data[:5] + bytes(2 * BLOCK) + data[5 + 2 * BLOCK :],
        "zeros": data[:5] + bytes(2 * BLOCK) + data[5 + 2 * BLOCK :],
        "longer": data + bytes(BLOCK),
        "copy": b"c" * 2 * BLOCK + data[2 * BLOCK :],
    }
    assert content(filesystem, b"f") == wanted[way]
    filesystem.files.fsync(ino)
    assert not filesystem.fatal.has_struck
    again = Filesystem.open(killed(filesystem), config())
    try:
        assert content(again, b"f") == wanted[way]
        assert findings(again) == []
    finally:
        again.abandon()
