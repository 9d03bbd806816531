"""Programs that replace, rewrite and map files as fast as they can. Each keeps account of what it took away itself.

A user's version may go in one way only: by a user who had it before him. Each writer therefore looks at what it
replaces or overwrites, and tells in the end which versions nobody but the sync can have taken away.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from syncer.local.syscalls import rename_exchange

KINDS: Final = ("replace", "rewrite", "map")
PAGE: Final = 4096
PAUSES_S: Final = (0.0, 0.0, 0.0, 0.0001, 0.0005, 0.002)

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.race.users"])

Version = tuple[int, int]
"""Writer and number."""


def page(version: Version) -> bytes:
    """A version's content."""
    return (b"USER %d %d\n" % version).ljust(PAGE, b".")


def version_of(content: bytes) -> Version | None:
    """The user's version that some content is; None for one of the sync's."""
    if not content.startswith(b"USER "):
        return None
    _, writer, number = content[: content.index(b"\n")].split()
    return int(writer), int(number)


class _Writer:
    """One program with its files. What it took away itself needs no keeping."""

    def __init__(self, number: int, targets: list[Path], seed: int, stop: Event) -> None:
        self.number = number
        self.targets = targets
        self.stop = stop
        self.random = random.Random(seed)
        self.count = 0
        self.alive: set[Version] = set()

    def target(self) -> Path:
        """Some files are written all the time, most now and then."""
        return self.targets[int(len(self.targets) * self.random.random() ** 3)]

    def next(self) -> bytes:
        self.count += 1
        self.alive.add((self.number, self.count))
        return page((self.number, self.count))

    def took_away(self, content: bytes) -> None:
        version = version_of(content)
        if version is not None:
            self.alive.discard(version)

    def replace(self) -> None:
        """As editors do, but by exchange, to learn what was there at that instant."""
        target = self.target()
        temp = target.with_name(f"{target.name}.tmp")
        temp.write_bytes(self.next())
        rename_exchange(os.fsencode(temp), -100, os.fsencode(target), -100)  # AT_FDCWD
        self.took_away(temp.read_bytes())
        temp.unlink()

    def rewrite(self) -> None:
        """In place, whatever name the file has by then."""
        descriptor = os.open(self.target(), os.O_RDWR)
        try:
            for _ in range(self.random.randint(1, 3)):
                old = os.pread(descriptor, PAGE, 0)
                os.pwrite(descriptor, self.next(), 0)
                self.took_away(old)
        finally:
            os.close(descriptor)

    def map(self) -> None:
        """Through a mapping that is kept for a while: most stores change no time stamp."""
        descriptor = os.open(self.target(), os.O_RDWR)
        try:
            with mmap.mmap(descriptor, PAGE) as mapped:
                for _ in range(self.random.randint(1, 20)):
                    old = mapped[:]
                    mapped[:] = self.next()
                    self.took_away(old)
                    self.pause()
        finally:
            os.close(descriptor)

    def pause(self) -> None:
        """Leave the files alone for a moment, unless this is the end."""
        pause_s = self.random.choice(PAUSES_S)
        if pause_s:
            self.stop.wait(pause_s)


def _write(kind: str, number: int, targets: list[Path], seed: int, stop: Event, answer: Connection) -> None:
    writer = _Writer(number, targets, seed, stop)
    step = {"replace": writer.replace, "rewrite": writer.rewrite, "map": writer.map}[kind]
    answer.send(None)
    while not stop.is_set():
        step()
        writer.pause()
    answer.send((writer.count, writer.alive))


@dataclass
class Users:
    """The writers' processes."""

    stop: Event
    answers: list[Connection]
    processes: list[ForkServerProcess]
    told: list[tuple[int, set[Version]]] = field(default_factory=list)

    def end(self) -> None:
        """Stop all; afterwards `told` has what they say."""
        self.stop.set()
        self.told = [answer.recv() for answer in self.answers]
        for process in self.processes:
            process.join()


@contextmanager
def users(targets: Mapping[str, list[Path]], seed: int) -> Iterator[Users]:
    """Make the files, then a writer per kind for those of its kind; all have begun when this yields."""
    stop, answers, processes = _PROCESSES.Event(), [], []
    for number, kind in enumerate(KINDS):
        for target in targets[kind]:
            target.write_bytes(page((number, 0)))
        mine, theirs = _PROCESSES.Pipe()
        arguments = (kind, number, targets[kind], seed * 32 + number, stop, theirs)
        process = _PROCESSES.Process(target=_write, args=arguments, daemon=True)
        process.start()
        theirs.close()
        answers.append(mine)
        processes.append(process)
    try:
        for answer in answers:
            answer.recv()
        yield Users(stop, answers, processes)
    finally:
        stop.set()
        for process in processes:
            process.join(10)
            process.kill()
            process.join()
        for answer in answers:
            answer.close()
