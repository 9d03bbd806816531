"""Copies of hot files with many extents, of one instant and piece by piece."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import struct
import threading

import pytest

from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot import capture, hotfile, seal
from blockfs.engine.hot.capture import Captures
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.runtime.linux import filesystem_magic
from tests.unit.blockfs.engine.hot.hosts import BLOCK, PAGE, content, create, hot, sealed
from tests.unit.blockfs.engine.volumes import findings

BLOCKS = 24
XFS = 0x58465342


class Scattered:
    """A sealed hot file that counts as one with many extents, and what was copied of it at one instant since."""

    def __init__(self, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(capture, "_MANY", 0)
        monkeypatch.setattr(capture, "PIECE_BYTES", 4 * BLOCK)
        monkeypatch.setattr(hotfile, "_YOUNG_NS", 0)
        self.filesystem = filesystem
        self.ino = create(filesystem, b"f")
        self.fd = hot(filesystem, self.ino)
        self.data = bytearray(random.Random(1).randbytes(BLOCKS * BLOCK + 123))
        os.pwrite(self.fd, self.data, 0)
        filesystem.files.flush(self.ino)
        self.filled: list[bool] = []
        real = HotFolder.capture

        def noted(folder: HotFolder, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
            self.filled.append(filled is not None)
            return real(folder, file, filled)

        monkeypatch.setattr(HotFolder, "capture", noted)
        self.fills = filesystem_magic(self.fd) == XFS

    def write(self, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(8):
            at, page = chance.randrange(BLOCKS * BLOCK // PAGE) * PAGE, chance.randbytes(PAGE)
            os.pwrite(self.fd, page, at)
            self.data[at : at + PAGE] = page

    def check(self) -> None:
        """The leaves are what it is now."""
        assert sealed(self.filesystem, self.ino) == content(self.filesystem, b"f") == bytes(self.data)
        assert findings(self.filesystem) == []


@pytest.fixture
def scattered(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Scattered:
    return Scattered(filesystem, monkeypatch)


def test_what_nobody_writes_to_is_copied_piece_by_piece(scattered: Scattered) -> None:
    scattered.write(2)
    scattered.filesystem.files.flush(scattered.ino)
    assert scattered.filled == []
    scattered.check()


def test_what_somebody_writes_to_is_of_one_instant(scattered: Scattered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks if pieces of several moments are taken for the content, or if the copy is not what the file is then."""
    scattered.write(2)
    real, late = Captures.changed, iter(range(3, 100))

    def changed(*arguments: object) -> object:
        found = real(*arguments)  # type: ignore[arg-type]
        scattered.write(next(late))
        return found

    monkeypatch.setattr(Captures, "changed", changed)
    scattered.filesystem.files.flush(scattered.ino)
    assert scattered.filled == [scattered.fills]
    scattered.check()


def test_a_file_that_is_cut_while_it_is_copied_has_nothing_behind_its_end(
    scattered: Scattered, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks if a copy keeps what it was filled with, from before."""
    real = HotFolder.capture
    cuts = [5 * BLOCK + 7]

    def cut(folder: HotFolder, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
        if cuts:
            scattered.data = scattered.data[: cuts[0]]
            os.ftruncate(scattered.fd, cuts.pop())
        return real(folder, file, filled)

    monkeypatch.setattr(seal.HotSealer, "_is_being_written", lambda *arguments: True)
    monkeypatch.setattr(HotFolder, "capture", cut)
    scattered.write(2)
    scattered.filesystem.files.flush(scattered.ino)
    assert scattered.filled == ([True, False] if scattered.fills else [False])
    scattered.check()


class Held:
    """A page of memory that is not there until `release`: who reads it waits (userfaultfd)."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = int(libc.syscall(323, os.O_CLOEXEC))
        if self._fd < 0:
            pytest.skip("the kernel offers no userfaultfd")
        fcntl.ioctl(self._fd, 0xC018AA3F, bytearray(struct.pack("=QQQ", 0xAA, 0, 0)))  # UFFDIO_API
        self.memory = mmap.mmap(-1, PAGE)
        self._address = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        # UFFDIO_REGISTER, missing pages
        fcntl.ioctl(self._fd, 0xC020AA00, bytearray(struct.pack("=QQQQ", self._address, PAGE, 1, 0)))
        self._source = ctypes.create_string_buffer(2 * PAGE)
        self._page = -(-ctypes.addressof(self._source) // PAGE) * PAGE
        ctypes.memset(self._page, ord("d"), PAGE)
        self._lock = threading.Lock()
        self._is_held = True

    def wait(self) -> None:
        """Until somebody reads it."""
        os.read(self._fd, 32)

    def release(self) -> None:
        """Let it be there; again is fine."""
        with self._lock:
            if self._is_held:
                self._is_held = False
                order = struct.pack("=QQQQq", self._address, self._page, PAGE, 0, 0)
                fcntl.ioctl(self._fd, 0xC028AA03, bytearray(order))  # UFFDIO_COPY


def test_a_direct_write_that_is_under_way_is_not_missed(scattered: Scattered, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time was told before, and its page lies elsewhere only afterwards. Breaks if nothing waits for it."""
    held = Held()
    direct = os.open(f"/proc/self/fd/{scattered.fd}", os.O_RDWR | os.O_DIRECT)
    libc = ctypes.CDLL(None, use_errno=True)

    def write() -> None:
        address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(held.memory)))
        assert libc.pwrite(direct, address, ctypes.c_size_t(PAGE), ctypes.c_long(9 * BLOCK)) == PAGE

    writer = threading.Thread(target=write)
    writer.start()
    held.wait()
    if not scattered.fills:
        held.release()  # btrfs has it locked meanwhile: the fdatasync waits
    real_look, real_clone = capture.changed_blocks, capture.clone_range

    def look(*arguments: object) -> object:
        found = real_look(*arguments)  # type: ignore[arg-type]
        held.release()
        writer.join()
        return found

    def clone(source: int, target: int, start: int, length: int) -> bool:
        threading.Thread(target=held.release).start()
        return real_clone(source, target, start, length)

    monkeypatch.setattr(capture, "changed_blocks", look)
    monkeypatch.setattr(capture, "clone_range", clone)
    scattered.filesystem.files.flush(scattered.ino)
    held.release()
    writer.join()
    os.close(direct)
    scattered.data[9 * BLOCK : 9 * BLOCK + PAGE] = b"d" * PAGE
    scattered.filesystem.files.flush(scattered.ino)
    scattered.check()
