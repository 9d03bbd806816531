"""Writers through write, O_DIRECT and mmap, of noise, of zeros and of what is stored already, while all is sealed."""

from __future__ import annotations

import mmap
import os
import random
import threading
from collections.abc import Iterator

import pytest

from blockfs.blocks.maintenance.gc import collect
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.hot import capture
from blockfs.tree.schema import ROOT_INO
from tests import effort
from tests.unit.blockfs.engine.hot.hosts import BLOCK, PAGE, content, create, hot, sealed
from tests.unit.blockfs.engine.volumes import findings

BLOCKS = 64
SIZE = BLOCKS * BLOCK
STORED_BYTES = 64 << 20  # the host is small
_PAGES = SIZE // PAGE
_PAGES_OF_BLOCK = BLOCK // PAGE


class Writer:
    """Writes into its own part of a file: `which` of `of` pages of one half, and of blocks of the other half.

    What each page holds is known. Whole blocks are often what the volume has already, or NUL.
    """

    def __init__(self, fd: int, which: int, of: int) -> None:
        self.fd = fd
        self.pages: dict[int, bytes] = {}
        self.written = 0
        self._random = random.Random(which)
        self._pages = range(which, _PAGES // 2, of)
        self._blocks = range(BLOCKS // 2 + which, BLOCKS, of)
        self._direct = os.open(f"/proc/self/fd/{fd}", os.O_RDWR | os.O_DIRECT)
        self._map = mmap.mmap(fd, SIZE)
        self._buffer = mmap.mmap(-1, PAGE)

    def _page(self) -> bytes:
        match self._random.randrange(4):
            case 0:
                return bytes(PAGE)
            case 1:
                return bytes([self._random.randrange(1, 4)]) * PAGE
            case _:
                return self._random.randbytes(16) * (PAGE // 16)

    def write(self) -> None:
        if self._random.randrange(8):
            self._write(self._random.choice(self._pages), self._page())
            return
        first = self._random.choice(self._blocks) * _PAGES_OF_BLOCK
        block = [bytes([self._random.randrange(4)]) * PAGE] * _PAGES_OF_BLOCK
        if not self._random.randrange(3):
            block[self._random.randrange(_PAGES_OF_BLOCK)] = self._page()
        for number, data in enumerate(block):
            self._write(first + number, data)

    def _write(self, page: int, data: bytes) -> None:
        self.pages[page] = data
        match self._random.randrange(3):
            case 0:
                os.pwrite(self.fd, data, page * PAGE)
            case 1:
                self._buffer[:] = data
                os.pwritev(self._direct, [self._buffer], page * PAGE)
            case _:
                self._map[page * PAGE : (page + 1) * PAGE] = data
        self.written += 1

    def write_some(self, pages: int) -> None:
        for _ in range(pages):
            self.write()

    def close(self) -> None:
        self._map.close()
        os.close(self._direct)


@pytest.fixture
def writers(filesystem: Filesystem) -> Iterator[list[Writer]]:
    fd = hot(filesystem, create(filesystem, b"f"))
    os.ftruncate(fd, SIZE)
    made = [Writer(fd, which, 3) for which in range(3)]
    yield made
    for writer in made:
        writer.close()


def stored_bytes(filesystem: Filesystem) -> int:
    folder = filesystem.blocks.layout.segments
    return sum(os.stat(os.path.join(folder, name)).st_blocks * 512 for name in os.listdir(folder))


def collect_all(filesystem: Filesystem) -> None:
    """Give back what nothing names any more, while the file is written."""
    filesystem.commit()
    filesystem.blocks.release_segments()
    collect(filesystem.blocks, filesystem.tree.view_for_marking().live_ids)


def expected(writers: list[Writer]) -> bytes:
    found = bytearray(SIZE)
    for writer in writers:
        for page, data in writer.pages.items():
            found[page * PAGE : (page + 1) * PAGE] = data
    return bytes(found)


def test_no_byte_is_wrong_however_it_is_written_and_whenever_it_is_sealed(
    filesystem: Filesystem, writers: list[Writer], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page's writer is one thread, so what a page must hold is known whenever its writer rests."""
    ino = filesystem.tree.lookup(ROOT_INO, b"f")
    assert ino is not None
    pages = effort.count("pages sealed while they are written")
    chance = random.Random(1)
    while sum(writer.written for writer in writers) < pages:
        quota = chance.randrange(1, 500)
        threads = [threading.Thread(target=writer.write_some, args=[quota]) for writer in writers]
        for thread in threads:
            thread.start()
        monkeypatch.setattr(capture, "_MANY", chance.choice([0, 2000]))  # how a copy of one instant is made
        # Beside them: whatever it takes is whole pages of some moment, or of several.
        match chance.randrange(4):
            case 0:
                filesystem.files.flush(ino)
            case 1:
                filesystem.flush()
            case 2:
                filesystem.clone(ino, ROOT_INO, b"clone")
                filesystem.namespace.unlink(ROOT_INO, b"clone")
            case _:
                filesystem._seal_queue.seal_due()
        assert len(sealed(filesystem, ino)) == SIZE
        if stored_bytes(filesystem) > STORED_BYTES:
            collect_all(filesystem)
        for thread in threads:
            thread.join()
        filesystem.files.flush(ino)
        data = expected(writers)
        assert sealed(filesystem, ino) == data
        assert content(filesystem, b"f") == data
    assert findings(filesystem) == []
