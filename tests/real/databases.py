"""SQLite and git at work on a mount that is killed: what they acknowledged as committed is there afterwards."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import sqlite3
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path

from tests.conftest import Mounted

# Rollback by deletion is durable only with EXTRA: FULL does not sync the directory after it has removed the journal.
SQLITE_MODES = (("wal", "full"), ("truncate", "full"), ("delete", "extra"))
SQLITE_PAGES = 50  # of the log before it goes into the database: as often as a short run needs to see it

# Everything durable before git goes on; no automatic gc, it is called on purpose.
GIT = ("git", "-c", "core.fsync=all", "-c", "gc.auto=0", "-c", "user.name=t", "-c", "user.email=t@example.invalid")


class Workload(ABC):
    """Commits numbers, from one round to the next."""

    acknowledged = 0

    @abstractmethod
    def commits(self) -> Iterator[int]:
        """Commit, and yield each number once it is acknowledged; without end, until the mount breaks."""

    @abstractmethod
    def check(self) -> None:
        """After the remount: sound, and nothing acknowledged is missing."""


class Run(threading.Thread):
    """A workload at work until the mount breaks."""

    def __init__(self, workload: Workload, enough: int) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.end = ""
        self._workload = workload
        self._enough = enough

    def run(self) -> None:
        try:
            for count, number in enumerate(self._workload.commits(), 1):
                self._workload.acknowledged = number
                if count == self._enough:
                    self.reached.set()
        except (OSError, sqlite3.Error, subprocess.CalledProcessError) as error:
            self.end = f"{error} {getattr(error, 'stderr', '')}"  # once the mount is killed, this is what must come


def kill_under(mounted: Mounted, workloads: dict[str, Workload], enough: dict[str, int]) -> None:
    """Let all work until each has committed enough, kill the mount, mount again, check."""
    runs = {name: Run(workload, enough[name]) for name, workload in workloads.items()}
    for run in runs.values():
        run.start()
    try:
        for name, run in runs.items():
            while not run.reached.wait(0.1):
                assert run.is_alive(), f"{name} ended before the mount did: {run.end}"
    finally:
        mounted.kill()
        for run in runs.values():
            run.join()
    mounted.remount()
    for workload in workloads.values():
        workload.check()


def all_workloads(folder: Path) -> dict[str, Workload]:
    """SQLite in each journal mode, and git, in one folder."""
    databases: dict[str, Workload] = {
        journal: SqliteWorkload(folder / f"{journal}.sqlite", journal, synchronous)
        for journal, synchronous in SQLITE_MODES
    }
    return {**databases, "git": GitWorkload(folder)}


def row(number: int) -> bytes:
    """The content of a row or file by its number."""
    noise = random.Random(number)
    return noise.randbytes(noise.choice([20, 900, 5000, 40_000]))


class SqliteWorkload(Workload):
    """One row per transaction, with a counter in another table; deletes and VACUUM at times."""

    def __init__(self, path: Path, journal: str, synchronous: str) -> None:
        self.path = path
        self.journal = journal
        self.synchronous = synchronous

    def commits(self) -> Iterator[int]:
        database = sqlite3.connect(self.path, isolation_level=None)
        try:
            yield from self._commit_rows(database)
        finally:
            database.close()

    def _commit_rows(self, database: sqlite3.Connection) -> Iterator[int]:
        (mode,) = database.execute(f"PRAGMA journal_mode={self.journal}").fetchone()
        assert mode == self.journal
        database.execute(f"PRAGMA synchronous={self.synchronous}")
        database.execute(f"PRAGMA wal_autocheckpoint={SQLITE_PAGES}")
        database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, content BLOB)")
        database.execute("CREATE TABLE IF NOT EXISTS counter (newest INTEGER)")
        first = newest(database) + 1
        if first == 1:
            database.execute("INSERT INTO counter VALUES (0)")
        for number in itertools.count(first):
            database.execute("BEGIN IMMEDIATE")
            database.execute("INSERT INTO rows VALUES (?, ?)", (number, row(number)))
            database.execute("UPDATE counter SET newest = ?", (number,))
            database.execute("DELETE FROM rows WHERE number = ?", (number - 100,))
            database.execute("COMMIT")
            # When SQLite can't open the directory that it wants to sync, it goes on as if it had. The mount may have
            # died just then: only what the living mount has heard of counts as acknowledged.
            os.statvfs(self.path)
            yield number
            if number % 60 == 0:
                database.execute("VACUUM")

    def check(self) -> None:
        database = sqlite3.connect(self.path)
        try:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            found = newest(database)
            # The transaction after the last acknowledged one may have been committed when the mount died.
            assert found - self.acknowledged in {0, 1}, f"{self.path}: {self.acknowledged} acknowledged, {found} there"
            for number, content in database.execute("SELECT number, content FROM rows"):
                assert content == row(number), number
            (count,) = database.execute("SELECT count(*) FROM rows").fetchone()
            assert count == min(found, 100)
            self.acknowledged = found
        finally:
            database.close()


def newest(database: sqlite3.Connection) -> int:
    """The counter; 0 in a database that was never committed to."""
    if not database.execute("SELECT 1 FROM sqlite_schema WHERE name = 'counter'").fetchall():
        return 0
    return int(database.execute("SELECT coalesce(max(newest), 0) FROM counter").fetchone()[0])


class GitWorkload(Workload):
    """A commit per number, on a branch of its own at times; gc, repack and clone in between."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repository"
        self.copy = folder / "copy"
        self.ids: list[str] = []

    def git(self, *arguments: str | Path, folder: Path | None = None) -> str:
        """Run git in the repository and return what it prints."""
        environment = {**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "HOME": "/nonexistent"}
        command = [*GIT, "-C", folder or self.repository, *arguments]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    def commits(self) -> Iterator[int]:
        if not self.repository.exists():
            self.repository.mkdir()
            self.git("init", "-q", "-b", "main")
            for path in (self.repository / ".git").rglob("*"):  # git flushes neither HEAD nor the configuration
                sync(path)
        for number in itertools.count(len(self.ids) + 1):
            (self.repository / f"file{number % 30}").write_bytes(row(number))
            self.git("add", "-A")
            self.git("commit", "-q", "-m", str(number))
            commit = self.git("rev-parse", "HEAD").strip()
            # git flushes files, and not the folders that name them.
            sync(self.repository / ".git" / "refs" / "heads")
            self.ids.append(commit)
            yield number
            self.look_after(number)

    def look_after(self, number: int) -> None:
        """What happens to a repository between commits."""
        if number % 5 == 0:
            self.git("branch", f"branch{number}")
        if number % 12 == 0:
            self.git("repack", "-q", "-a", "-d")
        if number % 20 == 0:
            self.git("gc", "-q", "--prune=now")
        if number % 9 == 0:
            shutil.rmtree(self.copy, ignore_errors=True)
            self.git("clone", "-q", self.repository, self.copy)

    def check(self) -> None:
        for lock in (self.repository / ".git").rglob("*.lock"):
            lock.unlink()  # of the git that was cut off; git asks its user to do this
        self.git("fsck", "--full", "--strict")
        present = self.git("rev-list", "main").split()
        missing = [number for number, commit in enumerate(self.ids, 1) if commit not in present]
        assert not missing, f"acknowledged commits are missing: {missing}"
        # The commit after the last acknowledged one may be there; its number counts as used.
        assert len(present) - len(self.ids) in {0, 1}
        self.acknowledged = len(present)
        self.ids = present[::-1]
        self.git("reset", "-q", "--hard")


def sync(path: Path) -> None:
    """fsync a file or folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
