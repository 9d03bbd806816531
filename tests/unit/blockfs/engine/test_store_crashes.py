"""Deaths and power cuts between the stores of one volume: staging, block segments and index, tree.

Each store's own sequences are tested with it. Here one life goes through all of them, with collections between, and is
ended before every single step that any of them does.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from blockfs.blocks import directory
from blockfs.blocks.maintenance.scrub import scrub
from blockfs.engine.filesystem import Filesystem
from blockfs.service import maintenance
from blockfs.tree.schema import ROOT_INO
from tests.unit.blockfs.blocks.disks import Died as DiskDied
from tests.unit.blockfs.blocks.disks import PowerCutDisk, memory_folder
from tests.unit.blockfs.engine.volumes import Died, PowerCut, config, content, create, find, findings, make

pytestmark = pytest.mark.usefixtures("both_ways")

FIRST = random.Random(1).randbytes(3 * 4096)
SECOND = random.Random(2).randbytes(3 * 4096)

Contents = dict[bytes, bytes | None]


class Steps:
    """Counts the steps of all stores, and ends the life before one of them."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal
        self.names: list[str] = []

    def engine(self, name: str) -> None:
        """A checkpoint of the engine."""
        self._count(name, Died)

    def disk(self, _number: int, name: str) -> BaseException | None:
        """A step of the block directory's disk."""
        self._count(f"blocks.{name}", DiskDied)
        return None

    def _count(self, name: str, death: type[BaseException]) -> None:
        if len(self.names) >= self.fatal:
            raise death(name)
        self.names.append(name)


def void(_: object) -> None:
    """Drop a result."""


class Life:
    """What is done to a volume, and what its two files may hold at any time: each of `possible`, by itself."""

    def __init__(self, filesystem: Filesystem) -> None:
        self.filesystem = filesystem
        self.possible: dict[bytes, list[bytes | None]] = {b"f": [None], b"g": [None]}

    def live(self) -> None:
        """Replace a content, collect, write it again to another file, share blocks, remove the first file, collect."""
        f = self.filesystem
        self.save(b"f", FIRST)
        self.save(b"f", SECOND)
        maintenance.gc(f.blocks, f.tree, f.ballast, commit=f.commit)
        self.save(b"g", FIRST)
        self.share_and_empty()
        self.change(b"f", None, lambda: f.namespace.unlink(ROOT_INO, b"f"))
        maintenance.gc(f.blocks, f.tree, f.ballast, commit=f.commit)

    def share_and_empty(self) -> None:
        """Blocks of one file become another one's, too; then they are a hole in the first one."""
        f, g = find(self.filesystem, b"f"), find(self.filesystem, b"g")
        assert f is not None
        assert g is not None
        shared = SECOND[:8192]
        self.change(b"g", shared + FIRST[8192:], lambda: void(self.filesystem.copy_range(f, 0, g, 0, 8192)))
        self.change(b"f", bytes(8192) + SECOND[8192:], lambda: self.filesystem.files.zero(f, 0, 8192, keeps_size=True))

    def save(self, name: bytes, data: bytes) -> None:
        """A new file over the old one, sealed."""

        def act() -> None:
            f = self.filesystem
            ino = create(f, b"new")
            f.files.write(ino, 0, data)
            f.namespace.rename(ROOT_INO, b"new", ROOT_INO, name, may_block=True)
            f.files.flush()

        if self.possible[name] == [None]:
            self.possible[name].append(b"")  # nothing is replaced, so the name may come before the content
        self.change(name, data, act)

    def change(self, name: bytes, after: bytes | None, act: Callable[[], None]) -> None:
        self.possible[name].append(after)
        act()
        self.filesystem.commit()
        self.possible[name] = [after]


def life_until(path: bytes, steps: Steps, monkeypatch: pytest.MonkeyPatch, *, power_cut: bool) -> tuple[Life, bool]:
    """Live until death; returns the life, and whether it died."""
    disk, staging = PowerCutDisk(), PowerCut()
    with monkeypatch.context() as patch:
        patch.setattr(directory, "Disk", lambda: disk)
        filesystem = Filesystem.open(path, config(steps.engine))
    staging.watch(filesystem)
    disk.fault = steps.disk
    life = Life(filesystem)
    has_died = True
    with contextlib.suppress(Died, DiskDied):
        life.live()
        has_died = False
    disk.fault = lambda number, name: None
    filesystem.abandon()
    if power_cut:
        disk.cut_power()
        staging.strike(os.path.join(path, b"staging"), len(steps.names))
    return life, has_died


def check(path: bytes, life: Life) -> None:
    """All three stores agree, nothing promised is lost, and life goes on."""
    again = Filesystem.open(path, config())
    found: Contents = {name: content(again, name) for name in life.possible}
    for name, possible in life.possible.items():
        assert found[name] in possible
    again.files.flush()
    assert findings(again) == []
    assert scrub(again.blocks).is_clean
    maintenance.gc(again.blocks, again.tree, again.ballast, commit=again.commit)
    assert {name: content(again, name) for name in life.possible} == found
    ino = create(again, b"again")
    again.files.write(ino, 0, FIRST + SECOND)
    again.files.flush()
    assert content(again, b"again") == FIRST + SECOND
    assert scrub(again.blocks).is_clean
    again.close()


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_staging_blocks_and_tree_agree_after_a_death_before_any_step(
    monkeypatch: pytest.MonkeyPatch, power_cut: bool
) -> None:
    fatal = 0
    has_died = True
    names: set[str] = set()
    while has_died:
        with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
            path = make(Path(folder, "volume"), block_size=4096)
            steps = Steps(fatal)
            life, has_died = life_until(path, steps, monkeypatch, power_cut=power_cut)
            check(path, life)
        names.update(steps.names)
        fatal += 1
    assert {"blocks.punch", "blocks.commit", "tree.write", "staging.fdatasync", "staging.unlink"} <= names


def cut(filesystem: Filesystem, size: int) -> None:
    ino = find(filesystem, b"f")
    assert ino is not None
    filesystem.files.truncate(ino, size, may_block=True)
    filesystem.files.fsync(ino)


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
@pytest.mark.parametrize("is_sealed", [False, True], ids=["staged", "sealed"])
@pytest.mark.parametrize("size", [5000, 8192], ids=["inside a page", "between pages"])
def test_a_cut_and_a_growth_bring_no_cut_byte_back_whatever_step_is_the_last(
    tmp_path: Path, power_cut: bool, is_sealed: bool, size: int
) -> None:
    """Cut, fsync, grow, fsync: whoever saw the cut must see NUL bytes after the growth."""
    states = [FIRST, FIRST[:size], FIRST[:size].ljust(len(FIRST), b"\0")]
    fatal = 0
    done = 0
    while done < 2:
        path = make(tmp_path / f"volume{fatal}", block_size=4096)
        steps, staging = Steps(1 << 30), PowerCut()
        filesystem = Filesystem.open(path, config(steps.engine))
        staging.watch(filesystem)
        ino = create(filesystem, b"f")
        filesystem.files.write(ino, 0, FIRST)
        filesystem.files.flush() if is_sealed else filesystem.files.fsync(ino)
        steps.fatal = len(steps.names) + fatal
        done = 0
        with contextlib.suppress(Died):
            for length in (size, len(FIRST)):
                cut(filesystem, length)
                done += 1
        filesystem.abandon()
        if power_cut:
            staging.strike(os.path.join(path, b"staging"), fatal)
        again = Filesystem.open(path, config())
        assert content(again, b"f") in states[done : done + 2]
        again.files.flush()
        assert content(again, b"f") in states[done : done + 2]
        assert findings(again) == []
        again.close()
        fatal += 1
    assert fatal > 2
