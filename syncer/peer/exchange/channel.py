"""A connection as its two ends use it: messages in, messages out, over any stream of bytes.

The shell around a codec (`records.Secured`, or `plain.Plain` on this machine): it reads, writes and closes, and has no
rule of its own but one: what is half sent is never followed by anything else.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Final, Protocol

import trio

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.handshake import GREETING_BYTES, REPLY_BYTES, Dialled
from syncer.peer.wire.keys import EpochKeys
from syncer.peer.wire.messages import Message, Octets

READ_BYTES: Final = 512 << 10  # at once
WRITE_PIECES: Final = 64  # at once; the system takes 1,024 at most
LOWAT_BYTES: Final = 512 << 10  # without it, a downloader wakes for each packet: 3 times the CPU, measured
GATHER_S: Final = 0.005  # so long a reader waits for as much, if it is to come; at 1 Gbit/s it takes 4 ms
HANDSHAKE_S: Final = 1.0
CLOSE_S: Final = 0.5  # for a last word to somebody who may not listen
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError, OSError)


class Codec(Protocol):
    """Messages to bytes and back; `records.Secured` is one."""

    @property
    def failed(self) -> Drop | None:
        """Why nothing more is read."""
        ...

    def wants(self) -> int:
        """Bytes that are missing until something is whole; at least 1."""
        ...

    def receive(self, data: Octets) -> list[Message]:
        """The messages that are complete with these bytes."""
        ...

    def send(self, message: Message) -> Octets:
        """The bytes to send for a message, in the order of the calls."""
        ...


class Channel:
    """Both directions of one connection. One task receives; any number send.

    Attributes:
        failed: Why the other side is not listened to any more; None: it keeps to the protocol so far.
        heard_s: When bytes came last, `trio.current_time()`.
    """

    def __init__(self, stream: trio.abc.Stream, codec: Codec) -> None:
        """A connection after its handshake.

        Args:
            stream: Owned from now on.
            codec: Fresh.
        """
        self._stream = stream
        self._codec = codec
        self._socket = stream.socket if isinstance(stream, trio.SocketStream) else None
        # One buffer for all that comes: a fresh one each time costs more in page faults than AES does.
        self._buffer = bytearray(READ_BYTES if self._socket is not None else 0)
        self._lowat = 1
        self._sending = trio.Lock()
        self._broken = False
        self._early: list[Message] = []
        self.heard_s = trio.current_time()

    @property
    def failed(self) -> Drop | None:
        """See the class."""
        return self._codec.failed

    async def first(self) -> bool:
        """Wait for the first message, and keep it for `receive`. False: none came.

        Whoever has answered a handshake knows only then that it was no recording.
        """
        self._early = await self.receive()
        return bool(self._early)

    async def receive(self, owed: int = 0) -> list[Message]:
        """The next messages, at least one; none: the connection is over, or the other side has `failed`.

        It may be cancelled and called again: no byte is lost.

        Args:
            owed: So many bytes should come soon, as far as is known: many blocks are read at once then.
        """
        if self._early:
            early, self._early = self._early, []
            return early
        messages: list[Message] = []
        while not messages and self._codec.failed is None:
            data = await self._read(owed)
            owed = 0
            if not data:
                break
            self.heard_s = trio.current_time()
            messages = self._codec.receive(data)
        return messages

    async def send(self, messages: Sequence[Message]) -> bool:
        """Send messages one behind the other, with nothing between them. False: the connection is over.

        If it is cancelled, the connection is over: half a message may be on the wire. Who waits for an answer hears so.
        """
        async with self._sending:
            if self._broken:
                return False
            self._broken = True
            pieces = [self._codec.send(message) for message in messages]
            try:
                self._broken = not await self._write(pieces)
            except trio.Cancelled:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(self._stream)
                raise
            return not self._broken

    async def close(self, last: Message | None = None) -> None:
        """Close it, with a last word if it can be said at once. Idempotent."""
        with trio.CancelScope(shield=True):
            if last is not None and not self._sending.locked():
                with trio.move_on_after(CLOSE_S):
                    await self.send([last])
            await trio.aclose_forcefully(self._stream)

    async def _read(self, owed: int) -> Octets:
        """What has come; nothing: that was all."""
        try:
            if self._socket is None:
                return await self._stream.receive_some(READ_BYTES)
            wants = self._codec.wants()
            if owed > wants:
                with trio.move_on_after(GATHER_S):
                    return await self._read_socket(self._socket, owed)
            return await self._read_socket(self._socket, wants)
        except _GONE:
            return b""

    async def _read_socket(self, waiting: trio.socket.SocketType, size: int) -> Octets:
        """What has come, when it is so much. Not before: trio's own calls try at once, and get a part of a record."""
        while True:
            self._expect(waiting, size)
            await trio.lowlevel.wait_readable(waiting)
            with contextlib.suppress(BlockingIOError):
                return memoryview(self._buffer)[: os.readv(waiting.fileno(), [self._buffer])]

    async def _write(self, pieces: Sequence[Octets]) -> bool:
        """Send all of it; False: the connection is over."""
        try:
            if self._socket is None:
                await self._stream.send_all(b"".join(pieces))
                return True
            left = deque([memoryview(piece) for piece in pieces])
            while left:
                sent = await self._socket.sendmsg(list(islice(left, WRITE_PIECES)))
                while left and sent >= len(left[0]):
                    sent -= len(left.popleft())
                if sent:
                    left[0] = left[0][sent:]
        except _GONE:
            return False
        return True

    def _expect(self, waiting: trio.socket.SocketType, size: int) -> None:
        """Be woken when as much has come as is of use."""
        lowat = min(size, LOWAT_BYTES)
        if lowat != self._lowat:
            with contextlib.suppress(OSError):  # it was closed meanwhile
                waiting.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, lowat)
            self._lowat = lowat


async def greet(stream: trio.abc.Stream, keys: EpochKeys, sender: bytes, ephemeral: bytes) -> Channel | Drop:
    """Begin a connection that we have dialled. The stream is still the caller's if it fails; so is the time it takes.

    Args:
        stream: Just connected.
        keys: Of the share and of the present epoch.
        sender: Our sender id.
        ephemeral: 32 random bytes.
    """
    dialled = Dialled(keys, sender, ephemeral)
    try:
        await stream.send_all(dialled.greeting)
        reply = await exactly(stream, REPLY_BYTES)
    except _GONE:
        return Drop.HANDSHAKE
    secured = Drop.HANDSHAKE if reply is None else dialled.answered(reply)
    return secured if isinstance(secured, Drop) else Channel(stream, secured)


async def greeting(stream: trio.abc.Stream) -> bytes | None:
    """What who dials says first; None: it says less."""
    return await exactly(stream, GREETING_BYTES)


async def exactly(stream: trio.abc.Stream, size: int) -> bytes | None:
    """So many bytes, and none of those behind. None: it ended before."""
    got = bytearray()
    while len(got) < size:
        try:
            piece = await stream.receive_some(size - len(got))
        except _GONE:
            return None
        if not piece:
            return None
        got += piece
    return bytes(got)
