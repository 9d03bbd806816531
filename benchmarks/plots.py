"""The plots of docs/reference/benchmarks.md, from results/*.jsonl: SVG, one line per subject."""

from __future__ import annotations

import re
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


def _number(work: str) -> int:
    match = re.search(r"\d+", work)
    assert match is not None, work
    return int(match[0])
