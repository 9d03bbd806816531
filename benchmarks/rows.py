"""A row: what was measured, what was promised, and what was measured beside it; JSON lines and the table of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import asdict

from benchmarks.harness import QUIET_LOAD, machine


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure.

    Attributes:
        part: Which part of the benchmark measured it.
        work: What was done.
        unit: Unit of the values; "times": a multiple of what is beside it.
        values: One per repetition, in the order they were run.
        limit: What was promised; None: nothing, it is told.
        least: Whether `limit` is the least, not the most.
        beside: What else was measured in the same run, with its unit.
        beside_values: One per repetition.
        notes: Further figures of the last repetition.
        subjects: What was measured in the same run by name, one value per repetition each; first what the others are
            compared with in the table.
        subjects_unit: Of them.
    """

    part: str
    work: str
    unit: str
    values: list[float]
    limit: float | None = None
    least: bool = False
    beside: str = ""
    beside_values: list[float] = msgspec.field(default_factory=list)
    notes: dict[str, float] = msgspec.field(default_factory=dict)
    subjects: dict[str, list[float]] = msgspec.field(default_factory=dict)
    subjects_unit: str = ""

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.values)

    @property
    def met(self) -> bool | None:
        """Whether the promise is kept; None: there is none."""
        if self.limit is None:
            return None
        return self.median >= self.limit if self.least else self.median <= self.limit


def times(
    part: str, work: str, limit: float | None, measured: Sequence[float], beside: str, base: Sequence[float]
) -> Row:
    """A row about a multiple: each repetition is compared with the one beside it."""
    values = [one / other for one, other in zip(measured, base, strict=True)]
    return Row(part=part, work=work, unit="times", values=values, limit=limit, beside=beside, beside_values=list(base))


def save(path: Path, part: str, rows: Sequence[Row], **about: Any) -> None:
    """Put the rows of one part into the file in place of its earlier ones: a line about the machine, a line per row."""
    kept = [
        line for line in (path.read_text().splitlines() if path.exists() else []) if json.loads(line)["part"] != part
    ]
    new = [machine() | {"part": part} | about]
    new += [{"type": "row", "version": 1, **asdict(row), "median": row.median, "met": row.met} for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in [*kept, *map(json.dumps, new)]))


def save_more(path: Path, part: str, rows: Sequence[Row], **about: Any) -> list[Row]:
    """Add repetitions to those of a part that are in the file; returns its rows with all of them.

    For parts that take so long that their repetitions are made by several calls.
    """
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    before = [line for line in lines if line["part"] == part]
    there = {row.work: row for row in (_row(line) for line in before if line["type"] == "row")}
    every = [joined(there[row.work], row) if row.work in there else row for row in rows]
    seconds = about.get("seconds", 0) + sum(line["seconds"] for line in before if line["type"] == "machine")
    save(path, part, every, **about | {"seconds": seconds})
    return every


def joined(row: Row, more: Row) -> Row:
    """The repetitions of two rows about the same."""
    subjects = {
        name: [*row.subjects.get(name, []), *more.subjects.get(name, [])] for name in row.subjects | more.subjects
    }
    return msgspec.structs.replace(
        more,
        values=[*row.values, *more.values],
        beside_values=[*row.beside_values, *more.beside_values],
        subjects=subjects,
    )


def read(path: Path, order: Sequence[str]) -> list[Row]:
    """All rows of a file, the parts in this order."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    made = [_row(line) for line in lines if line["type"] == "row"]
    return sorted(made, key=lambda row: order.index(row.part))


def circumstances(path: Path) -> str:
    """When the parts of a file were measured, and how busy the machine was when each began to be written."""
    told = [line for line in map(json.loads, path.read_text().splitlines()) if line["type"] == "machine"]
    days = sorted({line["time"][:10] for line in told})
    loads = sorted(line["load"][0] for line in told)
    busy = " That is a busy machine: rates are low, and times long." if loads[-1] > QUIET_LOAD else ""
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"Measured {when}, load {figure(loads[0])} to {figure(loads[-1])} on {told[0]['cores']} cores.{busy}\n"


def table(rows: Sequence[Row]) -> str:
    """For docs/reference/benchmarks.md."""
    lines = ["| what | target | median | least to most | met | in the same run |", "|---|---:|---:|---:|---|---|"]
    for row in rows:
        target = "-" if row.limit is None else f"{'≥' if row.least else '≤'} {figure(row.limit)} {row.unit}"
        spread = f"{figure(min(row.values))} to {figure(max(row.values))}"
        met = {None: "-", True: "yes", False: "**no**"}[row.met]
        cells = (row.work, target, f"{figure(row.median)} {row.unit}", spread, met, _beside(row))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def put_into_page(page: Path, command: str, text: str) -> None:
    """Put what a command found into its place in a page: between two comments that name it.

    Args:
        page: Of Markdown.
        command: As it is typed.
        text: Whole lines.
    """
    begin, end = f"<!-- {command}: begin -->\n", f"<!-- {command}: end -->\n"
    before, _, rest = page.read_text().partition(begin)
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}{text}{end}{after}")


def figure(value: float) -> str:
    """Three significant digits, thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _beside(row: Row) -> str:
    if not row.subjects:
        return f"{row.beside}: {figure(statistics.median(row.beside_values))}" if row.beside_values else row.beside
    medians = {name: statistics.median(values) for name, values in row.subjects.items()}
    base, *others = medians
    told = [f"{base} {figure(medians[base])}"]
    told += [f"{name} {figure(medians[name])} ({figure(medians[name] / medians[base])})" for name in others]
    return f"{row.subjects_unit}: {', '.join(told)}"


def _row(line: dict[str, Any]) -> Row:
    return msgspec.convert({key: line[key] for key in Row.__struct_fields__ if key in line}, Row)
