"""Power cuts at full count: several recorded loads, each cut at many places. See docs/design/power-cuts.md."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests import effort
from tests.power.recording import read_entries
from tests.power.trial import cut_power, look_with_engine, look_with_mount, record
from tests.soak.report import Report

MINUTES = 5
_RECORDINGS = (("ext4", "none"), ("ext4", "zstd"), ("xfs", "none"), ("btrfs", "none"))
_ROUNDS = 300


def run(scale: float, report: Report) -> None:
    """Record loads and cut them: 300 cuts that the engine looks at, 20 that are mounted.

    Raises:
        AssertionError: A promise was broken.
    """
    failures = []
    for seed, (host, compression) in enumerate(_RECORDINGS):
        home = Path(tempfile.mkdtemp(prefix="blocksync-power-"))
        try:
            trial = record(home, rounds=_ROUNDS, seed=seed, compression=compression, host=host)
            cuts, mounted = effort.soak("power cuts", scale), effort.soak("power cuts, mounted", scale)
            broken = cut_power(trial, cuts, look_with_engine, seed=seed, processes=2)
            broken += cut_power(trial, mounted, look_with_mount, seed=seed + 1000)
            entries = read_entries(trial.recording)
            report.record(
                f"recording {seed}",
                host=host,
                compression=compression,
                snapshots=len(trial.log.snapshots),
                writes=sum(entry.offset is not None for entry in entries),
                barriers=sum(entry.offset is None for entry in entries),
                recorded_bytes=entries[-1].end,
                cuts=cuts,
                mounted_cuts=mounted,
                failures=len(broken),
            )
            failures += broken
        finally:
            shutil.rmtree(home)
    assert not failures, "\n".join(failures)
