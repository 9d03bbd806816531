"""Names that a filesystem takes for one name: case, and forms of Unicode. Pure.

The server's names are bytes; a filesystem may not tell `Makefile` from `makefile`, or a composed é from e and an
accent. What a root does is probed (`local/folder/probe.py`); here is the key under which two names are one.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import msgspec

Fold = Callable[[bytes], bytes]
"""Name → key; two names with one key can't be in one directory."""


class Folding(msgspec.Struct, frozen=True, kw_only=True):
    """What a filesystem does not tell apart.

    Attributes:
        case: `a` and `A`.
        full_case: Also where that changes the length: `ß` and `ss` (ext4 with casefold).
        forms: Composed and decomposed Unicode.
    """

    case: bool = False
    full_case: bool = False
    forms: bool = False

    @property
    def key(self) -> Fold | None:
        """The key function; None if names are what they are."""
        return self._key if self.case or self.forms else None

    def _key(self, name: bytes) -> bytes:
        try:
            text = name.decode("utf-8")
        except UnicodeDecodeError:
            return name  # such names are compared byte by byte
        if self.forms:
            text = unicodedata.normalize("NFD", text)
        if self.case:
            text = text.casefold() if self.full_case else "".join(map(_simple, text))
        if self.forms:
            text = unicodedata.normalize("NFD", text)
        return text.encode("utf-8")


def _simple(character: str) -> str:
    lower = character.upper().lower()
    return lower if len(lower) == 1 else character
