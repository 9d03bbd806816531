"""The daemon's side of its socket: see `control.py`, which has the messages and the commands' side."""

from __future__ import annotations

import contextlib
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
import trio
import trio.socket

from syncer.protocol.jsontext import MALFORMED
from syncer.watch.control import TIMEOUT_S, Done, Lifted, Question, short

if TYPE_CHECKING:
    from syncer.watch.daemon import Daemon
    from syncer.watch.lan import PeersLive

_HEARTBEAT_S: Final = 60.0  # so that a caller who hung up is noticed
_FOLLOW_PAUSE_S: Final = 0.1  # a person reads no faster


async def serve(path: str, daemon: Daemon, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
    """Answer until cancelled. The caller holds the daemon's lock, so a socket that is there was left by a dead one."""
    listener = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with listener, short(path) as address:
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
            with trio.move_on_after(TIMEOUT_S):
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
    elif question.ask == "peers":
        await _send(stream, _peers(daemon))
    elif question.ask == "unban":
        await _send(stream, Lifted(lifted=0 if daemon.lan is None else daemon.lan.unban(question.who)))
    elif question.ask == "blocks":
        await _relay(stream, daemon, question.uuid)
    elif question.ask == "ui":
        await _send(stream, await daemon.page.open(question.listen))
    elif question.ask == "ui-close":
        await _send(stream, await daemon.page.close())
    elif question.ask == "reload":
        daemon.reload()
        await _send(stream, Done(done=True))
    else:
        await _send(stream, Done(done=daemon.expedite(question.uuid)))


def _peers(daemon: Daemon) -> PeersLive:
    from syncer.watch.lan import PeersLive  # noqa: PLC0415 - where somebody asks

    if daemon.lan is None:
        return PeersLive(off="the daemon was started without them", shares=[], figures=None)
    return daemon.lan.live()


async def _relay(stream: trio.SocketStream, daemon: Daemon, uuid: str) -> None:
    """Fetch for another process of this user."""
    from syncer.peer.exchange.relay import serve as serve_relay  # noqa: PLC0415 - where somebody asks

    found = None if daemon.lan is None else daemon.lan.circle(uuid)
    if found is None:
        await serve_relay(stream, None, 0)
    else:
        await serve_relay(stream, *found)


async def _follow(stream: trio.SocketStream, daemon: Daemon) -> None:
    while True:
        changed = daemon.changed  # before the look, or a change between the two would be missed
        await _send(stream, daemon.live)
        with trio.move_on_after(_HEARTBEAT_S):
            await changed.wait()
        await trio.sleep(_FOLLOW_PAUSE_S)


async def _send(stream: trio.SocketStream, message: msgspec.Struct) -> None:
    await stream.send_all(msgspec.json.encode(message) + b"\n")
