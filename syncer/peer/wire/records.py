"""Records: messages under the keys that a handshake has agreed on, cut out of a stream of bytes.

    offset  size  record
         0     4  n, big-endian: 17 to 262,160
         4     n  ciphertext of one message and 16 bytes of tag; AES-256-GCM, nonce = 4 zero bytes ‖ u64, big-endian

Each direction has a key of its own; its nonce is 0 for the first record, and counts. After each 2^16 records the
key is replaced as Noise's REKEY does; the nonce goes on. With a changed length the tag is another piece of the stream.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

from typing import Final

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.messages import MAX_MESSAGE_BYTES, Message, Octets, decode, encode
from syncer.peer.wire.noise import TAG_BYTES, CipherState

LENGTH_BYTES: Final = 4
MAX_RECORD_BYTES: Final = MAX_MESSAGE_BYTES + TAG_BYTES
REKEY_EVERY: Final = 1 << 16


class Secured:
    """Both directions of a connection after its handshake.

    Args:
        sending: What we encrypt with, fresh from the handshake.
        receiving: What the other side does.
    """

    def __init__(self, sending: CipherState, receiving: CipherState) -> None:
        self._sending = sending
        self._receiving = receiving
        self._failed: Drop | None = None
        # What is read next is the length of a record or, in turn, a record. Parts of it wait in the buffer, which is
        # as long as the longest record that came in parts.
        self._size = LENGTH_BYTES
        self._is_length = True
        self._buffer = bytearray(LENGTH_BYTES)
        self._filled = 0

    @property
    def failed(self) -> Drop | None:
        """Why nothing more is read: the other side broke a rule, or somebody between. The connection must be closed."""
        return self._failed

    def wants(self) -> int:
        """How many bytes are missing until the next length or record is whole: a good SO_RCVLOWAT; at least 1.

        More bytes than that are welcome.
        """
        return self._size - self._filled

    def receive(self, data: Octets) -> list[Message]:
        """Read what has come: any piece of the stream. What was read before `failed` was set counts.

        Returns:
            The messages that are complete now. DATA is a view of memory that nobody changes.
        """
        messages: list[Message] = []
        view = memoryview(data)
        while view and self._failed is None:
            taken = min(len(view), self.wants())
            part = self._whole(view[:taken])
            view = view[taken:]
            if part is not None:
                self._filled = 0
                self._read_length(part) if self._is_length else self._read_record(part, messages)
        return messages

    def send(self, message: Message) -> bytearray:
        """The bytes to send for a message. They must be sent in the order of the calls."""
        plaintext = encode(message)
        record = bytearray(LENGTH_BYTES + len(plaintext) + TAG_BYTES)
        record[:LENGTH_BYTES] = (len(record) - LENGTH_BYTES).to_bytes(LENGTH_BYTES, "big")
        self._sending.encrypt_into(plaintext, memoryview(record)[LENGTH_BYTES:])
        _rekey_in_time(self._sending)
        return record

    def _whole(self, piece: memoryview) -> memoryview | None:
        """What is read next, if it is complete with this piece."""
        if len(piece) == self._size:
            return piece  # it came at once: no copy
        if len(self._buffer) < self._size:
            self._buffer = bytearray(self._size)
        end = self._filled + len(piece)
        self._buffer[self._filled : end] = piece
        self._filled = end
        return memoryview(self._buffer)[:end] if end == self._size else None

    def _read_length(self, part: memoryview) -> None:
        size = int.from_bytes(part, "big")
        if TAG_BYTES < size <= MAX_RECORD_BYTES:
            self._size, self._is_length = size, False
        else:
            self._failed = Drop.RECORD

    def _read_record(self, part: memoryview, messages: list[Message]) -> None:
        plaintext = self._receiving.decrypt(part)
        if isinstance(plaintext, Drop):
            self._failed = plaintext
            return
        _rekey_in_time(self._receiving)
        self._size, self._is_length = LENGTH_BYTES, True
        message = decode(plaintext)
        if isinstance(message, Drop):
            self._failed = message
        else:
            messages.append(message)


def _rekey_in_time(cipher: CipherState) -> None:
    if cipher.nonce % REKEY_EVERY == 0:
        cipher.rekey()
