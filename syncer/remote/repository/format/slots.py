"""Key slots: the master key, wrapped by a passphrase. One object each, `keys/NAME`, never written again.

Byte table, integers big-endian:

    0    4   magic, b"bsyr"
    4    1   kind, b"K"
    5    1   version, 1
    6    1   what the secret is: 1 a passphrase, 2 a recovery key
    7    1   log2 of scrypt's N, 10 to 18; r is 8 and p is 1
    8    16  id of the repository
    24   16  salt, random
    40   8   when it was made, seconds since the epoch by the maker's clock
    48   1   length of the label
    49   n   label, UTF-8, at most 64 bytes: what people call it
    49+n 48  the master key: AES-256-GCM under scrypt(secret, salt), nonce 0, all bytes before as additional data

The name is the first 8 bytes of the object's SHA-256, in hex: damage is told from a wrong passphrase without asking
for one. The nonce is used once: each slot has a salt of its own, hence a key of its own.

A store can put slots of its own there, but none that opens. What it could cost us is bounded: 256 MiB and about a
second for each slot, 64 slots at most.

Source: docs/design/repository.md, section 3.
"""

from __future__ import annotations

import hashlib
import struct
import unicodedata
from collections.abc import Iterable
from enum import Enum
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from syncer.errors import AuthError, DamagedObjectError, FormatTooNewError, UsageError
from syncer.remote.repository.format.keys import KEY_BYTES, REPOSITORY_BYTES, SALT_BYTES, MasterKey
from syncer.remote.repository.format.recovery import typed_key

MAGIC: Final = b"bsyr"
KIND: Final = b"K"
VERSION: Final = 1
MIN_PASSPHRASE: Final = 12  # characters; with 0.4 s a guess even so few letters drawn by chance are out of reach
LOG2_N: Final = 17  # with r = 8: 128 MiB and some 0.4 s for each guess
MAX_SLOTS: Final = 64
_LOG2_NS: Final = range(10, 19)  # up to 256 MiB; who makes one with less has a reason, as tests have
_R, _P = 8, 1
_MAX_LABEL: Final = 64  # bytes
_MAX_TIME_S: Final = 1 << 40
_HEAD: Final = struct.Struct(">4scBBB16s16sQB")
_WRAPPED_BYTES: Final = KEY_BYTES + 16
_NONCE: Final = bytes(12)
MAX_BYTES: Final = _HEAD.size + _MAX_LABEL + _WRAPPED_BYTES
FOLDER: Final = "keys/"


class Secret(Enum):
    """What opens a slot. Told to people only: all secrets are texts."""

    PASSPHRASE = 1
    RECOVERY_KEY = 2


class Slot(msgspec.Struct, frozen=True, kw_only=True):
    """A key slot as read. Not yet opened, so nothing of it is proved.

    Attributes:
        name: Of the object: "keys/…".
        repository: Id, 16 bytes.
        secret: What opens it.
        label: What people call it; may be empty.
        made_s: When it was made, seconds since the epoch, by the maker's clock.
        log2_n: scrypt's cost.
        salt: 16 bytes.
        wrapped: The master key, enciphered, 48 bytes.
        bound: The bytes that the wrapping is bound to.
    """

    name: str
    repository: bytes
    secret: Secret
    label: str
    made_s: int
    log2_n: int
    salt: bytes
    wrapped: bytes
    bound: bytes


def new_slot(  # noqa: PLR0913 - a slot has as many fields
    master: MasterKey,
    repository: bytes,
    passphrase: str,
    salt: bytes,
    *,
    made_s: int,
    label: str = "",
    secret: Secret = Secret.PASSPHRASE,
    log2_n: int = LOG2_N,
) -> tuple[str, bytes]:
    """Wrap the master key. Takes 128 MiB and some 0.4 s.

    Args:
        master: The master key.
        repository: Id, 16 bytes.
        passphrase: As typed, or as `recovery_key` made it.
        salt: 16 fresh random bytes.
        made_s: Now, seconds since the epoch.
        label: What people are to call it, at most 64 bytes in UTF-8.
        secret: What `passphrase` is.
        log2_n: scrypt's cost; less than the default is for tests.

    Returns:
        Name and bytes of the object.

    Raises:
        UsageError: Too short a passphrase, or too long a label.
    """
    assert len(master) == KEY_BYTES
    assert len(repository) == REPOSITORY_BYTES
    assert len(salt) == SALT_BYTES
    assert log2_n in _LOG2_NS
    if len(_normal(passphrase)) < MIN_PASSPHRASE:
        raise UsageError(
            f"a passphrase needs at least {MIN_PASSPHRASE} characters: who has the store can try passphrases at home; "
            "six words that you draw by dice do"
        )
    told = label.encode(errors="surrogatepass")  # bytes of a command line that are no text
    if len(told) > _MAX_LABEL or not label.isprintable():  # no surrogate is printable
        raise UsageError(f"the label of a key has at most {_MAX_LABEL} bytes, all of them printable")
    head = _HEAD.pack(MAGIC, KIND, VERSION, secret.value, log2_n, repository, salt, made_s, len(told)) + told
    raw = head + AESGCM(_wrapping_key(passphrase, salt, log2_n)).encrypt(_NONCE, master, head)
    return _name_of(raw), raw


def read_slot(name: str, raw: bytes) -> Slot:
    """Read a key slot. Costs nothing: no secret is tried.

    Raises:
        DamagedObjectError: Not what its name says, or no key slot.
        FormatTooNewError: A newer blocksync's.
    """
    if len(raw) > 6 and raw[:5] == MAGIC + KIND and raw[5] > VERSION and _name_of(raw) == name:
        raise FormatTooNewError(name, raw[5], VERSION)
    if not _HEAD.size + _WRAPPED_BYTES <= len(raw) <= MAX_BYTES or _name_of(raw) != name:
        raise DamagedObjectError(name, "is damaged: its bytes do not have this name")
    magic, kind, version, secret, log2_n, repository, salt, made_s, length = _HEAD.unpack_from(raw)
    end = _HEAD.size + length
    try:
        label = raw[_HEAD.size : end].decode()
        what = Secret(secret)
    except ValueError:
        raise DamagedObjectError(name, "is malformed: no key slot of ours") from None
    sound = (
        magic + kind == MAGIC + KIND
        and version == VERSION
        and len(raw) == end + _WRAPPED_BYTES
        and length <= _MAX_LABEL
        and label.isprintable()
        and made_s <= _MAX_TIME_S
        and log2_n in _LOG2_NS
    )
    if not sound:
        raise DamagedObjectError(name, "is malformed: no key slot of ours")
    return Slot(
        name=name,
        repository=repository,
        secret=what,
        label=label,
        made_s=made_s,
        log2_n=log2_n,
        salt=salt,
        wrapped=raw[end:],
        bound=raw[:end],
    )


def open_slot(slot: Slot, passphrase: str) -> MasterKey | None:
    """The master key; None if the passphrase is not this slot's. At most 256 MiB and a second or so.

    Raises:
        UsageError: A mistyped recovery key.
    """
    try:
        key = _wrapping_key(passphrase, slot.salt, slot.log2_n)
        return MasterKey(AESGCM(key).decrypt(_NONCE, slot.wrapped, slot.bound))
    except InvalidTag:
        return None


def open_any(slots: Iterable[Slot], repository: bytes, passphrase: str) -> tuple[MasterKey, Slot]:
    """The master key by the first slot that this passphrase opens, and that slot.

    Tried are the slots of this repository, at most 64, passphrases or recovery keys first as the text looks.

    Raises:
        AuthError: None opens.
        UsageError: A mistyped recovery key.
    """
    wanted = Secret.PASSPHRASE if typed_key(passphrase) is None else Secret.RECOVERY_KEY
    ours = sorted((slot for slot in slots if slot.repository == repository), key=lambda slot: slot.secret is not wanted)
    for slot in ours[:MAX_SLOTS]:
        if (master := open_slot(slot, passphrase)) is not None:
            return master, slot
    if not ours:
        raise AuthError("the repository has no key slot that belongs to it: nothing opens it but a linked root's key")
    raise AuthError(
        f"wrong passphrase: it opens none of the repository's {len(ours)} keys; expected one that was given to `repo "
        "init` or `repo key`, a recovery key, or a key file as --password-file"
    )


def _name_of(raw: bytes) -> str:
    return FOLDER + hashlib.sha256(raw).digest()[:8].hex()


def _normal(passphrase: str) -> str:
    """As it counts: not the spaces around it, nor how a keyboard puts accents together; a recovery key as printed."""
    return typed_key(passphrase) or unicodedata.normalize("NFC", passphrase).strip()


def _wrapping_key(passphrase: str, salt: bytes, log2_n: int) -> bytes:
    secret, memory = _normal(passphrase).encode(), (128 * _R << log2_n) + (1 << 20)
    return hashlib.scrypt(secret, salt=salt, n=1 << log2_n, r=_R, p=_P, maxmem=memory, dklen=KEY_BYTES)
