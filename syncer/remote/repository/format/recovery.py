"""A recovery key: a passphrase that the program makes, for a drawer. It can be read out, and mistyping is noticed.

160 random bits and 20 bits to check them by, 36 letters of Crockford's alphabet (no I, L, O, U) in nine groups of four:

    7K3M-…

Small letters, spaces and dashes don't matter; O is read as 0, I and L as 1.

Source: docs/design/repository.md, section 3.
"""

from __future__ import annotations

import hashlib
from typing import Final

from syncer.errors import UsageError

SECRET_BYTES: Final = 20
_LETTERS: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_CHECK_BITS: Final = 20
_LENGTH: Final = 36
_GROUP: Final = 4
_VALUES: Final = {letter: value for value, letter in enumerate(_LETTERS)} | {"O": 0, "I": 1, "L": 1}


def recovery_key(random: bytes) -> str:
    """The key made of 20 random bytes, as it is printed. As a passphrase it is this text."""
    assert len(random) == SECRET_BYTES
    number = int.from_bytes(random, "big") << _CHECK_BITS | _check(random)
    letters = "".join([_LETTERS[number >> shift & 31] for shift in range(5 * (_LENGTH - 1), -1, -5)])
    return "-".join(letters[at : at + _GROUP] for at in range(0, _LENGTH, _GROUP))


def typed_key(text: str) -> str | None:
    """What somebody typed as `recovery_key` prints it; None if it is no recovery key but some other passphrase.

    Raises:
        UsageError: It has the form of one, and is mistyped.
    """
    letters = "".join(text.split()).replace("-", "").upper()
    if len(letters) != _LENGTH or not set(letters) <= _VALUES.keys():
        return None
    number = 0
    for letter in letters:
        number = number << 5 | _VALUES[letter]
    random = (number >> _CHECK_BITS).to_bytes(SECRET_BYTES, "big")
    if number & (1 << _CHECK_BITS) - 1 == _check(random):
        return recovery_key(random)
    if text.count("-") < _LENGTH // _GROUP - 1:  # a passphrase may have 36 letters, and seldom eight dashes
        return None
    raise UsageError("this recovery key is mistyped: a letter or more are wrong; nothing was tried with it")


def _check(random: bytes) -> int:
    digest = hashlib.sha256(b"blocksync recovery key" + random).digest()
    return int.from_bytes(digest[:3], "big") >> 24 - _CHECK_BITS
