"""A mixed load on a mount, with a log of what was promised and when: threads that write; one that seals and collects.

Each file or name belongs to one thread, so what may be found after a cut is a matter of that thread's own log.
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from blockfs.control.client import ControlClient
from blockfs.runtime.linux import syncfs
from tests.power.promises import CellFile, NameHistory, SnapshotHistory, Version, whole_content

Clock = Callable[[], int]

_NAMES = 12
_SNAPSHOTS = 3


@dataclass(slots=True)
class Log:
    """What a load has done: everything that a check needs, and nothing else, so that it can be sent to a process.

    Attributes:
        started: Position at which the load began: the volume was there, durably, with an empty folder `names`.
        cells: Files by name, in the root.
        names: Names in the folder `names`.
        snapshots: Snapshots of that folder, and what each of its files must be in them.
        is_native: The kernel wrote the files: what was not synced is as the host leaves it.
    """

    started: int = 0
    cells: dict[str, CellFile] = field(default_factory=dict)
    names: dict[str, NameHistory] = field(default_factory=dict)
    snapshots: dict[str, SnapshotHistory] = field(default_factory=dict)
    is_native: bool = False


def run_load(mount: Path, volume: Path, clock: Clock, *, rounds: int, seed: int) -> Log:
    """Work on a mount until each thread has done its rounds.

    Raises:
        Exception: A failure of any thread.
    """
    (mount / "names").mkdir()
    fsync(mount / "names")
    log = Log(started=clock())
    noise = random.Random(seed)
    workers: list[_Worker] = [
        _NameWorker(mount, volume, clock, log, noise.randrange(1 << 32), rounds),
        _CellWorker("image", mount, clock, log, noise.randrange(1 << 32), rounds * 3, _image_step),
        _CellWorker("cuts", mount, clock, log, noise.randrange(1 << 32), rounds * 2, _cuts_step),
        _CellWorker("log", mount, clock, log, noise.randrange(1 << 32), rounds * 2, _log_step),
    ]
    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(worker.run) for worker in workers]
        _keep_up(volume, running)
    for worker in running:
        worker.result()
    return log


def fsync(path: Path, *, data_only: bool = False) -> None:
    """fsync(2) or fdatasync(2) of a path."""
    fd = os.open(path, os.O_RDONLY)
    try:
        (os.fdatasync if data_only else os.fsync)(fd)
    finally:
        os.close(fd)


def _keep_up(volume: Path, running: list[Future[None]]) -> None:
    """Seal everything and collect garbage, over and over, while the others work."""
    with ControlClient(os.fsencode(volume)) as client:
        pending = set(running)
        while pending:
            client.flush()
            client.gc()
            _, pending = wait(pending, timeout=0.3)


class _Worker(ABC):
    """Does its rounds."""

    def __init__(self, seed: int, rounds: int) -> None:
        self.noise = random.Random(seed)
        self.rounds = rounds

    def run(self) -> None:
        for _ in range(self.rounds):
            self.step()

    @abstractmethod
    def step(self) -> None:
        """One round."""


class _CellWorker(_Worker):
    """Changes one file in place."""

    def __init__(
        self,
        name: str,
        mount: Path,
        clock: Clock,
        log: Log,
        seed: int,
        rounds: int,
        step: Callable[[_CellWorker], None],
    ) -> None:
        super().__init__(seed, rounds)
        self.path = mount / name
        self.clock = clock
        self.file = log.cells[name] = CellFile(name)
        self._step = step

    def step(self) -> None:
        self._step(self)

    def write(self, first: int, count: int) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            data = self.file.write(self.clock(), first, count)
            assert os.pwrite(fd, data, first * 512) == len(data)
        finally:
            os.close(fd)

    def truncate(self, size: int) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            self.file.truncate(self.clock(), size)
            os.ftruncate(fd, size * 512)
        finally:
            os.close(fd)

    def fsync(self) -> None:
        if self.path.exists():
            event = self.file.last_event
            fsync(self.path, data_only=self.noise.random() < 0.5)
            self.file.promise(self.clock(), event)


def _image_step(worker: _CellWorker) -> None:
    """A disk image: pages at random, now and then an fsync."""
    if not worker.file.last_event:
        worker.truncate(8 * 512)
    for _ in range(worker.noise.randint(1, 12)):
        worker.write(8 * worker.noise.randrange(512), 8)
    worker.fsync()


def _cuts_step(worker: _CellWorker) -> None:
    """Writes and truncates at odd places, down and up."""
    noise = worker.noise
    action = noise.random()
    if action < 0.5:
        worker.write(noise.randrange(400), noise.randint(1, 100))
    elif action < 0.8:
        worker.truncate(noise.randrange(500))
    else:
        worker.fsync()


def _log_step(worker: _CellWorker) -> None:
    """Appends, as a log does; an fsync after every fourth, and sometimes the log begins again."""
    if worker.file.size > 3000:
        worker.truncate(0)
    worker.write(worker.file.size, worker.noise.randint(1, 40))
    if worker.noise.random() < 0.25:
        worker.fsync()


class _NameWorker(_Worker):
    """Replaces, clones and removes whole files."""

    def __init__(self, mount: Path, volume: Path, clock: Clock, log: Log, seed: int, rounds: int) -> None:
        super().__init__(seed, rounds)
        self.folder = mount / "names"
        self.volume = volume
        self.clock = clock
        self.names = log.names
        self.snapshots = log.snapshots
        for number in range(_NAMES):
            self.names[f"n{number}"] = NameHistory()
        self._versions = 0

    def step(self) -> None:
        name = self.noise.choice(list(self.names))
        action = self.noise.random()
        if action < 0.6:
            self._replace(name)
        elif action < 0.75:
            self._remove(name)
        elif action < 0.85:
            self._clone(name)
        elif action < 0.92:
            self._snapshot()
        else:
            self._sync_folder()

    def _replace(self, name: str) -> None:
        """Write a temporary file, perhaps fsync it, rename it over."""
        self._versions += 1
        history, temporary = self.names[name], self.folder / f"{name}.tmp"
        synced = self.noise.random() < 0.5
        temporary.write_bytes(whole_content(self._versions))
        if synced:
            fsync(temporary)
        replaces = (self.folder / name).exists()
        history.change(self.clock(), Version(self._versions, whole=synced or replaces))
        os.rename(temporary, self.folder / name)
        if synced and self.noise.random() < 0.5:
            self._sync_folder()

    def _remove(self, name: str) -> None:
        if (self.folder / name).exists():
            self.names[name].change(self.clock(), Version(0, whole=True))
            os.unlink(self.folder / name)

    def _clone(self, name: str) -> None:
        """A clone is durable, with its content, when the call returns."""
        target = self.noise.choice(list(self.names))
        if (self.folder / name).exists() and not (self.folder / target).exists():
            history = self.names[target]
            history.change(self.clock(), Version(self.names[name].now.number, whole=True))
            with ControlClient(os.fsencode(self.volume)) as client:
                client.clone(f"names/{name}".encode(), f"names/{target}".encode())
            history.promise(self.clock(), history.last_event)

    def _snapshot(self) -> None:
        """Take a snapshot, or delete one. Either is durable when the call returns.

        Only this thread changes the folder, so what is in it now is what is in the snapshot.
        """
        kept = [one for one, history in self.snapshots.items() if history.deleting is None]
        with ControlClient(os.fsencode(self.volume)) as client:
            if len(kept) == _SNAPSHOTS:
                name = self.noise.choice(kept)
                self.snapshots[name].deleting = self.clock()
                client.delete_snapshot(name.encode())
                self.snapshots[name].deleted = self.clock()
                return
            name = f"s{len(self.snapshots)}"
            contents = {name: history.now.number for name, history in self.names.items() if history.now.number}
            history = self.snapshots[name] = SnapshotHistory(contents, begun=self.clock())
            syncfs(os.fsencode(self.folder))
            client.create_snapshot(b"names", name.encode())
            history.made = self.clock()

    def _sync_folder(self) -> None:
        """All names are durable; a file that was neither fsynced nor put in another's place may still be short."""
        events = {name: history.last_event for name, history in self.names.items()}
        fsync(self.folder)
        now = self.clock()
        for name, event in events.items():
            self.names[name].promise(now, event)
