"""Frames: what is broadcast and answered on the link, in Ethernet frames or, byte for byte the same, in UDP datagrams.

All integers are big-endian.

    offset  size  header, in clear
         0     3  magic B5 B1 0C: the EtherType is shared with any experiment
         3     1  version = 1
         4     1  type: 1 WHOHAS, 2 IHAVE, 3 HELLO, 4 BYE
         5     1  flags = 0
         6     2  epoch mod 2^16
         8     8  hint, see keys.py
        16    16  sender: random, of one process in one epoch
        32     8  counter: 1 for a sender's first frame of the epoch, then one more each
        40     2  n, length of the body: exactly the frame's length - 60
        42     2  reserved = 0
        44     n  body, ChaCha20-Poly1305, nonce = 4 zero bytes ‖ counter, associated data = bytes 0 to 43
    44 + n    16  tag

A body is padded with zeros to 64, 256, 768 or 1440 bytes, or to the link's bound where that is less: the length tells
nothing of the content, and every frame is longer than Ethernet's least. What the bodies hold is in bodies.py.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.keys import HINT_BYTES, SENDER_BYTES, EpochKeys

MAGIC: Final = b"\xb5\xb1\x0c"
VERSION: Final = 1
HEADER_BYTES: Final = 44
TAG_BYTES: Final = 16
OVERHEAD_BYTES: Final = HEADER_BYTES + TAG_BYTES
BUCKETS: Final = (64, 256, 768, 1440)
MIN_FRAME_BYTES: Final = OVERHEAD_BYTES + BUCKETS[0]
MAX_FRAME_BYTES: Final = OVERHEAD_BYTES + BUCKETS[-1]
_LAYOUT: Final = struct.Struct(">3sBBBH8s16sQHH")
_NONCE: Final = struct.Struct(">4xQ")
_EPOCH16: Final = 1 << 16
_COUNTERS: Final = 1 << 64
_CIPHERS: Final = 512  # kept: of as many senders as a session remembers, in two epochs


class FrameType(IntEnum):
    """What a frame is for."""

    WHOHAS = 1
    IHAVE = 2
    HELLO = 3
    BYE = 4


_TYPES: Final = frozenset(FrameType)
_CARRIED: Final = {
    Carrier.ETHERNET: OVERHEAD_BYTES,
    Carrier.UDP6: OVERHEAD_BYTES + 40 + 8,
    Carrier.UDP4: OVERHEAD_BYTES + 20 + 8,
}


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a frame says in clear. None of it is proven before `open_body` has returned a body.

    Attributes:
        type: What it is for.
        epoch16: Its sender's epoch mod 2^16, see `keys.nearby_epoch`.
        hint: 8 bytes, what `EpochKeys.hint` of the right share says of `sender`.
        sender: 16 bytes.
        counter: From 1; no sender uses one twice in an epoch.
        length: Of the body in bytes, padding included: the bucket. 64 to 1440.
    """

    type: FrameType
    epoch16: int
    hint: bytes
    sender: bytes
    counter: int
    length: int


def body_bound(mtu: int, carrier: Carrier) -> int:
    """The longest body, in bytes, that fits into one packet of this link. Less than 64: the link can't be used.

    Args:
        mtu: Of the interface, in bytes: what an Ethernet frame carries, or an IP packet with its headers.
        carrier: What carries the frame.
    """
    return max(0, min(BUCKETS[-1], mtu - _CARRIED[carrier]))


def bucket(size: int, bound: int) -> int | None:
    """The length to which `size` bytes are padded where no body is longer than `bound`. None: they don't fit."""
    if size > bound or bound < BUCKETS[0]:
        return None
    return min(next((each for each in BUCKETS if each >= size), bound), bound)


def padded(content: bytes, bound: int) -> bytes:
    """The content with zeros to its bucket. It must fit."""
    length = bucket(len(content), bound)
    assert length is not None
    return content.ljust(length, b"\0")


def parse_header(frame: bytes) -> Header | Drop:  # noqa: PLR0911 - a list of checks, each with its reason
    """Read what a frame says in clear. Cheapest checks first; nothing secret is used."""
    if not MIN_FRAME_BYTES <= len(frame) <= MAX_FRAME_BYTES:
        return Drop.SIZE
    if frame[:3] != MAGIC:
        return Drop.MAGIC
    _, version, kind, flags, epoch16, hint, sender, counter, length, reserved = _LAYOUT.unpack_from(frame)
    if version != VERSION:
        return Drop.VERSION
    if flags or reserved:
        return Drop.FLAGS
    if length != len(frame) - OVERHEAD_BYTES:
        return Drop.LENGTH
    if kind not in _TYPES:
        return Drop.TYPE
    if not counter:
        return Drop.REPLAY  # counters begin with 1: a window that begins with 0 has seen it
    return Header(type=FrameType(kind), epoch16=epoch16, hint=hint, sender=sender, counter=counter, length=length)


def seal(keys: EpochKeys, kind: FrameType, sender: bytes, counter: int, body: bytes) -> bytes:
    """Make a frame.

    Args:
        keys: Of the share that the body is about.
        kind: What it is for.
        sender: 16 bytes.
        counter: 1 to 2^64 - 1, never used before by this sender with this share in this epoch.
        body: Padded: 64 to 1440 bytes.
    """
    assert BUCKETS[0] <= len(body) <= BUCKETS[-1]
    assert len(sender) == SENDER_BYTES
    assert 0 < counter < _COUNTERS
    hint = keys.hint(sender)
    assert len(hint) == HINT_BYTES
    header = _LAYOUT.pack(MAGIC, VERSION, kind, 0, keys.epoch % _EPOCH16, hint, sender, counter, len(body), 0)
    return header + _cipher(keys, sender).encrypt(_NONCE.pack(counter), body, header)


def open_body(keys: EpochKeys, frame: bytes, header: Header) -> bytes | Drop:
    """Decipher a frame's body and prove its header.

    Args:
        keys: Of the share and the epoch that the header's hint told.
        frame: The whole frame.
        header: What `parse_header` said of it.

    Returns:
        The body with its padding, or Drop.TAG.
    """
    cipher = _cipher(keys, header.sender)
    try:
        return cipher.decrypt(_NONCE.pack(header.counter), frame[HEADER_BYTES:], frame[:HEADER_BYTES])
    except InvalidTag:
        return Drop.TAG


@lru_cache(maxsize=_CIPHERS)
def _cipher(keys: EpochKeys, sender: bytes) -> ChaCha20Poly1305:
    """What seals and opens this sender's frames. Who speaks once mostly goes on, and a key takes 30 µs."""
    return ChaCha20Poly1305(keys.frame_key(sender))
