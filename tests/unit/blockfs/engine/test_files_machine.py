"""Files against a model: writes, cuts, seals, clones, remounts and crashes at random places, in random order."""

from __future__ import annotations

import contextlib
import copy
import os
import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from blockfs.engine.filesystem import Filesystem
from blockfs.errors import WouldBlock
from blockfs.tree.schema import ROOT_INO
from tests import effort
from tests.unit.blockfs.engine.volumes import Died, Killer, PowerCut, config, create, find, findings, make

pytestmark = pytest.mark.usefixtures("both_ways")

PAGE = 4096
TIB = 1 << 40
NAMES = [b"a", b"b", b"c"]
numbers = st.integers(0, 2)
"""Picks one of the names there are."""


class Place(msgspec.Struct, frozen=True):
    """A byte range near a border: of a page, block, leaf or 1 TiB range."""

    block: int
    tebibytes: int
    shift: int
    length: int
    ends_there: bool

    def offset(self, block_size: int) -> int:
        border = self.tebibytes * TIB + self.block * block_size + self.shift
        return max(0, border - (self.length if self.ends_there else 0))


places = st.builds(
    Place,
    block=st.sampled_from([0, 0, 1, 1, 2, 3, 255, 256]),
    tebibytes=st.sampled_from([0, 0, 0, 0, 1]),
    shift=st.sampled_from([0, 0, 1, -1, PAGE, -PAGE, 100, PAGE // 2]),
    length=st.sampled_from([1, 100, PAGE, PAGE + 1, 2 * PAGE, 65536]),
    ends_there=st.booleans(),
)


class Content:
    """A sparse file: pages that are not all NUL, and a size."""

    def __init__(self) -> None:
        self.pages: dict[int, bytes] = {}
        self.size = 0

    def write(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            page, start = divmod(offset + at, PAGE)
            run = min(PAGE - start, len(data) - at)
            old = bytearray(self.pages.get(page, bytes(PAGE)))
            old[start : start + run] = data[at : at + run]
            self._put(page, bytes(old))
            at += run
        self.size = max(self.size, offset + len(data))

    def truncate(self, size: int) -> None:
        for page in [page for page in self.pages if page * PAGE >= size]:
            del self.pages[page]
        last, keep = divmod(size, PAGE)
        if last in self.pages:
            self._put(last, self.pages[last][:keep].ljust(PAGE, b"\0"))
        self.size = size

    def zero(self, offset: int, length: int, *, grows: bool) -> None:
        """As fallocate(2): nothing but a size past the end."""
        size = self.size
        for page in sorted(self.pages):
            start, end = max(offset, page * PAGE), min(offset + length, (page + 1) * PAGE)
            if start < end:
                self.write(start, bytes(end - start))
        self.size = max(size, offset + length) if grows else size

    def read(self, offset: int, length: int) -> bytes:
        length = max(0, min(length, self.size - offset))
        first = offset // PAGE
        pages = range(first, -(-(offset + length) // PAGE))
        joined = b"".join(self.pages.get(page, bytes(PAGE)) for page in pages)
        return joined[offset - first * PAGE :][:length]

    def _put(self, page: int, data: bytes) -> None:
        if data.strip(b"\0"):
            self.pages[page] = data
        else:
            self.pages.pop(page, None)


class FilesMachine(RuleBasedStateMachine):
    """Three names and the inodes they had.

    Attributes:
        names: Name → inode, now.
        contents: Inode → content, now.
        past_names: Name → what it led to since it was last durable: (inode, the earliest state that its content may
            be in under this name), or None.
        past: Inode → (serial, content) of all states since it was last durable.
    """

    @initialize(block_size=st.sampled_from([4096, 8192, 65536]))
    def begin(self, block_size: int) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="blockfs-files-"))
        self.block_size = block_size
        self.path = make(self.directory / "volume", block_size=block_size)
        self.killer = Killer()
        self.power = PowerCut()
        self.serial = 0
        self.names: dict[bytes, int] = {}
        self.contents: dict[int, Content] = {}
        self.past_names: dict[bytes, list[tuple[int, int] | None]] = {}
        self.past: dict[int, list[tuple[int, Content]]] = {}
        self.open()
        for name in NAMES[:2]:
            self.names[name] = create(self.filesystem, name)
            self.contents[self.names[name]] = Content()
        self.filesystem.commit()
        self.all_is_durable()

    def open(self) -> None:
        self.filesystem = Filesystem.open(self.path, config(self.killer, staged_limit_bytes=1 << 20))
        self.power.watch(self.filesystem)

    def teardown(self) -> None:
        if not hasattr(self, "filesystem"):
            return
        self.killer.disarm()
        try:
            self.filesystem.files.flush()
            self.check_all()
            assert self.filesystem.staged_bytes == 0
            self.check_holes()
            assert findings(self.filesystem) == []
            self.filesystem.close()
            assert os.listdir(self.directory / "volume" / "staging") == []
        finally:
            self.filesystem.abandon()
            shutil.rmtree(self.directory)

    # --- the model's book-keeping ---

    def all_is_durable(self) -> None:
        self.past = {ino: [(self.serial, copy.deepcopy(content))] for ino, content in self.contents.items()}
        self.names_are_durable()

    def names_are_durable(self) -> None:
        self.past_names = {name: [(self.names[name], 0) if name in self.names else None] for name in NAMES}

    def changed(self, ino: int) -> None:
        self.serial += 1
        self.past[ino].append((self.serial, copy.deepcopy(self.contents[ino])))

    def check_all(self) -> None:
        for name, ino in self.names.items():
            assert find(self.filesystem, name) == ino
            expected = self.contents[ino]
            assert self.filesystem.namespace.getattr(ino).size_bytes == expected.size
            for page in sorted(expected.pages):
                start = max(0, page - 1) * PAGE
                found = self.filesystem.files.read(ino, start, 3 * PAGE, may_block=True)
                assert found == expected.read(start, 3 * PAGE)
            runs = self.runs(ino)
            assert {page for page in expected.pages if not any(first <= page < end for first, end in runs)} == set()

    def runs(self, ino: int) -> list[tuple[int, int]]:
        """Pages of which the file says that they are data, as (first, the next one)."""
        files, found = self.filesystem.files, []
        start = files.next_data(ino, 0)
        while start is not None:
            end = files.next_hole(ino, start)
            assert end is not None
            found.append((start // PAGE, -(-end // PAGE)))
            start = files.next_data(ino, end)
        return found

    def check_holes(self) -> None:
        """When all is sealed, what is data has a byte that is not NUL in each block."""
        per_block = self.block_size // PAGE
        for ino in self.names.values():
            blocks = {page // per_block for page in self.contents[ino].pages}
            said = {page // per_block for first, end in self.runs(ino) for page in range(first, end)}
            assert said == blocks
            assert self.filesystem.tree.allocated_blocks(ino) == len(blocks)

    # --- what users do ---

    def pick(self, number: int) -> bytes:
        present = sorted(self.names)
        return present[number % len(present)]

    @rule(number=numbers, ranges=st.lists(places, min_size=1, max_size=4), fill=st.sampled_from([0, 1, 2, 255]))
    def write(self, number: int, ranges: list[Place], fill: int) -> None:
        for place in ranges:
            self.write_one(self.pick(number), place, fill)

    @rule(number=numbers, ranges=st.lists(places, min_size=1, max_size=4))
    def write_more(self, number: int, ranges: list[Place]) -> None:
        for fill, place in enumerate(ranges, 3):
            self.write_one(self.pick(number), place, fill)

    @rule(number=numbers, gap=st.sampled_from([0, 0, 1, 5000]), length=st.sampled_from([10, 5000, 70000]))
    def append(self, number: int, gap: int, length: int) -> None:
        ino = self.names[self.pick(number)]
        self.write_at(ino, self.contents[ino].size + gap, b"\x55" * length)

    def write_one(self, name: bytes, place: Place, fill: int) -> None:
        self.write_at(self.names[name], place.offset(self.block_size), bytes([fill]) * place.length)

    def write_at(self, ino: int, offset: int, data: bytes) -> None:
        assert self.filesystem.files.write(ino, offset, data, may_block=True) == len(data)
        self.contents[ino].write(offset, data)
        self.changed(ino)

    @rule(number=numbers, place=places)
    def truncate(self, number: int, place: Place) -> None:
        self.resize(self.names[self.pick(number)], place.offset(self.block_size))

    @rule(number=numbers, cut=st.integers(0, 10000))
    def cut(self, number: int, cut: int) -> None:
        ino = self.names[self.pick(number)]
        self.resize(ino, max(0, self.contents[ino].size - cut))

    def resize(self, ino: int, size: int) -> None:
        self.filesystem.files.truncate(ino, size, may_block=True)
        self.contents[ino].truncate(size)
        self.changed(ino)

    @rule(
        number=numbers, ranges=st.lists(places, min_size=1, max_size=3), blocks=st.integers(0, 3), grows=st.booleans()
    )
    def zero(self, number: int, ranges: list[Place], blocks: int, grows: bool) -> None:
        ino = self.names[self.pick(number)]
        for place in ranges:
            offset, length = place.offset(self.block_size), place.length + blocks * self.block_size
            self.filesystem.files.zero(ino, offset, length, keeps_size=not grows)
            self.contents[ino].zero(offset, length, grows=grows)
            self.changed(ino)

    @rule(
        number=numbers,
        other=numbers,
        place=places,
        to=st.integers(0, 300),
        shift=st.sampled_from([0, 0, 0, 5, PAGE]),
        blocks=st.integers(0, 3),
    )
    def copy_range(self, number: int, other: int, place: Place, to: int, shift: int, blocks: int) -> None:
        source, destination = self.names[self.pick(number)], self.names[self.pick(other)]
        offset, there = place.offset(self.block_size), to * self.block_size + shift
        length = place.length + blocks * self.block_size
        if shift == 0:
            offset = offset // self.block_size * self.block_size
        while length and not (source == destination and abs(offset - there) < length):
            done = self.filesystem.copy_range(source, offset, destination, there, length)
            data = self.contents[source].read(offset, length)
            assert (0 < done <= len(data)) if data else not done
            if not done:
                break
            self.contents[destination].write(there, data[:done])
            self.changed(destination)
            offset, there, length = offset + done, there + done, length - done

    @rule(number=numbers)
    def zero_all(self, number: int) -> None:
        ino = self.names[self.pick(number)]
        self.filesystem.files.zero(ino, 0, 1 << 62, keeps_size=True)
        self.contents[ino].zero(0, 1 << 62, grows=False)
        self.changed(ino)

    @rule(number=numbers, place=places)
    def read(self, number: int, place: Place) -> None:
        ino = self.names[self.pick(number)]
        offset = place.offset(self.block_size)
        found = self.filesystem.files.read(ino, offset, place.length, may_block=True)
        assert found == self.contents[ino].read(offset, place.length)
        buffer = memoryview(bytearray(b"?" * place.length))
        with contextlib.suppress(WouldBlock):
            assert buffer[: self.filesystem.files.read_into(ino, offset, buffer)] == found

    @rule()
    def read_all(self) -> None:
        self.check_all()

    @rule(number=numbers, datasync=st.booleans())
    def fsync(self, number: int, datasync: bool) -> None:
        name = self.pick(number)
        ino = self.names[name]
        self.filesystem.files.fsync(ino, datasync=datasync)
        self.past[ino] = [(self.serial, copy.deepcopy(self.contents[ino]))]
        self.past_names[name] = [(ino, 0)]

    @rule(number=numbers, destination=st.sampled_from(NAMES))
    def rename(self, number: int, destination: bytes) -> None:
        source = self.pick(number)
        if source != destination:
            self.note_rename(source, destination)
            self.filesystem.namespace.rename(ROOT_INO, source, ROOT_INO, destination, may_block=True)
            self.names[destination] = self.names.pop(source)

    def note_rename(self, source: bytes, destination: bytes) -> None:
        """Replacing a name flushes: under the new name, nothing older than the present content may be found."""
        floor = self.serial_of(self.names[source]) if destination in self.names else 0
        self.past_names[destination].append((self.names[source], floor))
        self.past_names[source].append(None)

    def serial_of(self, ino: int) -> int:
        return self.past[ino][-1][0]

    @rule(number=numbers, destination=st.sampled_from(NAMES))
    def clone(self, number: int, destination: bytes) -> None:
        source = self.pick(number)
        if destination not in self.names:
            ino = self.filesystem.clone(self.names[source], ROOT_INO, destination)
            self.names[destination] = ino
            self.contents[ino] = copy.deepcopy(self.contents[self.names[source]])
            self.past[ino] = []
            self.changed(ino)
            self.past_names[destination].append((ino, 0))

    # --- what the engine does by itself ---

    @rule(number=numbers)
    def seal(self, number: int) -> None:
        self.filesystem._sealer.seal([self.names[self.pick(number)]])

    @rule()
    def publish(self) -> None:
        self.filesystem._flusher.publish_older(0.0)

    @rule()
    def commit(self) -> None:
        self.filesystem.commit()
        self.names_are_durable()

    @rule()
    def flush(self) -> None:
        self.filesystem.files.flush()
        self.all_is_durable()

    @rule(seal=st.booleans())
    def remount(self, seal: bool) -> None:
        self.filesystem.close(seal=seal)
        self.open()
        self.all_is_durable()

    # --- crashes ---

    @rule(loses_power=st.booleans(), seed=st.integers(0, 1000))
    def crash(self, loses_power: bool, seed: int) -> None:
        """A killed process leaves its writes in the host's page cache, a power cut takes what was not synced."""
        self.killer.disarm()
        self.filesystem.abandon()
        if loses_power:
            self.power.strike(os.path.join(self.path, b"staging"), seed)
        self.open()
        self.adopt()

    @rule(
        number=numbers,
        synced=st.lists(places, min_size=1, max_size=3),
        unsynced=st.lists(places, max_size=2),
        cut=st.integers(0, 5000),
        seed=st.integers(0, 1000),
    )
    def lose_power_after_fsync(
        self, number: int, synced: list[Place], unsynced: list[Place], cut: int, seed: int
    ) -> None:
        """The sequence that matters most, often."""
        name = self.pick(number)
        for place in synced:
            self.write_one(name, place, 200)
        self.fsync(datasync=bool(seed % 2), number=number)
        for place in unsynced:
            self.write_one(name, place, 201)
        if cut:
            self.cut(cut=cut, number=number)
        if seed % 3 == 0:
            self.filesystem.commit()
        self.crash(loses_power=True, seed=seed)

    @rule(
        number=numbers,
        place=places,
        steps=st.integers(0, 12),
        doing=st.sampled_from(["fsync", "flush", "write", "cut", "zero", "copy", "rename"]),
        loses_power=st.booleans(),
    )
    def crash_during(self, number: int, place: Place, steps: int, doing: str, loses_power: bool) -> None:
        name = self.pick(number)
        ino = self.names[name]
        offset = place.offset(self.block_size)
        data = b"\x07" * place.length
        destination = NAMES[(NAMES.index(name) + 1) % 3]
        # What is under way may be found done, or not.
        if doing == "write":
            self.contents[ino].write(offset, data)
            self.changed(ino)
        elif doing == "cut":
            self.contents[ino].truncate(min(self.contents[ino].size, offset))
            self.changed(ino)
        elif doing == "zero":
            self.contents[ino].zero(offset, place.length + self.block_size, grows=False)
            self.changed(ino)
        elif doing == "copy":  # whole blocks, so that it is done by one call
            other = self.names[self.pick(number + 1)]
            data = self.contents[ino].read(0, 2 * self.block_size)
            data = data[: len(data) // self.block_size * self.block_size]
            there = (3 + place.block) * self.block_size
            if data:
                self.contents[other].write(there, data)
                self.changed(other)
        elif doing == "rename":
            self.note_rename(name, destination)
        self.killer.arm(steps)
        with contextlib.suppress(Died):
            if doing == "fsync":
                self.filesystem.files.fsync(ino)
                self.past[ino] = self.past[ino][-1:]
            elif doing == "flush":
                self.filesystem.files.flush()
                self.all_is_durable()
            elif doing == "write":
                self.filesystem.files.write(ino, offset, data, may_block=True)
            elif doing == "cut":
                self.filesystem.files.truncate(ino, self.contents[ino].size, may_block=True)
            elif doing == "zero":
                self.filesystem.files.zero(ino, offset, place.length + self.block_size, keeps_size=True)
                if steps % 2:
                    self.filesystem.files.fsync(ino)
                    self.past[ino] = self.past[ino][-1:]
            elif doing == "copy":
                assert self.filesystem.copy_range(ino, 0, other, there, len(data)) == len(data)
                if steps % 2:
                    self.filesystem.files.fsync(other)
                    self.past[other] = self.past[other][-1:]
            elif doing == "rename":
                self.filesystem.namespace.rename(ROOT_INO, name, ROOT_INO, destination, may_block=True)
        self.crash(loses_power=loses_power, seed=steps)

    def adopt(self) -> None:
        """What is found must be something it was since it was last durable, page by page; then it is the truth.

        But not a durable one: a power cut may come after the kill.
        """
        found: dict[int, Content] = {}
        for name in NAMES:
            ino = find(self.filesystem, name)
            if ino is None:
                assert None in self.past_names[name]
                self.names.pop(name, None)
                continue
            floors = [place[1] for place in self.past_names[name] if place is not None and place[0] == ino]
            assert floors
            states = [content for serial, content in self.past[ino] if serial >= min(floors)]
            found[ino] = self.legal(ino, states)
            self.names[name] = ino
        self.contents = found
        for ino in found:
            self.changed(ino)
        self.names_are_durable()

    def legal(self, ino: int, states: list[Content]) -> Content:
        found = Content()
        found.size = self.filesystem.namespace.getattr(ino).size_bytes
        assert found.size in {state.size for state in states}
        for page in sorted({page for state in states for page in state.pages}):
            data = self.filesystem.files.read(ino, page * PAGE, PAGE, may_block=True)
            length = max(0, min(PAGE, found.size - page * PAGE))
            assert len(data) == length
            # A state that did not reach that far counts for nothing: a size never comes before its bytes.
            reaching = [state for state in states if state.size >= page * PAGE + length]
            assert data in {state.pages.get(page, bytes(PAGE))[:length] for state in reaching}
            found._put(page, data.ljust(PAGE, b"\0"))
        return found

    @invariant()
    def sizes_are_live(self) -> None:
        for ino in getattr(self, "names", {}).values():
            assert self.filesystem.namespace.getattr(ino).size_bytes == self.contents[ino].size


def test_files_are_what_was_written_whatever_happens() -> None:
    run_state_machine_as_test(
        FilesMachine,
        settings=settings(
            max_examples=effort.count("files"),
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
