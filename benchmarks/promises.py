"""One picture: each figure as a part of what was promised."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.plots import plt
from benchmarks.rows import Row, figure

_LEFT, _RIGHT = 0.01, 12.0  # what is beyond is drawn at the edge: a figure of 0 has no place on a logarithmic axis
_MET, _MISSED = "#2a7f62", "#c0392b"


def draw(rows: Sequence[Row], path: Path, *, beside: str = "") -> None:
    """A line for each row that has a target: 1 is the target, what is left of it keeps the promise.

    Args:
        rows: What is shown.
        path: Of the picture.
        beside: What was measured beside in the same unit: the median is shown as a circle.
    """
    shown = [row for row in rows if row.limit is not None][::-1]
    picture, axes = plt.subplots(figsize=(9.6, 1.2 + 0.3 * len(shown)))
    for height, row in enumerate(shown):
        color = _MET if row.met else _MISSED
        axes.plot([_part(row, value) for value in row.values], [height] * len(row.values), ".", color=color, alpha=0.4)
        axes.plot([_part(row, row.median)], [height], "o", color=color)
        if beside and row.beside == beside:
            other = _part(row, statistics.median(row.beside_values))
            axes.plot([other], [height], "o", color="black", fillstyle="none")
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    axes.set_yticks(range(len(shown)), [_label(row) for row in shown])
    axes.set_xlim(_LEFT, _RIGHT)
    axes.set_xticks([0.01, 0.1, 0.5, 1, 2, 10], ["0.01", "0.1", "0.5", "target", "2", "10"])
    axes.tick_params(which="minor", bottom=False)
    axes.set_xlabel("measured / target; target / measured where more is better")
    axes.grid(alpha=0.3, axis="x")
    picture.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, metadata={"Date": None})
    plt.close(picture)


def _part(row: Row, value: float) -> float:
    assert row.limit is not None
    if row.least:
        part = row.limit / value if value > 0 else _RIGHT
    elif row.limit:
        part = value / row.limit
    else:
        part = 1 + value if value > 0 else _LEFT
    return min(_RIGHT, max(_LEFT, part))


def _label(row: Row) -> str:
    assert row.limit is not None
    return f"{row.work}: {figure(row.median)} of {'≥' if row.least else '≤'} {figure(row.limit)} {row.unit}"
