from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from blockfs.blocks.epochs import EpochHold
from blockfs.blocks.ids import ZERO_BLOCK
from blockfs.engine.config import EngineConfig
from blockfs.engine.content.filestate import FileState
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import CorruptBlockError, FsError, MissingBlockError, NoSpaceError, QuotaError
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.volumes import config, content, create, find, findings, make

BLOCK = 8192


class Interruption:
    """Does something, once, before a step; by default when a seal has composed its blocks and the tree has none yet."""

    def __init__(self) -> None:
        self.action: Callable[[], None] | None = None
        self.step = "blocks.sync"

    def __call__(self, step: str) -> None:
        if step == self.step and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.fixture
def interruption() -> Interruption:
    return Interruption()


@pytest.fixture
def filesystem(tmp_path: Path, interruption: Interruption) -> Iterator[Filesystem]:
    opened = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), config(interruption))
    yield opened
    opened.files.flush()
    assert opened.staged_bytes == 0
    assert findings(opened) == []
    opened.close()


@pytest.fixture
def ino(filesystem: Filesystem) -> int:
    return create(filesystem, b"f")


@pytest.mark.usefixtures("both_ways")
def test_equal_blocks_are_stored_once_and_nul_blocks_not_at_all(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK * 3 + bytes(BLOCK * 2))
    filesystem.files.flush()
    assert filesystem.blocks.statistics().blocks == 1
    ids = filesystem.tree.block_ids(ino, 0, 5)
    assert ids[:32] == ids[32:64] == ids[64:96]
    assert ids[96:] == ZERO_BLOCK * 2


@pytest.mark.usefixtures("both_ways")
def test_sealing_twice_changes_nothing(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x")
    filesystem.files.flush()
    before = filesystem.tree.inode(ino)
    filesystem.files.flush()
    assert filesystem.tree.inode(ino) == before


@pytest.mark.usefixtures("both_ways")
def test_a_size_whose_data_were_cut_away_is_durable_after_a_flush(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, BLOCK, b"x")
    filesystem.files.truncate(ino, BLOCK)
    filesystem.files.flush()
    with filesystem.tree.committed() as view:
        row = view.inode(ino)
    assert row is not None
    assert row.size_bytes == BLOCK


@pytest.mark.usefixtures("both_ways")
def test_sealing_published_content_keeps_its_version(filesystem: Filesystem, ino: int) -> None:
    """The content is the same: the syncer must not see a change."""
    filesystem.files.write(ino, 0, b"x")
    filesystem.files.fsync(ino)
    before = filesystem.tree.inode(ino)
    filesystem.files.flush()
    assert filesystem.tree.inode(ino) == before


@pytest.mark.usefixtures("both_ways")
def test_writes_during_a_seal_lie_over_it(filesystem: Filesystem, ino: int, interruption: Interruption) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    interruption.action = lambda: void(filesystem.files.write(ino, 100, b"during", may_block=True))
    filesystem.files.flush()
    assert filesystem.staged_bytes > 0
    assert content(filesystem, b"f") == b"x" * 100 + b"during" + b"x" * (BLOCK - 106)
    filesystem.files.flush()
    assert content(filesystem, b"f") == b"x" * 100 + b"during" + b"x" * (BLOCK - 106)


def void(_: object) -> None:
    """Drop a result."""


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("size", [0, 100, BLOCK - 1, BLOCK, BLOCK + 4096, BLOCK * 2 + 1])
@pytest.mark.parametrize("grows", [False, True])
def test_a_cut_during_a_seal_stays_a_cut(
    filesystem: Filesystem, ino: int, interruption: Interruption, size: int, grows: bool
) -> None:
    """A sealed block must not bring back bytes that were cut off while it was being composed."""
    filesystem.files.write(ino, 0, b"x" * BLOCK * 3)

    def cut() -> None:
        filesystem.files.truncate(ino, size, may_block=True)
        if grows:
            filesystem.files.truncate(ino, BLOCK * 4)

    interruption.action = cut
    filesystem.files.flush()
    expected = b"x" * size + (bytes(BLOCK * 4 - size) if grows else b"")
    assert content(filesystem, b"f") == expected
    filesystem.files.truncate(ino, BLOCK * 5)
    assert (
        content(filesystem, b"f") == expected.ljust(BLOCK * 5, b"\0")
        if grows
        else b"x" * size + bytes(BLOCK * 5 - size)
    )


@pytest.mark.usefixtures("both_ways")
def test_an_unlink_during_a_seal_wins(filesystem: Filesystem, ino: int, interruption: Interruption) -> None:
    filesystem.files.write(ino, 0, b"x")
    interruption.action = lambda: void(filesystem.namespace.unlink(ROOT_INO, b"f"))
    filesystem.files.flush()
    assert filesystem.tree.inode(ino) is None


@pytest.mark.usefixtures("both_ways")
def test_an_fsync_during_a_seal_is_durable_by_itself(
    filesystem: Filesystem, ino: int, interruption: Interruption
) -> None:
    filesystem.files.write(ino, 0, b"x" * 9000)
    interruption.action = lambda: filesystem.files.fsync(ino)
    filesystem.files.flush()
    assert content(filesystem, b"f") == b"x" * 9000


@pytest.mark.usefixtures("both_ways")
def test_a_seal_during_an_fsync_leaves_no_generation_named(
    filesystem: Filesystem, ino: int, interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is gone with the seal: a row for it would stop the next mount."""
    flushed, sealed = threading.Event(), threading.Event()
    staging = filesystem._stores.staging
    sync_names = staging.sync_names

    def wait_for_the_seal() -> None:
        flushed.set()
        assert sealed.wait(60)
        sync_names()

    monkeypatch.setattr(staging, "sync_names", wait_for_the_seal)
    fsync = threading.Thread(target=filesystem.files.fsync, args=(ino,))

    def begin_fsync() -> None:
        fsync.start()
        assert flushed.wait(60)

    filesystem.files.write(ino, 0, b"x" * 9000)
    interruption.action = begin_fsync
    filesystem.files.flush()
    sealed.set()
    fsync.join()
    assert list(filesystem.tree.all_generations()) == []
    assert content(filesystem, b"f") == b"x" * 9000


def test_many_small_files_share_a_sync(tmp_path: Path) -> None:
    steps: list[str] = []
    filesystem = Filesystem.open(make(tmp_path / "volume"), config(steps.append))
    for number in range(100):
        filesystem.files.write(create(filesystem, b"%d" % number), 0, b"%d" % number)
    filesystem.files.flush()
    assert steps.count("blocks.sync") == 1
    filesystem.close()


@pytest.mark.usefixtures("both_ways")
def test_one_file_that_can_not_be_sealed_keeps_no_other_from_it(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    filesystem.files.flush()
    filesystem.files.write(ino, 0, b"y" * 4096)
    other = create(filesystem, b"other")
    filesystem.files.write(other, 0, b"fine")

    def missing(block_id: bytes, *_: object, **__: object) -> bytes:
        raise MissingBlockError(block_id)

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.blocks, "read", missing)
        with pytest.raises(MissingBlockError):
            filesystem.files.flush()
        assert filesystem.staged_bytes == 4096
    assert content(filesystem, b"other") == b"fine"
    assert content(filesystem, b"f") == b"y" * 4096 + b"x" * 4096


def test_a_full_host_leaves_everything_staged(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK)

    def full(*_: object) -> bytes:
        raise NoSpaceError("full")

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.blocks, "put", full)
        with pytest.raises(NoSpaceError):
            filesystem.files.flush()
    assert filesystem.staged_bytes == BLOCK
    assert content(filesystem, b"f") == b"x" * BLOCK


def test_a_full_host_has_the_room_of_what_was_just_removed(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = create(filesystem, b"removed")
    filesystem.files.write(removed, 0, b"r" * BLOCK)
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    filesystem.namespace.unlink(ROOT_INO, b"removed")
    real = filesystem.blocks.put
    staging = Path(os.fsdecode(filesystem.volume.staging_path))

    def put(data: bytes, hold: EpochHold) -> bytes:
        if len(list(staging.iterdir())) > 1:
            raise NoSpaceError("full")
        return real(data, hold)

    monkeypatch.setattr(filesystem.blocks, "put", put)
    filesystem.files.flush()
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == b"x" * BLOCK


def test_a_clone_that_is_made_is_no_failure(filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing left to seal, a host that fails has nothing to say."""
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    filesystem.files.flush()

    def full() -> None:
        raise NoSpaceError("full")

    monkeypatch.setattr(filesystem.blocks, "sync", full)
    filesystem.clone(ino, ROOT_INO, b"clone")
    assert content(filesystem, b"clone") == b"x" * BLOCK


def test_blocks_lost_before_their_sync_are_put_again(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    real = filesystem.blocks.sync
    losses = iter([True])

    def sync() -> None:
        if next(losses, False):
            raise CorruptBlockError(bytes(32), "the host lost it")
        real()

    monkeypatch.setattr(filesystem.blocks, "sync", sync)
    filesystem.files.flush()
    assert content(filesystem, b"f") == b"x" * BLOCK


# --- clones ---


@pytest.mark.usefixtures("both_ways")
def test_a_clone_shares_every_block_and_copies_meta(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK + b"y" * 10)
    filesystem.tree.set_xattr(ino, b"user.a", b"1")
    clone = filesystem.clone(ino, ROOT_INO, b"g")
    assert content(filesystem, b"g") == content(filesystem, b"f")
    assert filesystem.blocks.statistics().blocks == 2
    assert filesystem.namespace.getxattr(clone, b"user.a") == b"1"
    assert filesystem.namespace.getattr(clone).mtime_ns == filesystem.namespace.getattr(ino).mtime_ns


@pytest.mark.usefixtures("both_ways")
def test_a_clone_and_its_source_go_their_own_ways(filesystem: Filesystem, ino: int) -> None:
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    clone = filesystem.clone(ino, ROOT_INO, b"g")
    filesystem.files.write(clone, 0, b"g", may_block=True)
    filesystem.files.write(ino, 1, b"f", may_block=True)
    filesystem.files.flush()
    assert content(filesystem, b"f") == b"xf" + b"x" * (BLOCK - 2)
    assert content(filesystem, b"g") == b"g" + b"x" * (BLOCK - 1)


@pytest.mark.usefixtures("both_ways")
def test_a_clone_is_the_source_at_one_moment(filesystem: Filesystem, ino: int, interruption: Interruption) -> None:
    filesystem.files.write(ino, 0, b"x" * 100)

    def write_and_sync() -> None:
        filesystem.files.write(ino, 0, b"y" * 20000)
        filesystem.files.fsync(ino)

    interruption.action = write_and_sync
    filesystem.clone(ino, ROOT_INO, b"g")
    assert content(filesystem, b"g") == b"x" * 100
    assert content(filesystem, b"f") == b"y" * 20000


def test_a_clone_onto_a_name_or_of_a_directory_is_refused(filesystem: Filesystem, ino: int) -> None:
    with pytest.raises(FsError) as exists:
        filesystem.clone(ino, ROOT_INO, b"f")
    assert exists.value.errno == errno.EEXIST
    with pytest.raises(FsError) as directory:
        filesystem.clone(ROOT_INO, ROOT_INO, b"g")
    assert directory.value.errno == errno.EISDIR


@pytest.mark.usefixtures("both_ways")
def test_a_source_that_vanishes_is_enoent(filesystem: Filesystem, ino: int, interruption: Interruption) -> None:
    filesystem.files.write(ino, 0, b"x" * 100)
    interruption.action = lambda: void(filesystem.namespace.unlink(ROOT_INO, b"f"))
    with pytest.raises(FsError) as caught:
        filesystem.clone(ino, ROOT_INO, b"g")
    assert caught.value.errno == errno.ENOENT
    assert find(filesystem, b"g") is None


# --- the threads ---


@pytest.mark.usefixtures("both_ways")
def test_quiet_files_are_sealed_and_changes_committed_without_being_asked(tmp_path: Path) -> None:
    unlinked = threading.Event()

    def checkpoint(step: str) -> None:
        if step == "staging.unlink":
            unlinked.set()

    settings = EngineConfig(quiet_s=0.0, publish_s=0.01, commit_s=0.01, reserve_bytes=0, checkpoint=checkpoint)
    filesystem = Filesystem.open(make(tmp_path / "volume"), settings)
    filesystem.files.write(create(filesystem, b"f"), 0, b"x" * 5000)
    assert unlinked.wait(60)
    assert filesystem.staged_bytes == 0
    filesystem.abandon()
    again = Filesystem.open(filesystem.volume.path, config())
    assert content(again, b"f") == b"x" * 5000
    again.close()


def test_new_small_closed_files_are_sealed_early_and_others_when_quiet(tmp_path: Path) -> None:
    settings = EngineConfig(background=False, quiet_s=1e9, publish_s=0.0, reserve_bytes=0)
    filesystem = Filesystem.open(make(tmp_path / "volume"), settings)
    small, large, in_use = (create(filesystem, name) for name in (b"small", b"large", b"in use"))
    filesystem.files.write(small, 0, b"x")
    filesystem.files.write(large, 0, b"x" * (2 << 20))
    handle = filesystem.files.open(in_use, os.O_RDWR)
    filesystem.files.write(in_use, 0, b"x")
    assert filesystem._seal_queue.seal_due()
    assert not filesystem._seal_queue.seal_due()
    assert [filesystem.files.staged_bytes(ino) for ino in (small, large, in_use)] == [0, 2 << 20, 4096]
    filesystem.files.write(small, 1, b"appended now and then", may_block=True)
    assert not filesystem._seal_queue.seal_due()
    filesystem.files.release(handle)
    filesystem.close()


def test_the_quietest_files_are_sealed_first_when_much_is_staged(tmp_path: Path) -> None:
    settings = EngineConfig(background=False, quiet_s=1e9, publish_s=1e9, reserve_bytes=0, staged_limit_bytes=200 << 20)
    filesystem = Filesystem.open(make(tmp_path / "volume"), settings)
    quiet, busy = create(filesystem, b"quiet"), create(filesystem, b"busy")
    filesystem.files.write(quiet, 0, b"x" * (70 << 20))
    filesystem.files.write(busy, 0, b"x" * (70 << 20))
    assert filesystem._seal_queue.seal_due()
    assert filesystem.files.staged_bytes(quiet) == 0
    assert not filesystem._seal_queue.seal_due()
    assert filesystem.files.staged_bytes(busy) == 70 << 20
    filesystem.close()


def test_writers_beyond_the_limit_wait_for_the_threads(tmp_path: Path) -> None:
    settings = EngineConfig(staged_limit_bytes=256 << 10, reserve_bytes=0)
    filesystem = Filesystem.open(make(tmp_path / "volume"), settings)
    ino = create(filesystem, b"f")
    for number in range(40):
        filesystem.files.write(ino, number << 16, bytes([number + 1]) * (1 << 16), may_block=True)
        assert filesystem.staged_bytes <= (256 << 10) * 9 // 8
    data = content(filesystem, b"f")
    assert data == b"".join(bytes([number + 1]) * (1 << 16) for number in range(40))
    filesystem.close()


def test_a_waiting_writer_hears_that_the_host_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineConfig(staged_limit_bytes=64 << 10, reserve_bytes=0)
    filesystem = Filesystem.open(make(tmp_path / "volume"), settings)
    ino = create(filesystem, b"f")

    def full(*_: object) -> bytes:
        raise NoSpaceError("full")

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.blocks, "put", full)
        filesystem.files.write(ino, 0, b"x" * (64 << 10))
        with pytest.raises(NoSpaceError):
            filesystem.files.write(ino, 0, b"y" * (64 << 10), may_block=True)
    filesystem.close()


@pytest.mark.parametrize("error", [NoSpaceError("full"), QuotaError("quota")], ids=["disk", "quota"])
def test_sealing_goes_on_by_itself_when_there_is_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: NoSpaceError
) -> None:
    settings = EngineConfig(staged_limit_bytes=64 << 10, reserve_bytes=0)
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), settings)
    ino = create(filesystem, b"f")
    real, is_sealed = filesystem.blocks.sync, threading.Event()

    def full(*_: object) -> bytes:
        raise error

    def sync() -> None:
        real()
        is_sealed.set()

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.blocks, "put", full)
        filesystem.files.write(ino, 0, b"x" * (64 << 10))
        with pytest.raises(type(error)):
            filesystem.files.write(ino, 0, b"y" * (64 << 10), may_block=True)
        assert content(filesystem, b"f") == b"x" * (64 << 10)
    monkeypatch.setattr(filesystem.blocks, "sync", sync)
    assert is_sealed.wait(60), "nobody has sealed what was staged"
    assert filesystem.files.write(ino, 0, b"y" * (64 << 10), may_block=True) == 64 << 10
    filesystem.close()


def test_a_waiting_writer_does_not_hear_of_another_files_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = EngineConfig(staged_limit_bytes=64 << 10, reserve_bytes=0)
    filesystem = Filesystem.open(make(tmp_path / "volume", block_size=BLOCK), settings)
    damaged, fine = create(filesystem, b"damaged"), create(filesystem, b"fine")
    filesystem.files.write(damaged, 0, b"x" * BLOCK)
    filesystem.files.flush()
    filesystem.files.write(damaged, 0, b"y" * 4096)

    def missing(block_id: bytes, *_: object, **__: object) -> bytes:
        raise MissingBlockError(block_id)

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.blocks, "read", missing)
        for number in range(3):
            filesystem.files.write(fine, number * BLOCK * 7, b"z" * BLOCK * 7, may_block=True)
    assert content(filesystem, b"fine") == b"z" * BLOCK * 21
    filesystem.close()


@pytest.mark.usefixtures("both_ways")
def test_a_clone_that_is_refused_at_the_last_moment_leaves_the_blocks_held_until_the_commit(
    filesystem: Filesystem, ino: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are in the change set already. A collection must not take them before that is durable."""
    filesystem.files.write(ino, 0, b"x" * BLOCK)
    holds: list[EpochHold] = []
    hold = filesystem.blocks.hold

    def noted() -> EpochHold:
        holds.append(hold())
        return holds[-1]

    monkeypatch.setattr(filesystem.blocks, "hold", noted)

    def refused(_state: FileState, _size_bytes: int) -> None:
        raise FsError(errno.EEXIST, "somebody took the name")

    with pytest.raises(FsError):
        filesystem._sealer.seal([ino], refused)
    assert [one.released for one in holds] == [False]
    filesystem.commit()
    assert [one.released for one in holds] == [True]
    assert content(filesystem, b"f") == b"x" * BLOCK


def _then(sealer: Sealer, monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Let something happen between the choice of what a flush seals and its work."""
    existing = sealer._existing

    def chosen(inos: Iterable[int]) -> list[FileState]:
        states = existing(inos)
        with monkeypatch.context() as patch:
            patch.setattr(sealer, "_existing", existing)
            happens()
        return states

    monkeypatch.setattr(sealer, "_existing", chosen)


@pytest.mark.usefixtures("both_ways")
def test_a_flush_does_without_a_file_that_was_sealed_and_removed_meanwhile(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed with ENOENT, and the cycle of the sync with it."""
    first, second = create(filesystem, b"first"), create(filesystem, b"second")
    filesystem.files.write(first, 0, b"x" * 100)
    filesystem.files.write(second, 0, b"y" * 100)

    def remove() -> None:
        filesystem._sealer.seal([first])
        filesystem.namespace.unlink(ROOT_INO, b"first")

    _then(filesystem._sealer, monkeypatch, remove)
    filesystem._sealer.seal_all()
    assert content(filesystem, b"second") == b"y" * 100
    assert not filesystem.files.staged_bytes(second)


@pytest.mark.usefixtures("both_ways")
def test_a_flush_does_not_bring_back_the_size_of_a_file_that_was_sealed_and_cut_meanwhile(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * 100)

    def cut() -> None:
        filesystem._sealer.seal([ino])
        filesystem.files.truncate(ino, 50, may_block=True)
        filesystem._sealer.seal([ino])

    _then(filesystem._sealer, monkeypatch, cut)
    filesystem._sealer.seal_all()
    assert content(filesystem, b"f") == b"x" * 50


@pytest.mark.usefixtures("both_ways")
def test_a_flush_leaves_alone_what_was_written_to_a_file_that_was_sealed_meanwhile(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor of a forgotten state was forgotten in its place, with all that was staged."""
    ino = create(filesystem, b"f")
    filesystem.files.write(ino, 0, b"x" * 100)

    def write() -> None:
        filesystem._sealer.seal([ino])
        filesystem.files.write(ino, 0, b"later", may_block=True)

    _then(filesystem._sealer, monkeypatch, write)
    filesystem._sealer.seal_all()
    assert content(filesystem, b"f") == b"later" + b"x" * 95
