"""Random calls on a mount and on ext4, compared after each step: the answers, and everything that a reader can see."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.conftest import Mounted
from tests.system.posix import answer, renameat2

FOLDERS = ["", "d/", "d/e/", "f/"]
NAMES = [folder + name for folder in FOLDERS for name in ("a", "b", "d", "e")] + ["d", "f"]
paths = st.sampled_from(NAMES)
offsets = st.one_of(
    st.integers(0, 200_000), st.sampled_from([0, 4095, 4096, 65535, 65536, 131072, 2**31, 2**40, 2**43])
)
contents = st.builds(
    lambda letter, length: bytes([letter]) * length,
    st.integers(0, 3),
    st.sampled_from([0, 1, 100, 4096, 5000, 65536, 70_000]),
)
numbers = st.integers(0, 3)
"""Picks one of the open handles."""


@dataclass
class Side:
    """One of the two file systems.

    Attributes:
        root: Where the calls happen.
        handles: Open files, in the order in which they were opened.
    """

    root: Path
    handles: list[int] = field(default_factory=list)

    def close(self) -> None:
        while self.handles:
            os.close(self.handles.pop())


def times(info: os.stat_result) -> tuple[object, ...]:
    """Explicit times are compared; those of now are only told apart from them, two clocks being read."""
    return tuple(ns if ns < 10**18 else "now" for ns in (info.st_atime_ns, info.st_mtime_ns))


def seen(root: Path) -> dict[str, tuple[object, ...]]:
    """What a reader finds below a folder. Reading it changes access times: they are looked at first."""
    found: dict[str, tuple[object, ...]] = {}
    for top, folders, names in os.walk(root):
        for name in sorted([*folders, *names]):
            path = os.path.join(top, name)
            info = os.lstat(path)
            is_file = stat.S_ISREG(info.st_mode)
            size = info.st_size if is_file or stat.S_ISLNK(info.st_mode) else None
            mtime = info.st_mtime_ns if info.st_mtime_ns < 10**18 else "now"
            found[os.path.relpath(path, root)] = (
                oct(info.st_mode),
                info.st_nlink,
                info.st_uid,
                info.st_gid,
                size,
                mtime,
                edges(path, info.st_size) if is_file else None,
                os.readlink(path) if stat.S_ISLNK(info.st_mode) else None,
                sorted((name, os.getxattr(path, name, follow_symlinks=False)) for name in listed(path)),
            )
    return found


def listed(path: str) -> list[str]:
    return os.listxattr(path, follow_symlinks=False)


def edges(path: str, size: int) -> list[bytes]:
    """The content; of a huge sparse file its parts around the offsets that are written to."""
    with open(path, "rb") as file:
        if size <= 1 << 20:
            return [file.read()]
        parts = []
        for offset in (0, 65_536, 2**31, 2**40, 2**43, max(0, size - 70_000)):
            file.seek(max(0, offset - 4096))
            parts.append(file.read(80_000))
        return parts


class PosixMachine(RuleBasedStateMachine):
    """Two folders that must stay equal."""

    mounted: ClassVar[Mounted]
    ext4: ClassVar[Path]
    steps: ClassVar[int] = 0

    @initialize()
    def begin(self) -> None:
        self.sides = [Side(Path(tempfile.mkdtemp(dir=place))) for place in (self.mounted.path, self.ext4)]
        self.steps_since_seal = self.steps_since_remount = 0
        for side in self.sides:
            os.chmod(side.root, 0o755)
            os.makedirs(side.root / "d/e")
            os.mkdir(side.root / "f")

    def teardown(self) -> None:
        if hasattr(self, "sides"):
            for side in self.sides:
                side.close()
                shutil.rmtree(side.root)

    def both(self, call: Callable[[Side], object]) -> None:
        """Make a call on both sides: their answers must be equal."""
        type(self).steps += 1
        self.steps_since_seal += 1
        self.steps_since_remount += 1
        here, there = (answer(call, side) for side in self.sides)
        assert here == there, f"mount: {here!r:.200}, ext4: {there!r:.200}"

    @invariant()
    def looks_the_same(self) -> None:
        if hasattr(self, "sides"):
            here, there = (seen(side.root) for side in self.sides)
            for path in sorted(here.keys() | there.keys()):
                assert here.get(path) == there.get(path), path

    # --- names ---

    @rule(path=paths)
    def mkdir(self, path: str) -> None:
        self.both(lambda side: os.mkdir(side.root / path))

    @rule(path=paths)
    def mkfifo(self, path: str) -> None:
        self.both(lambda side: os.mkfifo(side.root / path))

    @rule(path=paths, to=st.sampled_from(["a", "d", "../a", "nowhere", "b"]))
    def symlink(self, path: str, to: str) -> None:
        self.both(lambda side: os.symlink(to, side.root / path))

    @rule(source=paths, path=paths)
    def link(self, source: str, path: str) -> None:
        self.both(lambda side: os.link(side.root / source, side.root / path, follow_symlinks=False))

    @rule(path=paths)
    def unlink(self, path: str) -> None:
        self.both(lambda side: os.unlink(side.root / path))

    @rule(path=paths)
    def rmdir(self, path: str) -> None:
        self.both(lambda side: os.rmdir(side.root / path))

    @rule(source=paths, path=paths, flags=st.sampled_from([0, 0, 0, 1, 2]))
    def rename(self, source: str, path: str, flags: int) -> None:
        self.both(lambda side: renameat2(side.root / source, side.root / path, flags))

    # --- attributes ---

    @rule(path=paths, mode=st.sampled_from([0o644, 0o600, 0o4755, 0o2755, 0o1777, 0o6777]))
    def chmod(self, path: str, mode: int) -> None:
        self.both(lambda side: os.chmod(side.root / path, mode))

    @rule(path=paths, uid=st.sampled_from([-1, 0, 12]), gid=st.sampled_from([-1, 0, 34]))
    def chown(self, path: str, uid: int, gid: int) -> None:
        self.both(lambda side: os.lchown(side.root / path, uid, gid))

    @rule(path=paths, mtime_ns=st.integers(-(2**31) * 10**9, 10**18 - 1))
    def utimes(self, path: str, mtime_ns: int) -> None:
        def set_times(side: Side) -> object:
            os.utime(side.root / path, ns=(123, mtime_ns))
            return times(os.stat(side.root / path))

        self.both(set_times)

    @rule(path=paths, name=st.sampled_from(["user.a", "user.b", "trusted.c"]), value=contents, flags=st.integers(0, 2))
    def setxattr(self, path: str, name: str, value: bytes, flags: int) -> None:
        self.both(lambda side: os.setxattr(side.root / path, name, value[:100], flags))  # ext4 has one block for all

    @rule(path=paths, name=st.sampled_from(["user.a", "user.b", "trusted.c"]))
    def removexattr(self, path: str, name: str) -> None:
        self.both(lambda side: os.removexattr(side.root / path, name))

    # --- contents ---

    @rule(
        path=paths,
        flags=st.sampled_from([0, os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_TRUNC, os.O_CREAT | os.O_TRUNC]),
        appends=st.booleans(),
    )
    def open(self, path: str, flags: int, appends: bool) -> None:
        """O_NONBLOCK: a fifo must not wait for its other end."""

        def open_one(side: Side) -> None:
            mode = os.O_RDWR | os.O_NONBLOCK | (os.O_APPEND if appends else 0)
            side.handles.append(os.open(side.root / path, mode | flags, 0o640))
            if not stat.S_ISREG(os.fstat(side.handles[-1]).st_mode):
                os.close(side.handles.pop())

        if len(self.sides[0].handles) < 4:
            self.both(open_one)

    @rule(number=numbers)
    def close(self, number: int) -> None:
        for side in self.sides:
            if number < len(side.handles):
                os.close(side.handles.pop(number))

    def with_handle(self, number: int, call: Callable[[int], object]) -> None:
        if number < len(self.sides[0].handles):
            self.both(lambda side: call(side.handles[number]))

    @rule(number=numbers, offset=offsets, data=contents)
    def write(self, number: int, offset: int, data: bytes) -> None:
        """pwrite(2): appends with O_APPEND, on Linux."""
        self.with_handle(number, lambda handle: os.pwrite(handle, data, offset))

    @rule(number=numbers, offset=offsets, length=st.sampled_from([1, 4096, 70_000]))
    def read(self, number: int, offset: int, length: int) -> None:
        self.with_handle(number, lambda handle: os.pread(handle, length, offset))

    @rule(number=numbers)
    def stat_of_handle(self, number: int) -> None:
        def looked_at(handle: int) -> object:
            info = os.fstat(handle)
            return info.st_mode, info.st_nlink, info.st_size

        self.with_handle(number, looked_at)

    @rule(number=numbers, size=offsets)
    def truncate(self, number: int, size: int) -> None:
        self.with_handle(number, lambda handle: os.ftruncate(handle, size))

    @rule(path=paths, size=offsets)
    def truncate_by_name(self, path: str, size: int) -> None:
        self.both(lambda side: os.truncate(side.root / path, size))

    @rule(number=numbers)
    def fsync(self, number: int) -> None:
        self.with_handle(number, os.fsync)

    @rule(source=numbers, sink=numbers, offset=st.integers(0, 70_000))
    def copy_file_range(self, source: int, sink: int, offset: int) -> None:
        handles = len(self.sides[0].handles)
        if source != sink and max(source, sink) < handles:
            self.both(lambda side: os.copy_file_range(side.handles[source], side.handles[sink], 50_000, offset, 0))

    # --- the mount's own life ---

    @precondition(lambda self: self.steps_since_seal >= 6)  # it takes as long as a hundred calls
    @rule()
    def seal(self) -> None:
        self.steps_since_seal = 0
        self.mounted.run("flush", self.mounted.path)

    @precondition(lambda self: self.steps_since_remount >= 15)  # likewise
    @rule()
    def remount(self) -> None:
        """All handles are closed first; what was unlinked while open goes with them."""
        self.steps_since_remount = 0
        for side in self.sides:
            side.close()
        self.mounted.umount()
        self.mounted.remount()
