"""Volumes for the engine's tests: opened without threads, killed at a step, copied as they lie."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from blockfs.engine import volume
from blockfs.engine.config import EngineConfig, no_checkpoint
from blockfs.engine.content.hostfile import data_extents
from blockfs.engine.content.pagemap import PAGE
from blockfs.engine.content.staging import StagingFile, encode_name
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.names.attributes import Caller
from blockfs.tree.fsck.findings import Finding
from blockfs.tree.schema import ROOT_INO
from tests.kit.committed import check

USER = Caller(uid=0, gid=0)
ADOPT_BYTES = EngineConfig().adopt_bytes  # the fixture `both_ways` changes it


class Died(BaseException):
    """The process was killed here. Not an Exception: nothing in the engine may take it for a failure."""


class Killer:
    """A checkpoint that notes each durability step and dies before one of them."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.fatal: int | None = None

    def __call__(self, step: str) -> None:
        if self.fatal is not None and len(self.steps) >= self.fatal:
            raise Died(step)
        self.steps.append(step)

    def arm(self, steps: int) -> None:
        """Die before the step that follows `steps` more."""
        self.steps = []
        self.fatal = steps

    def disarm(self) -> None:
        """Only take notes."""
        self.steps = []
        self.fatal = None


def config(checkpoint: Callable[[str], None] = no_checkpoint, *, staged_limit_bytes: int = 1 << 30) -> EngineConfig:
    return EngineConfig(
        background=False,
        checkpoint=checkpoint,
        reserve_bytes=0,
        ballast_bytes=0,
        staged_limit_bytes=staged_limit_bytes,
        open_staging_files=2,
        adopt_bytes=ADOPT_BYTES,
        quiet_s=0.0,
    )


def make(path: Path, *, block_size: int = 4096) -> bytes:
    """A new volume; returns its path."""
    return volume.init(os.fsencode(path), block_size=block_size).path


def copy(source: bytes, target: Path) -> bytes:
    """Copy a volume as it lies, holes as holes and staged zeros as data: what a killed process leaves."""
    base = os.fsencode(target)
    for folder, _, names in os.walk(source):
        there = os.path.join(base, os.path.relpath(folder, source))
        os.makedirs(there)
        for name in names:
            _copy_file(os.path.join(folder, name), os.path.join(there, name))
    return base


def _copy_file(source: bytes, target: bytes) -> None:
    if not os.path.isfile(source):
        return
    from_fd = os.open(source, os.O_RDONLY)
    to_fd = os.open(target, os.O_WRONLY | os.O_CREAT)
    try:
        for offset, length in data_extents(from_fd):
            os.pwrite(to_fd, os.pread(from_fd, length, offset), offset)
        os.truncate(to_fd, os.fstat(from_fd).st_size)
    finally:
        os.close(from_fd)
        os.close(to_fd)


def create(filesystem: Filesystem, name: bytes) -> int:
    """An empty file in the root; returns its inode."""
    return filesystem.namespace.create(ROOT_INO, name, mode=0o644, caller=USER).ino


def find(filesystem: Filesystem, name: bytes) -> int | None:
    """The inode of a name in the root."""
    return filesystem.tree.lookup(ROOT_INO, name)


def content(filesystem: Filesystem, name: bytes) -> bytes | None:
    """All of a (small) file in the root; None if there is none."""
    ino = find(filesystem, name)
    if ino is None:
        return None
    size = filesystem.namespace.getattr(ino).size_bytes
    data = filesystem.files.read(ino, 0, size, may_block=True)
    assert len(data) == size
    return data


def findings(filesystem: Filesystem) -> list[Finding]:
    """What fsck says of the committed tree."""
    with filesystem.tree.committed() as view:
        return check(view, filesystem.blocks.block_size, filesystem.blocks.missing)


class PowerCut:
    """Knows what of the staging directory is on the disk, and can take away the rest.

    Keeps what every file held at its last fdatasync, and which names were there at the last fsync of the directory.
    LMDB and the block directory make their own promises and keep them in their own tests.
    """

    def __init__(self) -> None:
        self._synced: dict[bytes, dict[int, bytes]] = {}
        self._names: set[bytes] = set()

    def watch(self, filesystem: Filesystem) -> None:
        """Look over the shoulder of a filesystem that was just opened."""
        staging = filesystem._stores.staging
        sync, sync_names = staging.sync, staging.sync_names

        def watched_sync(file: StagingFile, pace: Callable[[], None] | None = None) -> None:
            sync(file, pace)
            with staging.using(file) as fd:
                self._synced[encode_name(file.key)] = _pages(fd)

        def watched_sync_names() -> None:
            sync_names()
            self._names = {encode_name(key) for key in staging.names()}

        staging.sync = watched_sync  # type: ignore[method-assign]
        staging.sync_names = watched_sync_names  # type: ignore[method-assign]

    def strike(self, staging_path: bytes, seed: int) -> None:
        """Lose unsynced pages and names, or not, as a disk does that was writing some of them just then."""
        chance = random.Random(seed)
        for name in sorted(os.listdir(staging_path)):
            path = os.path.join(staging_path, name)
            if name not in self._names and chance.random() < 0.5:
                os.unlink(path)
                continue
            fd = os.open(path, os.O_RDWR)
            now, synced = _pages(fd), self._synced.get(name, {})
            os.ftruncate(fd, 0)
            for page in sorted(now.keys() | synced.keys()):
                chosen = now.get(page) if chance.random() < 0.5 else synced.get(page)
                if chosen is not None:
                    os.pwrite(fd, chosen, page * PAGE)
            os.close(fd)


def _pages(fd: int) -> dict[int, bytes]:
    return {
        at // PAGE: os.pread(fd, PAGE, at).ljust(PAGE, b"\0")
        for offset, length in data_extents(fd)
        for at in range(offset, offset + length, PAGE)
    }
