"""Programs that replace, rewrite and map files as fast as they can, while remote versions are put in their place.

A user's version may go in one way only: by a user who had it before him. Each writer therefore looks at what it
replaces or overwrites, and tells in the end which versions nobody but the sync can have taken away. Every one of them
must be somewhere: under its name, in a conflict copy, or in the trash.

    python -m tests.race DISPLACEMENTS [MUTANT]
"""

from __future__ import annotations

import contextlib
import mmap
import multiprocessing
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Final

from syncer.core.model import LocalTag, RelPath
from syncer.errors import LocalChangedError
from syncer.local.changes import Changes
from syncer.local.places import DIRECTORY_FLAGS, look, parent_directory, tag_of
from syncer.local.private import PrivateFolder
from syncer.local.root import Applied
from syncer.local.syscalls import rename_exchange, status
from syncer.local.trash import ITEM, Trash
from tests.unit.syncer.local.folders import BLOCK, Place, copy_name, new_place

ROUND: Final = 4000  # installs between two looks at everything; what was kept is thrown away then
PAGE: Final = 4096
PAUSES_S: Final = (0.0, 0.0, 0.0, 0.0001, 0.0005, 0.002)

_PROCESSES: Final = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["tests.race.hostile"])

Version = tuple[int, int]
"""Writer and number."""

Replace = Callable[[Changes, RelPath, bytes, LocalTag, LocalTag], Applied]


@dataclass(slots=True)
class Outcome:
    """What a race came to.

    Attributes:
        displaced: Versions of users that the sync took the name away from.
        unseen: Those of them that it had not seen before: kept as conflict copies.
        refused: Replacements that were given up, because the file had changed since it was looked at.
        written: Versions of users.
        lost: Versions of users that are nowhere.
    """

    displaced: int = 0
    unseen: int = 0
    refused: int = 0
    written: int = 0
    lost: list[Version] = field(default_factory=list)


# --- versions


def _page(version: Version) -> bytes:
    return (b"USER %d %d\n" % version).ljust(PAGE, b".")


def _version(content: bytes) -> Version | None:
    if not content.startswith(b"USER "):
        return None
    _, writer, number = content[: content.index(b"\n")].split()
    return int(writer), int(number)


# --- users


class _Writer:
    """One program with one file. What it took away itself needs no keeping."""

    def __init__(self, number: int, target: Path, seed: int) -> None:
        self.number = number
        self.target = target
        self.random = random.Random(seed)
        self.count = 0
        self.alive: set[Version] = set()

    def next(self) -> bytes:
        self.count += 1
        self.alive.add((self.number, self.count))
        return _page((self.number, self.count))

    def took_away(self, content: bytes) -> None:
        version = _version(content)
        if version is not None:
            self.alive.discard(version)

    def replace(self) -> None:
        """As editors do, but by exchange, to learn what was there at that instant."""
        temp = self.target.with_name(f"{self.target.name}.tmp")
        temp.write_bytes(self.next())
        rename_exchange(os.fsencode(temp), -100, os.fsencode(self.target), -100)  # AT_FDCWD
        self.took_away(temp.read_bytes())
        temp.unlink()

    def rewrite(self) -> None:
        """In place, whatever name the file has by then."""
        descriptor = os.open(self.target, os.O_RDWR)
        try:
            for _ in range(self.random.randint(1, 3)):
                old = os.pread(descriptor, PAGE, 0)
                os.pwrite(descriptor, self.next(), 0)
                self.took_away(old)
        finally:
            os.close(descriptor)

    def map(self) -> None:
        """Through a mapping that is kept for a while: most stores change no time stamp."""
        descriptor = os.open(self.target, os.O_RDWR)
        try:
            with mmap.mmap(descriptor, PAGE) as page:
                for _ in range(self.random.randint(1, 20)):
                    old = page[:]
                    page[:] = self.next()
                    self.took_away(old)
                    self.pause()
        finally:
            os.close(descriptor)

    def pause(self) -> None:
        pause_s = self.random.choice(PAUSES_S)
        if pause_s:
            time.sleep(pause_s)


def _write(kind: str, number: int, target: Path, seed: int, stop: Event, answer: Connection) -> None:
    writer = _Writer(number, target, seed)
    step = {"replace": writer.replace, "rewrite": writer.rewrite, "map": writer.map}[kind]
    answer.send(None)
    while not stop.is_set():
        step()
        writer.pause()
    answer.send((writer.count, writer.alive))


KINDS: Final = ("replace", "rewrite", "map")


@dataclass
class _Users:
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
def _users(root: Path, seed: int, versions: int) -> Iterator[_Users]:
    stop, answers, processes = _PROCESSES.Event(), [], []
    for number, kind in enumerate(KINDS):
        target = root / kind
        target.write_bytes(_page((number, 0)))
        mine, theirs = _PROCESSES.Pipe()
        arguments = (kind, number, target, seed * 31 + number + versions, stop, theirs)
        process = _PROCESSES.Process(target=_write, args=arguments, daemon=True)
        process.start()
        theirs.close()
        answers.append(mine)
        processes.append(process)
    try:
        for answer in answers:
            answer.recv()
        yield _Users(stop, answers, processes)
    finally:
        stop.set()
        for process in processes:
            process.join(10)
            process.kill()
            process.join()
        for answer in answers:
            answer.close()


# --- the sync


def exchange_then_verify(changes: Changes, path: RelPath, temp: bytes, tag: LocalTag, expect: LocalTag) -> Applied:
    """What we do."""
    return changes.replace(path, temp, tag, expect)


def stat_then_rename(changes: Changes, path: RelPath, temp: bytes, tag: LocalTag, expect: LocalTag) -> Applied:
    """Mutant: the last look before a plain rename, with a copy for the trash by hard link. The best of the others."""
    with parent_directory(changes._root, path) as (directory, name):
        changes._require_entry(directory, name, path, expect)
        entry, folder = changes._trash.begin(path, expect, 0)
        try:
            try:
                os.link(name, ITEM, src_dir_fd=directory, dst_dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:  # it was looked up, and then replaced and deleted
                raise LocalChangedError(path, "it was replaced") from None
            if look(folder, ITEM, path).inode != look(directory, name, path).inode:
                raise LocalChangedError(path, "it was replaced")
            os.rename(temp, name, src_dir_fd=changes._private.tmp, dst_dir_fd=directory)
        finally:
            os.close(folder)
        return Applied(tag=tag, copied_to=changes._trash.judge(entry))


MUTANTS: Final[dict[str, Replace]] = {"stat-then-rename": stat_then_rename}


class _Sync:
    """Puts remote versions in the place of the users' files, by the code that every cycle uses."""

    def __init__(self, place: Place, replace: Replace) -> None:
        self._root = os.open(place.path, DIRECTORY_FLAGS)
        self._private = PrivateFolder(self._root)
        self._trash = Trash(self._root, self._private.trash, BLOCK, copy_name)
        self._changes = Changes(self._root, self._private, self._trash)
        self._replace = replace
        self.number = 0

    def install(self, path: RelPath) -> bool:
        """One remote version; False if the file had changed since it was looked at."""
        self.number += 1
        temp = b"staged.%d" % self.number
        descriptor = os.open(temp, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600, dir_fd=self._private.tmp)
        os.write(descriptor, (b"SYNC %d\n" % self.number).ljust(PAGE, b"."))
        os.close(descriptor)
        tag = tag_of(status(temp, self._private.tmp))
        try:
            self._replace(self._changes, path, temp, tag, look(self._root, path, path))
        except LocalChangedError:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temp, dir_fd=self._private.tmp)
            return False
        return True

    def end_of_cycle(self) -> None:
        """Look at everything that was displaced once more."""
        self._trash.review()

    def close(self) -> None:
        self._changes.close()
        self._private.close()
        os.close(self._root)


@contextmanager
def _without_fsync() -> Iterator[None]:
    """What is durable is another test's matter, and would leave the writers little to race against."""
    fsync = os.fsync
    os.fsync = lambda _: None
    try:
        yield
    finally:
        os.fsync = fsync


def race(folder: Path, displacements: int, replace: Replace = exchange_then_verify, seed: int = 1) -> Outcome:
    """Race until so many versions of users were displaced, or one is lost."""
    outcome, number = Outcome(), 0
    with _without_fsync():
        while not outcome.lost and outcome.displaced < displacements:
            # Some of what is displaced is our own: writers do not get at every file between two installs.
            installs = min(ROUND, (displacements - outcome.displaced) * 5 // 4 + 50)
            _round(folder / f"round{number}", installs, replace, seed + number, outcome)
            number += 1
    return outcome


def _round(folder: Path, installs: int, replace: Replace, seed: int, outcome: Outcome) -> None:
    folder.mkdir()
    place = new_place(folder)
    sync = _Sync(place, replace)
    try:
        with _users(place.path, seed, seed) as users:
            done = 0
            while done < installs:
                if sync.install(RelPath(KINDS[sync.number % len(KINDS)].encode())):
                    done += 1
                    if done % 500 == 0:
                        sync.end_of_cycle()
                else:
                    outcome.refused += 1
            users.end()
            _judge(place, users.told, outcome)
    finally:
        sync.close()
        shutil.rmtree(folder)


def _judge(place: Place, told: list[tuple[int, set[Version]]], outcome: Outcome) -> None:
    named = {_version(data) for name, data in place.visible().items() if name in KINDS}
    copies = {_version(data) for name, data in place.visible().items() if "(conflict " in name}
    trashed = {_version(data) for data in place.trashed()}
    for found in (named, copies, trashed):
        found.discard(None)
    outcome.unseen += len(copies)
    outcome.displaced += len(copies | trashed)
    for written, alive in told:
        outcome.written += written
        outcome.lost += sorted(alive - named - copies - trashed)
