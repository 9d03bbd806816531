"""Damage at full count: rows of a tree against what a repair promises, bytes of volumes against every command."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from hypothesis import HealthCheck, Phase, given, settings

from tests import effort
from tests.soak.report import Report
from tests.system.damage import run_damaged
from tests.system.machines import Machines
from tests.unit.blockfs.tree.damaged import Edit, all_rows, build, copied, damage_and_repair, edits

MINUTES: Final = 12


def damaged_trees(home: Path, examples: int) -> int:
    """Damage rows, repair, compare; returns how many rows were damaged."""
    sound = home / "sound"
    build(sound)
    with copied(sound) as path:
        rows = all_rows(path)
    damaged = 0

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(changes=edits(rows))
    def damage(changes: list[Edit]) -> None:
        nonlocal damaged
        damaged += len(changes)
        damage_and_repair(sound, changes)

    damage()
    return damaged


def run(scale: float, report: Report) -> None:
    """See the module."""
    trees, volumes = effort.soak("damaged trees", scale), effort.soak("damaged volumes", scale)
    with tempfile.TemporaryDirectory(prefix="blocksync-repair-") as home:
        report.record("rows", trees=trees, damaged_rows=damaged_trees(Path(home), trees))
        machines = Machines(Path(home))
        try:
            ends: dict[str, int] = {}
            for seed in range(volumes):
                for end in run_damaged(machines, seed):
                    ends[end] = ends.get(end, 0) + 1
        finally:
            machines.close()
        report.record("bytes", volumes=volumes, ends=dict(sorted(ends.items())))
