"""Server and client over a real socket, with a handler that answers from a script."""

from __future__ import annotations

import errno
import os
import socket
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from blockfs.control import client as clients
from blockfs.control import protocol, server
from blockfs.control.client import ConnectionLostError, ControlClient, NotMountedError, RequestError
from blockfs.control.server import ControlServer
from blockfs.errors import LockedError, NoSpaceError


class ScriptedSession:
    def __init__(self, owner: ScriptedHandler) -> None:
        self.owner = owner

    def answer(self, request: protocol.Request) -> protocol.Reply:
        self.owner.requests.append(request)
        return self.owner.reply(request)

    def close(self) -> None:
        self.owner.closed += 1


class ScriptedHandler:
    def __init__(self) -> None:
        self.requests: list[protocol.Request] = []
        self.closed = 0
        self.reply: Callable[[protocol.Request], protocol.Reply] = lambda _request: protocol.Done()

        self.crashes: list[BaseException] = []

    def session(self) -> ScriptedSession:
        return ScriptedSession(self)

    def crashed(self, error: BaseException, _doing: str) -> None:
        self.crashes.append(error)


@pytest.fixture
def handler() -> ScriptedHandler:
    return ScriptedHandler()


@pytest.fixture
def volume(tmp_path: Path, handler: ScriptedHandler) -> Iterator[bytes]:
    path = os.fsencode(tmp_path)
    running = ControlServer(path, handler)
    yield path
    running.stop()


def leave_dead_socket(volume: Path) -> None:
    """What a killed mount leaves: a socket file with nobody behind it."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(volume / "control.sock"))


def raw_connection(volume: bytes) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(120)
    connection.connect(os.path.join(volume, clients.SOCKET_NAME))
    return connection


def read_all(connection: socket.socket) -> list[protocol.ToClient]:
    data = b""
    while piece := connection.recv(65536):
        data += piece
    messages = []
    while data:
        size = protocol.payload_size(data[:4])
        messages.append(protocol.decode_to_client(data[4 : 4 + size]))
        data = data[4 + size :]
    return messages


def test_a_request_reaches_the_handler_and_its_reply_the_client(volume: bytes, handler: ScriptedHandler) -> None:
    with ControlClient(volume) as client:
        assert client.server_pid == os.getpid()
        client.flush()
        client.shutdown(seal=True)
    assert handler.requests == [protocol.Flush(), protocol.Shutdown(seal=True)]


def test_an_error_keeps_its_exit_code_errno_and_text(volume: bytes, handler: ScriptedHandler) -> None:
    def fail(_request: protocol.Request) -> protocol.Reply:
        raise LockedError("the volume", 42)

    handler.reply = fail
    with ControlClient(volume) as client, pytest.raises(RequestError, match="process 42") as caught:
        client.flush()
    assert (caught.value.exit_code, caught.value.errno) == (11, errno.EBUSY)


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (OSError(errno.ENOSPC, "full"), 17),
        (OSError(errno.EIO, "disk"), 1),
        (NoSpaceError("full"), 17),
        (ValueError("x"), 2),
    ],
)
def test_failures_of_the_handler_become_replies(
    volume: bytes, handler: ScriptedHandler, error: Exception, exit_code: int
) -> None:
    def fail(_request: protocol.Request) -> protocol.Reply:
        raise error

    handler.reply = fail
    with ControlClient(volume) as client:
        for _ in range(2):  # the connection survives
            with pytest.raises(RequestError) as caught:
                client.stats()
            assert caught.value.exit_code == exit_code


def test_nobody_behind_the_socket_means_not_mounted(tmp_path: Path) -> None:
    with pytest.raises(NotMountedError, match="not mounted"):
        ControlClient(os.fsencode(tmp_path))
    leave_dead_socket(tmp_path)
    with pytest.raises(NotMountedError):
        ControlClient(os.fsencode(tmp_path))
    with pytest.raises(NotMountedError):
        ControlClient(os.fsencode(tmp_path / "missing"))


def test_a_socket_left_by_a_killed_mount_is_replaced(tmp_path: Path, handler: ScriptedHandler) -> None:
    leave_dead_socket(tmp_path)
    running = ControlServer(os.fsencode(tmp_path), handler)
    with ControlClient(os.fsencode(tmp_path)) as client:
        client.flush()
    running.stop()


def test_paths_longer_than_a_socket_address_work(tmp_path: Path, handler: ScriptedHandler) -> None:
    deep = tmp_path / ("d" * 200) / ("e" * 200)
    deep.mkdir(parents=True)
    running = ControlServer(os.fsencode(deep), handler)
    with ControlClient(os.fsencode(deep)) as client:
        client.flush()
    running.stop()


def test_stopping_removes_the_socket_and_ends_idle_connections(tmp_path: Path, handler: ScriptedHandler) -> None:
    path = os.fsencode(tmp_path)
    running = ControlServer(path, handler)
    client = ControlClient(path)
    running.stop()
    running.stop()  # idempotent
    assert not (tmp_path / "control.sock").exists()
    with pytest.raises(ConnectionLostError):
        client.flush()
    client.close()
    assert handler.closed == 1


def test_a_session_ends_with_its_connection(volume: bytes, handler: ScriptedHandler, tmp_path: Path) -> None:
    running = ControlServer(os.fsencode(tmp_path), handler)
    for _ in range(3):
        ControlClient(os.fsencode(tmp_path)).close()
    running.stop()  # waits for the connections
    assert handler.closed == 3


class Noted(threading.Event):
    """Set when the server says that it waits."""

    def warning(self, event: str, **_: object) -> None:
        if event == "control.waits":
            self.set()

    debug = exception = warning


def test_stopping_waits_for_a_request_at_work_however_long_it_takes(
    tmp_path: Path, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it works on is closed when the server has stopped."""
    at_work, goes_on, waits = threading.Event(), threading.Event(), Noted()

    def slow(_request: protocol.Request) -> protocol.Reply:
        at_work.set()
        goes_on.wait()
        return protocol.Done()

    handler.reply = slow
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 0.0)
    monkeypatch.setattr(server, "log", waits)
    running = ControlServer(os.fsencode(tmp_path), handler)
    with raw_connection(os.fsencode(tmp_path)) as client:
        client.sendall(protocol.encode(protocol.Hello(version=protocol.PROTOCOL_VERSION)))
        client.sendall(protocol.encode(protocol.Flush()))
        at_work.wait()
        stopping = threading.Thread(target=running.stop)
        stopping.start()
        waits.wait()
        assert stopping.is_alive()
        assert handler.closed == 0
        goes_on.set()
        stopping.join()
    assert handler.closed == 1


def test_stopping_does_not_wait_for_a_peer_that_never_takes_its_reply(
    tmp_path: Path, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "STOP_TIMEOUT_S", 0.0)
    answered = threading.Event()

    def long(_request: protocol.Request) -> protocol.Reply:
        answered.set()
        return protocol.MissingBlocks(ids=[bytes(32)] * 100_000)

    handler.reply = long
    running = ControlServer(os.fsencode(tmp_path), handler)
    with raw_connection(os.fsencode(tmp_path)) as client:
        client.sendall(protocol.encode(protocol.Hello(version=protocol.PROTOCOL_VERSION)))
        client.sendall(protocol.encode(protocol.Flush()))
        answered.wait()
        running.stop()
    assert handler.closed == 1


def test_a_bug_in_the_thread_that_accepts_connections_is_told_to_the_owner(
    tmp_path: Path, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody could end the mount any more, and it would look as if its process were gone."""
    running = ControlServer(os.fsencode(tmp_path), handler)

    def fails() -> bool:
        raise AssertionError

    monkeypatch.setattr(running, "_accept", fails)  # for the next one: it waits already
    ControlClient(os.fsencode(tmp_path)).close()
    running._acceptor.join()
    assert isinstance(handler.crashes[0], AssertionError)
    running.stop()


def test_a_host_without_room_for_a_thread_costs_that_connection_only(
    volume: bytes, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        with raw_connection(volume) as connection:
            assert read_all(connection) == []
    with ControlClient(volume) as client:
        client.flush()
    assert handler.crashes == []


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\xff\xff",
        b"\0\0\0\1\xc1",
        b"GET / HTTP/1.1\r\n\r\n",
        protocol.encode(protocol.Flush()),
        protocol.encode(protocol.Hello(version=99)),
        protocol.encode(protocol.Hello(version=1)) + b"\xff\xff\xff\xff",
        protocol.encode(protocol.Hello(version=1)) * 2,
    ],
    ids=["giant", "not-msgpack", "http", "no-hello", "other-version", "giant-later", "second-hello"],
)
def test_malformed_input_is_answered_with_an_error_and_closed(volume: bytes, data: bytes) -> None:
    with raw_connection(volume) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        assert isinstance(read_all(connection)[-1], protocol.ErrorReply)


def test_another_user_is_refused(volume: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_PEER", FakeCredentials())
    with pytest.raises(RequestError, match="only that user and root") as caught:
        ControlClient(volume)
    assert caught.value.exit_code == 12


class FakeCredentials:
    size = struct.calcsize("3i")

    def unpack(self, _data: bytes) -> tuple[int, int, int]:
        return 1, os.geteuid() + 1, 0


def test_a_listing_is_followed_to_its_last_page(volume: bytes, handler: ScriptedHandler) -> None:
    start = protocol.CursorMsg(mount_generation=1, sequence=5)
    end = protocol.CursorMsg(mount_generation=1, sequence=9)

    def page(request: protocol.Request) -> protocol.Reply:
        assert isinstance(request, protocol.Changes)
        return protocol.ChangesReply(
            full=False, rows=[], gone=[request.after + 1], cursor=end, after=request.after + 1, more=request.after < 2
        )

    handler.reply = page
    with ControlClient(volume) as client:
        assert client.changes(start) == (False, [], [1, 2, 3], end)


def test_a_block_list_is_put_together_from_pages(
    volume: bytes, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "MAX_PAGE_IDS", 2)
    ids = b"".join(bytes([number]) * 32 for number in range(1, 6))

    def page(request: protocol.Request) -> protocol.Reply:
        assert isinstance(request, protocol.BlockListPage)
        return protocol.BlockListReply(
            size_bytes=5 * 4096 - 1, ids=ids[request.first * 32 : (request.first + request.count) * 32]
        )

    handler.reply = page
    with ControlClient(volume) as client:
        found = client.block_list(7, 1, 4096)
    assert found is not None
    assert (found.ids, found.size_bytes) == (ids, 5 * 4096 - 1)


def test_a_content_that_changed_has_no_block_list(volume: bytes, handler: ScriptedHandler) -> None:
    handler.reply = lambda _request: protocol.ChangedReply()
    with ControlClient(volume) as client:
        assert client.block_list(7, 1, 4096) is None
        assert client.prepare_file(size_bytes=0, mode=0, uid=0, gid=0, mtime_ns=0, base=(7, 1)) is None


def test_missing_blocks_come_back_as_a_value(volume: bytes, handler: ScriptedHandler) -> None:
    handler.reply = lambda _request: protocol.MissingBlocks(ids=[b"m" * 32])
    with ControlClient(volume) as client:
        assert client.set_blocks(1, 0, b"m" * 32) == [b"m" * 32]


def test_a_refusal_is_a_value_and_a_wrong_reply_an_error(volume: bytes, handler: ScriptedHandler) -> None:
    change = protocol.ApplyMkdir(parent=1, name=b"d", mode=0o755, uid=0, gid=0)
    handler.reply = lambda _request: protocol.Refused(reason="occupied")
    with ControlClient(volume) as client:
        assert client.apply(change) == protocol.Refused(reason="occupied")
        handler.reply = lambda _request: protocol.Done()
        with pytest.raises(ConnectionLostError, match="unexpected reply"):
            client.apply(change)


NEW_FILE = protocol.NewFile(parent=1, name=b"f", size_bytes=0, mode=0, uid=0, gid=0, mtime_ns=0, ids=b"")


def test_what_became_of_each_new_file_comes_back_as_values(volume: bytes, handler: ScriptedHandler) -> None:
    failed = protocol.ErrorReply(exit_code=17, errno=errno.ENOSPC, message="full")
    answers = [protocol.Applied(ino=2, version=3, content_version=3), protocol.Refused(reason="occupied")]
    handler.reply = lambda _request: protocol.MadeFiles(files=[*answers, failed])
    with ControlClient(volume) as client:
        assert client.makes_files
        *told, error = client.make_files([NEW_FILE] * 3, commit=False)
        assert told == answers
        assert isinstance(error, RequestError)
        assert (error.exit_code, error.errno, str(error)) == (17, errno.ENOSPC, "full")
        with pytest.raises(ConnectionLostError, match="3 answers for 2"):
            client.make_files([NEW_FILE] * 2, commit=False)


def test_a_mount_of_an_older_release_is_known_by_its_welcome(volume: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """To a request that it does not know it would hang up."""
    monkeypatch.setattr(protocol, "TAKES", ())
    with ControlClient(volume) as client:
        assert not client.makes_files


def test_the_socket_is_its_users_own_from_the_start(
    tmp_path: Path, handler: ScriptedHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mode that is set by the socket's name is another file's, where somebody put a link there meanwhile."""
    monkeypatch.setattr(server.os, "chmod", None)
    before = os.umask(0)
    try:
        running = ControlServer(os.fsencode(tmp_path), handler)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "control.sock").stat().st_mode) == 0o600
    running.stop()
