"""What the root helper answers, without the kernel, root or a process of its own."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockfs.fuse import passthrough_helper
from blockfs.fuse.kernel.helped import Helper
from blockfs.fuse.passthrough_helper import ANSWER, CLOSE, HELLO, OPEN, REQUEST, Connection


class Talk:
    """A connection that is served by a thread."""

    def __init__(self) -> None:
        self.peer, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with self._theirs:
            Connection(self._theirs, os.getuid()).run()

    def say(self, message: bytes, *files: int) -> int | None:
        """The answer; None: the connection has ended."""
        try:
            socket.send_fds(self.peer, [message], files)
            answer = self.peer.recv(ANSWER.size)
        except OSError:
            return None
        return int(ANSWER.unpack(answer)[0]) if answer else None

    def end(self) -> None:
        self.peer.close()
        self._thread.join()


@pytest.fixture
def talk() -> Iterator[Talk]:
    made = Talk()
    yield made
    made.end()


def opened() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_what_is_no_fuse_device_is_refused_and_nothing_stays_open(talk: Talk, tmp_path: Path) -> None:
    """Breaks when an ioctl(2) with CAP_SYS_ADMIN is done to a device that a user has chosen."""
    before = opened()
    for path, flags in (("/dev/null", os.O_RDWR), (tmp_path, os.O_RDONLY)):
        file = os.open(path, flags)
        assert talk.say(REQUEST.pack(HELLO, 0), file) == -errno.ENOTTY
        assert talk.say(REQUEST.pack(OPEN, 0), file) == -errno.EINVAL
        os.close(file)
    assert talk.say(REQUEST.pack(CLOSE, 1)) == -errno.EINVAL
    assert opened() == before


@given(message=st.binary(max_size=40), files=st.integers(0, 5))
def test_whatever_comes_is_refused_or_ends_the_connection(message: bytes, files: int) -> None:
    file = os.open("/dev/null", os.O_RDWR)
    before = opened()
    talk = Talk()
    answer = talk.say(message, *[file] * files)
    assert answer is None or answer < 0
    talk.end()
    assert opened() == before
    os.close(file)


def test_who_is_not_root_is_no_helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(os.fspath(path))
        listening.listen()
        real = socket.socket.getsockopt

        def somebody(of: socket.socket, level: int, option: int, *size: int) -> int | bytes:
            return (
                struct.pack("=iII", 1, 4001, 4001) if option == socket.SO_PEERCRED else real(of, level, option, *size)
            )

        monkeypatch.setattr(socket.socket, "getsockopt", somebody)
        with pytest.raises(PermissionError):
            Helper(0, os.fspath(path))
    with pytest.raises(OSError, match="refused"):
        Helper(0, os.fspath(path))
    with pytest.raises(FileNotFoundError):
        Helper(0, os.fspath(tmp_path / "none"))


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_PATH, os.O_RDWR | os.O_APPEND])
def test_a_file_that_is_not_open_for_all_is_refused(tmp_path: Path, flags: int) -> None:
    (tmp_path / "file").touch()
    file = os.open(tmp_path / "file", flags)
    with pytest.raises(passthrough_helper.RefusedError):
        passthrough_helper.check_file(file, os.getuid())
    os.close(file)
