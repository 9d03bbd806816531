"""What a syncer applies to a file that the kernel has open natively, and what is restored or cloned beside it."""

from __future__ import annotations

import mmap
import os
import random

import pytest

from blockfs.engine.copies.conditions import Expectation, Place, Reason, RefusedError
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot import hotfile
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.engine.hot.hosts import BLOCK, PAGE, USER, content, create, find, hot, sealed
from tests.unit.blockfs.engine.volumes import findings

OLD = random.Random(1).randbytes(20 * BLOCK + 5)
"""More than a mebibyte: its hot file stays when it is closed."""
NEW = b"n" * PAGE
TRASH = Place(parent=ROOT_INO, name=b"trash")


class Opened:
    """A sealed file that programs have open as on a native mount."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.ino = create(filesystem, b"f")
        fd = hot(filesystem, self.ino)
        os.pwrite(fd, OLD, 0)
        filesystem.hot.release(self.ino)
        filesystem.files.flush()
        self._handles: list[int] = []

    def open(self, flags: int) -> int:
        """A program opens it; the descriptor that the kernel uses for it."""
        self._handles.append(self.filesystem.files.open(self.ino, flags))
        return hot(self.filesystem, self.ino)

    def close(self) -> None:
        """The last program that opened it closes it."""
        self.filesystem.files.release(self._handles.pop())
        self.filesystem.hot.release(self.ino)

    def expected(self) -> Expectation:
        """What a syncer has seen: the state of the newest commit."""
        row = self.filesystem.tree.inode(self.ino)
        assert row is not None
        return Expectation(ino=self.ino, content_version=row.content_version)

    def replace(self, *, has_base: bool = False) -> None:
        """As a pull does: a new file takes the name, what was there goes to the trash."""
        apply, expected = self.filesystem.apply, self.expected()
        assert expected.content_version is not None
        base = (self.ino, expected.content_version) if has_base else None
        size = len(OLD) if has_base else len(NEW)
        handle = apply.prepare_file(size_bytes=size, mode=0o600, caller=USER, mtime_ns=7, base=base)
        try:
            with self.filesystem.blocks.hold() as hold:
                block = self.filesystem.blocks.put(NEW, hold)
                self.filesystem.blocks.sync()
                assert apply.set_blocks(handle, 0, block) == []
            apply.install_file(handle, Place(parent=ROOT_INO, name=b"f"), expected, trash=TRASH)
        except RefusedError:
            apply.abandon_file(handle)
            raise


@pytest.fixture
def opened(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Opened:
    monkeypatch.setattr(hotfile, "_YOUNG_NS", 0)
    return Opened(filesystem)


def refused(opened: Opened, *, has_base: bool = False) -> Reason:
    with pytest.raises(RefusedError) as caught:
        opened.replace(has_base=has_base)
    return caught.value.reason


def test_a_file_that_is_open_for_writing_is_busy_until_it_is_closed(opened: Opened) -> None:
    """As on any other mount. What was written meanwhile is another content than the syncer knows."""
    filesystem = opened.filesystem
    fd = opened.open(os.O_RDWR)
    assert refused(opened) is Reason.BUSY
    before = opened.expected()
    os.pwrite(fd, b"mine", 0)
    assert refused(opened, has_base=True) is Reason.CHANGED
    opened.close()
    assert refused(opened) is Reason.BUSY, "nobody has been told of it yet"
    filesystem.files.flush()
    assert opened.expected() != before
    assert content(filesystem, b"f") == b"mine" + OLD[4:]
    opened.replace()
    assert content(filesystem, b"f") == NEW
    assert content(filesystem, b"trash") == b"mine" + OLD[4:]
    assert findings(filesystem) == []


@pytest.mark.parametrize("has_base", [False, True])
def test_a_file_that_is_open_for_reading_is_replaced_and_stays_what_it_was_for_its_readers(
    opened: Opened, *, has_base: bool
) -> None:
    filesystem = opened.filesystem
    fd = opened.open(os.O_RDONLY)
    opened.replace(has_base=has_base)
    assert os.pread(fd, len(OLD), 0) == OLD
    assert content(filesystem, b"trash") == OLD
    now = NEW + bytes(BLOCK - PAGE) + OLD[BLOCK:] if has_base else NEW
    assert content(filesystem, b"f") == now
    other = hot(filesystem, find(filesystem, b"f"))
    assert os.pread(other, len(now), 0) == now
    os.pwrite(other, b"later", 0)
    opened.close()
    filesystem.flush()
    assert sealed(filesystem, find(filesystem, b"f")) == b"later" + now[5:]
    assert sealed(filesystem, opened.ino) == OLD
    assert findings(filesystem) == []


def test_a_file_that_is_mapped_though_it_is_closed_is_busy(opened: Opened) -> None:
    """The kernel tells of the close while stores go on. Breaks if they end up in the trash."""
    filesystem = opened.filesystem
    fd = opened.open(os.O_RDWR)
    other = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    with mmap.mmap(other, len(OLD)) as mapped:
        os.close(other)
        opened.close()
        assert refused(opened) is Reason.BUSY
        mapped[:4] = b"late"
        filesystem.files.flush()
        assert refused(opened) is Reason.BUSY
    opened.replace()
    assert content(filesystem, b"trash") == b"late" + OLD[4:]
    assert content(filesystem, b"f") == NEW


def test_what_is_written_to_a_file_that_was_replaced_is_in_the_trash(opened: Opened) -> None:
    """By who has it open for reading, and a mapping of it for writing from before."""
    filesystem = opened.filesystem
    fd = opened.open(os.O_RDONLY)
    opened.replace()
    os.pwrite(fd, b"late", PAGE)
    filesystem.files.flush()
    kept = OLD[:PAGE] + b"late" + OLD[PAGE + 4 :]
    assert sealed(filesystem, opened.ino) == content(filesystem, b"trash") == kept
    assert content(filesystem, b"f") == NEW


def test_a_file_is_removed_moved_and_given_times_under_the_same_conditions(opened: Opened) -> None:
    filesystem, apply = opened.filesystem, opened.filesystem.apply
    opened.open(os.O_RDWR)
    place = Place(parent=ROOT_INO, name=b"f")
    for change in (
        lambda: apply.remove(place, opened.expected(), trash=TRASH),
        lambda: apply.set_meta(opened.expected(), mtime_ns=5),
    ):
        with pytest.raises(RefusedError) as caught:
            change()
        assert caught.value.reason is Reason.BUSY
    apply.move(place, Place(parent=ROOT_INO, name=b"g"), opened.expected())
    opened.close()
    filesystem.files.flush()
    apply.set_meta(opened.expected(), mtime_ns=5)
    assert filesystem.namespace.getattr(opened.ino).mtime_ns == 5
    assert content(filesystem, b"g") == OLD


def test_what_is_restored_or_cloned_beside_an_open_file_is_a_file_of_its_own(opened: Opened) -> None:
    filesystem = opened.filesystem
    fd = opened.open(os.O_RDWR)
    filesystem.snapshots.create(ROOT_INO, b"s")
    os.pwrite(fd, b"now", 0)
    filesystem.snapshots.restore(b"s", b"f", ROOT_INO, b"restored")
    cloned = filesystem.clone(opened.ino, ROOT_INO, b"clone")
    restored = find(filesystem, b"restored")
    os.pwrite(hot(filesystem, restored), b"again", PAGE)
    os.pwrite(hot(filesystem, cloned), b"clone", 2 * PAGE)
    os.pwrite(fd, b"later", 3 * PAGE)
    filesystem.files.flush()
    assert sealed(filesystem, restored) == OLD[:PAGE] + b"again" + OLD[PAGE + 5 :]
    live = bytearray(b"now" + OLD[3:])
    live[3 * PAGE : 3 * PAGE + 5] = b"later"
    assert sealed(filesystem, opened.ino) == content(filesystem, b"f") == live
    live[2 * PAGE : 3 * PAGE + 5] = b"clone" + OLD[2 * PAGE + 5 : 3 * PAGE + 5]
    assert sealed(filesystem, cloned) == live
    assert findings(filesystem) == []
