"""A worker that makes, moves and removes names; and the judgement of what a crash left of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from tests.crash.histories import Entry, Found, NamesHistory
from tests.crash.log import Log, Record
from tests.crash.paged import fsync_folder
from tests.crash.pages import make_pages

NAMES: Final = 6  # per folder: few, so that they meet
TAG: Final = "user.tag"


class NamedWorker:
    """Works below `folder/names-NUMBER` until the mount is gone. Its history is its own memory, too."""

    def __init__(self, number: int, folder: Path, seed: int) -> None:
        self.number = number
        self.root = folder / f"names-{number}"
        self.noise = random.Random(seed)
        self.history = NamesHistory()
        self.counter = 0
        self.kept: list[int] = []  # descriptors of unlinked files: the kill makes orphans of them

    def run(self, log: Log) -> None:
        """Work for ever."""
        operations: dict[Callable[[Log], None], int] = {
            self.save: 6,
            self.make: 4,
            self.mkdir: 3,
            self.symlink: 1,
            self.link: 1,
            self.rename: 5,
            self.remove: 3,
            self.tag: 3,
            self.chmod: 1,
            self.sync: 2,
        }
        self.step(log, "root", lambda: os.mkdir(self.root))
        while True:
            (operation,) = self.noise.choices(list(operations), list(operations.values()))
            operation(log)

    def step(self, log: Log, name: str, act: Callable[[], object], *arguments: Any) -> None:
        """Do one thing, and note it in the log and in the history."""
        with log.step(name, *arguments):
            act()
        replay(self.history, name, arguments, is_done=True)

    def at(self, path: str) -> Path:
        return self.root / path

    def some(self, *kinds: str) -> str | None:
        """Some existing name of these kinds."""
        paths = [path for path, entry in self.history.now.items() if entry.kind in kinds]
        return self.noise.choice(paths) if paths else None

    def fresh(self, *, may_exist: bool = False) -> str | None:
        """A name in some folder that is free, or, if it may exist, that of a file."""
        folder = self.noise.choice([None, self.some("d")])
        name = f"n{self.noise.randrange(NAMES)}"
        path = f"{folder}/{name}" if folder is not None and folder.count("/") < 3 else name
        there = self.history.now.get(path)
        return path if there is None or (may_exist and there.kind == "f") else None

    def write_file(self, path: str, number: int, pages: int) -> None:
        with self.at(path).open("xb", buffering=0) as file:
            file.write(make_pages(number, 0, pages, 1))

    def make(self, log: Log) -> None:
        """A new file, written and closed; sometimes fsynced."""
        path = self.fresh()
        if path is None:
            return
        self.counter += 1
        number, pages = self.number * 1_000_000 + self.counter, self.noise.choice([0, 1, 5, 40])
        self.step(log, "make", lambda: self.write_file(path, number, pages), path, number, pages)
        if self.noise.random() < 0.3:
            self.step(log, "fsync-file", lambda: fsync_file(self.at(path)), path)

    def save(self, log: Log) -> None:
        """What editors do: a temporary file, renamed over the old one; sometimes without fsync."""
        target = self.fresh(may_exist=True)
        if target is None or "saving" in self.history.now:
            return
        self.counter += 1
        number, pages = self.number * 1_000_000 + self.counter, self.noise.choice([1, 2, 20])
        self.step(log, "make", lambda: self.write_file("saving", number, pages), "saving", number, pages)
        if self.noise.random() < 0.5:
            self.step(log, "fsync-file", lambda: fsync_file(self.at("saving")), "saving")
        self.step(log, "rename", lambda: os.rename(self.at("saving"), self.at(target)), "saving", target)

    def mkdir(self, log: Log) -> None:
        path = self.fresh()
        if path is not None:
            self.step(log, "mkdir", lambda: os.mkdir(self.at(path), 0o755), path)

    def symlink(self, log: Log) -> None:
        path = self.fresh()
        if path is not None:
            self.counter += 1
            self.step(log, "symlink", lambda: os.symlink(str(self.counter), self.at(path)), path, self.counter)

    def link(self, log: Log) -> None:
        old, new = self.some("f"), self.fresh()
        if old is not None and new is not None:
            self.step(log, "link", lambda: os.link(self.at(old), self.at(new)), old, new)

    def rename(self, log: Log) -> None:
        """A file, a link or a whole folder."""
        old = self.some("f", "d", "l")
        new = self.fresh(may_exist=old is not None and self.history.now[old].kind == "f")
        if old is None or new is None or new == old or new.startswith(old + "/"):
            return
        now = self.history.now
        if new in now and now[new].number == now[old].number:
            return  # two names of one file: rename(2) does nothing
        self.step(log, "rename", lambda: os.rename(self.at(old), self.at(new)), old, new)

    def remove(self, log: Log) -> None:
        """Unlink, sometimes while it is open; or rmdir."""
        path = self.some("f", "d", "l")
        if path is None or any(other.startswith(path + "/") for other in self.history.now):
            return
        kind = self.history.now[path].kind
        if kind == "f" and len(self.kept) < 8:
            self.kept.append(os.open(self.at(path), os.O_RDWR))
        self.step(log, "remove", lambda: (os.rmdir if kind == "d" else os.unlink)(self.at(path)), path)

    def tag(self, log: Log) -> None:
        path = self.some("f", "d")
        if path is not None:
            self.counter += 1
            value = str(self.counter)
            self.step(log, "tag", lambda: os.setxattr(self.at(path), TAG, value.encode()), path, value)

    def chmod(self, log: Log) -> None:
        path, mode = self.some("f", "d"), self.noise.choice([0o700, 0o750, 0o755])
        if path is not None:
            self.step(log, "chmod", lambda: os.chmod(self.at(path), mode), path, mode)

    def sync(self, log: Log) -> None:
        self.step(log, "sync", lambda: fsync_folder(self.root))


def fsync_file(path: Path) -> None:
    """fsync of one file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replay(history: NamesHistory, name: str, arguments: Iterable[Any], *, is_done: bool) -> None:
    """Put a step into a history."""
    match (name, *arguments):
        case ("make", path, number, pages):
            history.make(path, Entry("f", number, pages, mode=0o644))
        case ("mkdir", path):
            history.make(path, Entry("d"))
        case ("symlink", path, number):
            history.make(path, Entry("l", number))
        case ("link", old, new):
            history.make(new, history.now[old])
        case ("rename", old, new):
            history.rename(old, new)
        case ("remove", path):
            history.remove(path)
        case ("tag", path, value):
            history.change(path, tag=value)
        case ("chmod", path, mode):
            history.change(path, mode=mode)
        case ("fsync-file", path) if is_done:
            # Its name is durable with it; so are those that came before it, as names change one after the other.
            history.change(path, is_complete=True)
            history.synced()
        case ("sync",) if is_done:
            history.synced()


def find(path: Path) -> Found:
    """What is there now."""
    if path.is_symlink():
        return Found("l", os.fsencode(os.readlink(path)), "", 0)
    kind = "d" if path.is_dir() else "f"
    tag = os.getxattr(path, TAG).decode() if TAG in os.listxattr(path) else ""
    return Found(kind, path.read_bytes() if kind == "f" else b"", tag, path.stat().st_mode & 0o7777)


def problems(number: int, record: Record, folder: Path) -> Iterable[str]:
    """What is wrong with a worker's names after a crash."""
    history = NamesHistory()
    for (name, *arguments), is_done in record.steps:
        replay(history, name, arguments, is_done=is_done)
    root = folder / f"names-{number}"
    found = {str(path.relative_to(root)): find(path) for path in root.rglob("*")}
    yield from (f"{root.name}: {problem}" for problem in history.problems(found))
