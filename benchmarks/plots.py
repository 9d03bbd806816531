"""The plots of docs/reference/benchmarks.md, from results/*.jsonl: SVG; lines, or bars beside a limit."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl

from benchmarks.harness import Result

mpl.use("svg")
mpl.rcParams.update({"svg.hashsalt": "blocksync", "svg.fonttype": "none", "font.size": 9})
from matplotlib import pyplot as plt  # noqa: E402 - after the choice of the backend

__all__ = ["plt"]
PLOTS = Path(__file__).parent.parent / "docs" / "reference" / "plots"


def plot(name: str, title: str, x_label: str, results: list[Result]) -> Path:
    """Draw medians over the number in each row's name; all values as points, so that the spread is seen."""
    PLOTS.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(5.6, 3.2))
    for subject in dict.fromkeys(row.subject for row in results):
        rows = sorted(((_number(row.work), row) for row in results if row.subject == subject), key=lambda pair: pair[0])
        line = axes.plot([x for x, _ in rows], [row.median for _, row in rows], marker="o", label=subject)[0]
        for x, row in rows:
            axes.plot([x] * len(row.values), row.values, ".", color=line.get_color(), alpha=0.4)
    axes.set_xlabel(x_label)
    axes.set_ylabel(results[0].unit)
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.legend()
    axes.grid(alpha=0.3)
    figure.tight_layout()
    path = PLOTS / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def limits(name: str, title: str, results: list[Result], allowed: Callable[[Result], float]) -> Path:
    """Draw medians as bars, each as a share of what is allowed, whatever its unit; all values as points.

    Args:
        name: Of the file.
        title: Above it.
        results: Its rows.
        allowed: What a row may be, in its unit.
    """
    PLOTS.mkdir(exist_ok=True)
    figure, axes = plt.subplots(figsize=(7.6, 0.8 + 0.45 * len(results)))
    for place, row in enumerate(reversed(results)):
        most = allowed(row)
        axes.barh(place, 100 * row.median / most, color="C0" if row.median <= most else "C3", height=0.6)
        axes.plot([100 * value / most for value in row.values], [place] * len(row.values), "k.", alpha=0.4)
        axes.annotate(f" {row.median:.2g} {row.unit}", (100 * max(row.values) / most, place), va="center")
    axes.axvline(100, color="black", linewidth=0.8)
    axes.set_yticks(range(len(results)), [row.work for row in reversed(results)])
    axes.set_xlabel("of what is allowed, %")
    axes.set_xlim(0, max(125, *(130 * max(row.values) / allowed(row) for row in results)))
    axes.set_title(title)
    figure.tight_layout()
    path = PLOTS / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _number(work: str) -> int:
    match = re.search(r"\d+", work)
    assert match is not None, work
    return int(match[0])
