"""Figures in the text format of Prometheus, read back by the library's own parser."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from blockfs.cli.metrics import COUNTERS, GAUGES, exposition
from blockfs.control.protocol import StatsReply

STATS = StatsReply(
    files=3,
    logical_bytes=1 << 40,
    unique_bytes=4096,
    stored_bytes=8192,
    blocks=2,
    staged_bytes=0,
    dedup_ratio=1.5,
    program_version="1.2.3",
    read_only=True,
    uptime_seconds=12.25,
    open_files=1,
    requests={"read": 10, "fsync": 2},
    request_seconds={"read": 0.5, "fsync": 0.25},
    errors={"ENOSPC": 4},
    commits=7,
    sealed_files=5,
    gc_runs=1,
    gc_removed_blocks=6,
    gc_freed_bytes=65536,
    frontend="kernel",
    mode="writeback",
    mode_reason="as told",
)
OWN_SAMPLES = {"program_version", "frontend", "mode", "mode_reason", "requests", "request_seconds", "errors"}


def samples(volume: str = "/srv/volume") -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (
            sample.name,
            tuple(sorted((key, text) for key, text in sample.labels.items() if key != "volume")),
        ): sample.value
        for family in text_string_to_metric_families(exposition(volume, STATS))
        for sample in family.samples
        if sample.labels["volume"] == volume
    }


def test_every_figure_of_the_reply_is_a_metric() -> None:
    found = samples()
    for field, (name, _) in GAUGES.items():
        assert found[name, ()] == getattr(STATS, field)
    for field, (name, _) in COUNTERS.items():
        assert found[f"{name}_total", ()] == getattr(STATS, field)
    assert {field.name for field in msgspec.structs.fields(StatsReply)} == {*GAUGES, *COUNTERS, *OWN_SAMPLES}


def test_requests_errors_and_the_release_have_labels() -> None:
    found = samples()
    assert found["blocksync_build_info", (("version", "1.2.3"),)] == 1
    assert found["blocksync_frontend_info", (("frontend", "kernel"), ("mode", "writeback"))] == 1
    assert found["blocksync_request_seconds_count", (("kind", "fsync"),)] == 2
    assert math.isclose(found["blocksync_request_seconds_sum", (("kind", "read"),)], 0.5)
    assert found["blocksync_request_errors_total", (("errno", "ENOSPC"),)] == 4


def test_a_volume_of_any_name_can_be_a_label() -> None:
    assert samples('/a "b"\n\\c')


def test_every_metric_is_documented() -> None:
    text = (Path(__file__).parents[4] / "docs" / "reference" / "metrics.md").read_text()
    for family in text_string_to_metric_families(exposition("/v", STATS)):
        assert f"`{family.name}" in text
