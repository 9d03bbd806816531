"""Repetitions, medians, JSON lines and tables. No opinions about what is measured."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec.structs import asdict

QUIET_LOAD = 2.5
RESULTS = Path(__file__).parent / "results"


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One measured row.

    Attributes:
        work: What was done, the row of the table.
        subject: Who did it: blocksync or a baseline, the column of the table.
        unit: Unit of the values, e.g. "MB/s" (10**6 bytes), "1/s", "s".
        values: One value per repetition, in the order they were run.
        notes: Further measured figures of the last repetition, e.g. bytes sent.
    """

    work: str
    subject: str
    unit: str
    values: list[float]
    notes: dict[str, float] = msgspec.field(default_factory=dict)

    @property
    def median(self) -> float:
        """The figure that goes into the table."""
        return statistics.median(self.values)


def interleaved(
    work: str, unit: str, subjects: Mapping[str, Callable[[], float]], repetitions: int = 5
) -> list[Result]:
    """Measure the subjects in turns, so that a drifting machine touches all of them alike."""
    values: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repetitions):
        for name, measure in subjects.items():
            values[name].append(measure())
    return [Result(work=work, subject=name, unit=unit, values=found) for name, found in values.items()]


def seconds(action: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def on_disk(folder: Path) -> int:
    """Bytes that the host keeps for all files below."""
    return sum(512 * os.lstat(os.path.join(at, name)).st_blocks for at, _, names in os.walk(folder) for name in names)


def machine() -> dict[str, object]:
    """What the numbers were measured on."""
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line),
        platform.machine(),
    )
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "type": "machine",
        "version": 1,
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "load": [round(load, 2) for load in os.getloadavg()],
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def busy() -> str:
    """A remark if other work runs on the machine; "" if it is quiet. One core's worth is the benchmark itself."""
    load = os.getloadavg()[0]
    return f"measured on a busy machine (load {load:.1f} on {os.cpu_count()} cores)" if load > QUIET_LOAD else ""


def save(name: str, results: list[Result]) -> Path:
    """Write results/NAME.jsonl: the machine, then a line per result."""
    RESULTS.mkdir(exist_ok=True)
    lines = [machine(), *({"type": "result", "version": 1, **asdict(row), "median": row.median} for row in results)]
    path = RESULTS / f"{name}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def markdown(results: list[Result]) -> str:
    """The table of docs/: a row per work, a column per subject, medians."""
    subjects = list(dict.fromkeys(row.subject for row in results))
    works = list(dict.fromkeys((row.work, row.unit) for row in results))
    lines = [f"| work | unit | {' | '.join(subjects)} |", f"|---|---|{'---:|' * len(subjects)}"]
    found = {(row.work, row.unit, row.subject): row for row in results}
    for work, unit in works:
        cells = [figure(found[work, unit, name].median) if (work, unit, name) in found else "-" for name in subjects]
        lines.append(f"| {work} | {unit} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def figure(value: float) -> str:
    """Three significant digits; thousands in full."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
