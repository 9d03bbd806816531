"""Hazards where the kernel's page cache, the mount and the block directory meet. Rows: docs/design/hazards.md."""

from __future__ import annotations

import mmap
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.control.client import ControlClient
from blockfs.control.protocol import Applied, Expect, InstallFile, NodeRow, Refused
from blockfs.runtime.linux import syncfs
from tests.conftest import Mounted
from tests.crash.pages import PAGE, make_pages

BLOCK = 65536
ROOT = 1
PAGES = 1024  # 64 blocks


@pytest.fixture
def client(mounted: Mounted) -> Iterator[ControlClient]:
    with ControlClient(os.fsencode(mounted.volume)) as connected:
        yield connected


def row_of(client: ControlClient, name: bytes) -> NodeRow:
    return next(row for row in client.changes(None)[1] if (ROOT, name) in row.places)


def flush(mounted: Mounted, client: ControlClient) -> None:
    syncfs(os.fsencode(mounted.path))
    client.flush()


def dirty_by_write(path: Path, data: bytes) -> Callable[[], None]:
    """Leave a dirty page in the kernel; returns what lets it go."""
    file = path.open("r+b", buffering=0)
    file.write(data)
    return file.close


def dirty_by_map(path: Path, data: bytes) -> Callable[[], None]:
    """The same by a memory map, whose descriptor is closed already."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), len(data))
    mapped[:] = data
    return mapped.close


@pytest.mark.parametrize("dirty", [dirty_by_write, dirty_by_map])
def test_apply_does_not_replace_a_file_with_dirty_pages_in_the_kernel(
    mounted: Mounted, client: ControlClient, dirty: Callable[[Path, bytes], Callable[[], None]]
) -> None:
    """Only the kernel knows of the change: the engine has neither its bytes nor its version."""
    path, trash = mounted.path / "file", mounted.path / "trash"
    trash.mkdir()
    path.write_bytes(b"old!")
    flush(mounted, client)
    row = row_of(client, b"file")

    def install() -> Applied | Refused:
        handle = client.prepare_file(size_bytes=0, mode=0o600, uid=0, gid=0, mtime_ns=0)
        assert handle is not None
        expect = Expect(ino=row.ino, content_version=row.content_version)
        place = {"trash_parent": trash.stat().st_ino, "trash_name": b"t"}
        return client.apply(InstallFile(handle=handle, parent=ROOT, name=b"file", expect=expect, **place))

    let_go = dirty(path, b"new!")
    assert install() == Refused(reason="busy")
    assert path.read_bytes() == b"new!"
    let_go()
    flush(mounted, client)
    assert install() == Refused(reason="changed")
    assert path.read_bytes() == b"new!"


def test_a_journal_that_is_read_before_the_write_back_tells_of_it_afterwards(
    mounted: Mounted, client: ControlClient
) -> None:
    """A syncer that takes the cursor for the content would never look at the file again."""
    path = mounted.path / "file"
    path.write_bytes(b"old!")
    flush(mounted, client)
    before = row_of(client, b"file")
    with path.open("r+b", buffering=0) as file:
        file.write(b"new!")
        _, _, _, cursor = client.changes(None)
        assert row_of(client, b"file").content_version == before.content_version
        assert row_of(client, b"file").writers == 1
        os.fsync(file.fileno())
    is_full, rows, _, _ = client.changes(cursor)
    assert not is_full
    (row,) = (row for row in rows if row.ino == before.ino)
    assert row.content_version > before.content_version


def test_content_that_is_written_again_while_its_blocks_are_swept_is_there(
    mounted: Mounted, client: ControlClient
) -> None:
    """A dedup hit on a block that the collection is just about to remove."""
    data = random.Random(1).randbytes(PAGES * PAGE)
    path = mounted.path / "file"
    with ControlClient(os.fsencode(mounted.volume)) as collecting:
        for _ in range(6):
            path.write_bytes(data)
            flush(mounted, client)
            path.unlink()
            collector = threading.Thread(target=collecting.gc)
            collector.start()
            path.write_bytes(data)
            flush(mounted, client)
            collector.join()
            assert client.fsck().findings == []
            with BlockDirectory.open(str(mounted.volume / "blocks"), read_only=True) as blocks:
                row = row_of(client, b"file")
                listed = client.block_list(row.ino, row.content_version, BLOCK)
                assert listed is not None
                ids = [listed.ids[at : at + 32] for at in range(0, len(listed.ids), 32)]
                assert b"".join(blocks.get(known, verify=True) for known in ids) == data
            collecting.gc()


class DirectReader(threading.Thread):
    """Reads a file past the kernel's cache, again and again, and notes what is of neither version."""

    def __init__(self, path: Path, versions: list[bytes]) -> None:
        super().__init__()
        self.path = path
        self.versions = versions
        self.enough = threading.Event()
        self.strange: list[str] = []
        self.reads = 0

    def run(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        buffer = mmap.mmap(-1, BLOCK)
        try:
            while not self.enough.is_set():
                for at in range(0, PAGES * PAGE, BLOCK):
                    os.preadv(descriptor, [buffer], at)
                    self.check(bytes(buffer), at)
                self.reads += 1
        except OSError as error:
            self.strange.append(repr(error))
        finally:
            os.close(descriptor)
            buffer.close()

    def check(self, found: bytes, offset: int) -> None:
        for at in range(0, BLOCK, PAGE):
            page = slice(offset + at, offset + at + PAGE)
            if not any(found[at : at + PAGE] == version[page] for version in self.versions):
                self.strange.append(f"page at {page.start}")


def test_a_reader_of_blocks_that_are_replaced_and_collected_sees_whole_pages(
    mounted: Mounted, client: ControlClient
) -> None:
    """Between lookup and read, the block must neither go nor be punched."""
    path = mounted.path / "file"
    versions = [make_pages(1, 0, PAGES, version) for version in (1, 2)]
    path.write_bytes(versions[0])
    flush(mounted, client)
    reader = DirectReader(path, versions)
    reader.start()
    try:
        with path.open("r+b", buffering=0) as file:
            for number in range(1, 7):
                os.pwrite(file.fileno(), versions[number % 2], 0)
                os.fsync(file.fileno())
                client.flush()
                client.gc()
    finally:
        reader.enough.set()
        reader.join()
    assert not reader.strange
    assert reader.reads > 0
