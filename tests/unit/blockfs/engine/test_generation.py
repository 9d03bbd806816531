"""A generation's pages are known in two ways, and whoever asks for them gets the same answer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockfs.engine.config import no_checkpoint
from blockfs.engine.content.generation import StagedGeneration, StagedPages
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.staging import StagingDirectory
from blockfs.engine.copies.conditions import Reason, RefusedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import NoSpaceError, WouldBlock
from blockfs.tree.schema import ROOT_INO
from tests import effort
from tests.unit.blockfs.engine.volumes import USER, Died, Killer, config, content, create, find, findings, make

BLOCK = 2 * PAGE
SIZE = 6 * PAGE + 100
SEALED = bytes(range(1, 251)) * (SIZE // 250 + 1)
CHANGES = {1: b"x" * PAGE, 4: bytes(PAGE), 6: b"y" * 100}
"""Pages that are written over sealed content: one of NULs, too, and the one with the end of the file."""

Way = Callable[[Filesystem], Filesystem]


def expected() -> bytes:
    pages = bytearray(SEALED[:SIZE])
    for page, data in CHANGES.items():
        pages[page * PAGE : page * PAGE + len(data)] = data
    return bytes(pages)


def marked(filesystem: Filesystem) -> Filesystem:
    """write() sees each page."""
    ino = find(filesystem, b"f")
    assert ino is not None
    for page, data in CHANGES.items():
        filesystem.files.write(ino, page * PAGE, data)
    return filesystem


def found(filesystem: Filesystem) -> Filesystem:
    """Nobody sees them: a killed mount's staging file is written to, as by a program whose mapping outlives it."""
    ino = find(filesystem, b"f")
    assert ino is not None
    filesystem.files.write(ino, PAGE, CHANGES[1][:PAGE])
    filesystem.files.fsync(ino)
    filesystem.abandon()
    folder = os.path.join(filesystem.volume.path, b"staging")
    (name,) = [name for name in os.listdir(folder) if name.startswith(b"%d." % ino)]
    fd = os.open(os.path.join(folder, name), os.O_WRONLY)
    for page, data in CHANGES.items():
        os.pwrite(fd, data.ljust(PAGE, b"\xff"), page * PAGE)  # whole pages, with bytes past the end of the file
    os.close(fd)
    return Filesystem.open(filesystem.volume.path, filesystem._stores.config)


@pytest.fixture(params=[marked, found])
def way(request: pytest.FixtureRequest) -> Way:
    chosen: Way = request.param
    return chosen


def sealed(tmp_path: Path, killer: Killer | None = None, *, limit_bytes: int = 1 << 30) -> Filesystem:
    path = make(tmp_path / "volume", block_size=BLOCK)
    filesystem = Filesystem.open(path, config(killer or no_checkpoint, staged_limit_bytes=limit_bytes))
    filesystem.files.write(create(filesystem, b"f"), 0, SEALED[:SIZE])
    filesystem.files.flush()
    return filesystem


@pytest.fixture
def filesystem(tmp_path: Path, way: Way) -> Iterator[Filesystem]:
    opened = way(sealed(tmp_path))
    yield opened
    opened.close()


def test_all_of_them_are_read_and_counted(filesystem: Filesystem) -> None:
    assert content(filesystem, b"f") == expected()
    assert filesystem.staged_bytes == len(CHANGES) * PAGE


def test_all_of_them_are_sealed(filesystem: Filesystem) -> None:
    filesystem.files.flush()
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == expected()
    assert not findings(filesystem)


def test_growing_after_a_seal_shows_nul(filesystem: Filesystem) -> None:
    """Breaks when bytes past the end come along with the last page."""
    ino = find(filesystem, b"f")
    assert ino is not None
    filesystem.files.flush()
    filesystem.files.truncate(ino, SIZE + PAGE)
    assert content(filesystem, b"f") == expected() + bytes(PAGE)


def test_a_snapshot_and_a_clone_have_all_of_them(filesystem: Filesystem) -> None:
    ino = find(filesystem, b"f")
    assert ino is not None
    kept = filesystem.snapshots.create(ino, b"s").ino
    filesystem.clone(ino, ROOT_INO, b"clone")
    filesystem.files.write(ino, 0, b"later", may_block=True)
    assert filesystem.files.read(kept, 0, SIZE, may_block=True) == expected()
    assert content(filesystem, b"clone") == expected()


def test_apply_takes_no_blocks_of_a_file_that_has_some(filesystem: Filesystem) -> None:
    ino = find(filesystem, b"f")
    assert ino is not None
    inode = filesystem.tree.inode(ino)
    assert inode is not None
    with pytest.raises(RefusedError) as refused:
        filesystem.apply.prepare_file(
            size_bytes=SIZE, mode=0o644, caller=USER, mtime_ns=0, base=(ino, inode.content_version)
        )
    assert refused.value.reason is Reason.CHANGED


def test_writers_wait_while_there_are_too_many(tmp_path: Path, way: Way) -> None:
    filesystem = way(sealed(tmp_path, limit_bytes=len(CHANGES) * PAGE))
    with pytest.raises(WouldBlock):
        filesystem.files.write(create(filesystem, b"g"), 0, b"z" * 2 * PAGE)
    filesystem.files.flush()
    filesystem.files.write(create(filesystem, b"h"), 0, b"z" * 2 * PAGE)
    assert content(filesystem, b"f") == expected()
    filesystem.close()


def test_a_full_host_leaves_them_staged(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> bytes:
        raise NoSpaceError("full")

    with monkeypatch.context() as patch:
        patch.setattr(filesystem.blocks, "put", full)
        with pytest.raises(NoSpaceError):
            filesystem.files.flush()
    assert content(filesystem, b"f") == expected()
    assert filesystem.staged_bytes == len(CHANGES) * PAGE
    filesystem.files.flush()
    assert content(filesystem, b"f") == expected()


def test_a_death_at_any_step_of_their_seal_loses_none(tmp_path: Path, way: Way) -> None:
    """What the first mount after it shows, and seals, is all of them, over what was sealed before."""
    for steps in range(100):
        killer = Killer()
        folder = tmp_path / str(steps)
        folder.mkdir()
        filesystem = way(sealed(folder, killer))
        ino = find(filesystem, b"f")
        assert ino is not None
        filesystem.files.fsync(ino)
        killer.arm(steps)
        try:
            filesystem.files.flush()
        except Died:
            filesystem.abandon()
        else:
            filesystem.close()
            assert steps > 3
            return
        killer.disarm()
        after = Filesystem.open(filesystem.volume.path, config())
        assert content(after, b"f") == expected()
        after.files.flush()
        assert content(after, b"f") == expected()
        assert not findings(after)
        after.close()
    raise AssertionError("a seal has fewer steps")


pages = st.tuples(st.integers(0, 40), st.integers(1, 9))


@settings(max_examples=effort.count("properties"), deadline=None)
@given(st.lists(pages, max_size=6), st.lists(st.integers(0, 45 * PAGE), max_size=2))
def test_what_was_marked_is_what_is_found(written: list[tuple[int, int]], cuts: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        staging = StagingDirectory(os.fsencode(folder), open_files=2, checkpoint=no_checkpoint)
        told, asked = StagedPages(), StagedPages()
        one, other = StagedGeneration(1, BLOCK, told), StagedGeneration(1, BLOCK, asked)
        one.files[0] = other.files[0] = file = staging.create((2, 0, 1))
        for first, run in written:
            one.will_change(0, first, run)
            with staging.using(file) as fd:
                os.pwrite(fd, bytes(run * PAGE), first * PAGE)
            one.mark(first, run)
        other.find(staging, is_synced=False)
        for cut in cuts:
            assert one.cut(cut) == other.cut(cut)
        staging.close()
    assert one.pages.masks == other.pages.masks
    assert one.valid_below == other.valid_below
    assert told.count == asked.count == one.pages.count
    if written:
        assert one.unsynced[0].masks == other.unsynced[0].masks
    one.drop()
    assert told.count == 0
