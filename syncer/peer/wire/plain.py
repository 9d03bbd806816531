"""Messages between two processes of one user, over a socket that nobody else can open: as records, and in clear.

    offset  size
         0     4  n, big-endian: 1 to 262,144
         4     n  one message, see messages.py

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

from typing import Final

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.messages import MAX_MESSAGE_BYTES, Message, Octets, decode, encode

LENGTH_BYTES: Final = 4


class Plain:
    """Both directions of such a connection; used as `records.Secured` is."""

    def __init__(self) -> None:
        """Nothing came yet."""
        self._buffer = bytearray()
        self._failed: Drop | None = None

    @property
    def failed(self) -> Drop | None:
        """Why nothing more is read."""
        return self._failed

    def wants(self) -> int:
        """How many bytes are missing until a message is whole, as far as it is known; at least 1."""
        return max(1, self._end() - len(self._buffer))

    def receive(self, data: Octets) -> list[Message]:
        """Read what has come. DATA is a view of memory that nobody changes."""
        messages: list[Message] = []
        self._buffer += data
        while self._failed is None and LENGTH_BYTES < self._end() <= len(self._buffer):
            content = bytes(memoryview(self._buffer)[LENGTH_BYTES : self._end()])
            del self._buffer[: self._end()]
            message = decode(content)
            if isinstance(message, Drop):
                self._failed = message
            else:
                messages.append(message)
        return messages

    def send(self, message: Message) -> bytes:
        """The bytes to send for a message."""
        content = encode(message)
        return len(content).to_bytes(LENGTH_BYTES, "big") + content

    def _end(self) -> int:
        """Where the message at the beginning ends; of one whose length is not here yet, its length does."""
        if len(self._buffer) < LENGTH_BYTES:
            return LENGTH_BYTES
        size = int.from_bytes(self._buffer[:LENGTH_BYTES], "big")
        if not 0 < size <= MAX_MESSAGE_BYTES:
            self._failed = Drop.RECORD
        return LENGTH_BYTES + size
