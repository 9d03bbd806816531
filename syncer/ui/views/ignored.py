"""What of a root is not synced, as `ignore --json` prints it. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from syncer.ui.words import counted, plain


class PatternView(msgspec.Struct, frozen=True, kw_only=True):
    """One of the root's own patterns: to be read, and percent-encoded."""

    text: str
    encoded: str


class NameView(msgspec.Struct, frozen=True, kw_only=True):
    """A name that is ignored: to be read, percent-encoded, and which pattern ignores it."""

    text: str
    encoded: str
    why: str


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """A pattern in a file of rules: its text, and where it stands."""

    text: str
    place: str


class NamesView(msgspec.Struct, frozen=True, kw_only=True):
    """What of a root is ignored, as far as it was looked at.

    Attributes:
        names: By path.
        lines: Patterns in files of rules.
        more: What is not among the names, in words; empty: nothing.
        more_lines: The same of the lines.
        unread: Folders that could not be looked at, in words; empty: none.
    """

    names: tuple[NameView, ...] = ()
    lines: tuple[LineView, ...] = ()
    more: str = ""
    more_lines: str = ""
    unread: str = ""


class _Line(msgspec.Struct, tag="ignore-line"):
    file: str
    line: int
    pattern: str


class _Name(msgspec.Struct, tag="ignore-name"):
    path: str
    encoded: str
    file: str | None
    line: int
    pattern: str


class _Names(msgspec.Struct, tag="ignore-names"):
    more: str
    more_lines: bool
    unread: int


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
        told += f" ({_place(found.file, found.line)}: {found.pattern})"
    return plain(told)


def view_names(lines: Sequence[bytes]) -> NamesView:
    """What is ignored, and the patterns in files: what `ignore ROOT names --json` printed.

    Raises:
        msgspec.DecodeError: It printed something else.
    """
    found = [msgspec.json.decode(line, type=_Line | _Name | _Names) for line in lines]
    ended = next((each for each in found if isinstance(each, _Names)), _Names(more="", more_lines=False, unread=0))
    return NamesView(
        names=tuple(
            NameView(
                text=plain(each.path),
                encoded=each.encoded,
                why=plain(f"{each.pattern} ({_place(each.file, each.line)})"),
            )
            for each in found
            if isinstance(each, _Name)
        ),
        lines=tuple(
            LineView(text=plain(each.pattern), place=plain(_place(each.file, each.line)))
            for each in found
            if isinstance(each, _Line)
        ),
        more=f"There may be more: {plain(ended.more)}." if ended.more else "",
        more_lines="There are more." if ended.more_lines else "",
        unread=f"{counted(ended.unread, 'folder', 'folders')} could not be looked at." if ended.unread else "",
    )


def _place(file: str | None, line: int | None) -> str:
    return f"{file or 'pattern of the root'}, line {line}"
