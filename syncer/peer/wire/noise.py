"""Noise_NNpsk0_25519_AESGCM_SHA256: how two holders of a share's key agree on keys for one connection.

    -> psk, e        the initiator's message: 32 bytes, the payload, 16 bytes of tag
    <- e, ee         the responder's: as long

Who does not know the psk is refused at the first tag, before any arithmetic on curves. The keys that come out depend on
two private keys that exist only for this handshake: a psk that leaks later opens nothing that was recorded before.

The names of methods are those of the specification's pseudo-code. Of it there is only what this one protocol needs; why
it is not a library: docs/adr/0011-noise-on-cryptography.md.

Source: The Noise Protocol Framework, revision 34, sections 5, 7.5, 9 and 11.3.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncer.peer.wire.drops import Drop

PROTOCOL: Final = b"Noise_NNpsk0_25519_AESGCM_SHA256"  # as long as a hash: it begins the hash as it is
PUBLIC_BYTES: Final = 32
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
MESSAGE_BYTES: Final = PUBLIC_BYTES + TAG_BYTES  # of both, with an empty payload
_NONCE: Final = struct.Struct(">4xQ")
_REKEY_NONCE: Final = (1 << 64) - 1
Octets = bytes | bytearray | memoryview


class CipherState:
    """A key, and a nonce that counts: one direction of a connection.

    Args:
        key: 32 bytes.
    """

    def __init__(self, key: bytes) -> None:
        assert len(key) == KEY_BYTES
        self._cipher = AESGCM(key)
        self._nonce = 0

    @property
    def nonce(self) -> int:
        """Of the next encryption or decryption. `rekey` does not change it."""
        return self._nonce

    def encrypt(self, plaintext: Octets, ad: bytes = b"") -> bytes:
        """Encrypt; the result is 16 bytes longer."""
        ciphertext = bytearray(memoryview(plaintext).nbytes + TAG_BYTES)
        self.encrypt_into(plaintext, ciphertext, ad)
        return bytes(ciphertext)

    def encrypt_into(self, plaintext: Octets, ciphertext: Octets, ad: bytes = b"") -> None:
        """Encrypt into a buffer that is exactly 16 bytes longer than the plaintext."""
        self._cipher.encrypt_into(self._next(), plaintext, ad, ciphertext)

    def decrypt(self, ciphertext: Octets, ad: bytes = b"") -> bytearray | Drop:
        """Decrypt. Drop.TAG if it is not what the other side encrypted next; the nonce then stays."""
        size = memoryview(ciphertext).nbytes - TAG_BYTES
        if size < 0:
            return Drop.TAG
        plaintext = bytearray(size)
        try:
            self._cipher.decrypt_into(_NONCE.pack(self._nonce), ciphertext, ad, plaintext)
        except InvalidTag:
            return Drop.TAG
        self._next()
        return plaintext

    def rekey(self) -> None:
        """Replace the key by one that does not tell the old one."""
        key = self._cipher.encrypt(_NONCE.pack(_REKEY_NONCE), bytes(KEY_BYTES), b"")
        self._cipher = AESGCM(key[:KEY_BYTES])

    def _next(self) -> bytes:
        assert self._nonce < _REKEY_NONCE
        nonce = _NONCE.pack(self._nonce)
        self._nonce += 1
        return nonce


class _Handshake:
    """What both sides do: the specification's SymmetricState, and its tokens.

    Args:
        psk: 32 bytes.
        prologue: What both sides must have seen alike before.
        ephemeral: 32 random bytes, never used before: the private key of this handshake.
    """

    def __init__(self, psk: bytes, prologue: bytes, ephemeral: bytes) -> None:
        assert len(psk) == KEY_BYTES
        self._psk = psk
        self._private = X25519PrivateKey.from_private_bytes(ephemeral)
        self._remote: X25519PublicKey | None = None
        self._chaining_key = PROTOCOL
        self._hash = PROTOCOL
        self._cipher: CipherState | None = None
        self._mix_hash(prologue)

    @property
    def handshake_hash(self) -> bytes:
        """32 bytes that are alike on both sides if and only if all that was said is."""
        return self._hash

    def _mix_hash(self, data: bytes) -> None:
        self._hash = hashlib.sha256(self._hash + data).digest()

    def _mix_key(self, material: bytes) -> None:
        self._chaining_key, key, _ = _hkdf(self._chaining_key, material)
        self._cipher = CipherState(key)

    def _mix_key_and_hash(self, material: bytes) -> None:
        self._chaining_key, mixed, key = _hkdf(self._chaining_key, material)
        self._mix_hash(mixed)
        self._cipher = CipherState(key)

    def _encrypt_and_hash(self, payload: bytes) -> bytes:
        assert self._cipher is not None
        ciphertext = self._cipher.encrypt(payload, self._hash)
        self._mix_hash(ciphertext)
        return ciphertext

    def _decrypt_and_hash(self, ciphertext: bytes) -> bytes | Drop:
        assert self._cipher is not None
        payload = self._cipher.decrypt(ciphertext, self._hash)
        if isinstance(payload, Drop):
            return Drop.HANDSHAKE
        self._mix_hash(ciphertext)
        return bytes(payload)

    def _send_e(self) -> bytes:
        public = self._private.public_key().public_bytes_raw()
        self._mix_hash(public)
        self._mix_key(public)
        return public

    def _receive_e(self, public: bytes) -> None:
        self._remote = X25519PublicKey.from_public_bytes(public)
        self._mix_hash(public)
        self._mix_key(public)

    def _mix_ee(self) -> bool:
        """False: the other side sent a point that makes every secret the same."""
        assert self._remote is not None
        try:
            shared = self._private.exchange(self._remote)
        except ValueError:
            return False
        self._mix_key(shared)
        return True

    def _split(self) -> tuple[CipherState, CipherState]:
        """For what the initiator sends, and for what the responder sends."""
        first, second, _ = _hkdf(self._chaining_key, b"")
        return CipherState(first), CipherState(second)


class Initiator(_Handshake):
    """The side that speaks first: `write_message`, `read_message`, `split`, once each and in this order."""

    def write_message(self, payload: bytes = b"") -> bytes:
        """The first message. Who records it can send it again later: a payload in it proves nothing."""
        self._mix_key_and_hash(self._psk)
        public = self._send_e()
        return public + self._encrypt_and_hash(payload)

    def read_message(self, message: bytes) -> bytes | Drop:
        """Read the answer; its payload, or Drop.HANDSHAKE: the connection must be closed."""
        if len(message) < MESSAGE_BYTES:
            return Drop.HANDSHAKE
        self._receive_e(message[:PUBLIC_BYTES])
        if not self._mix_ee():
            return Drop.HANDSHAKE
        return self._decrypt_and_hash(message[PUBLIC_BYTES:])

    def split(self) -> tuple[CipherState, CipherState]:
        """The keys for sending and for receiving, after `read_message` has returned a payload."""
        return self._split()


class Responder(_Handshake):
    """The side that answers: `read_message`, `write_message`, `split`, once each and in this order."""

    def read_message(self, message: bytes) -> bytes | Drop:
        """Read the first message; its payload, or Drop.HANDSHAKE: the connection must be closed."""
        if len(message) < MESSAGE_BYTES:
            return Drop.HANDSHAKE
        self._mix_key_and_hash(self._psk)
        self._receive_e(message[:PUBLIC_BYTES])
        return self._decrypt_and_hash(message[PUBLIC_BYTES:])

    def write_message(self, payload: bytes = b"") -> bytes | Drop:
        """The answer, or Drop.HANDSHAKE: who has the psk sent a point that no key has."""
        public = self._send_e()
        if not self._mix_ee():
            return Drop.HANDSHAKE
        return public + self._encrypt_and_hash(payload)

    def split(self) -> tuple[CipherState, CipherState]:
        """The keys for sending and for receiving, after `write_message`."""
        first, second = self._split()
        return second, first


def _hkdf(chaining_key: bytes, material: bytes) -> tuple[bytes, bytes, bytes]:
    """The specification's HKDF with three outputs; with two, they are the first two."""
    secret = hmac.digest(chaining_key, material, "sha256")
    first = hmac.digest(secret, b"\x01", "sha256")
    second = hmac.digest(secret, first + b"\x02", "sha256")
    return first, second, hmac.digest(secret, second + b"\x03", "sha256")
