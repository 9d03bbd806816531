"""Mounted volumes: what they hold and held, which files share, the map of one. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from syncer.ui.ports import MapFacts, MountFacts, SharerFacts, SnapshotFacts, Use, VolumeFacts
from syncer.ui.words import counted, moment, name, number, size

COLUMNS: Final = 64
CELLS: Final = COLUMNS * 24
"""Of a map: more of them are no clearer, and longer to load."""

COLOURS: Final = 8
"""Files that have a colour of their own in a map; all others have one together."""

BANDS: Final = 8
"""Into how many parts a map is divided, of which each can be looked at closer: three rows each."""

_WIDTH: Final = 1000  # of a plot
_HEIGHT: Final = 220


class MountView(msgspec.Struct, frozen=True, kw_only=True):
    """A mounted volume: its name in addresses, where it is, what it does just now, why it does not answer."""

    uuid: str
    mountpoint: str
    volume: str
    doing: str
    trouble: str


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Of a plot: what it shows, how much that was at its beginning and is now, and its points."""

    key: str
    label: str
    first: str
    now: str
    points: str


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """How much a volume held over time.

    Attributes:
        lines: Logical, unique, stored; without points if nothing is known but now.
        first: When it begins, in words.
        last: When it ends.
        most: What the upper edge is.
        width: Of the picture.
        height: See there.
    """

    lines: tuple[Line, ...]
    first: str
    last: str
    most: str
    width: int = _WIDTH
    height: int = _HEIGHT


class SharerView(msgspec.Struct, frozen=True, kw_only=True):
    """A file that shares: its path (and raw), size, how much of a hundred, how much, with whom most."""

    raw: bytes
    path: str
    size: str
    percent: int
    shared: str
    other: str


class SnapshotView(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot: its name, when it was made, of what, what is in it."""

    name: str
    made: str
    source: str
    holds: str


class VolumeView(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a volume.

    Attributes:
        summary: Files and dedup, in words.
        plot: What it held over time.
        sharers: Files that share most.
        snapshots: The latest first.
        is_whole: Figures are counted.
    """

    summary: str
    plot: Plot
    sharers: tuple[SharerView, ...]
    snapshots: tuple[SnapshotView, ...]
    is_whole: bool


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Of a map: cells of one kind that lie together in a row."""

    kind: str
    x: int
    y: int
    width: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """Of a map's legend: a colour, what it stands for, how much that is, in how much of a hundred."""

    kind: str
    label: str
    raw: bytes
    amount: str
    percent: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a file.

    Attributes:
        first: Its first block.
        count: How many.
        label: Where it is, in words.
        y: Of the map's rows, where it begins.
        height: In rows.
    """

    first: int
    count: int
    label: str
    y: int = 0
    height: int = 0


class MapView(msgspec.Struct, frozen=True, kw_only=True):
    """A map, drawn.

    Attributes:
        stretches: The picture.
        columns: How wide it is, in cells.
        rows: How high.
        legend: What the colours are.
        others: Files that share with it.
        scale: What a cell is, in words.
        size: Of the file.
        remarks: What is to be known of the figures.
        bands: Parts of it that can be looked at closer; none: a piece is a block already.
        shown: What is shown, if it is a part.
        before: The part before it.
        after: The part behind it.
        wider: One that has it in its middle.
    """

    stretches: tuple[Stretch, ...]
    columns: int
    rows: int
    legend: tuple[Entry, ...]
    others: tuple[Entry, ...]
    scale: str
    size: str
    remarks: tuple[str, ...]
    bands: tuple[Part, ...] = ()
    shown: Part | None = None
    before: Part | None = None
    after: Part | None = None
    wider: Part | None = None


def view_mount(facts: MountFacts) -> MountView:
    """A mounted volume."""
    done, of = facts.scrub
    doing = [f"{size(facts.staged_bytes)} staged"] if facts.staged_bytes else []
    doing += [f"a scrub has checked {number(done)} of {counted(of, 'block', 'blocks')}"] if of else []
    return MountView(
        uuid=facts.uuid,
        mountpoint=name(facts.mountpoint),
        volume=name(facts.volume),
        doing=", ".join(doing),
        trouble=name(facts.trouble.encode("utf-8", "surrogateescape")),
    )


def view_volume(facts: VolumeFacts, now_s: float) -> VolumeView:
    """What is in one."""
    ratio = facts.filled_bytes / facts.now.unique_bytes if facts.now.unique_bytes else 1.0
    return VolumeView(
        summary=f"{counted(facts.files, 'file', 'files')}; each unique byte stands for {ratio:.2f}",
        plot=view_plot(facts.past, facts.now, now_s),
        sharers=tuple(_sharer(each) for each in facts.sharers),
        snapshots=tuple(_snapshot(each, now_s) for each in facts.snapshots),
        is_whole=facts.is_whole,
    )


def view_plot(past: Sequence[Use], now: Use, now_s: float) -> Plot:
    """Logical, unique and stored bytes over time."""
    uses = [*(use for use in past if use.at_s < now.at_s), now]
    first_s, span_s = uses[0].at_s, max(1.0, now.at_s - uses[0].at_s)
    most = max(1, *(max(use.logical_bytes, use.unique_bytes, use.stored_bytes) for use in uses))

    def line(key: str, label: str, values: Sequence[int]) -> Line:
        points = " ".join(
            f"{(use.at_s - first_s) * _WIDTH / span_s:.1f},{_HEIGHT - value * _HEIGHT / most:.1f}"
            for use, value in zip(uses, values, strict=True)
        )
        return Line(
            key=key,
            label=label,
            first=size(values[0]),
            now=size(values[-1]),
            points=points if len(uses) > 1 else "",
        )

    return Plot(
        lines=(
            line("logical", "logical: what the files say", [use.logical_bytes for use in uses]),
            line("unique", "unique: their distinct blocks", [use.unique_bytes for use in uses]),
            line("stored", "stored: on the disk", [use.stored_bytes for use in uses]),
        ),
        first=moment(first_s, now_s),
        last=moment(now.at_s, now_s),
        most=size(most),
    )


def view_map(facts: MapFacts) -> MapView:
    """The map of a file."""
    columns = min(COLUMNS, max(1, len(facts.cells)))
    stretches: list[Stretch] = []
    for place, cell in enumerate(facts.cells):
        y, x = divmod(place, columns)
        kind = _kind(cell)
        if stretches and stretches[-1].kind == kind and stretches[-1].y == y:
            stretches[-1] = msgspec.structs.replace(stretches[-1], width=stretches[-1].width + 1)
        else:
            stretches.append(Stretch(kind=kind, x=x, y=y, width=1))
    each = -(-facts.blocks // len(facts.cells)) if facts.cells else 0
    remarks = []
    if not facts.is_whole:
        remarks.append("What is shared is estimated, from blocks that are chosen by chance.")
    if facts.is_behind:
        remarks.append("It is being written, and the host does not tell where: what is staged is not told apart.")
    rows = max(1, -(-len(facts.cells) // columns))
    return MapView(
        stretches=tuple(stretches),
        columns=columns,
        rows=rows,
        legend=_legend(facts),
        others=tuple(
            _entry(f"other{place}" if place < COLOURS else "others", name(path), blocks, facts, path)
            for place, (path, blocks) in enumerate(facts.others)
        ),
        scale=(
            "The file is empty."
            if not each
            else f"Each piece is a block of {size(facts.block_size)}."
            if each == 1
            else f"Each piece is {size(each * facts.block_size)}, and has the colour of what most of it is."
        ),
        size=size(facts.size_bytes),
        remarks=tuple(remarks),
        bands=_bands(facts, rows),
        **_around(facts),
    )


def _part(facts: MapFacts, first: int, end: int, y: int = 0, height: int = 0) -> Part:
    """From a block to another one, within the file."""
    first, end = max(0, first), min(end, facts.file_blocks)
    of = min(end * facts.block_size, facts.size_bytes)
    label = f"{size(first * facts.block_size)} to {size(of)}"
    return Part(first=first, count=end - first, label=label, y=y, height=height)


def _bands(facts: MapFacts, rows: int) -> tuple[Part, ...]:
    if facts.blocks <= len(facts.cells) or rows < BANDS:
        return ()
    edges = [rows * place // BANDS for place in range(BANDS + 1)]
    blocks = [facts.first + facts.blocks * row // rows for row in edges]
    return tuple(
        _part(facts, blocks[place], blocks[place + 1], edges[place], edges[place + 1] - edges[place])
        for place in range(BANDS)
    )


def _around(facts: MapFacts) -> dict[str, Part]:
    """Where to go from a part."""
    first, count = facts.first, facts.blocks
    end, all_blocks = first + count, facts.file_blocks
    if count >= all_blocks:
        return {}
    found = {"shown": _part(facts, first, end)}
    if first:
        found["before"] = _part(facts, first - count, first)
    if end < all_blocks:
        found["after"] = _part(facts, end, end + count)
    if count * BANDS < all_blocks:
        start = min(max(0, first - count * (BANDS - 1) // 2), all_blocks - count * BANDS)
        found["wider"] = _part(facts, start, start + count * BANDS)
    return found


def _kind(cell: tuple[int, int, int, int, int]) -> str:
    """What most of a cell is."""
    holes, staged, own, shared, other = cell
    with_whom = f"other{other}" if 0 <= other < COLOURS else "others"
    return max(((staged, "staged"), (own, "own"), (shared, with_whom), (holes, "hole")), key=lambda each: each[0])[1]


def _legend(facts: MapFacts) -> tuple[Entry, ...]:
    labels = (("hole", "holes"), ("staged", "staged, not sealed yet"), ("own", "its own"), ("shared", "shared"))
    sums = [sum(cell[place] for cell in facts.cells) for place in range(4)]
    return tuple(
        _entry(kind, label, blocks, facts) for (kind, label), blocks in zip(labels, sums, strict=True) if blocks
    )


def _entry(kind: str, label: str, blocks: int, facts: MapFacts, raw: bytes = b"") -> Entry:
    percent = 100 * blocks / max(1, facts.blocks)
    return Entry(
        kind=kind,
        label=label,
        raw=raw,
        amount=size(min(blocks * facts.block_size, facts.size_bytes)),
        percent=f"{percent:.0f} %" if percent >= 1 or not blocks else "< 1 %",
    )


def _sharer(each: SharerFacts) -> SharerView:
    return SharerView(
        raw=each.path,
        path=name(each.path),
        size=size(each.size_bytes),
        percent=round(100 * each.shared / max(1, each.blocks)),
        shared=f"{size(each.shared_bytes)} ({100 * each.shared // max(1, each.blocks)} %)",
        other=name(each.other),
    )


def _snapshot(each: SnapshotFacts, now_s: float) -> SnapshotView:
    return SnapshotView(
        name=name(each.name),
        made=moment(each.created_s, now_s),
        source=name(each.source) or "all of it",
        holds=f"{counted(each.files, 'file', 'files')}, {size(each.logical_bytes)}",
    )
