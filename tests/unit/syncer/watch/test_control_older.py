"""Commands and daemons of different releases."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from syncer.watch import control
from syncer.watch.live import DaemonLive


@pytest.fixture
def older(tmp_path: Path) -> Iterator[str]:
    """A daemon that hangs up at every question but "live", as releases without peers do."""
    path = str(tmp_path / "watch.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if connection.recv(4096) == b'{"ask":"live"}\n':
                        connection.sendall(msgspec.json.encode(DaemonLive(pid=1, started=0, roots=[])) + b"\n")

        thread = threading.Thread(target=serve)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_a_daemon_that_knows_no_peers_is_named_as_such(older: str) -> None:
    """ "No daemon" would be wrong, and starting one would fail."""
    with pytest.raises(control.OlderDaemonError, match="older release"):
        control.peers(older)
    with pytest.raises(control.OlderDaemonError):
        control.unban(older)


def test_no_daemon_is_named_as_such(tmp_path: Path) -> None:
    with pytest.raises(control.NotWatchingError):
        control.peers(str(tmp_path / "watch.sock"))


@pytest.mark.parametrize("told", [b"", b'{"pid":1,"sta'])
def test_a_daemon_that_is_killed_while_it_is_asked_is_none(tmp_path: Path, told: bytes) -> None:
    """The question that it has not read resets the connection; of the answer a part may have come."""
    path = str(tmp_path / "watch.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def die() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(told)

        thread = threading.Thread(target=die)
        thread.start()
        assert control.live(path) is None
        thread.join()


def test_a_daemon_that_comes_after_the_question_is_not_an_older_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing listened nobody refused the question: whoever listens a moment later knows it."""
    monkeypatch.setattr(control, "live", lambda _path: DaemonLive(pid=1, started=0, roots=[]))
    with pytest.raises(control.NotWatchingError):
        control.peers(str(tmp_path / "watch.sock"))
