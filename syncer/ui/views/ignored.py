"""What of a root is not synced, as `ignore --json` prints it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syncer.ui.words import plain


class PatternView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the root's own patterns: to be read, and percent-encoded."""

    text: str
    encoded: str


class _Pattern(msgspec.Struct):
    pattern: str
    encoded: str


class _Check(msgspec.Struct):
    path: str
    ignored: bool
    file: str | None = None
    line: int | None = None
    pattern: str | None = None


def view_patterns(lines: Sequence[bytes]) -> tuple[PatternView, ...]:
    """The root's own patterns, in their order: what `ignore ROOT ls --json` printed."""
    found = [msgspec.json.decode(line, type=_Pattern) for line in lines]
    return tuple(PatternView(text=plain(each.pattern), encoded=each.encoded) for each in found)


def view_check(line: bytes) -> str:
    """Whether a path is ignored, and by what: what `ignore ROOT check PATH --json` printed."""
    found = msgspec.json.decode(line, type=_Check)
    told = f"{found.path}: {'ignored' if found.ignored else 'synced'}"
    if found.pattern is not None:
        told += f" ({found.file or 'pattern of the root'}, line {found.line}: {found.pattern})"
    return plain(told)
