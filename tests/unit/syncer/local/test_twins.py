"""Looks at large files by their twins, on XFS and btrfs: an edit that such a look misses is lost."""

from __future__ import annotations

import fcntl
import mmap
import os
import random
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from blockfs.runtime.reflink import clone_file
from syncer.core.model import FileStat
from syncer.errors import NoSpaceError
from syncer.local.folder import reading
from syncer.local.folder.private import PrivateFolder
from syncer.local.folder.root import LocalDirectory
from syncer.local.twins import fresh, twins
from syncer.local.twins.held import Held, held
from syncer.local.twins.twins import remove_twins
from syncer.ports.localvalues import Install, Observation, content_of
from tests import effort
from tests.kit.hostfs import REFLINKS, reflinking, run
from tests.kit.state import MemoryState
from tests.unit.syncer.local.folders import (
    BLOCK,
    NO_BASE,
    Elsewhere,
    P,
    Place,
    blocks_of,
    by_path,
    done,
    new_place,
    noise,
    staged_by,
    wanted,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a filesystem")

SIZE = 64 * BLOCK
PUNCH = 0x3  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
FIDEDUPERANGE = 0xC0189436


@pytest.fixture(scope="module", params=REFLINKS)
def host(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A filesystem with reflinks."""
    with reflinking(tmp_path_factory.mktemp("host"), request.param) as path:
        yield path


class Root:
    """A root whose files all have twins, from one look to the next."""

    def __init__(self, host: Path, name: str, **options: Any) -> None:
        (host / name).mkdir()
        self.place: Place = new_place(host / name)
        self.state = MemoryState()
        self.image = self.place.path / "image"
        self.read = 0
        self._options = {"twin_bytes": 1, **options}

    def open(self) -> LocalDirectory:
        return self.place.open(self.state, **self._options)

    def looked(self) -> Observation:
        """A whole look, and the end of its cycle."""

        async def main() -> Observation:
            root = self.open()
            try:
                found = await root.observe(NO_BASE)
                await root.concluded(None, (), undone=False)
                self.read = root.counters.bytes_read
                return found
            finally:
                await root.close()

        return trio.run(main)

    def look(self) -> FileStat:
        """What is told of the image: it must be what a reader of all of it finds."""
        found = self.looked()
        assert not found.problems
        stat = by_path(found)[b"image"]
        assert stat.content == content_of(blocks_of(self.image.read_bytes()))
        return stat

    @property
    def twins(self) -> list[Path]:
        return sorted((self.place.path / ".blocksync/twins").glob("*"))


def change(path: Path, at: int, data: bytes) -> None:
    with path.open("rb+") as file:
        os.pwrite(file.fileno(), data, at)


def test_only_changed_blocks_are_read(host: Path) -> None:
    root = Root(host, "changed")
    root.image.write_bytes(noise(1, SIZE + 100))
    root.look()
    assert root.read == SIZE + 100
    change(root.image, 7 * BLOCK + 5, b"edited")
    change(root.image, SIZE + 90, b"end")
    root.look()
    assert root.read == BLOCK + 100
    root.look()
    assert root.read == 0
    assert len(root.twins) == 1
    assert root.twins[0].stat().st_mode & 0o7777 == 0o600


def test_a_page_of_a_large_image_costs_less_than_a_mebibyte(host: Path) -> None:
    """At the size from which files have twins, with data here and there and holes between them."""
    root = Root(host, "large", twin_bytes=64 << 20)
    with root.image.open("wb") as file:
        for at in range(0, 64 << 20, 16 << 20):
            os.pwrite(file.fileno(), noise(at, 1 << 20), at)
        file.truncate(64 << 20)
    root.looked()
    change(root.image, (16 << 20) + 8192, noise(2, BLOCK))
    root.look()
    assert 0 < root.read <= 1 << 20
    (root.place.path / "small").write_bytes(noise(3, 4 * BLOCK))
    root.looked()
    assert len(root.twins) == 1


def dedupe(source: int, target: int, at: int) -> None:
    """Have a block of two files lie at one place, if it is equal."""
    buffer = bytearray(struct.pack("=QQHHI", at, BLOCK, 1, 0, 0) + struct.pack("=qQQiI", target, at, 0, 0, 0))
    fcntl.ioctl(source, FIDEDUPERANGE, buffer)


class Vandal:
    """Does to a file all that anybody can."""

    def __init__(self, root: Root, seed: int) -> None:
        self.root = root
        self.dice = random.Random(seed)
        self.mapped: mmap.mmap | None = None

    def act(self) -> None:
        acts: list[Callable[[int], None]] = [
            *(self.write, self.store, self.cut, self.grow, self.punch, self.reserve),
            *(self.replace, self.copy_over, self.share_back, self.shift, self.sync, self.zero),
        ]
        size = self.root.image.stat().st_size
        with self.root.image.open("rb+") as file:
            self.dice.choice(acts)(file.fileno() if size else self._filled(file.fileno()))

    def _filled(self, fd: int) -> int:
        os.pwrite(fd, self.dice.randbytes(5 * BLOCK), 0)
        return fd

    def _at(self, fd: int) -> int:
        return self.dice.randrange(max(1, os.fstat(fd).st_size))

    def write(self, fd: int) -> None:
        os.pwrite(fd, self.dice.randbytes(self.dice.choice((1, 100, BLOCK, 5 * BLOCK))), self._at(fd))

    def store(self, fd: int) -> None:
        """Through a map that stays: its later stores change no time."""
        if self.mapped is None or len(self.mapped) > os.fstat(fd).st_size:
            self.mapped = mmap.mmap(fd, os.fstat(fd).st_size)
        self.mapped[self.dice.randrange(len(self.mapped))] = self.dice.randrange(256)

    def cut(self, fd: int) -> None:
        os.ftruncate(fd, self._at(fd))
        self.mapped = None

    def grow(self, fd: int) -> None:
        os.ftruncate(fd, os.fstat(fd).st_size + self.dice.choice((1, 100, BLOCK, 9 * BLOCK)))

    def punch(self, fd: int) -> None:
        self._fallocate(fd, PUNCH)

    def reserve(self, fd: int) -> None:
        self._fallocate(fd, 0)

    def zero(self, fd: int) -> None:
        os.pwrite(fd, bytes(2 * BLOCK), self._at(fd) // BLOCK * BLOCK)

    def _fallocate(self, fd: int, mode: int) -> None:
        command = ["fallocate", *(["-p"] if mode else []), "-o", str(self._at(fd)), "-l", str(3 * BLOCK)]
        subprocess.run([*command, self.root.image], check=True)

    def replace(self, fd: int) -> None:
        """Copied, edited and renamed over: another inode."""
        new = self.root.place.path / "new"
        with new.open("wb") as file:
            assert clone_file(fd, file.fileno())
        change(new, 3, self.dice.randbytes(7))
        new.rename(self.root.image)
        self.mapped = None

    def copy_over(self, fd: int) -> None:
        """`cp --reflink` of another file over it."""
        other = self.root.place.path.parent / "other"
        other.write_bytes(self.dice.randbytes(self.dice.choice((20, 64)) * BLOCK))
        self.mapped = None
        os.ftruncate(fd, 0)
        with other.open("rb") as file:
            assert clone_file(file.fileno(), fd)

    def share_back(self, fd: int) -> None:
        """A block of the twin becomes that of the file, if they are equal, as who saves space does."""
        for twin in self.root.twins:
            with twin.open("rb") as file:
                at = self._at(fd) // BLOCK * BLOCK
                if at + BLOCK <= min(os.fstat(fd).st_size, twin.stat().st_size):
                    dedupe(file.fileno(), fd, at)

    def shift(self, fd: int) -> None:
        """Its second block becomes its first, at the same place of the disk."""
        if os.fstat(fd).st_size >= 4 * BLOCK:
            fcntl.ioctl(fd, 0x4020940D, struct.pack("=qQQQ", fd, BLOCK, BLOCK, 0))

    def sync(self, fd: int) -> None:
        os.fsync(fd)


@pytest.mark.parametrize("seed", range(effort.count("looks by twins")))
def test_whatever_is_done_to_a_file_a_look_finds_it(host: Path, seed: int) -> None:
    root = Root(host, f"vandal-{seed}")
    root.image.write_bytes(noise(seed, SIZE))
    vandal = Vandal(root, seed)
    for _ in range(12):
        root.look()
        for _ in range(vandal.dice.choice((0, 1, 1, 4))):
            vandal.act()
    root.look()
    root.look()


def during(
    monkeypatch: pytest.MonkeyPatch, module: Any, name: str, write: Callable[[], None]
) -> list[Callable[[], None]]:
    """Have something happen once, right after a step of a look. Returns what is empty when it has."""
    real = getattr(module, name)
    writes = [write]

    def step(*args: Any, **kwargs: Any) -> Any:
        found = real(*args, **kwargs)
        while writes:
            writes.pop()()
        return found

    monkeypatch.setattr(module, name, step)
    return writes


@pytest.mark.parametrize(
    ("module", "name"),
    [(twins, "clone_file"), (fresh, "apart"), (fresh, "hash_changes"), (reading, "hash_file"), (reading, "content_of")],
)
@pytest.mark.parametrize("again", [False, True])
def test_a_writer_during_a_look_is_never_overlooked(
    host: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, again: bool
) -> None:
    """With and without a twin of an earlier look. What is told of the file is what it was, or nothing."""
    root = Root(host, f"during-{name}-{again}")
    root.image.write_bytes(noise(1, SIZE))
    if again:
        root.look()
        change(root.image, 9 * BLOCK, b"before")
    os.utime(root.image, ns=(0, 0))  # so that no tick of the clock hides the write
    old = content_of(blocks_of(root.image.read_bytes()))
    waiting = during(monkeypatch, module, name, lambda: change(root.image, 5 * BLOCK, b"meanwhile"))
    stat = by_path(root.looked())[b"image"]
    assert stat.content in {None, old}
    assert stat.tag.mtime_ns == 0  # what is told is told of the version before the write
    if name != "hash_file":
        assert not waiting
    root.look()
    root.look()
    assert root.read == 0


def test_a_store_to_a_page_that_is_mapped_since_before_a_look_changes_the_files_time(host: Path) -> None:
    """Else the next look takes the file for unchanged: the kernel stamps such a page once, until it is written back."""
    root = Root(host, "mapped")
    root.image.write_bytes(noise(1, SIZE))
    with root.image.open("rb+") as file, mmap.mmap(file.fileno(), SIZE) as pages:
        pages[100] = 1
        before = root.look()
        pages[100] = 2
        after = root.look()
    assert after.tag != before.tag
    assert after.content != before.content


def rewritten(twin: Path) -> None:
    at = twin.stat()
    change(twin, 0, b"not what was hashed")
    os.utime(twin, ns=(at.st_atime_ns, at.st_mtime_ns))


def replaced(twin: Path) -> None:
    twin.unlink()
    twin.write_bytes(noise(9, SIZE))
    os.utime(twin, ns=(0, 0))


def linked(twin: Path) -> None:
    twin.unlink()
    twin.symlink_to("/etc/passwd")


def folder(twin: Path) -> None:
    twin.unlink()
    twin.mkdir()


def pipe(twin: Path) -> None:
    twin.unlink()
    os.mkfifo(twin)


def all_gone(twin: Path) -> None:
    twin.unlink()
    twin.parent.rmdir()
    twin.parent.symlink_to("/")


@pytest.mark.parametrize("harm", [rewritten, replaced, linked, folder, pipe, Path.unlink, all_gone])
def test_a_twin_that_somebody_touched_is_not_believed(host: Path, harm: Callable[[Path], None]) -> None:
    root = Root(host, f"harm-{harm.__name__}")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    (twin,) = root.twins
    harm(twin)
    change(root.image, 5, b"edited")
    root.look()
    assert root.read == SIZE


def test_a_list_or_a_state_that_is_lost_costs_a_whole_look(host: Path) -> None:
    root = Root(host, "lost")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    for lists in (root.place.state / "lists").iterdir():
        lists.unlink()
    root.look()
    assert root.read == SIZE
    root.state = MemoryState()
    root.look()
    assert (root.read, len(root.twins)) == (SIZE, 1)
    root.state.kept["twins"] = b"1 no table"
    root.look()
    assert (root.read, len(root.twins)) == (SIZE, 1)


def test_a_twin_goes_with_its_file_and_follows_its_name(host: Path) -> None:
    root = Root(host, "gone", twin_bytes=SIZE)
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    root.image.rename(root.place.path / "moved")
    change(root.place.path / "moved", 0, b"edited")
    root.looked()
    assert root.read == BLOCK
    (root.place.path / "moved").rename(root.image)
    os.truncate(root.image, SIZE - 1)
    root.look()
    assert root.twins == []
    os.truncate(root.image, SIZE)
    root.look()
    assert len(root.twins) == 1
    root.image.unlink()
    root.looked()
    assert root.twins == []


def test_a_file_that_is_ignored_has_no_twin_any_more(host: Path) -> None:
    """It would hold what the file was, however long ago."""
    root = Root(host, "ignored")
    root.image.write_bytes(noise(1, SIZE))
    (root.place.path / "other").write_bytes(noise(2, SIZE))
    root.looked()
    assert len(root.twins) == 2
    (root.place.path / ".blocksyncignore").write_text("image\n")
    root.looked()
    root.looked()
    assert len(root.twins) == 2  # of the other file and of the list of what is ignored


def test_files_in_the_folder_of_twins_that_nobody_knows_of_are_deleted(host: Path) -> None:
    """What a kill leaves between the copy and its booking would hold its room for ever."""
    root = Root(host, "unknown")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    (known,) = root.twins
    (known.parent / "left").write_bytes(noise(2, SIZE))
    root.look()
    assert [twin.name for twin in root.twins] != [known.name, "left"]
    assert len(root.twins) == 1


def test_the_room_that_twins_hold_is_told_and_unlinking_gives_it_back(host: Path) -> None:
    root = Root(host, "held")
    root.image.write_bytes(noise(1, SIZE))
    (root.place.path / "other").write_bytes(noise(2, SIZE))
    root.looked()
    folder = os.open(root.place.path, os.O_RDONLY)
    try:
        assert held(folder, root.state) == Held(files=2, bytes=0)
        change(root.image, 5 * BLOCK, noise(3, 2 * BLOCK))
        with root.image.open("rb+") as file:
            os.fsync(file.fileno())
        assert held(folder, root.state) == Held(files=2, bytes=2 * BLOCK)
        root.image.unlink()
        assert held(folder, root.state) == Held(files=2, bytes=SIZE)
        private = PrivateFolder(folder)
        remove_twins(private.top)
        remove_twins(private.top)
        private.close()
        assert held(folder, root.state) == Held(files=0, bytes=0)
    finally:
        os.close(folder)
    assert not (root.place.path / ".blocksync/twins").exists()


def test_twins_go_when_room_is_short(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(host, "short")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    change(root.image, 0, b"edited")
    monkeypatch.setattr(twins, "_SHORT_SHARE", 1.0)
    root.look()
    assert (root.read, root.twins) == (SIZE, [])
    root.look()
    assert root.twins == []
    monkeypatch.undo()
    root.look()
    assert len(root.twins) == 1


def test_a_user_with_a_quota_has_no_twins(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """XFS counts what files share for each of them: a twin would take as much of the quota as its file."""
    root = Root(host, "quota")
    root.image.write_bytes(noise(1, SIZE))
    monkeypatch.setattr(twins, "has_block_limit", lambda _descriptor, _uid, _gid: True)
    root.look()
    assert (root.read, root.twins) == (SIZE, [])


def test_a_full_disk_gives_up_twins_first(host: Path) -> None:
    root = Root(host, "full")
    root.image.write_bytes(noise(1, SIZE))
    root.look()

    async def main() -> None:
        opened = root.open()
        try:
            with (root.place.path / "big").open("wb") as big, pytest.raises(NoSpaceError):
                await opened._run(os.posix_fallocate, big.fileno(), 0, 1 << 40)
        finally:
            await opened.close()

    trio.run(main)
    assert root.twins == []


def test_who_only_looks_makes_no_twin_and_leaves_them_alone(host: Path) -> None:
    root = Root(host, "looking")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    (twin,) = root.twins
    before = twin.stat()
    root._options["only_looking"] = True

    async def main() -> None:
        opened = root.open()
        try:
            await opened.observe(NO_BASE)
        finally:
            await opened.close()

    change(root.image, 0, b"edited")
    trio.run(main)
    assert twin.stat().st_ctime_ns == before.st_ctime_ns


def test_a_pulled_file_has_a_twin_from_the_beginning(host: Path) -> None:
    root = Root(host, "pulled")
    new = noise(4, SIZE + 17)

    async def main() -> None:
        opened = root.open()
        try:
            staged = await staged_by(opened, wanted(b"image", new, Elsewhere(new).fetch))
            await done(opened, Install(path=P(b"image"), staged=staged))
            await opened.observe(NO_BASE)
        finally:
            await opened.close()

    trio.run(main)
    change(root.image, 3 * BLOCK, b"edited")
    root.look()
    assert root.read == BLOCK


def test_room_that_is_reserved_is_not_read(host: Path) -> None:
    """An image that was made with fallocate has a twin like any other."""
    root = Root(host, "reserved")
    with root.image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, SIZE)
        os.pwrite(file.fileno(), noise(1, 4 * BLOCK), 10 * BLOCK)
    root.look()
    change(root.image, 11 * BLOCK, b"edited")
    root.look()
    assert root.read == BLOCK
    change(root.image, 40 * BLOCK, b"edited")
    root.look()  # btrfs takes for data what is reserved behind a page in the midst of it
    assert BLOCK <= root.read < 40 * BLOCK


def test_filesystems_without_reflinks_have_no_twins(tmp_path: Path) -> None:
    root = Root(tmp_path, "plain")
    root.image.write_bytes(noise(1, SIZE))
    root.look()
    change(root.image, 0, b"edited")
    root.look()
    assert (root.read, root.twins) == (SIZE, [])
    assert not (root.place.path / ".blocksync/twins").exists()


def test_compression_defragmentation_snapshots_and_no_copy_on_write(tmp_path: Path) -> None:
    """What btrfs can do to a file: places that are none, that change, and files that can't share."""
    with reflinking(tmp_path, "btrfs") as host:
        root = Root(host, "odd")
        root.image.write_bytes(noise(1, SIZE))
        root.look()
        run("btrfs", "filesystem", "defragment", "-r", root.place.path)
        run("btrfs", "subvolume", "snapshot", host, host / "snapshot")
        change(root.image, 0, b"edited")
        root.look()
        run("btrfs", "filesystem", "defragment", "-czstd", root.image)
        change(root.image, 5 * BLOCK, bytes(30 * BLOCK))
        root.look()
        root.look()
        root.image.unlink()
        root.image.touch()
        run("chattr", "+C", root.image)
        root.image.write_bytes(noise(2, SIZE))
        root.look()
        change(root.image, 0, b"edited")
        root.look()
        assert root.read == SIZE
