"""Copies of ranges: what is shared and what is copied, and what it costs. That all bytes are right: the machines."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.blocks.hashing import LEAF_IDS
from blockfs.blocks.ids import ID_SIZE, ZERO_BLOCK
from blockfs.blocks.maintenance.gc import collect
from blockfs.engine.copies.ranges import first_part
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import FsError, NoSpaceError
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import Killer, config, content, create, findings, make

pytestmark = pytest.mark.usefixtures("both_ways")

BLOCK = 8192
SIZE = 3 * BLOCK + 1000
LONG = 600 * BLOCK  # worth a seal


@pytest.fixture
def killer() -> Killer:
    return Killer()


@pytest.fixture
def filesystem(tmp_path: Path, killer: Killer) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(killer))
    yield opened
    if not opened._is_open:
        return
    opened.files.flush()
    assert findings(opened) == []
    opened.close()


@pytest.fixture
def old() -> bytes:
    return os.urandom(SIZE)


@pytest.fixture
def source(filesystem: Filesystem, old: bytes) -> int:
    """A sealed file, the last block of which is not whole."""
    made = create(filesystem, b"source")
    filesystem.files.write(made, 0, old, may_block=True)
    filesystem.files.flush()
    return made


@pytest.fixture
def target(filesystem: Filesystem, source: int) -> int:
    return create(filesystem, b"target")


def copy_all(filesystem: Filesystem, source: int, target: int) -> list[int]:
    """As cp does; what each call did."""
    found: list[int] = []
    while done := filesystem.copy_range(source, sum(found), target, sum(found), 1 << 62):
        found.append(done)
    return found


RANGE = st.integers(0, 20 * 4096)


@given(offset=RANGE, to=RANGE, length=RANGE, sizes=st.tuples(RANGE, RANGE))
def test_parts_go_on_and_share_whole_blocks_only(offset: int, to: int, length: int, sizes: tuple[int, int]) -> None:
    done, asked = 0, max(0, min(length, sizes[0] - offset))
    size_out = sizes[1]
    while True:
        found = first_part(offset + done, to + done, length - done, (sizes[0], size_out), 4096)
        if not found.length:
            break
        if found.is_shared:
            assert (offset + done) % 4096 == (to + done) % 4096 == 0
            at_end = offset + done + found.length == sizes[0] and to + done + found.length >= size_out
            assert found.length % 4096 == 0 or at_end
        done += found.length
        size_out = max(size_out, to + done)
    assert done == asked


# --- sharing ---


def test_a_whole_file_is_shared_at_once_and_nothing_of_it_is_read(
    filesystem: Filesystem, source: int, target: int, old: bytes, killer: Killer
) -> None:
    blocks = filesystem.blocks.statistics()
    killer.disarm()
    assert copy_all(filesystem, source, target) == [SIZE]
    filesystem.commit()
    assert killer.steps == ["tree.write"]
    assert filesystem.blocks.statistics() == blocks
    assert content(filesystem, b"target") == old
    filesystem.files.truncate(target, SIZE + 5 * BLOCK)
    assert content(filesystem, b"target") == old + bytes(5 * BLOCK)


def test_an_image_of_ten_gib_is_a_few_calls_and_metadata_only(tmp_path: Path, killer: Killer) -> None:
    """What `cp` of an image asks for. Breaks when something is done for each block."""
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=65536), config(killer))
    source, target = create(filesystem, b"image"), create(filesystem, b"copy")
    with filesystem.blocks.hold() as hold:
        ids = [bytes(filesystem.blocks.put(b"%d" % number, hold)) for number in range(LEAF_IDS + 1)]
        filesystem.blocks.sync()
        leaves = 10 * 2**30 // 65536 // LEAF_IDS
        filesystem.files.truncate(source, leaves * LEAF_IDS * 65536)
        for leaf in range(leaves):  # each one is like no other
            turned = ids[leaf % 251 :] + ids[: leaf % 251]
            filesystem.tree.set_leaf(source, leaf, ids[leaf // 251] + b"".join(turned[: LEAF_IDS - 1]))
        filesystem.commit()
    killer.disarm()
    assert copy_all(filesystem, source, target) == [2**31] * 5
    assert killer.steps == []
    at = 7 * LEAF_IDS
    assert filesystem.tree.block_ids(target, at, LEAF_IDS) == filesystem.tree.block_ids(source, at, LEAF_IDS)
    assert filesystem.tree.allocated_blocks(target) == filesystem.tree.allocated_blocks(source)
    filesystem.close()


@pytest.mark.parametrize("shift", [0, 1, 5])
def test_leaves_are_made_anew_where_their_borders_do_not_fit(
    filesystem: Filesystem, source: int, target: int, shift: int
) -> None:
    data = os.urandom(64) * BLOCK  # several leaves
    blocks = [data[at : at + 60] for at in range(0, 64 * 600, 64)]
    filesystem.files.write(source, 0, b"".join(block.ljust(BLOCK, b"\0") for block in blocks), may_block=True)
    filesystem.files.flush()
    before = filesystem.tree.block_ids(source, 0, 600)
    assert filesystem.copy_range(source, 0, target, shift * BLOCK, 600 * BLOCK) == 600 * BLOCK
    assert filesystem.tree.block_ids(target, shift, 600) == before
    assert filesystem.tree.block_ids(target, 0, shift) == ZERO_BLOCK * shift
    assert filesystem.copy_range(target, 2 * BLOCK, source, 300 * BLOCK, 290 * BLOCK) == 290 * BLOCK
    moved = filesystem.tree.block_ids(target, 2, 290)
    found = filesystem.tree.block_ids(source, 0, 600)
    assert found == before[: 300 * ID_SIZE] + moved + before[590 * ID_SIZE :]


def test_holes_are_copied_as_holes_over_what_was_there(filesystem: Filesystem, source: int, target: int) -> None:
    filesystem.files.truncate(source, 1 << 45)
    filesystem.files.write(target, 0, b"x" * 10 * BLOCK, may_block=True)
    filesystem.files.flush()
    done = filesystem.copy_range(source, 4 * BLOCK, target, BLOCK, 1 << 44)
    assert done >= 10 * BLOCK
    assert content_of(filesystem, target, 10 * BLOCK) == b"x" * BLOCK + bytes(9 * BLOCK)
    assert filesystem.tree.allocated_blocks(target) == 1


def content_of(filesystem: Filesystem, ino: int, length: int) -> bytes:
    return filesystem.files.read(ino, 0, length, may_block=True)


def test_the_end_of_the_source_does_not_cut_a_longer_file(
    filesystem: Filesystem, source: int, target: int, old: bytes
) -> None:
    filesystem.files.write(target, 0, b"x" * 5 * BLOCK, may_block=True)
    filesystem.files.flush()
    assert copy_all(filesystem, source, target) == [3 * BLOCK, 1000]
    assert content(filesystem, b"target") == old + b"x" * (5 * BLOCK - SIZE)


def test_shared_blocks_outlive_the_source(filesystem: Filesystem, source: int, target: int, old: bytes) -> None:
    copy_all(filesystem, source, target)
    filesystem.namespace.unlink(ROOT_INO, b"source")
    filesystem.commit()
    assert collect(filesystem.blocks, filesystem.tree.view_for_marking().live_ids).blocks_removed == 0
    assert content(filesystem, b"target") == old


def test_a_copy_is_a_change_of_the_destination_alone(filesystem: Filesystem, source: int, target: int) -> None:
    before = [filesystem.tree.inode(ino) for ino in (source, target)]
    copy_all(filesystem, source, target)
    filesystem.commit()
    with filesystem.tree.committed() as view:
        assert view.inode(source) == before[0]
        after = view.inode(target)
    assert after is not None
    assert before[1] is not None
    assert after.content_version > before[1].content_version
    assert after.size_bytes == SIZE
    assert after.mtime_ns >= before[1].mtime_ns


def test_a_snapshot_can_be_copied_from_and_not_into(filesystem: Filesystem, source: int, old: bytes) -> None:
    filesystem.snapshots.create(ROOT_INO, b"s")
    frozen = filesystem.namespace.resolve(b".snapshots/s/source").ino
    target = create(filesystem, b"target")
    copy_all(filesystem, frozen, target)
    assert content(filesystem, b"target") == old
    refused(errno.EROFS, lambda: filesystem.copy_range(target, 0, frozen, 0, 1))


# --- staged data ---


@pytest.mark.parametrize("staged", ["source", "target", "both"])
def test_what_is_staged_is_sealed_before_much_is_shared(filesystem: Filesystem, staged: str, killer: Killer) -> None:
    source, target = create(filesystem, b"source"), create(filesystem, b"target")
    data = os.urandom(LONG)
    filesystem.files.write(source, 0, data, may_block=True)
    filesystem.files.write(target, 0, b"x" * BLOCK)
    if staged != "both":
        filesystem.files.flush(source if staged == "target" else target)
    killer.disarm()
    assert copy_all(filesystem, source, target) == [LONG]
    assert "blocks.sync" in killer.steps
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"target") == data


def test_a_little_is_copied_by_bytes_rather_than_sealed(
    filesystem: Filesystem, source: int, target: int, old: bytes, killer: Killer
) -> None:
    filesystem.files.write(source, 0, b"n" * 100, may_block=True)
    killer.disarm()
    assert copy_all(filesystem, source, target) == [SIZE]
    assert killer.steps == ["staging.create"]
    assert content(filesystem, b"target") == b"n" * 100 + old[100:]


def test_staged_data_elsewhere_in_the_source_stay_staged(
    filesystem: Filesystem, source: int, target: int, old: bytes
) -> None:
    filesystem.files.write(source, 2 * BLOCK, b"n" * 100, may_block=True)
    assert filesystem.copy_range(source, 0, target, 0, 2 * BLOCK) == 2 * BLOCK
    assert filesystem.staged_bytes == 4096
    assert content(filesystem, b"target") == old[: 2 * BLOCK]


def test_writers_that_are_faster_than_seals_get_a_copy_by_bytes(filesystem: Filesystem) -> None:
    source, target = create(filesystem, b"source"), create(filesystem, b"target")
    data = os.urandom(LONG)
    filesystem.files.write(source, 0, data, may_block=True)
    seal, sealer = filesystem._sealer.seal, filesystem._sealer
    sealed = 0

    def busy(inos: set[int]) -> None:
        nonlocal sealed
        sealed += 1
        seal(inos)
        filesystem.files.write(source, 0, data[:4096], may_block=True)

    sealer.seal = busy  # type: ignore[method-assign,assignment]
    assert filesystem.copy_range(source, 0, target, 0, LONG) == 1 << 20
    assert sealed == 3
    assert content(filesystem, b"target") == data[: 1 << 20]


def test_what_is_lost_is_not_copied(
    filesystem: Filesystem, source: int, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(source, BLOCK, b"n" * BLOCK)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.EIO, "the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", fail)
        with pytest.raises(FlushFailedError):
            filesystem._flusher.publish_older(0.0)
    with pytest.raises(FlushFailedError):
        filesystem.copy_range(source, BLOCK, target, 0, BLOCK)
    assert filesystem.copy_range(source, 0, target, 0, BLOCK) == BLOCK
    filesystem.copy_range(source, 0, source, BLOCK, BLOCK)  # over the failed range: then it is well
    assert content_of(filesystem, source, 2 * BLOCK)[BLOCK:] == content_of(filesystem, source, BLOCK)
    filesystem.abandon()


@pytest.mark.parametrize("step", ["blocks.put", "blocks.sync"])
@pytest.mark.parametrize("clones", [False, True], ids=["sealed", "cloned"])
def test_what_is_copied_into_a_file_that_is_cut_during_its_seal_stays(
    tmp_path: Path, old: bytes, step: str, clones: bool
) -> None:
    """It voids all that was staged, so all was shared. The seal still had the block to set where it was cut."""
    actions: list[Callable[[], None]] = []

    def checkpoint(name: str) -> None:
        if name == step and actions:
            actions.pop()()

    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(checkpoint))
    source, target = create(filesystem, b"source"), create(filesystem, b"target")
    filesystem.files.write(source, 0, old, may_block=True)
    filesystem.files.write(target, 0, b"t" * BLOCK, may_block=True)
    filesystem.files.flush()
    filesystem.files.write(target, BLOCK - 4096, b"n" * 4096, may_block=True)

    def act() -> None:
        filesystem.files.truncate(target, 100, may_block=True)
        filesystem.files.fsync(target)
        assert sum(copy_all(filesystem, source, target)) == SIZE

    actions.append(act)
    if clones:
        clone = filesystem.clone(target, ROOT_INO, b"clone")
        filesystem.files.truncate(clone, SIZE)
        assert content(filesystem, b"clone") == b"t" * 100 + bytes(SIZE - 100)
    filesystem.files.flush()
    assert not actions
    assert content(filesystem, b"target") == old
    assert findings(filesystem) == []
    filesystem.close()


# --- refused ---


def refused(code: int, call: Callable[[], object]) -> None:
    with pytest.raises(FsError) as caught:
        call()
    assert caught.value.errno == code


def test_what_can_not_be_copied_is_refused(filesystem: Filesystem, source: int, target: int) -> None:
    copy = filesystem.copy_range
    for arguments in ((-1, 0, 5), (0, -1, 5), (0, 0, -1)):
        refused(errno.EINVAL, lambda given=arguments: copy(source, given[0], target, given[1], given[2]))  # type: ignore[misc]
    refused(errno.EINVAL, lambda: copy(source, 0, source, BLOCK, 2 * BLOCK))
    refused(errno.EINVAL, lambda: copy(source, BLOCK, source, 0, SIZE))
    refused(errno.EFBIG, lambda: copy(source, 0, target, 2**63 - 1, 5))
    refused(errno.EISDIR, lambda: copy(ROOT_INO, 0, target, 0, 5))
    refused(errno.ENOENT, lambda: copy(999, 0, target, 0, 5))
    assert copy(source, SIZE, target, 0, 5) == copy(source, 0, target, 0, 0) == 0
    assert copy(source, 3 * BLOCK, source, 4 * BLOCK, 2 * BLOCK) == 1000  # the rest of the range does not count
    assert filesystem.namespace.getattr(target).size_bytes == 0


def test_a_copy_without_room_changes_nothing(
    filesystem: Filesystem, source: int, target: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_length: int) -> None:
        raise NoSpaceError("full")

    with monkeypatch.context() as patch:
        patch.setattr(filesystem.namespace._room, "check", full)
        with pytest.raises(NoSpaceError):
            filesystem.copy_range(source, 0, target, 0, SIZE)
    assert content(filesystem, b"target") == b""
