"""How a connection begins: 80 bytes by who dials, 48 by who answers, and both have proven that they hold the key.

    offset  size  by who dials: the preamble, in clear; all integers are big-endian
         0     3  magic B5 B1 0C
         3     1  version = 1
         4     1  cipher: 1 = Noise_NNpsk0_25519_AESGCM_SHA256
         5     1  reserved = 0
         6     2  epoch mod 2^16
         8     8  hint, see keys.py
        16    16  sender, as in the frames of who dials
        32    48  Noise's first message, empty payload; the preamble is the handshake's prologue, psk = the epoch's

    offset  size  by who answers
         0    48  Noise's second message, empty payload

Records follow, see records.py. The 80 bytes may be a recording: who answers knows the other side for one that has the
key only when its first record has come, and grants it no more than a place for a handshake until then.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import MAGIC, VERSION
from syncer.peer.wire.keys import EpochKeys
from syncer.peer.wire.noise import MESSAGE_BYTES, Initiator, Responder
from syncer.peer.wire.records import Secured

PREAMBLE_BYTES: Final = 32
GREETING_BYTES: Final = PREAMBLE_BYTES + MESSAGE_BYTES
REPLY_BYTES: Final = MESSAGE_BYTES
_AESGCM: Final = 1
_EPOCH16: Final = 1 << 16
_PREAMBLE: Final = struct.Struct(">3sBBBH8s16s")


class Preamble(msgspec.Struct, frozen=True, kw_only=True):
    """What who dials says in clear. None of it is proven before the handshake has succeeded.

    Attributes:
        epoch16: The epoch mod 2^16, see `keys.nearby_epoch`.
        hint: 8 bytes, what `EpochKeys.hint` of the right share says of `sender`.
        sender: 16 bytes.
    """

    epoch16: int
    hint: bytes
    sender: bytes


def parse_preamble(greeting: bytes) -> Preamble | Drop:
    """Read the first 32 bytes of a connection."""
    if len(greeting) < PREAMBLE_BYTES:
        return Drop.SIZE
    magic, version, cipher, reserved, epoch16, hint, sender = _PREAMBLE.unpack_from(greeting)
    if magic != MAGIC:
        return Drop.MAGIC
    if version != VERSION:
        return Drop.VERSION
    if cipher != _AESGCM:
        return Drop.CIPHER
    if reserved:
        return Drop.FLAGS
    return Preamble(epoch16=epoch16, hint=hint, sender=sender)


class Dialled:
    """The side that dials.

    Args:
        keys: Of the share and of the present epoch.
        sender: 16 bytes, as in our frames.
        ephemeral: 32 random bytes, for this connection only.
    """

    def __init__(self, keys: EpochKeys, sender: bytes, ephemeral: bytes) -> None:
        fields = (MAGIC, VERSION, _AESGCM, 0, keys.epoch % _EPOCH16, keys.hint(sender), sender)
        preamble = _PREAMBLE.pack(*fields)
        self._noise = Initiator(keys.psk, preamble, ephemeral)
        self.greeting = preamble + self._noise.write_message()

    def answered(self, reply: bytes) -> Secured | Drop:
        """Read the 48 bytes that came back."""
        payload = self._noise.read_message(reply)
        if payload != b"":
            return Drop.HANDSHAKE
        return Secured(*self._noise.split())


def answer(greeting: bytes, keys: EpochKeys, ephemeral: bytes) -> tuple[bytes, Secured] | Drop:
    """Answer who dials.

    Args:
        greeting: The 80 bytes that came; `parse_preamble` said what they are.
        keys: Of the share and the epoch that the preamble's hint told.
        ephemeral: 32 random bytes, for this connection only.

    Returns:
        The 48 bytes to send back, and the connection. Drop.HANDSHAKE: the other side does not hold the key.
    """
    noise = Responder(keys.psk, greeting[:PREAMBLE_BYTES], ephemeral)
    if noise.read_message(greeting[PREAMBLE_BYTES:]) != b"":
        return Drop.HANDSHAKE
    reply = noise.write_message()
    return Drop.HANDSHAKE if isinstance(reply, Drop) else (reply, Secured(*noise.split()))
