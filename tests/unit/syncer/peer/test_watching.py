"""When the kernel is asked about interfaces again: when it says so or, in a sandbox, each second."""

from __future__ import annotations

import errno
import socket

import pytest
import trio
import trio.testing

from syncer.peer.links.rtnetlink import LOOPBACK
from syncer.peer.links.watching import POLL_S, Changes, interfaces


def test_the_loopback_is_there() -> None:
    assert [each.name for each in interfaces() if each.flags & LOOPBACK] == ["lo"]


def test_where_the_kernel_does_not_tell_it_is_asked_each_second(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "no such family")

    async def main() -> float:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socket", refused)
            changes = Changes()
        for _ in range(3):
            await changes.wait()
        changes.close()
        return trio.current_time()

    clock = trio.testing.MockClock(autojump_threshold=0)
    before = clock.current_time()
    assert trio.run(main, clock=clock) - before == pytest.approx(3 * POLL_S)


class Told:
    """A netlink socket with a queue that overflowed."""

    def __init__(self) -> None:
        self.here, self._there = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.here.setblocking(False)
        self._there.send(b"x")
        self._overflowed = True

    def fileno(self) -> int:
        return self.here.fileno()

    def recv(self, size: int) -> bytes:
        if self._overflowed:
            self._overflowed = False
            raise OSError(errno.ENOBUFS, "no buffer space")
        return self.here.recv(size)

    def close(self) -> None:
        self.here.close()
        self._there.close()


def test_more_than_the_kernel_could_keep_is_as_good_as_a_message() -> None:
    async def main() -> None:
        changes = Changes()
        changes.close()
        told = Told()
        changes._told = told  # type: ignore[assignment]
        await changes.wait()
        with pytest.raises(BlockingIOError):
            told.recv(1)
        changes.close()

    trio.run(main)
