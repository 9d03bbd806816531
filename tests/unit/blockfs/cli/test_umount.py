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

    server_pid = 1

    def __init__(self, error: Exception | None = None) -> None:
        self._error = error

    def shutdown(self, *, seal: bool) -> None:
        assert not seal
        if self._error is not None:
            raise self._error


@pytest.fixture
def process() -> Iterator[int]:
    with subprocess.Popen(["true"]) as child:
        descriptor = os.pidfd_open(child.pid)
        yield descriptor
        os.close(descriptor)


@pytest.fixture
def mount(monkeypatch: pytest.MonkeyPatch) -> Mount:
    monkeypatch.setattr(umount, "syncfs", lambda _: None)
    monkeypatch.setattr(umount, "mount_at", lambda _: None)
    return read_mounts()[0]


def test_a_process_that_is_gone_before_its_reply_has_done_what_was_asked(mount: Mount, process: int) -> None:
    umount._end(Client(ConnectionLostError("gone")), process, mount, seal=False)  # type: ignore[arg-type]


def test_a_process_that_died_over_it_leaves_no_mount_and_is_told(
    mount: Mount, process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    detached: list[bytes] = []
    monkeypatch.setattr(umount, "mount_at", lambda _: mount)
    monkeypatch.setattr(umount, "unmount", lambda path, lazy: detached.append(path) if lazy else None)
    with pytest.raises(ChangesLostError, match="ended before all was saved"):
        umount._end(Client(ConnectionLostError("gone")), process, mount, seal=False)  # type: ignore[arg-type]
    assert detached == [mount.mountpoint]


def test_a_write_that_failed_is_told_once_the_mount_has_ended(
    mount: Mount, process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: bytes) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(umount, "syncfs", fail)
    with pytest.raises(ChangesLostError, match="the mount has ended"):
        umount._end(Client(), process, mount, seal=False)  # type: ignore[arg-type]


def test_without_room_nothing_is_ended(mount: Mount, process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(umount, "syncfs", fail)
    with pytest.raises(OSError, match="No space"):
        umount._end(Client(AssertionError("nobody is asked to end")), process, mount, seal=False)  # type: ignore[arg-type]
