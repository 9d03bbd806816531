"""What a share's key becomes: keys of epochs, hints, keys of frames and of connections.

`K_root` is 32 random bytes that only who may read the share can read. Nothing is enciphered with it. Every ten minutes
begin an epoch with keys of its own: nothing on the wire ties a machine or a share of two epochs together.


    epoch         = unix time in seconds // 600                                          u64
    K_e           = HKDF-SHA256(K_root, salt = epoch, info = "blocksync-lan/1 epoch")    32 bytes
    K_hint        = HKDF-Expand-SHA256(K_e, info = "blocksync-lan/1 hint")               32 bytes
    K_frame       = HKDF-Expand-SHA256(K_e, info = "blocksync-lan/1 frame" ‖ sender)     32 bytes, for ChaCha20-Poly1305
    psk           = HKDF-Expand-SHA256(K_e, info = "blocksync-lan/1 psk")                32 bytes, for Noise NNpsk0
    hint          = BLAKE2b-64(key = K_hint, sender ‖ epoch)                             8 bytes

Integers are big-endian; in these, epoch has 8 bytes and sender 16; the info strings are ASCII without an end mark. A
frame key belongs to one sender of one epoch, so a nonce that a sender counts never meets another sender's.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import hashlib
from typing import Final

import msgspec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand

EPOCH_S: Final = 600
KEY_BYTES: Final = 32
SENDER_BYTES: Final = 16
HINT_BYTES: Final = 8
_EPOCH16: Final = 1 << 16
_EPOCH_MAX: Final = (1 << 64) - 1


class EpochKeys(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of one share in one epoch.

    Attributes:
        epoch: Number of the epoch, see `epoch_of`.
        psk: 32 bytes, what both ends of a connection must know.
        secret: 32 bytes, `K_e`. Frame keys come from it.
        hint_key: 32 bytes, `K_hint`.
    """

    epoch: int
    psk: bytes
    secret: bytes
    hint_key: bytes

    def __repr__(self) -> str:
        return f"EpochKeys(epoch={self.epoch})"  # keys never reach a log

    def hint(self, sender: bytes) -> bytes:
        """8 bytes by which who has the key knows frames of this sender, and nobody else can tell the share."""
        return hashlib.blake2b(sender + _u64(self.epoch), key=self.hint_key, digest_size=HINT_BYTES).digest()

    def frame_key(self, sender: bytes) -> bytes:
        """32 bytes for the frames of this sender, 16 bytes, in this epoch."""
        assert len(sender) == SENDER_BYTES
        return _expand(self.secret, b"blocksync-lan/1 frame" + sender)


def epoch_of(unix_s: float) -> int:
    """The epoch of a time. A clock that stands before 1970 is in epoch 0."""
    return max(0, int(unix_s // EPOCH_S))


def nearby_epoch(epoch16: int, now: int) -> int | None:
    """The epoch that a frame or preamble means.

    Args:
        epoch16: What it says: its sender's epoch mod 2^16.
        now: The receiver's epoch.

    Returns:
        The one of `now` - 1, `now`, `now` + 1 with this remainder. None if there is none: the clocks differ too much.
    """
    distance = (epoch16 - now + 1) % _EPOCH16
    epoch = now - 1 + distance
    return epoch if distance <= 2 and epoch >= 0 else None


def derive(root_key: bytes, epoch: int) -> EpochKeys:
    """The keys of a share in one epoch.

    Args:
        root_key: The share's key, 32 bytes.
        epoch: 0 to 2^64 - 1.
    """
    assert len(root_key) == KEY_BYTES
    assert 0 <= epoch <= _EPOCH_MAX
    secret = HKDF(SHA256(), KEY_BYTES, salt=_u64(epoch), info=b"blocksync-lan/1 epoch").derive(root_key)
    return EpochKeys(
        epoch=epoch,
        psk=_expand(secret, b"blocksync-lan/1 psk"),
        secret=secret,
        hint_key=_expand(secret, b"blocksync-lan/1 hint"),
    )


def _expand(secret: bytes, info: bytes) -> bytes:
    return HKDFExpand(SHA256(), KEY_BYTES, info).derive(secret)


def _u64(number: int) -> bytes:
    return number.to_bytes(8, "big")
