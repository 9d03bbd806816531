"""python -m tests.soak.part NAME SCALE RESULTS: one part, in a process of its own.

A part is a module of this folder that has

    run(scale, report): does it; raises AssertionError, or any other exception, when something does not hold;
    MINUTES: what it takes at scale 1 on two cores, to begin with the longest; default 1;
    ALONE = True: it measures times, so nothing may run beside it; default False.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

import msgspec

from tests.soak.report import Report


class Part(msgspec.Struct, frozen=True):
    """One part."""

    name: str
    module: ModuleType

    @property
    def minutes(self) -> float:
        return float(getattr(self.module, "MINUTES", 1))

    @property
    def alone(self) -> bool:
        return bool(getattr(self.module, "ALONE", False))


def parts() -> dict[str, Part]:
    """All parts by name."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("__"))
    found = [Part(name, importlib.import_module(f"tests.soak.{name}")) for name in names]
    return {part.name: part for part in found if hasattr(part.module, "run")}


def main(name: str, scale: float, results: Path) -> int:
    """Run one part; returns the exit code."""
    report = Report(name, results)
    started = time.monotonic()
    failure = None
    try:
        parts()[name].module.run(scale, report)
    except BaseException as error:  # noqa: BLE001 - whatever ends a part is its failure and belongs into the log
        traceback.print_exc()
        failure = f"{type(error).__name__}: {error}"[:2000]
    report.record("end", scale=scale, seconds=round(time.monotonic() - started), failure=failure)
    return 0 if failure is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3])))
