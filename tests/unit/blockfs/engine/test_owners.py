"""Several threads share a file, beside seals, commits, collections and clones: nobody finds a byte of another time.

Each owns a region of it, which begins and ends within pages that a neighbour writes, too. Blocks are cold at random, so
that writes and cuts let go of the engine's lock half-way; the volume is killed, or closed, and opened again.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from blockfs.blocks.directory import Part
from blockfs.blocks.ids import BlockId
from blockfs.engine.config import EngineConfig
from blockfs.engine.filesystem import Filesystem
from blockfs.errors import WouldBlock
from blockfs.service import maintenance
from blockfs.tree.schema import ROOT_INO
from tests import effort
from tests.unit.blockfs.engine.volumes import create, find, findings, make

PAGE = 4096
BLOCK = 4 * PAGE
REGIONS = (9 * PAGE + 123, 33 * PAGE, 17 * PAGE + 2000)
END = sum(REGIONS)
NAME = b"f"
STEPS = 40
SLOW_S = 0.01
CLONES = count()


def difference(found: bytes, *allowed: bytes) -> str | None:
    """The first byte that is in none of these contents; None: there is none. Short enough to be told."""
    if any(len(found) != len(each) for each in allowed):
        return f"{len(found)} bytes"
    for at in range(0, len(found), PAGE):
        page = found[at : at + PAGE]
        pages = {each[at : at + PAGE] for each in allowed}
        if page not in pages:
            for number, byte in enumerate(page):
                if all(each[number] != byte for each in pages):
                    return f"byte {at + number} is {byte}, none of {sorted({each[number] for each in pages})}"
    return None


class Owner:
    """One of the threads, and what its region must hold: `versions` may be found after a kill, the last one is now."""

    def __init__(self, filesystem: Filesystem, ino: int, number: int, versions: list[bytes], seed: int) -> None:
        self.filesystem = filesystem
        self.files = filesystem.files
        self.ino = ino
        self.start = sum(REGIONS[:number])
        self.length = REGIONS[number]
        self.has_end = number == len(REGIONS) - 1
        self.random = random.Random(seed)
        self.versions = versions
        self.content = bytearray(versions[-1])
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(STEPS):
                self.step()
                self.look(*self.place())
                self.look(0, self.length)
        except BaseException as error:  # noqa: BLE001 - told by the test
            self.failure = error

    def place(self) -> tuple[int, int]:
        """Some bytes: few, several pages, or whole blocks."""
        at = self.random.randrange(self.length)
        length = self.random.choice([self.random.randint(1, 300), self.random.randint(1, 6 * PAGE)])
        if not self.random.randrange(4):
            at, length = max(0, -self.start % BLOCK + at // BLOCK * BLOCK), 2 * BLOCK
        at = min(at, self.length - 1)
        return at, min(length, self.length - at)

    def look(self, at: int, length: int) -> None:
        """As the kernel reads: first what is in memory."""
        buffer = bytearray(length)
        try:
            found = bytes(buffer[: self.files.read_into(self.ino, self.start + at, memoryview(buffer))])
        except WouldBlock:
            found = self.files.read(self.ino, self.start + at, length, may_block=True)
        if self.has_end:
            found = found.ljust(length, b"\0")
        assert difference(found, bytes(self.content[at : at + length])) is None, (self.start, at, length)

    def step(self) -> None:
        at, length = self.place()
        kinds = ["write", "write", "write", "zero", "copy", "copy", "fsync"] + ["cut", "cut", "grow"] * self.has_end
        match self.random.choice(kinds):
            case "write":
                self.write(at, self.random.randbytes(1) * length)
            case "grow":
                self.write(at, self.random.randbytes(1) * (self.length - at))
            case "zero":
                self.files.zero(self.ino, self.start + at, length, keeps_size=self.has_end)
                self.now(at, bytes(length))
            case "cut":
                self.patiently(lambda may_block: self.files.truncate(self.ino, self.start + at, may_block=may_block))
                self.now(at, bytes(self.length - at))
            case "copy":
                self.copy(at, self.place()[0])
            case _:
                self.files.fsync(self.ino)
                del self.versions[:-1]

    def write(self, at: int, data: bytes) -> None:
        done = 0
        while done < len(data):
            rest = data[done:]
            start = self.start + at + done
            done += self.patiently(partial(self.write_some, start, rest))
        self.now(at, data)

    def write_some(self, start: int, data: bytes, may_block: bool) -> int:
        return self.files.write(self.ino, start, data, may_block=may_block)

    def copy(self, at: int, to: int) -> None:
        """From here to there, where they allow of sharing blocks as well."""
        at, to = (max(0, (self.start + one) // BLOCK * BLOCK - self.start) for one in (at, to))
        length = min(self.length - max(at, to), abs(at - to))
        if self.has_end:
            length = min(length, self.filesystem.namespace.getattr(self.ino).size_bytes - self.start - at)
        while length > 0:
            done = self.filesystem.copy_range(self.ino, self.start + at, self.ino, self.start + to, length)
            self.now(to, bytes(self.content[at : at + done]))
            at, to, length = at + done, to + done, length - done

    def patiently(self, call: Callable[[bool], int | None]) -> int:
        """As the front-ends call: again where it may wait, if it would have to."""
        try:
            return call(False) or 0
        except WouldBlock:
            return call(True) or 0

    def now(self, at: int, data: bytes) -> None:
        self.content[at : at + len(data)] = data
        self.versions.append(bytes(self.content))


def cold_at_random(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch, chance: random.Random) -> None:
    """Blocks are in memory, or on a disk that is slow at times."""
    blocks = filesystem.blocks
    read, read_into, never = blocks.read, blocks.read_into, threading.Event()

    def read_or_not(block_id: BlockId, start: int, length: int, *, may_block: bool = True) -> bytes:
        if not may_block and chance.random() < 0.7:
            raise WouldBlock
        found = read(block_id, start, length, may_block=may_block)
        if may_block and chance.random() < 0.3:
            never.wait(chance.random() * SLOW_S)
        return found

    def read_into_or_not(parts: list[Part], view: memoryview) -> None:
        if chance.random() < 0.7:
            raise WouldBlock
        read_into(parts, view)

    monkeypatch.setattr(blocks, "read", read_or_not)
    monkeypatch.setattr(blocks, "read_into", read_into_or_not)


def clone_and_grow(filesystem: Filesystem, ino: int, name: bytes) -> str | None:
    """What a clone has past its end would come to light."""
    clone = filesystem.clone(ino, ROOT_INO, name)
    size = filesystem.namespace.getattr(clone).size_bytes
    filesystem.files.truncate(clone, END + BLOCK, may_block=True)
    found = filesystem.files.read(clone, size, END + BLOCK, may_block=True)
    filesystem.namespace.unlink(ROOT_INO, name)
    return difference(found, bytes(len(found)))


def life(path: bytes, monkeypatch: pytest.MonkeyPatch, chance: random.Random, versions: list[list[bytes]]) -> None:
    """One mount: what was there is looked at, the owners have their way, and it ends somehow."""
    config = EngineConfig(
        commit_s=0.005,
        publish_s=0.02,
        quiet_s=0.0,
        reserve_bytes=0,
        ballast_bytes=0,
        staged_limit_bytes=1 << 19,
        adopt_bytes=chance.choice([1, 1 << 40]),
        open_staging_files=2,
    )
    filesystem = Filesystem.open(path, config)
    ino = find(filesystem, NAME)
    assert ino is not None
    for number, allowed in enumerate(versions):
        start, length = sum(REGIONS[:number]), REGIONS[number]
        found = filesystem.files.read(ino, start, length, may_block=True).ljust(length, b"\0")
        assert difference(found, *allowed) is None, number
        allowed[:] = [found]
    cold_at_random(filesystem, monkeypatch, chance)
    owners = [Owner(filesystem, ino, number, each, chance.randrange(1 << 30)) for number, each in enumerate(versions)]
    threads = [threading.Thread(target=owner.run) for owner in owners]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        filesystem.files.flush()
        maintenance.gc(filesystem.blocks, filesystem.tree, filesystem.ballast, commit=filesystem.commit)
        assert clone_and_grow(filesystem, ino, b"clone%d" % next(CLONES)) is None
    assert [owner.failure for owner in owners] == [None] * len(owners)
    if chance.randrange(3):
        filesystem.abandon()
        return
    filesystem.files.flush()
    assert findings(filesystem) == []
    filesystem.close()
    for each in versions:
        del each[:-1]


def test_what_others_do_to_a_file_and_its_seals_never_change_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "volume", block_size=BLOCK)
    filesystem = Filesystem.open(path, EngineConfig(background=False, reserve_bytes=0, ballast_bytes=0))
    filesystem.files.truncate(create(filesystem, NAME), END)
    filesystem.close()
    versions = [[bytes(length)] for length in REGIONS]
    seed = int.from_bytes(os.urandom(4), "big")
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(effort.count("owners of one file")):
        with monkeypatch.context() as patch:
            life(path, patch, chance, versions)
