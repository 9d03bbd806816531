"""A bug at any call of the engine's parts, in whichever thread meets it, under a mixed load with all threads running.

It is abandoned, nobody waits for ever, and the next mount finds a sound volume with all that was fsynced.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from blockfs.blocks.directory import BlockDirectory
from blockfs.engine.config import EngineConfig
from blockfs.engine.content.filetable import FileTable
from blockfs.engine.content.staging import StagingDirectory
from blockfs.engine.durable.committer import Committer
from blockfs.engine.durable.flush import Flusher
from blockfs.engine.durable.seal_queue import SealQueue
from blockfs.engine.durable.sealer import Sealer
from blockfs.engine.fatal import Doing
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import AbandonedError, BlockfsError
from blockfs.service import maintenance
from blockfs.tree.schema import ROOT_INO
from blockfs.tree.store import Tree
from tests.unit.blockfs.engine.volumes import USER, make

PLACES: list[tuple[type, str]] = [
    (Tree, "put_inode"),
    (Tree, "link"),
    (Tree, "unlink"),
    (Tree, "remove_inode"),
    (Tree, "_set_leaf_key"),
    (Tree, "_set_allocated"),
    (Tree, "put_generation"),
    (Tree, "drop_generation"),
    (Tree, "keep"),
    (Tree, "freeze"),
    (Tree, "write"),
    (Tree, "retire"),
    (Tree, "put_copy"),
    (Tree, "put_snapshot"),
    (BlockDirectory, "put"),
    (BlockDirectory, "sync"),
    (FileTable, "drop_generations"),
    (FileTable, "settle"),
    (SealQueue, "_choose"),
    (Sealer, "_store"),
    (Sealer, "_replace"),
    (Flusher, "_begin"),
    (Flusher, "_end"),
    (Committer, "_run"),
    (StagingDirectory, "create"),
    (StagingDirectory, "sync"),
    (StagingDirectory, "sweep"),
]
KINDS = ["write", "write", "fsync", "unlink", "rename", "flush", "clone", "zero", "copy", "snapshot", "gc"]
STEPS = 60
PATIENCE_S = 120.0


class BugError(Exception):
    """What nobody expects."""


@dataclass
class Bug:
    """Raised once, at the k-th call of one place, before or after its work."""

    at: int
    after: bool
    calls: int = 0
    has_come: bool = False
    guard: threading.Lock = field(default_factory=threading.Lock)

    def in_place_of(self, whole: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            with self.guard:
                self.calls += 1
                is_now = self.calls == self.at
                self.has_come = self.has_come or is_now
            if is_now and not self.after:
                raise BugError
            done = whole(*arguments, **keywords)
            if is_now:
                raise BugError
            return done

        return call


class Load:
    """What users and control threads do, each in a thread of its own with names of its own."""

    def __init__(self, filesystem: Filesystem, seed: int) -> None:
        self.fs = filesystem
        self.name = b"%d-" % seed
        self.random = random.Random(seed)
        self.durable: dict[bytes, bytes] = {}
        self.files: dict[bytes, int] = {}

    def run(self) -> None:
        for number in range(STEPS):
            if self.fs.fatal.has_struck:
                return
            doing = Doing("a step", looks=False)
            try:
                with doing, suppress(BlockfsError, OSError):
                    self.step(number)
            except Exception as error:  # noqa: BLE001 - as whoever answers requests
                self.fs.fatal.met(error, doing)

    def step(self, number: int) -> None:
        fs, name = self.fs, self.name + b"%d" % number
        kind = self.random.choice(KINDS)
        if kind == "write" or not self.files:
            self.files[name] = fs.namespace.create(ROOT_INO, name, mode=0o600, caller=USER).ino
            fs.files.write(self.files[name], 0, self.random.randbytes(20_000), may_block=True)
            return
        chosen = self.random.choice(sorted(self.files))
        if kind == "fsync":
            content = fs.files.read(self.files[chosen], 0, 1 << 20, may_block=True)
            fs.files.fsync(self.files[chosen])
            self.durable[chosen] = content
        elif kind == "unlink":
            self.durable.pop(chosen, None)
            del self.files[chosen]
            fs.namespace.unlink(ROOT_INO, chosen)
        elif kind == "rename":
            self.durable.pop(chosen, None)
            ino = self.files.pop(chosen)
            fs.namespace.rename(ROOT_INO, chosen, ROOT_INO, name)
            self.files[name] = ino
        elif kind == "flush":
            fs.files.flush()
        elif kind == "clone":
            self.files[name] = fs.clone(self.files[chosen], ROOT_INO, name)
        elif kind == "zero":
            self.durable.pop(chosen, None)
            fs.files.zero(self.files[chosen], self.random.randint(0, 9000), 9000, keeps_size=True)
        elif kind == "copy":
            other = self.random.choice(sorted(self.files))
            self.durable.pop(other, None)
            fs.copy_range(self.files[chosen], 0, self.files[other], 5 * 4096, 4 * 4096)
        elif kind == "snapshot":
            fs.snapshots.create(ROOT_INO, name, stop=lambda: fs.fatal.has_struck)
            fs.snapshots.remove(fs.snapshots.take_away(name))
        else:
            maintenance.gc(fs.blocks, fs.tree, fs.ballast, commit=fs.commit, stop=lambda: fs.fatal.has_struck)


def run_loads(filesystem: Filesystem, first: int) -> list[Load]:
    """Three at a time."""
    loads = [Load(filesystem, first + number) for number in range(3)]
    threads = [threading.Thread(target=load.run, daemon=True) for load in loads]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "somebody waits for ever"
    return loads


@pytest.mark.parametrize(("owner", "method"), PLACES, ids=lambda one: one if isinstance(one, str) else one.__name__)
def test_a_bug_anywhere_leaves_a_sound_volume_with_all_that_was_fsynced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    chooser = random.Random(f"{owner.__name__}.{method}")
    path = make(tmp_path / "volume")
    eager = EngineConfig(
        commit_s=0.01, publish_s=0.05, quiet_s=0.02, reserve_bytes=0, ballast_bytes=0, staged_limit_bytes=1 << 20
    )
    filesystem = Filesystem.open(path, eager)
    struck = threading.Event()
    filesystem.fatal.listen(struck.set)
    bug = Bug(at=chooser.randint(1, 12), after=chooser.random() < 0.5)
    monkeypatch.setattr(owner, method, bug.in_place_of(getattr(owner, method)))
    loads: list[Load] = []
    while not bug.has_come:
        loads += run_loads(filesystem, first=len(loads))
    assert struck.wait(PATIENCE_S)
    with pytest.raises(AbandonedError):
        filesystem.close()
    monkeypatch.undo()
    again = Filesystem.open(path, EngineConfig(background=False, reserve_bytes=0, ballast_bytes=0))
    assert maintenance.fsck(again.blocks, again.tree, again.volume.staging_path).findings == []
    for load in loads:
        for name, content in load.durable.items():
            ino = again.tree.lookup(ROOT_INO, name)
            assert ino is not None, name
            assert again.files.read(ino, 0, 1 << 20, may_block=True) == content
    again.files.flush()
    assert maintenance.fsck(again.blocks, again.tree, again.volume.staging_path).findings == []
    again.close()
