"""Whatever takes a new name asks the space reserve; whatever gives room back goes on without asking."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from msgspec.structs import replace

import blockfs.engine
from blockfs.engine.config import EngineConfig
from blockfs.engine.copies.conditions import Expectation, Place
from blockfs.engine.copies.new_files import NewFile
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.newnames import LEAF_BYTES
from blockfs.engine.space.room import Room
from blockfs.errors import FsError, NoSpaceError
from blockfs.runtime.space import Space
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, Kind
from tests.unit.blockfs.engine.volumes import USER, config, content, create, findings, make

RESERVE = 1 << 20
TRASH = Place(parent=ROOT_INO, name=b"trash")


class Host:
    """A host with as much room as a test says, and looked at each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.available_bytes = 1 << 40
        monkeypatch.setattr(Room, "host", lambda _: self.space)
        monkeypatch.setattr("blockfs.engine.space.room._CHECK_BYTES", 0)

    @property
    def space(self) -> Space:
        free = self.available_bytes
        return Space(total_bytes=1 << 40, free_bytes=free, available_bytes=free, is_quota=False)

    def fill(self) -> None:
        self.available_bytes = RESERVE


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(monkeypatch)


@pytest.fixture
def filesystem(tmp_path: Path, host: Host) -> Iterator[Filesystem]:
    """With a sealed file `f`, a folder `d`, and a snapshot `s` of both."""
    settings: EngineConfig = replace(config(), reserve_bytes=RESERVE)
    opened = Filesystem.open(make(tmp_path / "volume"), settings)
    opened.files.write(create(opened, b"f"), 0, b"x" * 9000)
    opened.namespace.mkdir(ROOT_INO, b"d", mode=0o755, caller=USER)
    opened.snapshots.create(ROOT_INO, b"s")
    yield opened
    opened.abandon()


def ino(filesystem: Filesystem, name: bytes = b"f") -> int:
    found = filesystem.tree.lookup(ROOT_INO, name)
    assert found is not None
    return found


def names(filesystem: Filesystem) -> list[bytes]:
    return [name for place in (ROOT_INO, SNAPSHOTS_INO) for name, _ in filesystem.tree.entries(place)]


def prepare(filesystem: Filesystem, base: tuple[int, int] | None = None) -> int:
    return filesystem.apply.prepare_file(size_bytes=0, mode=0o644, caller=USER, mtime_ns=0, base=base)


NEW_FILE: Final = NewFile(
    place=Place(parent=ROOT_INO, name=b"n"), size_bytes=0, mode=0o644, caller=USER, mtime_ns=0, ids=b""
)

Make = Callable[[Filesystem], object]

MAKERS: dict[str, Make] = {
    "create": lambda fs: fs.namespace.create(ROOT_INO, b"n", mode=0o644, caller=USER),
    "mknod": lambda fs: fs.namespace.mknod(ROOT_INO, b"n", kind=Kind.FIFO, mode=0o644, caller=USER),
    "mkdir": lambda fs: fs.namespace.mkdir(ROOT_INO, b"n", mode=0o755, caller=USER),
    "symlink": lambda fs: fs.namespace.symlink(ROOT_INO, b"n", target=b"t", caller=USER),
    "link": lambda fs: fs.namespace.link(ino(fs), ROOT_INO, b"n"),
    "clone": lambda fs: fs.clone(ino(fs), ROOT_INO, b"n"),
    "snapshot": lambda fs: fs.snapshots.create(ROOT_INO, b"n"),
    "restore": lambda fs: fs.snapshots.restore(b"s", b"", ROOT_INO, b"n"),
    "prepare": prepare,
    "apply mkdir": lambda fs: fs.apply.mkdir(Place(parent=ROOT_INO, name=b"n"), mode=0o755, caller=USER),
    "new files": lambda fs: fs.new_files.make([NEW_FILE]),
    "apply symlink": lambda fs: fs.apply.symlink(Place(parent=ROOT_INO, name=b"n"), target=b"t", caller=USER),
}


@pytest.mark.parametrize("make_one", MAKERS.values(), ids=MAKERS)
def test_what_takes_a_name_is_refused_when_the_reserve_has_begun(
    filesystem: Filesystem, host: Host, make_one: Make
) -> None:
    before = names(filesystem)
    host.fill()
    with pytest.raises(NoSpaceError):
        make_one(filesystem)
    assert names(filesystem) == before
    filesystem.files.flush()
    assert findings(filesystem) == []
    host.available_bytes = 1 << 40
    make_one(filesystem)
    filesystem.files.flush()
    assert findings(filesystem) == []


@pytest.mark.parametrize("replaces", [False, True])
def test_installing_a_prepared_file_asks_and_the_handle_stays_valid(
    filesystem: Filesystem, host: Host, replaces: bool
) -> None:
    handle = prepare(filesystem)
    place = Place(parent=ROOT_INO, name=b"f" if replaces else b"n")
    expect = Expectation(ino=ino(filesystem) if replaces else None)
    before = names(filesystem)
    host.fill()
    with pytest.raises(NoSpaceError):
        filesystem.apply.install_file(handle, place, expect, trash=TRASH)
    assert names(filesystem) == before
    host.available_bytes = 1 << 40
    assert filesystem.apply.install_file(handle, place, expect, trash=TRASH).ino == handle


def test_the_blocks_of_a_prepared_file_ask(filesystem: Filesystem, host: Host) -> None:
    (ids,) = [filesystem.tree.block_ids(ino(filesystem), 0, 2)]
    handle = filesystem.apply.prepare_file(size_bytes=8192, mode=0o644, caller=USER, mtime_ns=0)
    host.fill()
    with pytest.raises(NoSpaceError):
        filesystem.apply.set_blocks(handle, 0, ids)
    host.available_bytes = 1 << 40
    assert filesystem.apply.set_blocks(handle, 0, ids) == []


def test_a_snapshot_that_runs_into_the_reserve_half_way_leaves_nothing(filesystem: Filesystem, host: Host) -> None:
    """Each inode of the copy asks: thousands of them are as much as somebody's file."""
    asked = 0
    ask = filesystem.namespace.new_names.ask

    def ask_and_fill(length: int) -> None:
        nonlocal asked
        asked += 1
        if asked == 3:
            host.fill()
        ask(length)

    filesystem.snapshots._new_names.ask = ask_and_fill  # type: ignore[method-assign]
    before = names(filesystem)
    with pytest.raises(NoSpaceError):
        filesystem.snapshots.create(ROOT_INO, b"n")
    assert asked == 3
    assert names(filesystem) == before
    assert findings(filesystem) == []


def test_a_clone_that_is_refused_in_the_last_moment_leaves_the_seal_whole(filesystem: Filesystem, host: Host) -> None:
    """The leaves that the seal has just put into the tree keep their blocks."""
    filesystem.files.write(ino(filesystem), 0, b"y" * 9000)
    take = filesystem.namespace.new_names.take

    def fill_and_take(*args: object, **more: object) -> object:
        host.fill()
        return take(*args, **more)  # type: ignore[arg-type]

    filesystem.namespace.new_names.take = fill_and_take  # type: ignore[method-assign, assignment]
    with pytest.raises(NoSpaceError):
        filesystem.clone(ino(filesystem), ROOT_INO, b"n")
    assert filesystem.staged_bytes == 0
    filesystem.commit()
    assert content(filesystem, b"f") == b"y" * 9000
    assert findings(filesystem) == []


def test_the_leaves_of_a_clone_count(filesystem: Filesystem, host: Host) -> None:
    """A file of a TiB has 65,536 of them."""
    (inode,) = [filesystem.tree.inode(ino(filesystem))]
    assert inode is not None
    assert filesystem.namespace.new_names.leaf_bytes(inode, 4096) == LEAF_BYTES
    sparse = replace(inode, size_bytes=1 << 62)
    assert filesystem.namespace.new_names.leaf_bytes(sparse, 4096) == 3 * LEAF_BYTES


def test_what_gives_room_back_or_only_moves_goes_on(filesystem: Filesystem, host: Host) -> None:
    host.fill()
    filesystem.namespace.rename(ROOT_INO, b"f", ROOT_INO, b"g")
    filesystem.apply.move(
        Place(parent=ROOT_INO, name=b"g"), Place(parent=ROOT_INO, name=b"f"), Expectation(ino=ino(filesystem, b"g"))
    )
    filesystem.files.truncate(ino(filesystem), 5000, may_block=True)
    filesystem.apply.remove(Place(parent=ROOT_INO, name=b"f"), Expectation(ino=ino(filesystem)), trash=TRASH)
    filesystem.namespace.unlink(ROOT_INO, b"trash")
    filesystem.namespace.rmdir(ROOT_INO, b"d")
    filesystem.snapshots.remove(filesystem.snapshots.take_away(b"s"))
    filesystem.commit()
    assert names(filesystem) == []
    assert findings(filesystem) == []


def test_a_name_that_is_taken_is_said_before_the_room_is_looked_at(filesystem: Filesystem, host: Host) -> None:
    host.fill()
    with pytest.raises(FsError) as refused:
        filesystem.clone(ino(filesystem), ROOT_INO, b"d")
    assert refused.value.errno == errno.EEXIST


def test_only_one_module_decides_that_a_new_name_is_free() -> None:
    """Five did, and one of them asked the reserve. A rename decides for itself: it must go on."""
    (folder,) = blockfs.engine.__path__
    decides = re.compile(r"FsError\(errno\.EEXIST")
    deciders = {path.name for path in Path(folder).rglob("*.py") if decides.search(path.read_text())}
    assert deciders == {"newnames.py", "rename.py", "xattrs.py"}
