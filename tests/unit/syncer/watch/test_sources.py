"""Both sources against a real filesystem: whatever changes makes its directory dirty, or everything."""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from syncer.core.model import RelPath
from syncer.core.paths import PRIVATE, join, split
from syncer.watch.dirt import CLEAN, Dirt
from syncer.watch.inotify import DIRECTORY_EVENTS, Inotify
from syncer.watch.inotify_source import InotifySource
from syncer.watch.portable_source import PortableSource
from syncer.watch.source import DirtySource, SourceLostError

Scenario = Callable[["Watched"], Awaitable[None]]
KINDS: dict[str, Callable[[bytes], DirtySource]] = {"inotify": InotifySource, "watchdog": PortableSource}


class Watched:
    """An armed source and its root."""

    def __init__(self, path: Path, source: DirtySource) -> None:
        self.path = path
        self.source = source
        self.seen: Dirt = CLEAN

    async def until(self, *directories: bytes) -> Dirt:
        """Wait until these are dirty; returns all that is."""
        wanted = {RelPath(each) for each in directories}
        while not (self.seen.everything or wanted <= told(self.seen)):
            await self.source.wait()
            self.seen |= self.source.take()
        found, self.seen = self.seen, CLEAN
        return found


def told(dirt: Dirt) -> set[RelPath]:
    """Directories in which something is dirty."""
    return {*dirt.directories, *(split(path)[0] for path in dirt.entries)}


def watching(kind: str, path: Path, scenario: Scenario) -> None:
    async def main() -> None:
        source = KINDS[kind](os.fsencode(path))
        try:
            await trio.to_thread.run_sync(source.arm)
            await scenario(Watched(path, source))
        finally:
            await trio.to_thread.run_sync(source.close)

    trio.run(main)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    (path / "a" / "b").mkdir(parents=True)
    (path / ".blocksync" / "tmp").mkdir(parents=True)
    (path / "a" / "file").write_bytes(b"1")
    return path


@pytest.mark.parametrize("kind", KINDS)
def test_writing_making_and_removing_are_noticed_where_they_happen(kind: str, root: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "a" / "file").write_bytes(b"2")
        assert not (await watched.until(b"a")).everything
        (root / "a" / "b" / "new").write_bytes(b"")
        await watched.until(b"a/b")
        (root / "a" / "file").unlink()
        await watched.until(b"a")
        (root / "top").mkdir()
        await watched.until(b"")

    watching(kind, root, scenario)


def test_the_very_names_are_told(root: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "a" / "file").write_bytes(b"2")
        (root / "a" / "b" / "new").write_bytes(b"1")
        seen = await watched.until(b"a", b"a/b")
        assert seen == Dirt(entries=frozenset({RelPath(b"a/file"), RelPath(b"a/b/new")}))
        (root / "a" / "b" / "new").rename(root / "a" / "newer")
        assert (await watched.until(b"a", b"a/b")).entries == {b"a/b/new", b"a/newer"}

    watching("inotify", root, scenario)


def test_a_directory_that_went_and_came_back_is_looked_at(root: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "a").rename(root / "b")
        (root / "b" / "b" / "new").write_bytes(b"1")
        await watched.until(b"b/b")
        (root / "b").rename(root / "a")
        assert {b"a", b"a/b"} <= (await watched.until(b"", b"a")).directories

    watching("inotify", root, scenario)


def test_a_new_tree_is_watched_down_to_its_leaves(root: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "x" / "y" / "z").mkdir(parents=True)
        await watched.until(b"")
        (root / "x" / "y" / "z" / "later").write_bytes(b"1")
        await watched.until(b"x/y/z")

    watching("inotify", root, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_renamed_directory_is_told_by_its_new_name(kind: str, root: Path) -> None:
    (root / "c").mkdir()  # before: watchdog may miss what happens in a folder that was just made

    async def scenario(watched: Watched) -> None:
        (root / "a").rename(root / "c" / "moved")
        await watched.until(b"", b"c")
        (root / "c" / "moved" / "b" / "new").write_bytes(b"1")
        await watched.until(b"c/moved/b")

    watching(kind, root, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_a_move_out_of_the_root_is_noticed(kind: str, root: Path, tmp_path: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "a").rename(tmp_path / "outside")
        await watched.until(b"")

    watching(kind, root, scenario)


def test_what_was_moved_out_is_not_watched_any_more(root: Path, tmp_path: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / "a").rename(tmp_path / "outside")
        await watched.until(b"")
        (tmp_path / "outside" / "b" / "new").write_bytes(b"1")
        (root / "end").mkdir()
        assert told(await watched.until(b"")) <= {b"", b"end"}

    watching("inotify", root, scenario)


@pytest.mark.parametrize("kind", KINDS)
def test_our_own_folder_is_no_dirt(kind: str, root: Path) -> None:
    async def scenario(watched: Watched) -> None:
        (root / ".blocksync" / "tmp" / "x").write_bytes(b"1")
        (root / "a" / "file").write_bytes(b"3")
        assert told(await watched.until(b"a")) <= {b"a", b"a/file"}

    watching(kind, root, scenario)


def test_a_root_that_is_moved_away_is_lost(root: Path, tmp_path: Path) -> None:
    async def scenario(watched: Watched) -> None:
        root.rename(tmp_path / "elsewhere")
        with pytest.raises(SourceLostError):
            await watched.until(b"never")

    watching("inotify", root, scenario)


def test_a_root_that_is_not_there_is_lost(tmp_path: Path) -> None:
    for kind in KINDS:
        with pytest.raises(SourceLostError):
            watching(kind, tmp_path / "none", lambda _: trio.sleep(0))


def test_a_queue_that_overflows_makes_everything_dirty(root: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())

    async def main() -> None:
        (root / "a" / "other").write_bytes(b"1")
        source = InotifySource(os.fsencode(root))
        try:
            await trio.to_thread.run_sync(source.prepare)  # armed, but nobody reads yet
            for number in range(limit + 1):  # two files in turn: equal events in a row are one
                os.utime(root / "a" / ("file", "other")[number % 2])
            (root / "late" / "er").mkdir(parents=True)
            source.begin()
            watched = Watched(root, source)
            assert (await watched.until(b"never")).everything
            (root / "late" / "er" / "file").write_bytes(b"1")  # the watch of it was made after the overflow
            await watched.until(b"late/er")
        finally:
            await trio.to_thread.run_sync(source.close)

    trio.run(main)


def test_a_limit_of_watches_is_told_and_the_rest_is_watched(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Inotify.add

    def limited(self: Inotify, directory: int, mask: int = DIRECTORY_EVENTS) -> int:
        if os.readlink(f"/proc/self/fd/{directory}").endswith("/b"):
            raise OSError(errno.ENOSPC, "no watches left")
        return add(self, directory, mask)

    monkeypatch.setattr(Inotify, "add", limited)

    async def scenario(watched: Watched) -> None:
        assert "1 directory is not watched" in (watched.source.problem or "")
        (root / "a" / "file").write_bytes(b"2")
        await watched.until(b"a")

    watching("inotify", root, scenario)


def test_random_trees_leave_nothing_unnoticed(root: Path) -> None:
    """A directory that is still at its place and holds something else is dirty; seeds are replayable.

    One that is new at its place needs no dirt: who looks at the directory above finds another inode, and goes down.
    """

    async def scenario(watched: Watched) -> None:
        before = listing(root)
        for seed in range(40):
            change(random.Random(seed), root)
            fence = root / f"fence-{seed}"
            fence.mkdir()
            seen = await watched.until(os.fsencode(fence.name), b"")
            after = listing(root)
            stayed = {path for path in before.keys() & after.keys() if before[path][0] == after[path][0]}
            for path in stayed - seen.directories if not seen.everything else ():
                names = {join(path, name) for name in different(before[path][1], after[path][1])}
                assert names <= seen.entries, (seed, path)
            before = after

    watching("inotify", root, scenario)


def different(before: dict[bytes, int], after: dict[bytes, int]) -> set[bytes]:
    """Names with another entry behind them."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def listing(root: Path) -> dict[RelPath, tuple[int, dict[bytes, int]]]:
    """What each directory is and holds."""
    found: dict[RelPath, tuple[int, dict[bytes, int]]] = {}
    for folder, folders, files in os.walk(root):
        relative = os.path.relpath(folder, root)
        if relative.split(os.sep, 1)[0] != ".blocksync":
            marks = {os.fsencode(name): os.lstat(os.path.join(folder, name)).st_ino for name in folders}
            marks |= {os.fsencode(name): os.lstat(os.path.join(folder, name)).st_mtime_ns for name in files}
            if relative == ".":
                marks.pop(PRIVATE)
            path = RelPath(b"" if relative == "." else os.fsencode(relative))
            found[path] = (os.lstat(folder).st_ino, marks)
    return found


def change(rng: random.Random, root: Path) -> None:
    for _ in range(rng.randrange(1, 12)):
        folders = [Path(folder) for folder, _, _ in os.walk(root) if ".blocksync" not in folder]
        place, other = rng.choice(folders), rng.choice(folders)
        name = str(rng.randrange(6))
        kind = rng.randrange(4)
        if kind == 0:
            (place / f"f{name}").write_bytes(rng.randbytes(4))
        elif kind == 1:
            (place / f"d{name}" / f"d{name}").mkdir(parents=True, exist_ok=True)
        elif kind == 2 and place != root and place not in (other, *other.parents) and not (other / place.name).exists():
            place.rename(other / place.name)
        elif kind == 3 and place != root and rng.random() < 0.3:
            shutil.rmtree(place)
