"""Snapshots against copies of a model: whatever happens to the files, a snapshot stays what it was.

Files are written, cut, renamed, linked and removed; sealed, published, collected; the mount ends, is killed, or its
power is cut, also inside an operation. Each snapshot is compared with what the model held when it was taken.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from blockfs.blocks.maintenance.gc import collect
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import FsError
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO, Kind
from tests.unit.blockfs.engine import volumes
from tests.unit.blockfs.engine.volumes import USER, Died, Killer, PowerCut, config, findings

BLOCK = 4096
NAMES = st.sampled_from([b"a", b"b", b"c"])
FOLDERS = st.sampled_from([b"", b"d"])
SNAPSHOTS = st.sampled_from([b"s1", b"s2", b"s3"])
OFFSETS = st.sampled_from([0, 1, 4095, 4096, 9000, 256 * BLOCK - 1, 256 * BLOCK])

Files = dict[bytes, bytes]
"""Path → content."""


class SnapshotMachine(RuleBasedStateMachine):
    """The filesystem, what its files hold, and what they held at each snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.home = Path(tempfile.mkdtemp())
        self.killer = Killer()
        self.cuts = PowerCut()
        self.volume = volumes.make(self.home / "v0")
        self.generation = 0
        self.kept: dict[bytes, Files] = {}
        self.mount()
        self.fs.namespace.mkdir(ROOT_INO, b"d", mode=0o700, caller=USER)
        self.fs.files.flush()

    def teardown(self) -> None:
        self.fs.abandon()
        shutil.rmtree(self.home)

    def mount(self) -> None:
        self.fs = Filesystem.open(self.volume, config(self.killer))
        self.cuts.watch(self.fs)
        self.fs.snapshots.remove_unfinished()

    def look(self, top: int) -> Files:
        """All files below a directory."""
        found: Files = {}
        for entry in self.fs.namespace.listing(top).read():
            attributes = entry.attributes
            if attributes.kind is Kind.DIRECTORY:
                found |= {entry.name + b"/" + path: data for path, data in self.look(attributes.ino).items()}
            else:
                size = attributes.size_bytes
                found[entry.name] = self.fs.files.read(attributes.ino, 0, size, may_block=True)
        return found

    def folder(self, name: bytes) -> int:
        return self.fs.namespace.resolve(name).ino

    # --- files ---

    @rule(folder=FOLDERS, name=NAMES, offset=OFFSETS, fill=st.integers(1, 255), length=st.sampled_from([1, 5000]))
    def write(self, folder: bytes, name: bytes, offset: int, fill: int, length: int) -> None:
        parent = self.folder(folder)
        ino = self.fs.tree.lookup(parent, name)
        if ino is None:
            ino = self.fs.namespace.create(parent, name, mode=0o600, caller=USER).ino
        self.fs.files.write(ino, offset, bytes([fill]) * length, may_block=True)

    @rule(folder=FOLDERS, name=NAMES, size=OFFSETS)
    def truncate(self, folder: bytes, name: bytes, size: int) -> None:
        ino = self.fs.tree.lookup(self.folder(folder), name)
        if ino is not None:
            self.fs.files.truncate(ino, size, may_block=True)

    @rule(folder=FOLDERS, name=NAMES, offset=OFFSETS, length=st.sampled_from([1, 5000, 20_000]))
    def zero(self, folder: bytes, name: bytes, offset: int, length: int) -> None:
        ino = self.fs.tree.lookup(self.folder(folder), name)
        if ino is not None:
            self.fs.files.zero(ino, offset, length, keeps_size=True)

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), folder=FOLDERS, name=NAMES, to=st.sampled_from([0, 4096, 8192, 100]))
    def copy_from_a_snapshot(self, data: st.DataObject, folder: bytes, name: bytes, to: int) -> None:
        ino = self.fs.tree.lookup(self.folder(folder), name)
        sources = sorted((one, path) for one, files in self.kept.items() for path in files)
        if ino is not None and sources:
            snapshot, path = data.draw(st.sampled_from(sources))
            below = next(one.ino for one in self.fs.snapshots.all() if one.name == snapshot)
            for part in path.split(b"/"):
                below = self.fs.namespace.lookup(below, part).ino
            self.fs.copy_range(below, 0, ino, to, 1 << 20)

    @rule(folder=FOLDERS, name=NAMES)
    def unlink(self, folder: bytes, name: bytes) -> None:
        parent = self.folder(folder)
        if self.fs.tree.lookup(parent, name) is not None:
            self.fs.namespace.unlink(parent, name)

    @rule(folder=FOLDERS, name=NAMES, to=FOLDERS, new=NAMES, linked=st.booleans())
    def move(self, folder: bytes, name: bytes, to: bytes, new: bytes, linked: bool) -> None:
        source, target = self.folder(folder), self.folder(to)
        ino = self.fs.tree.lookup(source, name)
        if ino is None:
            return
        if linked and self.fs.tree.lookup(target, new) is None:
            self.fs.namespace.link(ino, target, new)
        else:
            self.fs.namespace.rename(source, name, target, new, may_block=True)

    # --- maintenance ---

    @rule(how=st.sampled_from(["seal", "sync", "collect"]))
    def settle(self, how: str) -> None:
        if how == "sync":
            self.fs.sync()
        else:
            self.fs.files.flush()
        if how == "collect":
            collect(self.fs.blocks, self.fs.tree.view_for_marking().live_ids)

    @rule()
    def remount(self) -> None:
        before = self.look(ROOT_INO)
        self.fs.close()
        self.mount()
        assert self.look(ROOT_INO) == before

    @rule(power=st.booleans(), seed=st.integers(0, 99))
    def crash(self, power: bool, seed: int) -> None:
        self.generation += 1
        image = volumes.copy(self.volume, self.home / f"v{self.generation}")
        self.fs.abandon()
        shutil.rmtree(self.volume)
        self.volume = image
        self.killer.disarm()
        if power:
            self.cuts.strike(image + b"/staging", seed)
        self.mount()
        assert findings(self.fs) == []

    # --- snapshots ---

    def now(self, source: bytes) -> Files:
        return self.look(self.folder(source))

    @rule(name=SNAPSHOTS, source=FOLDERS)
    def create(self, name: bytes, source: bytes) -> None:
        try:
            made = self.fs.snapshots.create(self.folder(source), name)
        except FsError:
            assert name in self.kept
            return
        self.kept[name] = self.now(source)
        assert made.row.source == source

    @rule(name=SNAPSHOTS)
    def delete(self, name: bytes) -> None:
        if self.kept.pop(name, None) is not None:
            self.fs.snapshots.remove(self.fs.snapshots.take_away(name))

    @rule(name=SNAPSHOTS, steps=st.integers(0, 12), source=FOLDERS, power=st.booleans(), seed=st.integers(0, 99))
    def die_while_creating(self, name: bytes, steps: int, source: bytes, power: bool, seed: int) -> None:
        if name in self.kept:
            return
        expected = self.now(source)
        self.killer.arm(steps)
        with suppress(Died):
            self.fs.snapshots.create(self.folder(source), name)
        self.crash(power, seed)
        if any(one.name == name for one in self.fs.snapshots.all()):
            self.kept[name] = expected

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), steps=st.integers(0, 6), power=st.booleans(), seed=st.integers(0, 99))
    def die_while_deleting(self, data: st.DataObject, steps: int, power: bool, seed: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.kept)))
        self.killer.arm(steps)
        with suppress(Died):
            self.fs.snapshots.remove(self.fs.snapshots.take_away(name))
        self.crash(power, seed)
        if not any(one.name == name for one in self.fs.snapshots.all()):
            del self.kept[name]

    @precondition(lambda self: self.kept)
    @rule(data=st.data(), folder=FOLDERS)
    def restore(self, data: st.DataObject, folder: bytes) -> None:
        name = data.draw(st.sampled_from(sorted(self.kept)))
        parent = self.folder(folder)
        if self.fs.tree.lookup(parent, b"back") is not None:
            return
        self.fs.snapshots.restore(name, b"", parent, b"back")
        place = b"/".join(part for part in (folder, b"back") if part)
        assert self.now(place) == self.kept[name]

    @invariant()
    def snapshots_are_what_they_were(self) -> None:
        kept = {one.name: self.look(one.ino) for one in self.fs.snapshots.all()}
        assert kept == self.kept
        if not self.kept:
            assert list(self.fs.tree.entries(SNAPSHOTS_INO)) == []
