"""The parameter `meta` of a listing: `key`, `!key` and `key=value`, separated by commas; all must hold. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from syncer.protocol.pithos.headers import MAX_META_ITEMS, HeaderError

_OTHER: Final = frozenset("<>!~")


class MetaFilter(msgspec.Struct, frozen=True, kw_only=True):
    """What an object's metadata must be. Keys are in lower case.

    Attributes:
        present: Keys that are there.
        absent: Keys that are not.
        equal: Values.
    """

    present: frozenset[str] = frozenset()
    absent: frozenset[str] = frozenset()
    equal: tuple[tuple[str, str], ...] = ()

    def matches(self, meta: Mapping[str, str]) -> bool:
        """Whether they are."""
        return (
            self.present <= meta.keys()
            and self.absent.isdisjoint(meta)
            and all(meta.get(key) == value for key, value in self.equal)
        )


NO_FILTER: Final = MetaFilter()


def parse_filter(text: str) -> MetaFilter:
    """Read a filter.

    Raises:
        HeaderError: Another form; Pithos's other comparisons (`<`, `>`, `!=`) are not supported.
    """
    present: set[str] = set()
    absent: set[str] = set()
    equal: list[tuple[str, str]] = []
    terms = [term.strip() for term in text.split(",") if term.strip()]
    if len(terms) > MAX_META_ITEMS:
        raise HeaderError(f"meta: at most {MAX_META_ITEMS} terms, not {len(terms)}")
    for term in terms:
        negated = term.startswith("!")
        key, equals, value = term.removeprefix("!").partition("=")
        if not key or not _OTHER.isdisjoint(key) or (negated and equals) or value.startswith("="):
            raise HeaderError(f"meta: expected KEY, !KEY or KEY=VALUE, got {term[:100]!r}")
        if equals:
            equal.append((key.strip().lower(), value.strip()))
        else:
            (absent if negated else present).add(key.strip().lower())
    return MetaFilter(present=frozenset(present), absent=frozenset(absent), equal=tuple(equal))
