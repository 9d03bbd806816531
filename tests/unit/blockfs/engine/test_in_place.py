"""Staging files that become segments: no second write, nothing lost, and who reads or writes meanwhile is not hit."""

from __future__ import annotations

import errno
import hashlib
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from blockfs.blocks.ids import BlockId
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.engine import volume as engine_volume
from blockfs.engine.durable.failing import FlushFailedError
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import BlockfsError, CorruptBlockError, NoSpaceError
from blockfs.service import maintenance
from tests.unit.blockfs.engine.volumes import Died, config, content, create, find, findings, make

BLOCK = 8192
LEAST = 16 * BLOCK
NEW = random.Random(1).randbytes(40 * BLOCK)


class Interruption:
    """Does something, once, before a step."""

    def __init__(self) -> None:
        self.action: Callable[[], object] | None = None
        self.step = "blocks.adopt"
        self.steps: list[str] = []

    def __call__(self, step: str) -> None:
        self.steps.append(step)
        if step == self.step and self.action is not None:
            action, self.action = self.action, None
            action()


@pytest.fixture
def interruption() -> Interruption:
    return Interruption()


def opened(path: bytes, checkpoint: Callable[[str], None]) -> Filesystem:
    return Filesystem.open(path, msgspec.structs.replace(config(checkpoint), adopt_bytes=LEAST))


@pytest.fixture
def filesystem(tmp_path: Path, interruption: Interruption) -> Iterator[Filesystem]:
    """Adopts from 16 blocks on; at the end all is as it should be, also in the next mount."""
    path = make(tmp_path / "volume", block_size=BLOCK)
    made = opened(path, interruption)
    yield made
    made.files.flush()
    found = {name: content(made, name) for name in (b"f", b"g")}
    assert (findings(made), scrub(made.blocks).is_clean) == ([], True)
    gc(made)
    assert {name: content(made, name) for name in found} == found
    made.close()
    assert os.listdir(os.path.join(path, b"staging")) == []
    again = opened(path, lambda _: None)
    assert {name: content(again, name) for name in found} == found
    assert scrub(again.blocks).is_clean
    again.close()


def gc(filesystem: Filesystem) -> None:
    maintenance.gc(filesystem.blocks, filesystem.tree, filesystem.ballast, commit=filesystem.commit)


def write(filesystem: Filesystem, data: bytes = NEW, name: bytes = b"f", offset: int = 0) -> int:
    ino = find(filesystem, name)
    ino = create(filesystem, name) if ino is None else ino
    assert filesystem.files.write(ino, offset, data, may_block=True) == len(data)
    return ino


def segments(filesystem: Filesystem) -> dict[str, int]:
    """Names of segments and the bytes that the host allocates."""
    folder = filesystem.blocks.layout.segments
    return {
        name: os.stat(os.path.join(folder, name)).st_blocks * 512
        for name in os.listdir(folder)
        if name.endswith(".seg")
    }


def staged(filesystem: Filesystem) -> list[os.stat_result]:
    folder = filesystem.volume.staging_path
    return [os.stat(os.path.join(folder, name)) for name in os.listdir(folder)]


def test_a_large_new_file_becomes_a_segment_and_is_not_copied(filesystem: Filesystem) -> None:
    write(filesystem)
    (before,) = staged(filesystem)
    filesystem.files.flush()
    (name,) = segments(filesystem)
    assert os.stat(os.path.join(filesystem.blocks.layout.segments, name)).st_ino == before.st_ino
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == NEW


def test_data_that_the_volume_has_make_no_segment(filesystem: Filesystem) -> None:
    write(filesystem)
    filesystem.files.flush()
    before = segments(filesystem)
    write(filesystem, name=b"g")
    filesystem.files.flush()
    assert segments(filesystem) == before
    assert content(filesystem, b"g") == NEW


def test_what_the_volume_has_is_given_back_with_the_commit(filesystem: Filesystem) -> None:
    write(filesystem)
    filesystem.files.flush()
    fresh = random.Random(2).randbytes(LEAST)
    write(filesystem, NEW + bytes(20 * BLOCK) + fresh, b"g")
    before = set(segments(filesystem))
    filesystem.files.flush()
    ((_, size),) = [item for item in segments(filesystem).items() if item[0] not in before]
    assert size <= LEAST + 4 * BLOCK
    assert content(filesystem, b"g") == NEW + bytes(20 * BLOCK) + fresh


def test_little_that_is_new_goes_to_a_common_segment(filesystem: Filesystem) -> None:
    write(filesystem, NEW[: LEAST - BLOCK])
    filesystem.files.flush()
    write(filesystem, NEW[: LEAST - BLOCK] + random.Random(2).randbytes(LEAST - BLOCK), b"g")  # enough, but half known
    filesystem.files.flush()
    assert len(segments(filesystem)) == 1
    assert filesystem.blocks.layout.read_format().number == 2


def test_a_compressed_volume_never_adopts(tmp_path: Path) -> None:
    steps: list[str] = []
    path = engine_volume.init(os.fsencode(tmp_path / "packed"), block_size=BLOCK, compression="zstd").path
    packed = opened(path, steps.append)
    write(packed)
    packed.files.flush()
    assert "blocks.adopt" not in steps
    assert content(packed, b"f") == NEW
    packed.close()


@pytest.mark.parametrize("size", [LEAST, LEAST + 1, LEAST + 4096, LEAST + BLOCK - 1])
def test_a_tail_is_part_of_the_segment(filesystem: Filesystem, size: int) -> None:
    write(filesystem, NEW[:size])
    filesystem.files.flush()
    assert content(filesystem, b"f") == NEW[:size]


def test_holes_and_pages_over_sealed_blocks_are_beside_it(filesystem: Filesystem) -> None:
    ino = write(filesystem)
    filesystem.files.flush()
    expected = bytearray(NEW) + bytes(100 * BLOCK)
    fresh = random.Random(3).randbytes(30 * BLOCK)
    for offset, data in ((100, b"over"), (60 * BLOCK, fresh), (5 * BLOCK + 4096, fresh[:4096])):
        filesystem.files.write(ino, offset, data, may_block=True)
        expected[offset : offset + len(data)] = data
    filesystem.files.flush()
    assert content(filesystem, b"f") == bytes(expected[: 90 * BLOCK])


@pytest.mark.parametrize("offset", [(1 << 32) - 10 * BLOCK, (1 << 40) - 40 * BLOCK, (1 << 40) - 20 * BLOCK, 5 << 40])
def test_a_piece_far_out_in_a_file_is_adopted(filesystem: Filesystem, interruption: Interruption, offset: int) -> None:
    ino = create(filesystem, b"far")
    filesystem.files.write(ino, offset, NEW, may_block=True)
    filesystem.files.flush()
    assert "blocks.adopt" in interruption.steps
    assert filesystem.files.read(ino, offset, len(NEW), may_block=True) == NEW
    filesystem.files.truncate(ino, offset + 3 * BLOCK, may_block=True)
    filesystem.files.flush()
    gc(filesystem)
    assert filesystem.files.read(ino, offset, len(NEW), may_block=True) == NEW[: 3 * BLOCK]


def test_blocks_with_holes_over_nothing_are_adopted(filesystem: Filesystem, interruption: Interruption) -> None:
    """A sparse image: pages that nobody wrote are NUL in the staging file, too."""
    ino = create(filesystem, b"f")
    for at in range(0, len(NEW), BLOCK):
        filesystem.files.write(ino, at, NEW[at : at + 4096], may_block=True)
    filesystem.files.truncate(ino, len(NEW))
    filesystem.files.flush()
    assert "blocks.put" not in interruption.steps
    expected = b"".join(NEW[at : at + 4096] + bytes(4096) for at in range(0, len(NEW), BLOCK))
    assert content(filesystem, b"f") == expected


def test_bytes_that_were_cut_and_lie_in_the_file_still_are_none_of_a_block(
    filesystem: Filesystem, interruption: Interruption
) -> None:
    ino = write(filesystem)
    cut = 30 * BLOCK + 5000
    filesystem.files.truncate(ino, cut, may_block=True)
    filesystem.files.truncate(ino, len(NEW))
    filesystem.files.flush()
    assert {"blocks.adopt", "blocks.put"} <= set(interruption.steps)
    assert content(filesystem, b"f") == NEW[:cut].ljust(len(NEW), b"\0")


def test_what_lies_behind_a_cut_in_the_same_page_is_none_of_a_segment(filesystem: Filesystem) -> None:
    """Whoever shares its pages with a longer file would show it."""
    ino = write(filesystem)
    filesystem.files.truncate(ino, 30 * BLOCK + 5000, may_block=True)
    filesystem.files.flush()
    tail = hashlib.sha256(NEW[30 * BLOCK : 30 * BLOCK + 5000]).digest()
    with filesystem.blocks.places([BlockId(tail)]) as (place,):
        assert place is not None
        assert (
            os.pread(place.file.fd, BLOCK, place.offset)
            in (
                NEW[30 * BLOCK : 30 * BLOCK + 5000],  # the end of the segment
                NEW[30 * BLOCK : 30 * BLOCK + 5000].ljust(BLOCK, b"\0"),
            )
        )


def test_a_generation_that_is_gone_before_its_seal_begins_is_no_hindrance(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(filesystem)
    real = filesystem._sealer._try_store

    def remove_first(job: Any) -> BlockfsError | None:
        filesystem.namespace.unlink(1, b"f")
        filesystem.commit()
        return real(job)

    monkeypatch.setattr(filesystem._sealer, "_try_store", remove_first)
    filesystem.files.flush()
    monkeypatch.undo()
    assert content(filesystem, b"f") is None


def test_a_newer_generation_lies_over_what_is_adopted(filesystem: Filesystem, interruption: Interruption) -> None:
    ino = write(filesystem)
    interruption.action = lambda: filesystem.files.write(ino, BLOCK, b"meanwhile" * BLOCK, may_block=True)
    filesystem.files.flush()
    assert filesystem.staged_bytes
    assert content(filesystem, b"f") == (NEW[:BLOCK] + b"meanwhile" * BLOCK + NEW[10 * BLOCK :])


@pytest.mark.parametrize("size", [0, 100, 5 * BLOCK, 5 * BLOCK + 4096, 39 * BLOCK + 1])
def test_a_cut_before_the_adoption_stays_one(filesystem: Filesystem, interruption: Interruption, size: int) -> None:
    ino = write(filesystem)

    def cut() -> None:
        filesystem.files.truncate(ino, size, may_block=True)
        filesystem.files.truncate(ino, len(NEW))

    interruption.action = cut
    filesystem.files.flush()
    assert content(filesystem, b"f") == NEW[:size].ljust(len(NEW), b"\0")


def test_a_file_that_is_removed_before_the_adoption_is_gone(filesystem: Filesystem, interruption: Interruption) -> None:
    write(filesystem)

    def remove() -> None:
        filesystem.namespace.unlink(1, b"f")
        filesystem.commit()

    interruption.action = remove
    filesystem.files.flush()
    assert content(filesystem, b"f") is None
    gc(filesystem)
    assert segments(filesystem) == {}


# --- who reads


def test_a_reader_of_the_staged_file_is_waited_for(filesystem: Filesystem) -> None:
    """It reads what is a hole of the segment soon."""
    write(filesystem)
    filesystem.files.flush()
    ino = write(filesystem, NEW + random.Random(2).randbytes(LEAST), b"g")
    with filesystem.lock:
        state = filesystem._table.peek(ino)
        assert state is not None
        found = filesystem._sealer._reader.resolve(ino, state.generations, 0, len(NEW))
    filesystem.files.flush()
    gc(filesystem)
    assert len(staged(filesystem)) == 1
    assert filesystem._sealer._reader.gather(found) == NEW
    filesystem.commit()
    assert staged(filesystem) == []


# --- the host fails


def test_a_full_host_is_no_hindrance(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Adoption takes room for what tells of the blocks only, and that is kept."""
    write(filesystem)
    with monkeypatch.context() as patched:

        def full(_path: str, _length: int) -> None:
            raise NoSpaceError("full")

        patched.setattr(filesystem.blocks.disk, "check_room", full)
        filesystem.files.flush()
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == NEW


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("call", ["create", "write", "fdatasync", "link", "sync_directory", "commit"])
def test_a_host_that_fails_leaves_all_staged_and_the_next_time_it_works(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    write(filesystem)
    with monkeypatch.context() as patched:

        def fail(*_: object) -> None:
            raise NoSpaceError("full") if code == errno.ENOSPC else OSError(code, os.strerror(code))

        patched.setattr(filesystem.blocks.disk, call, fail)
        with pytest.raises(BlockfsError):
            filesystem.files.flush()
    assert filesystem.staged_bytes == len(NEW)
    assert content(filesystem, b"f") == NEW
    filesystem.files.flush()
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == NEW


def test_a_host_without_second_names_has_it_copied(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    write(filesystem)
    monkeypatch.setattr(os, "link", refuse)
    filesystem.files.flush()
    assert filesystem.staged_bytes == 0
    assert content(filesystem, b"f") == NEW


def fails_once(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next fdatasync of a staging file."""
    real, failures = os.fdatasync, iter([True])

    def fdatasync(descriptor: int) -> None:
        is_staging = b"/staging/" in os.readlink(b"/proc/self/fd/%d" % descriptor)
        if is_staging and next(failures, False):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)


def test_what_the_host_failed_to_write_is_lost_and_named_and_never_a_block(
    filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    ino = write(filesystem)
    fails_once(filesystem, monkeypatch)
    with pytest.raises(FlushFailedError):
        filesystem.files.flush()
    assert scrub(filesystem.blocks).is_clean
    with pytest.raises(FlushFailedError):
        filesystem.files.read(ino, 0, 10, may_block=True)
    write(filesystem)  # written again, it is well
    filesystem.files.flush()
    assert content(filesystem, b"f") == NEW


def test_a_flush_that_fails_after_the_blocks_were_named_makes_none_of_them_wrong(
    filesystem: Filesystem, interruption: Interruption, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was lost is punched out of the file, which must not be adopted then."""
    ino = write(filesystem)

    def fsync() -> None:
        fails_once(filesystem, monkeypatch)
        with pytest.raises(FlushFailedError):
            filesystem.files.fsync(ino)

    real = filesystem.blocks.recognise

    def recognise(contents: list[bytes], hold: object) -> object:
        named = real(contents, hold)  # type: ignore[arg-type]
        if filesystem._table.peek(ino).failures is None:  # type: ignore[union-attr]
            fsync()
        return named

    monkeypatch.setattr(filesystem.blocks, "recognise", recognise)
    with pytest.raises((FlushFailedError, CorruptBlockError)):
        filesystem.files.flush()
    assert "blocks.adopt" not in interruption.steps
    assert scrub(filesystem.blocks).is_clean
    write(filesystem)
    filesystem.files.flush()
    assert content(filesystem, b"f") == NEW


# --- deaths


def die() -> None:
    raise Died


@pytest.mark.parametrize("collects", [False, True], ids=["sealed again", "collected before"])
@pytest.mark.parametrize("step", ["blocks.adopt", "blocks.sync", "tree.write", "staging.unlink"])
def test_a_death_between_the_stores_leaves_the_file_and_it_is_sealed_by_the_next_mount(
    tmp_path: Path, step: str, collects: bool
) -> None:
    path = make(tmp_path / "volume", block_size=BLOCK)
    interruption = Interruption()
    filesystem = opened(path, interruption)
    write(filesystem, NEW[: 20 * BLOCK], b"g")
    filesystem.files.flush()
    ino = write(filesystem)  # half of it is known
    filesystem.files.fsync(ino)
    interruption.step, interruption.action = step, die
    with pytest.raises(Died):
        filesystem.files.flush()
    filesystem.abandon()
    again = opened(path, lambda _: None)
    assert content(again, b"f") == NEW
    if collects:
        gc(again)
        assert content(again, b"f") == NEW
    again.files.flush()
    assert content(again, b"f") == NEW
    assert findings(again) == []
    gc(again)
    assert content(again, b"f") == NEW
    assert content(again, b"g") == NEW[: 20 * BLOCK]
    assert scrub(again.blocks).is_clean
    assert sum(segments(again).values()) <= len(NEW) + 8 * BLOCK
    again.close()
    assert os.listdir(os.path.join(path, b"staging")) == []
