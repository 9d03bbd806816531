"""Making holes: what is free then, what it costs, and what is found when something comes in between."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.maintenance.gc import collect
from blockfs.engine.content import holes
from blockfs.engine.content.holes import Holes
from blockfs.engine.content.writer import ContentWriter
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import FsError, NoSpaceError
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import Died, Killer, config, content, create, find, findings, make

pytestmark = pytest.mark.usefixtures("both_ways")

PAGE = 4096
BLOCK = 4 * PAGE
BLOCKS = 6
SIZE = BLOCKS * BLOCK


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
def filesystem(tmp_path: Path, killer: Killer) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(killer))
    yield opened
    if not opened._is_open:  # the test has ended it as a kill does
        return
    opened.files.flush()
    assert findings(opened) == []
    opened.close()


@pytest.fixture
def old() -> bytes:
    """No block ends in NUL bytes: these are not stored."""
    return b"".join(os.urandom(BLOCK - 1) + b"." for _ in range(BLOCKS))


@pytest.fixture
def ino(filesystem: Filesystem, old: bytes) -> int:
    """A sealed file of whole blocks, none of which is like another."""
    made = create(filesystem, b"f")
    filesystem.files.write(made, 0, old, may_block=True)
    filesystem.files.flush()
    return made


def holed(data: bytes, offset: int, length: int) -> bytes:
    return data[:offset] + bytes(min(length, len(data) - offset)) + data[offset + length :]


def stage(filesystem: Filesystem, ino: int, page: int, fill: bytes, pages: int = 1) -> None:
    filesystem.files.write(ino, page * PAGE, fill * PAGE * pages, may_block=True)


def close_generation(filesystem: Filesystem, ino: int) -> None:
    """What a seal that fails leaves behind it: what is written from now on lies over what was."""
    state = filesystem._table.peek(ino)
    assert state is not None
    state.close_generation()


def test_blocks_are_free_at_once_and_collected(filesystem: Filesystem, ino: int, old: bytes, killer: Killer) -> None:
    """A guest's fstrim: nothing of the blocks is read, nothing is written but metadata."""
    stored = filesystem.blocks.statistics()
    killer.disarm()
    filesystem.files.zero(ino, BLOCK, 3 * BLOCK, keeps_size=True)
    assert filesystem.namespace.getattr(ino).allocated_bytes == 3 * BLOCK
    assert filesystem.staged_bytes == 0
    filesystem.commit()
    assert killer.steps == ["tree.write"]
    done = collect(filesystem.blocks, filesystem.tree.view_for_marking().live_ids)
    assert (done.blocks_removed, done.bytes_freed) == (3, 3 * BLOCK)
    assert filesystem.blocks.statistics().stored_bytes < stored.stored_bytes
    assert content(filesystem, b"f") == holed(old, BLOCK, 3 * BLOCK)


def test_of_blocks_that_are_hit_in_part_only_pages_of_the_range_are_written(
    filesystem: Filesystem, ino: int, old: bytes
) -> None:
    offset, length = BLOCK - PAGE - 10, 2 * BLOCK + 3 * PAGE
    filesystem.files.zero(ino, offset, length, keeps_size=True)
    assert filesystem.staged_bytes == 4 * PAGE  # of them two that are read, for their other bytes
    assert content(filesystem, b"f") == holed(old, offset, length)
    filesystem.files.flush()
    assert content(filesystem, b"f") == holed(old, offset, length)


@pytest.mark.parametrize("holds", range(1, 8))
def test_a_wide_hole_is_made_part_by_part_and_each_page_is_old_or_nul_in_between(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, holds: int
) -> None:
    """The last part takes what is staged in the range only: did it go with an earlier one, older content came back."""
    monkeypatch.setattr(holes, "_LEAVES_PER_HOLD", 2)
    leaf = LEAF_IDS * BLOCK
    ino = create(filesystem, b"f")
    places = [number * leaf + BLOCK for number in range(8)]
    for place in places:
        filesystem.files.write(ino, place, b"1" * BLOCK, may_block=True)
    filesystem.files.flush()
    for place in places[1:]:
        filesystem.files.write(ino, place, b"2" * PAGE, may_block=True)
    filesystem.files.fsync(ino)
    void, done = Holes._void, 0

    def some(*arguments: Any) -> None:
        nonlocal done
        done += 1
        if done == holds:
            raise NoSpaceError("an end, which a kill would be as well")
        void(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Holes, "_void", some)
        with suppress(NoSpaceError):
            filesystem.files.zero(ino, BLOCK + PAGE, 1 << 62, keeps_size=True)
    filesystem.commit()
    for opened in lives(filesystem):
        assert opened.files.read(ino, places[0], PAGE, may_block=True) == b"1" * PAGE
        for place in places[1:]:
            assert opened.files.read(ino, place, PAGE, may_block=True) in {b"2" * PAGE, bytes(PAGE)}
            assert opened.files.read(ino, place + PAGE, PAGE, may_block=True) in {b"1" * PAGE, bytes(PAGE)}
    assert done >= 4 or done == holds
    opened.files.zero(ino, BLOCK + PAGE, 1 << 62, keeps_size=True)
    assert opened.files.next_data(ino, 2 * BLOCK) is None
    assert opened.staged_bytes == 3 * PAGE  # the rest of the first block
    opened.close()


def test_to_the_end_of_the_file_means_to_the_end_of_its_last_block(filesystem: Filesystem, old: bytes) -> None:
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, old[: SIZE - 100], may_block=True)
    filesystem.files.flush()
    filesystem.files.zero(ino, 0, SIZE - 100, keeps_size=True)
    assert (filesystem.namespace.getattr(ino).allocated_bytes, filesystem.staged_bytes) == (0, 0)
    filesystem.files.truncate(ino, SIZE)
    assert content(filesystem, b"f") == bytes(SIZE)


def test_a_hole_in_a_hole_is_no_change(filesystem: Filesystem, ino: int) -> None:
    """A guest trims what is free again and again: nobody must take the image for changed."""
    filesystem.files.zero(ino, 0, SIZE, keeps_size=True)
    filesystem.commit()
    before = filesystem.tree.inode(ino)
    filesystem.files.zero(ino, 0, SIZE, keeps_size=True)
    filesystem.files.zero(ino, SIZE, SIZE, keeps_size=True)
    assert filesystem.tree.inode(ino) == before


def test_a_range_with_growth_ends_at_its_end(filesystem: Filesystem, ino: int, old: bytes) -> None:
    filesystem.files.zero(ino, SIZE - PAGE, 3 * PAGE, keeps_size=False)
    assert content(filesystem, b"f") == old[: SIZE - PAGE] + bytes(3 * PAGE)
    filesystem.files.zero(ino, 0, PAGE, keeps_size=False)
    assert filesystem.namespace.getattr(ino).size_bytes == SIZE + 2 * PAGE


@pytest.mark.parametrize("is_published", [False, True], ids=["unpublished", "published"])
def test_content_that_changes_has_a_new_version_in_the_same_commit(
    filesystem: Filesystem, ino: int, is_published: bool
) -> None:
    """Else the syncer is told other leaves for a version that it knows."""
    stage(filesystem, ino, 0, b"n")
    if is_published:
        filesystem.files.fsync(ino)
    filesystem.commit()
    before = filesystem.namespace.getattr(ino)
    row = filesystem.tree.inode(ino)
    filesystem.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    filesystem.commit()
    with filesystem.tree.committed() as view:
        after = view.inode(ino)
        assert view.allocated_blocks(ino) == BLOCKS - 1
    assert row is not None
    assert after is not None
    assert after.content_version > row.content_version
    assert filesystem.namespace.getattr(ino).mtime_ns >= before.mtime_ns
    assert after.size_bytes == SIZE


def test_who_shares_the_blocks_keeps_them(filesystem: Filesystem, ino: int, old: bytes) -> None:
    filesystem.clone(ino, ROOT_INO, b"clone")
    filesystem.snapshots.create(ROOT_INO, b"s")
    filesystem.files.zero(ino, 0, SIZE, keeps_size=True)
    filesystem.commit()
    assert collect(filesystem.blocks, filesystem.tree.view_for_marking().live_ids).blocks_removed == 0
    assert content(filesystem, b"clone") == old
    frozen = filesystem.namespace.resolve(b".snapshots/s/f").ino
    assert filesystem.files.read(frozen, 0, SIZE, may_block=True) == old
    with pytest.raises(FsError) as caught:
        filesystem.files.zero(frozen, 0, PAGE, keeps_size=True)
    assert caught.value.errno == errno.EROFS


@pytest.mark.parametrize(
    ("offset", "length", "code"), [(-1, 5, errno.EINVAL), (0, 0, errno.EINVAL), (1, 2**63 - 1, errno.EFBIG)]
)
def test_what_is_no_range_is_refused(filesystem: Filesystem, ino: int, offset: int, length: int, code: int) -> None:
    for change in (filesystem.files.zero, filesystem.files.allocate):
        with pytest.raises(FsError) as caught:
            change(ino, offset, length, keeps_size=True)
        assert caught.value.errno == code


# --- over staged pages ---


@pytest.mark.parametrize("synced", [False, True])
def test_staged_pages_of_the_range_read_as_nul_and_are_sealed_so(
    filesystem: Filesystem, ino: int, old: bytes, synced: bool
) -> None:
    stage(filesystem, ino, 1, b"n", 9)
    if synced:
        filesystem.files.fsync(ino)
    expected = holed(old[:PAGE] + b"n" * 9 * PAGE + old[10 * PAGE :], BLOCK, BLOCK)
    filesystem.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    assert content(filesystem, b"f") == expected
    filesystem.files.flush()
    assert content(filesystem, b"f") == expected
    assert filesystem.namespace.getattr(ino).allocated_bytes == (BLOCKS - 1) * BLOCK


def test_what_is_staged_in_the_range_only_goes_without_a_write(
    filesystem: Filesystem, ino: int, old: bytes, killer: Killer
) -> None:
    stage(filesystem, ino, 5, b"n", 2)
    filesystem.files.fsync(ino)
    close_generation(filesystem, ino)
    stage(filesystem, ino, 6, b"m", 2)
    filesystem.files.fsync(ino)
    killer.disarm()
    filesystem.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    filesystem.commit()
    assert killer.steps == ["tree.write", "staging.unlink", "staging.unlink"]
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == holed(old, BLOCK, BLOCK)


def test_an_older_generation_never_shows_through(
    filesystem: Filesystem, ino: int, old: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest one has nothing but the range. Did it go alone, a crash would bring back what lay below it."""
    stage(filesystem, ino, 5, b"1")
    stage(filesystem, ino, 20, b"1")
    filesystem.files.fsync(ino)
    close_generation(filesystem, ino)
    stage(filesystem, ino, 5, b"2")
    filesystem.files.fsync(ino)

    def die(*_arguments: object, **_keywords: object) -> int:
        raise Died

    with monkeypatch.context() as patch:
        patch.setattr(ContentWriter, "write", die)
        with pytest.raises(Died):
            filesystem.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    filesystem.commit()
    for opened in lives(filesystem):
        found = opened.files.read(ino, 5 * PAGE, PAGE, may_block=True)
        assert found in {b"2" * PAGE, bytes(PAGE)}
    opened.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    assert opened.files.read(ino, BLOCK, BLOCK, may_block=True) == bytes(BLOCK)
    opened.close()


def lives(filesystem: Filesystem) -> Iterator[Filesystem]:
    """This one, and what a kill leaves of it."""
    yield filesystem
    yield reopened(filesystem)


def reopened(filesystem: Filesystem) -> Filesystem:
    filesystem.abandon()
    return Filesystem.open(filesystem.volume.path, config())


@pytest.mark.parametrize("step", ["blocks.put", "blocks.sync"])
@pytest.mark.parametrize("whole", [False, True], ids=["a page of it staged", "all of it staged"])
@pytest.mark.parametrize("writes", [False, True], ids=["then nothing", "then a write"])
@pytest.mark.parametrize("drops", [False, True], ids=["staged elsewhere, too", "staged there only"])
def test_a_hole_that_is_made_during_a_seal_stays_a_hole(
    tmp_path: Path, old: bytes, step: str, whole: bool, writes: bool, drops: bool
) -> None:
    """A block that was composed before it would bring back what was sealed below, and what was staged."""
    actions: list[Callable[[], None]] = []

    def checkpoint(name: str) -> None:
        if name == step and actions:
            actions.pop()()

    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(checkpoint))
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, old, may_block=True)
    filesystem.files.flush()
    expected = bytearray(holed(old, BLOCK, 2 * BLOCK))
    stage(filesystem, ino, 5, b"n", 3 if whole else 1)
    if not drops:
        stage(filesystem, ino, 0, b"n")
        expected[:PAGE] = b"n" * PAGE

    def act() -> None:
        filesystem.files.zero(ino, BLOCK, 2 * BLOCK, keeps_size=True)
        if writes:
            stage(filesystem, ino, 6, b"w")
            expected[6 * PAGE : 7 * PAGE] = b"w" * PAGE

    actions.append(act)
    filesystem.files.flush()
    assert not actions
    for _ in range(2):
        assert content(filesystem, b"f") == bytes(expected)
        filesystem.files.flush()
    assert findings(filesystem) == []
    assert filesystem.namespace.getattr(ino).allocated_bytes == (BLOCKS - 2 + writes) * BLOCK
    filesystem.close()


def test_a_seal_under_way_does_not_miss_what_went_with_a_hole(tmp_path: Path) -> None:
    """Its staging file is removed by the next commit, and the seal has looked at half of it."""
    actions: list[Callable[[], None]] = []

    def checkpoint(name: str) -> None:
        if name in ("blocks.put", "blocks.adopt") and actions:
            actions.pop()()

    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(checkpoint))
    ino = create(filesystem, b"f")
    stage(filesystem, ino, 0, b"1")
    stage(filesystem, ino, 20, b"2")

    def act() -> None:
        filesystem.files.zero(ino, 0, SIZE, keeps_size=True)
        filesystem.commit()

    actions.append(act)
    filesystem.files.flush()
    assert content(filesystem, b"f") == bytes(21 * PAGE)
    assert os.listdir(filesystem.volume.staging_path) == []
    filesystem.close()


def test_pages_that_the_host_failed_to_write_can_be_read_again_in_a_hole(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(filesystem, ino, 5, b"n")

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushFailedError):
            filesystem._flusher.publish_older(0.0)
    assert filesystem.files.next_data(ino, 5 * PAGE) == 5 * PAGE
    filesystem.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    assert filesystem.files.read(ino, BLOCK, BLOCK, may_block=True) == bytes(BLOCK)
    again = reopened(filesystem)
    with pytest.raises(FlushFailedError):  # the zeros were not flushed
        again.files.read(ino, 5 * PAGE, PAGE, may_block=True)
    again.files.zero(ino, BLOCK, BLOCK, keeps_size=True)
    with pytest.raises(FlushFailedError):  # told once
        again.files.fsync(ino)
    again.files.fsync(ino)
    again = reopened(again)
    assert again.files.read(ino, BLOCK, BLOCK, may_block=True) == bytes(BLOCK)
    again.close()


# --- asking for room ---


def test_what_the_host_lacks_is_told_before_anything_is_written(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def check(length: int) -> None:
        asked.append(length)
        if length > SIZE:
            raise NoSpaceError("full")

    monkeypatch.setattr(filesystem.files._holes._writer._room, "check", check)
    filesystem.files.allocate(ino, 0, SIZE, keeps_size=False)
    assert asked == []  # it has so much already
    with pytest.raises(NoSpaceError):
        filesystem.files.allocate(ino, SIZE, 2 * SIZE + 1, keeps_size=False)
    assert asked == [SIZE + 1, SIZE + 1]  # once more after a commit: what was removed gives its room back
    filesystem.files.allocate(ino, SIZE, 2 * SIZE, keeps_size=True)
    assert filesystem.namespace.getattr(ino).size_bytes == SIZE
    filesystem.files.allocate(ino, SIZE, 2 * SIZE, keeps_size=False)
    assert filesystem.namespace.getattr(ino).size_bytes == 3 * SIZE
    assert find(filesystem, b"f") == ino


def test_much_at_once_is_looked_for_on_the_host(filesystem: Filesystem, ino: int) -> None:
    """Small things are looked for once a MiB."""
    filesystem.files.allocate(ino, 0, 1, keeps_size=True)
    with pytest.raises(NoSpaceError):
        filesystem.files.allocate(ino, 0, 1 << 61, keeps_size=True)
