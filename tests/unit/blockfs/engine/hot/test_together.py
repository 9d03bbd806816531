"""Snapshots of several hot files that one program writes in order: never the later write without the earlier one."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import pytest

from blockfs.engine.content.filestate import FileState
from blockfs.engine.filesystem import Filesystem
from blockfs.engine.gate import WriteGate
from blockfs.engine.hot import hotfile, together
from blockfs.engine.hot.folder import Descriptor, HotFolder
from blockfs.engine.hot.together import Filled, Together
from blockfs.tree.schema import ROOT_INO, SNAPSHOTS_INO
from tests.unit.blockfs.engine.hot.hosts import content, create, hot, sealed
from tests.unit.blockfs.engine.volumes import findings


class Pair:
    """Two hot files, each with a number. They are written when a snapshot has closed the gate.

    Attributes:
        inos: The files.
        dirties: Which of them are written at that moment.
        before_second: Called before a copy of the second is made.
        at_capture: Called after each copy of one instant that is made then, with the file's inode.
    """

    def __init__(self, filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> None:
        self.filesystem = filesystem
        self.inos = [create(filesystem, name) for name in (b"first", b"second")]
        self.fds = [hot(filesystem, ino) for ino in self.inos]
        self.at_capture: Callable[[int], None] = lambda ino: None
        self.before_second: Callable[[], None] = lambda: None
        self.dirties = [0, 1]
        self._writes = 0
        for which in (0, 1):
            self.write(which, 1)
        filesystem.files.flush()
        real, seal_together = HotFolder.capture, Together.sealed

        def capture(folder: HotFolder, file: Descriptor, filled: Descriptor | None = None) -> Descriptor | None:
            if is_closed(filesystem) and file.fd == self.fds[1]:
                self.before_second()
            copy = real(folder, file, filled)
            if is_closed(filesystem) and file.fd in self.fds:
                self.at_capture(self.inos[self.fds.index(file.fd)])
            return copy

        def sealed(
            sealer: Together, states: Sequence[FileState], filled: Filled
        ) -> AbstractContextManager[frozenset[int]]:
            for which in self.dirties:
                self.write(which, 1)
            return seal_together(sealer, states, filled)

        monkeypatch.setattr(Together, "sealed", sealed)
        monkeypatch.setattr(HotFolder, "capture", capture)
        monkeypatch.setattr(hotfile, "_YOUNG_NS", -(1 << 62))  # no write here is of the same tick as another one

    def write(self, which: int, number: int) -> None:
        os.pwrite(self.fds[which], b"%020d" % number, 0)
        self._writes += 1
        os.utime(self.fds[which], ns=(0, self._writes))  # however coarse the host's clock is

    def snapshot(self) -> tuple[int, int]:
        """What a snapshot has of the two."""
        filesystem = self.filesystem
        made = filesystem.snapshots.create(ROOT_INO, b"s")
        filesystem.commit()
        with filesystem.tree.committed() as view:
            assert dict(view.entries(SNAPSHOTS_INO)) == {b"s": made.ino}
            copies = dict(view.copies(made.ino))
        first, second = (int(sealed(filesystem, copies[ino])) for ino in self.inos)
        return first, second


def is_closed(filesystem: Filesystem) -> bool:
    return bool(filesystem._table.gate._closings)


@pytest.fixture
def pair(filesystem: Filesystem, monkeypatch: pytest.MonkeyPatch) -> Pair:
    return Pair(filesystem, monkeypatch)


def test_files_that_are_written_meanwhile_are_copied_again(pair: Pair) -> None:
    """Breaks if the copies are taken once: the first is without 2, the second with it. Nothing is fsynced here."""
    left = [2]

    def writes_both(ino: int) -> None:
        if ino == pair.inos[0] and left:
            number = left.pop()
            pair.write(0, number)
            pair.write(1, number)

    pair.at_capture = writes_both
    assert pair.snapshot() == (2, 2)
    assert findings(pair.filesystem) == []


def test_one_file_that_is_written_all_the_time_costs_one_copy(pair: Pair) -> None:
    """Its copy is of an instant, and all others have not changed: there is nothing to do again."""
    numbers = iter(range(2, 100))
    captured = []

    def writes_one(ino: int) -> None:
        captured.append(ino)
        pair.write(0, next(numbers))

    pair.at_capture = writes_one
    first, second = pair.snapshot()
    assert second == 1
    assert first in range(1, 4)
    assert captured == pair.inos


@pytest.mark.parametrize("is_clean", [False, True])
def test_what_follows_an_fsync_is_never_without_what_that_made_durable(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    """Both are written all the time, so no two copies are of one instant. Breaks if an fsync returns meanwhile."""
    filesystem = pair.filesystem
    waits, ended = threading.Event(), threading.Event()
    real = WriteGate.enter

    def enter(gate: WriteGate, *, may_block: bool) -> None:
        if is_closed(filesystem) and threading.current_thread() is program:
            waits.set()
        real(gate, may_block=may_block)

    def run() -> None:
        pair.write(0, 2)
        filesystem.files.fsync(pair.inos[0])
        pair.write(1, 2)
        waits.set()
        ended.set()

    program = threading.Thread(target=run)
    monkeypatch.setattr(WriteGate, "enter", enter)
    monkeypatch.setattr(together, "_TURNS", 1)
    if is_clean:  # nothing of the first is copied: its leaves are its content, until it is written
        pair.dirties = [1]

    def begins() -> None:
        program.start()
        assert waits.wait(60)

    if is_clean:
        pair.before_second = begins
    else:
        pair.at_capture = lambda ino: begins() if ino == pair.inos[0] else None
    assert pair.snapshot() == (1, 1)
    program.join()
    assert ended.is_set()
    assert content(filesystem, b"first") == content(filesystem, b"second") == b"%020d" % 2
    assert findings(filesystem) == []


def test_no_file_is_opened_and_none_replaced_while_the_instant_is_fixed(pair: Pair) -> None:
    """A file that is new would be in it with its name, and without what was written before it got that."""
    filesystem = pair.filesystem
    named = create(filesystem, b"new")
    programs = []

    def open_it() -> None:
        os.pwrite(hot(filesystem, named), b"new", 0)

    def replace_it() -> None:
        filesystem.namespace.rename(ROOT_INO, b"second", ROOT_INO, b"first", may_block=True)

    def begin(ino: int) -> None:
        if ino == pair.inos[1] and not programs:
            pair.write(1, 3)
            for each in (open_it, replace_it):
                programs.append(threading.Thread(target=each))
                programs[-1].start()

    pair.at_capture = begin
    first, second = pair.snapshot()
    assert (first, second) in {(1, 1), (1, 3)}
    for program in programs:
        program.join()
    with filesystem.tree.committed() as view:
        made = dict(view.entries(SNAPSHOTS_INO))[b"s"]
        copies = dict(view.copies(made))
    assert sealed(filesystem, copies[named]) == b""
    assert content(filesystem, b"new") == b"new"
    assert content(filesystem, b"first") == b"%020d" % 3
