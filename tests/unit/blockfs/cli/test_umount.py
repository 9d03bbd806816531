"""What `blocksync umount` says where the mount process, or the kernel, could not save everything."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator

import pytest

from blockfs.cli import umount
from blockfs.control.client import ConnectionLostError
from blockfs.errors import ChangesLostError
from blockfs.runtime.mountinfo import Mount, read_mounts


class Client:
    """A mount whose process is gone by the time it is waited for."""

    def __init__(self, pid: int, error: Exception | None = None) -> None:
        self.server_pid = pid
        self._error = error

    def shutdown(self, *, seal: bool) -> None:
        assert not seal
        if self._error is not None:
            raise self._error


@pytest.fixture
def pid() -> Iterator[int]:
    with subprocess.Popen(["true"]) as child:
        yield child.pid


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Mount:
    monkeypatch.setattr(umount, "syncfs", lambda _: None)
    monkeypatch.setattr(umount, "mount_at", lambda _: None)
    return read_mounts()[0]


def test_a_process_that_is_gone_before_its_reply_has_done_what_was_asked(mount: Mount, pid: int) -> None:
    umount._end(Client(pid, ConnectionLostError("gone")), mount, seal=False)  # type: ignore[arg-type]


def test_a_process_that_died_over_it_leaves_no_mount_and_is_told(
    mount: Mount, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached: list[bytes] = []
    monkeypatch.setattr(umount, "mount_at", lambda _: mount)
    monkeypatch.setattr(umount, "unmount", lambda path, lazy: detached.append(path) if lazy else None)
    with pytest.raises(ChangesLostError, match="ended before all was saved"):
        umount._end(Client(pid, ConnectionLostError("gone")), mount, seal=False)  # type: ignore[arg-type]
    assert detached == [mount.mountpoint]


def test_a_write_that_failed_is_told_once_the_mount_has_ended(
    mount: Mount, pid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(umount, "syncfs", fail)
    with pytest.raises(ChangesLostError, match="the mount has ended"):
        umount._end(Client(pid), mount, seal=False)  # type: ignore[arg-type]


def test_without_room_nothing_is_ended(mount: Mount, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(umount, "syncfs", fail)
    with pytest.raises(OSError, match="No space"):
        umount._end(Client(pid, AssertionError("nobody is asked to end")), mount, seal=False)  # type: ignore[arg-type]
