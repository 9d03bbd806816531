"""Sealed objects: what the store sees of all but key slots.

Byte table:

    0    4   magic, b"bsyr"
    4    1   kind, see `Kind`
    5    1   version of this kind
    6    2   0
    8    16  salt, random: the object's key is derived from it
    24   …   one or more messages of AES-256-GCM, each its ciphertext and 16 bytes of tag

The nonce of a message is 4 bytes 0 and its first byte's offset in the object, 8 bytes big-endian: no two messages of an
object have the same, and no message can be moved. A key is used for one object, so nothing limits how much a
repository seals in its life. Additional data: the repository's id, the first 8 bytes, the message's role (1 byte), and
what the object is bound to: for packs what they hold (1 byte), for heads the device (16 bytes), else nothing.

Most kinds are one message (role b"w"), whose plaintext is

    0    4   n, big-endian
    4    n   a message of the codec: see `codec`
    4+n  …   zeros up to the length that `padding` gives the object

An object that is named by its content has the SHA-256 of its bytes as name, in hex.

Source: docs/design/repository.md, section 4.
"""

from __future__ import annotations

import hashlib
from enum import Enum
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncer.errors import DamagedObjectError, FormatTooNewError
from syncer.remote.repository.format.codec import BadMessage, Codec
from syncer.remote.repository.format.keys import SALT_BYTES, Keys, object_key
from syncer.remote.repository.format.padding import padded

MAGIC: Final = b"bsyr"
HEADER_BYTES: Final = 8
HEAD_BYTES: Final = HEADER_BYTES + SALT_BYTES
TAG_BYTES: Final = 16
NAME_BYTES: Final = 32
MAX_OPENED_BYTES: Final = 256 << 20  # of an object that is one message
_WHOLE: Final = b"w"
_COUNT: Final = 4


class Kind(Enum):
    """What an object is.

    Attributes:
        byte: In its header.
        version: That we write, and the newest that we read.
        folder: Where its name begins.
        is_named_by_content: Whether the name is the SHA-256 of its bytes.
    """

    byte: bytes
    version: int
    folder: str
    is_named_by_content: bool

    def __init__(self, byte: bytes, folder: str, by_content: bool) -> None:
        self.byte = byte
        self.version = 1
        self.folder = folder
        self.is_named_by_content = by_content

    CONFIG = b"c", "config", False
    PACK = b"p", "packs/", True
    INDEX = b"i", "indexes/", True
    COMMIT = b"m", "commits/", True
    HEAD = b"h", "heads/", False
    CONDEMNED = b"x", "condemned/", True
    SETTINGS = b"s", "settings", False


class Envelope:
    """Seals and opens the messages of one object. Releases the interpreter's lock; threads may share it."""

    def __init__(self, keys: Keys, kind: Kind, salt: bytes, bound: bytes = b"") -> None:
        """The envelope of an object with this salt, 16 bytes, never used before if it is to seal."""
        self.head: Final = MAGIC + kind.byte + bytes([kind.version, 0, 0]) + salt
        self._cipher = AESGCM(object_key(keys, salt, kind.byte))
        self._prefix = keys.repository + self.head[:HEADER_BYTES]
        self._bound = bound

    @classmethod
    def of(cls, keys: Keys, kind: Kind, name: str, head: bytes, bound: bytes = b"") -> Self:
        """The envelope of an object by its first 24 bytes.

        Raises:
            DamagedObjectError: It does not begin as this kind does.
            FormatTooNewError: A newer blocksync's.
        """
        if len(head) < HEAD_BYTES or head[:5] != MAGIC + kind.byte:
            raise DamagedObjectError(name, f"is damaged: it does not begin as one of {kind.folder} does")
        if head[5] > kind.version:
            raise FormatTooNewError(name, head[5], kind.version)
        if head[5:HEADER_BYTES] != bytes([kind.version, 0, 0]):
            raise DamagedObjectError(name, "is damaged: its header is not one of ours")
        return cls(keys, kind, head[HEADER_BYTES:HEAD_BYTES], bound)

    def seal(self, offset: int, role: bytes, plain: bytes) -> bytes:
        """The message that lies at `offset` of the object: 16 bytes longer than `plain`."""
        return self._cipher.encrypt(offset.to_bytes(12, "big"), plain, self._prefix + role + self._bound)

    def open(self, offset: int, role: bytes, message: bytes | memoryview) -> bytes | None:
        """What was sealed; None if the message is not what was sealed there."""
        if len(message) < TAG_BYTES:
            return None
        try:
            return self._cipher.decrypt(offset.to_bytes(12, "big"), message, self._prefix + role + self._bound)
        except InvalidTag:
            return None


def object_name(kind: Kind, digest: bytes) -> str:
    """The name of an object that is named by its content: `digest` is the SHA-256 of its bytes."""
    assert kind.is_named_by_content
    assert len(digest) == NAME_BYTES
    fan = digest[:1].hex() + "/" if kind is Kind.PACK else ""
    return kind.folder + fan + digest.hex()


def digest_of(kind: Kind, name: str) -> bytes | None:
    """The SHA-256 in a name; None: no object of this kind has such a name."""
    try:
        digest = bytes.fromhex(name[-2 * NAME_BYTES :])
    except ValueError:
        return None
    return digest if len(digest) == NAME_BYTES and object_name(kind, digest) == name else None


def seal_whole(keys: Keys, kind: Kind, salt: bytes, body: bytes, codec: Codec, bound: bytes = b"") -> bytes:
    """An object that is one message.

    Args:
        keys: The repository's.
        kind: Not a pack.
        salt: 16 fresh random bytes.
        body: At most 256 MiB.
        codec: This thread's.
        bound: What it is bound to, see the module.
    """
    assert len(body) <= MAX_OPENED_BYTES
    envelope = Envelope(keys, kind, salt, bound)
    message = codec.encode(body)
    plain = len(message).to_bytes(_COUNT, "big") + message
    room = padded(HEAD_BYTES + len(plain) + TAG_BYTES) - HEAD_BYTES - TAG_BYTES
    return envelope.head + envelope.seal(HEAD_BYTES, _WHOLE, plain.ljust(room, b"\0"))


def open_whole(
    keys: Keys, kind: Kind, name: str, raw: bytes, codec: Codec, bound: bytes = b"", limit: int = MAX_OPENED_BYTES
) -> bytes:
    """The body of an object that is one message.

    Args:
        keys: The repository's.
        kind: What it must be.
        name: In the store. If this kind is named by its content, it must be the right one.
        raw: The object.
        codec: This thread's.
        bound: What it must be bound to.
        limit: Most bytes that the body may have.

    Raises:
        DamagedObjectError: Damaged, forged, of another repository, or another object under this name.
        FormatTooNewError: A newer blocksync's.
    """
    if kind.is_named_by_content:
        check_name(kind, name, raw)
    envelope = Envelope.of(keys, kind, name, raw[:HEAD_BYTES], bound)
    plain = envelope.open(HEAD_BYTES, _WHOLE, memoryview(raw)[HEAD_BYTES:])
    if plain is None:
        raise DamagedObjectError(name, "is damaged, or was not made with this repository's key")
    end = _COUNT + int.from_bytes(plain[:_COUNT], "big")
    if len(plain) < end:
        raise DamagedObjectError(name, "is malformed: it is shorter than it says")
    try:
        return codec.decode(plain[_COUNT:end], limit)
    except BadMessage as error:
        raise DamagedObjectError(name, str(error)) from error


def check_name(kind: Kind, name: str, raw: bytes) -> None:
    """See that a whole object is the one of this name.

    Raises:
        DamagedObjectError: It is not: cut, flipped or swapped.
    """
    digest = hashlib.sha256(raw).digest()
    if object_name(kind, digest) != name:
        raise DamagedObjectError(name, f"is damaged: its {len(raw)} bytes do not have this name")
