"""Conflict copies and the trash, as `conflicts --json` and `trash ls --json` print them, page by page. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from syncer.ui.ports import Compared
from syncer.ui.words import moment, plain, size

PER_PAGE: Final = 50

_WHY: Final = {
    "deleted": "deleted elsewhere",
    "replaced": "replaced by another version",
    "resolved": "given up in a conflict",
    "doubled": "an equal file stays",
}
_KINDS: Final = {0: "same", 1: "differs", 2: "only-copy", 3: "only-other"}


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One of two versions: its name, size and time."""

    path: str
    size: str
    modified: str


class ConflictView(msgspec.Struct, frozen=True, kw_only=True):
    """One conflict.

    Attributes:
        encoded: The copy's path, percent-encoded.
        host: The device whose version is in the copy.
        at: When it was made.
        copy: The copy.
        original: What has the name; None: nothing has.
        original_host: The device whose version that is; None: nobody knows.
        verdict: Whether they differ, in words.
        can_compare: There are two files that differ.
    """

    encoded: str
    host: str
    at: str
    copy: VersionView
    original: VersionView | None
    original_host: str | None
    verdict: str
    can_compare: bool


class KeptView(msgspec.Struct, frozen=True, kw_only=True):
    """One version in the trash.

    Attributes:
        ident: Names it.
        path: Where it was, or a name.
        is_known: It is known where it was.
        what: Its kind or size.
        why: What it is there for, in words.
        deleted: When it came there.
        expires: When it goes.
    """

    ident: str
    path: str
    is_known: bool
    what: str
    why: str
    deleted: str
    expires: str


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One page of a list.

    Attributes:
        rows: What is on it.
        total: Of all pages.
        page: Which one, from 1.
        pages: How many.
    """

    rows: tuple[ConflictView | KeptView, ...]
    total: int
    page: int
    pages: int


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Of a picture of two files: pieces of one kind that lie together; place and width in pieces."""

    kind: str
    at: int
    width: int


class ComparedView(msgspec.Struct, frozen=True, kw_only=True):
    """How two versions differ.

    Attributes:
        lines: Of a text: how each is marked, and itself; empty: it is none.
        stretches: The picture.
        cells: How many pieces the picture has.
        summary: In words.
        host: The device whose version is in the copy.
        other: The device whose version has the name; None: nobody knows.
    """

    lines: tuple[tuple[str, str], ...]
    stretches: tuple[Stretch, ...]
    cells: int
    summary: str
    host: str
    other: str | None


class _Conflict(msgspec.Struct):
    path: str
    kind: str
    size_bytes: int
    host: str
    utc: str
    encoded: str
    modified_ns: int
    original: str | None = None
    original_size_bytes: int | None = None
    original_modified_ns: int | None = None
    differs: bool | None = None
    original_host: str | None = None


class _Kept(msgspec.Struct):
    id: str
    name: str
    kind: str
    size_bytes: int
    deleted: str
    expires: str
    path: str | None = None
    why: str | None = None


def view_conflicts(lines: Sequence[bytes], page: int, settled: Collection[str], now_s: float) -> Listed:
    """A page of conflicts.

    Args:
        lines: What `conflicts --json` printed.
        page: From 1; another one is the nearest there is.
        settled: Those that were settled since, by their encoded paths.
        now_s: Seconds since the epoch.
    """
    found = [msgspec.json.decode(line, type=_Conflict) for line in lines]
    return _listed([_conflict(each, now_s) for each in found if each.encoded not in settled], page)


def view_trash(lines: Sequence[bytes], page: int, restored: Collection[str]) -> Listed:
    """A page of the trash, newest first; arguments as of `view_conflicts`."""
    found = [msgspec.json.decode(line, type=_Kept) for line in lines]
    return _listed([_kept(each) for each in found if each.id not in restored], page)


def view_compared(compared: Compared) -> ComparedView:
    """A comparison, drawn."""
    marks = {"+": "added", "-": "removed", "@": "place"}
    lines = tuple((marks.get(line[:1], "same"), plain(line)) for line in compared.diff or ())
    stretches: list[Stretch] = []
    for at, cell in enumerate(compared.cells):
        kind = _KINDS[cell]
        if stretches and stretches[-1].kind == kind:
            stretches[-1] = msgspec.structs.replace(stretches[-1], width=stretches[-1].width + 1)
        else:
            stretches.append(Stretch(kind=kind, at=at, width=1))
    differing = compared.differing_bytes
    told = f"{size(differing)} {'differs' if differing == 1 else 'differ'}." if differing else "They hold the same."
    if len(compared.cells) > 1:
        told += f" Each piece of the picture is {size(compared.cell_bytes)}."
    return ComparedView(
        lines=lines,
        stretches=tuple(stretches),
        cells=len(compared.cells),
        summary=told,
        host=plain(compared.host),
        other=None if compared.other is None else plain(compared.other),
    )


def _listed(rows: Sequence[ConflictView | KeptView], page: int) -> Listed:
    pages = max(1, -(-len(rows) // PER_PAGE))
    page = min(max(1, page), pages)
    return Listed(rows=tuple(rows[(page - 1) * PER_PAGE : page * PER_PAGE]), total=len(rows), page=page, pages=pages)


def _conflict(each: _Conflict, now_s: float) -> ConflictView:
    original = None
    if each.original is not None:
        original = _version(each.original, each.original_size_bytes or 0, each.original_modified_ns or 0, now_s)
    day, _, clock = each.utc.partition("T")
    verdict = {None: "nothing has its name any more", False: "both hold the same", True: "they differ"}[each.differs]
    return ConflictView(
        encoded=each.encoded,
        host=plain(each.host),
        at=f"{day[:4]}-{day[4:6]}-{day[6:8]} {clock[:2]}:{clock[2:4]} UTC" if clock else plain(each.utc),
        copy=_version(each.path, each.size_bytes, each.modified_ns, now_s),
        original=original,
        original_host=None if each.original_host is None else plain(each.original_host),
        verdict=verdict,
        can_compare=bool(each.differs) and each.kind == "file",
    )


def _version(path: str, size_bytes: int, modified_ns: int, now_s: float) -> VersionView:
    return VersionView(path=plain(path), size=size(size_bytes), modified=moment(modified_ns / 1e9, now_s))


def _kept(each: _Kept) -> KeptView:
    return KeptView(
        ident=each.id,
        path=plain(each.name if each.path is None else each.path),
        is_known=each.path is not None,
        what=size(each.size_bytes) if each.kind == "file" else each.kind,
        why=_WHY.get(each.why or "", "unknown"),
        deleted=each.deleted.replace("T", " ").removesuffix("+00:00") + " UTC",
        expires=each.expires.partition("T")[0],
    )
