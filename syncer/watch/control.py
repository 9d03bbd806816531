"""The daemon's socket: `status` asks how it stands, `pause`, `resume`, `link` and `unlink` tell that something changed.

A Unix stream socket beside the registry, for its own user. One JSON line each way: `{"ask":"live"}` is answered once,
`{"ask":"follow"}` whenever something changed, `{"ask":"reload"}` and `{"ask":"sync","uuid":…}` with `{"done":true}`.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec
import trio
import trio.socket

from syncer.errors import NotFoundError
from syncer.protocol.jsontext import MALFORMED
from syncer.watch.live import DaemonLive

if TYPE_CHECKING:  # whoever only asks a daemon does not need all that one does: a tenth of a second
    from syncer.watch.daemon import Daemon

T = TypeVar("T")

_MAX_LINE_BYTES: Final = 1 << 24  # a thousand roots take 1 MiB
_TIMEOUT_S: Final = 10.0
_HEARTBEAT_S: Final = 60.0  # so that a caller who hung up is noticed
_FOLLOW_PAUSE_S: Final = 0.1  # a person reads no faster


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked."""

    ask: Literal["live", "follow", "reload", "sync"]
    uuid: str = ""


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to "reload" and "sync"."""

    done: bool


class NotWatchingError(NotFoundError):
    """No daemon answers."""

    def __init__(self) -> None:
        super().__init__("no `blocksync watch` is running")


# --- the daemon's side


async def serve(path: str, daemon: Daemon, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Answer until cancelled. The caller holds the daemon's lock, so a socket that is there was left by a dead one."""
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener, _short(path) as address:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        await listener.bind(address)
        os.chmod(path, 0o600)
        listener.listen()
        task_status.started()
        try:
            await trio.serve_listeners(partial(_converse, daemon), [trio.SocketListener(listener)])
        finally:
            os.unlink(path)


async def _converse(daemon: Daemon, stream: trio.SocketStream) -> None:
    """One question of one caller; whoever hangs up is gone."""
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async with stream:
            line = b""
            with trio.move_on_after(_TIMEOUT_S):
                line = await _line(stream)
            try:
                question = msgspec.json.decode(line, type=Question)
            except MALFORMED:
                return
            await _answer(stream, daemon, question)


async def _line(stream: trio.SocketStream) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < 4096:
        piece = await stream.receive_some(4096)
        if not piece:
            break
        received += piece
    return bytes(received)


async def _answer(stream: trio.SocketStream, daemon: Daemon, question: Question) -> None:
    if question.ask == "follow":
        await _follow(stream, daemon)
    elif question.ask == "live":
        await _send(stream, daemon.live)
    elif question.ask == "reload":
        daemon.reload()
        await _send(stream, Done(done=True))
    else:
        await _send(stream, Done(done=daemon.expedite(question.uuid)))


async def _follow(stream: trio.SocketStream, daemon: Daemon) -> None:
    while True:
        changed = daemon.changed  # before the look, or a change between the two would be missed
        await _send(stream, daemon.live)
        with trio.move_on_after(_HEARTBEAT_S):
            await changed.wait()
        await trio.sleep(_FOLLOW_PAUSE_S)


async def _send(stream: trio.SocketStream, message: msgspec.Struct) -> None:
    await stream.send_all(msgspec.json.encode(message) + b"\n")


# --- the commands' side


def live(path: str) -> DaemonLive | None:
    """How the daemon stands; None: there is none."""
    try:
        return next(_asked(path, Question(ask="live"), DaemonLive))
    except NotWatchingError:
        return None


def follow(path: str) -> Iterator[DaemonLive]:
    """How it stands, again and again.

    Raises:
        NotWatchingError: There is none.
    """
    return _asked(path, Question(ask="follow"), DaemonLive)


def reload(path: str) -> bool:
    """Tell the daemon to read the registry again. Returns whether there is one."""
    try:
        return next(_asked(path, Question(ask="reload"), Done)).done
    except NotWatchingError:
        return False


def sync(path: str, uuid: str) -> bool:
    """Ask for a look at everything of one root now. Returns whether it is watched."""
    try:
        return next(_asked(path, Question(ask="sync", uuid=uuid), Done)).done
    except NotWatchingError:
        return False


def _asked(path: str, question: Question, kind: type[T]) -> Iterator[T]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(_TIMEOUT_S)
        try:
            with _short(path) as address:
                connection.connect(address)
            connection.sendall(msgspec.json.encode(question) + b"\n")
        except OSError:
            raise NotWatchingError from None
        connection.settimeout(None)
        with connection.makefile("rb") as lines:
            while line := lines.readline(_MAX_LINE_BYTES):
                yield msgspec.json.decode(line, type=kind)
    raise NotWatchingError


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    """An address for a path of any length: a socket's may have 107 bytes."""
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{os.path.basename(path)}"
    finally:
        os.close(directory)
