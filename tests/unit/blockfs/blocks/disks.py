"""Disks for tests: they count, fail, die, and forget what was not synced."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

import lmdb

from blockfs.blocks.disk import Disk
from blockfs.runtime.atomic import space_errors
from blockfs.runtime.space import Space


def memory_folder() -> str | None:
    """Where files cost no disk: thousands of fsyncs that test an order, not a disk. None: the usual place."""
    shared = "/dev/shm"
    try:
        found = os.statvfs(shared)
    except FileNotFoundError:
        return None
    is_usable = os.access(shared, os.W_OK) and found.f_bavail * found.f_frsize > 32 << 20
    return shared if is_usable else None


def room(available_bytes: int) -> Space:
    """A large disk that has so much left."""
    return Space(total_bytes=1 << 40, free_bytes=available_bytes, available_bytes=available_bytes, is_quota=False)


class Died(BaseException):
    """The process ends here: nothing of ours may catch it."""


class CountingDisk(Disk):
    """Asks `fault` before each step; a step is (number from 1, name). Half of a dying write reaches the file."""

    def __init__(self, fault: Callable[[int, str], BaseException | None] = lambda number, name: None) -> None:
        self.steps: list[str] = []
        self.fault = fault

    def _step(self, name: str) -> None:
        self.steps.append(name)
        error = self.fault(len(self.steps), name)
        if error is not None:
            with space_errors("the test's disk"):  # as the real calls do
                raise error

    def create(self, path: str) -> int:
        self._step("create")
        return super().create(path)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        try:
            self._step("write")
        except BaseException:
            super().write(fd, data[: len(data) // 2], offset)
            raise
        super().write(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        self._step("fdatasync")
        super().fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory")
        super().sync_directory(path)

    def link(self, fd: int, path: str, target: str) -> None:
        self._step("link")
        super().link(fd, path, target)

    def commit(self, transaction: lmdb.Transaction[bytes]) -> None:
        self._step("commit")
        super().commit(transaction)

    def punch(self, fd: int, offset: int, length: int) -> None:
        self._step("punch")
        super().punch(fd, offset, length)

    def truncate(self, fd: int, size_bytes: int) -> None:
        self._step("truncate")
        super().truncate(fd, size_bytes)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)


class PowerCutDisk(CountingDisk):
    """Remembers what is not durable, and takes it back on `cut_power`."""

    def __init__(self, fault: Callable[[int, str], BaseException | None] = lambda number, name: None) -> None:
        super().__init__(fault)
        self._created: dict[str, str] = {}  # path → folder, until the folder is synced
        self._written: dict[str, list[tuple[int, bytes, int]]] = {}  # path → (offset, old content, old size)

    def create(self, path: str) -> int:
        fd = super().create(path)
        self._created[path] = os.path.dirname(path)
        return fd

    def link(self, fd: int, path: str, target: str) -> None:
        super().link(fd, path, target)
        self._created[target] = os.path.dirname(target)

    def write(self, fd: int, data: bytes, offset: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        undo = (offset, os.pread(fd, len(data), offset), os.fstat(fd).st_size)
        self._written.setdefault(path, []).append(undo)
        super().write(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self._written.pop(os.readlink(f"/proc/self/fd/{fd}"), None)

    def sync_directory(self, path: str) -> None:
        super().sync_directory(path)
        self._created = {file: folder for file, folder in self._created.items() if folder != path}

    def cut_power(self) -> None:
        """Take back all unsynced writes, newest first, and unsynced names."""
        for path, undos in self._written.items():
            if not os.path.exists(path):
                continue
            fd = os.open(path, os.O_RDWR)
            for offset, old, size_bytes in reversed(undos):
                os.pwrite(fd, old, offset)
                os.ftruncate(fd, size_bytes)
            os.close(fd)
        for path in self._created:
            if os.path.exists(path):
                os.unlink(path)


def no_space() -> OSError:
    """What a full disk says."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def io_error() -> OSError:
    """What a broken disk says."""
    return OSError(errno.EIO, os.strerror(errno.EIO))
