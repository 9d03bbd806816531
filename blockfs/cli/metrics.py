"""The figures of a mount in the text format of Prometheus. Names and meanings: docs/reference/metrics.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from blockfs.control.protocol import StatsReply

GAUGES: Final = {
    "files": ("blocksync_files", "Regular files, hard links once."),
    "logical_bytes": ("blocksync_logical_bytes", "Sum of the sizes of regular files, hard links once."),
    "unique_bytes": ("blocksync_unique_bytes", "Bytes of the distinct blocks that files refer to."),
    "stored_bytes": ("blocksync_stored_bytes", "Bytes that the volume takes on its host, without staging."),
    "blocks": ("blocksync_blocks", "Distinct blocks that files refer to."),
    "staged_bytes": ("blocksync_staged_bytes", "Bytes that were written and are not blocks yet."),
    "dedup_ratio": ("blocksync_dedup_ratio", "Bytes of files that are no holes per unique byte; 1 if there are none."),
    "open_files": ("blocksync_open_files", "Handles of regular files that are open."),
    "read_only": ("blocksync_read_only", "1 if the volume is mounted read-only."),
    "uptime_seconds": ("blocksync_uptime_seconds", "Seconds since the mount began."),
}
"""Fields of `StatsReply` that go up and down: name and help text."""

COUNTERS: Final = {
    "commits": ("blocksync_commits", "Commits of metadata."),
    "sealed_files": ("blocksync_sealed_files", "How often what was staged of a file was turned into blocks."),
    "gc_runs": ("blocksync_gc_runs", "Garbage collections."),
    "gc_removed_blocks": ("blocksync_gc_removed_blocks", "Blocks that collections removed."),
    "gc_freed_bytes": ("blocksync_gc_freed_bytes", "Bytes that collections gave back to the host."),
}
"""Fields of `StatsReply` that only rise while the mount lives. The library adds `_total` to their names."""


def exposition(volume: str, stats: StatsReply) -> str:
    """All figures as text, each with the label `volume`: several mounts may go into one file.

    Args:
        volume: Path of the volume.
        stats: What its mount answered.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(volume, stats))
    return generate_latest(registry).decode()


class _Figures(Collector):
    def __init__(self, volume: str, stats: StatsReply) -> None:
        self._volume = volume
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats, volume = self._stats, [self._volume]
        build = GaugeMetricFamily(
            "blocksync_build_info", "1; the release that serves it.", labels=["volume", "version"]
        )
        build.add_metric([*volume, stats.program_version], 1)
        yield build
        frontend = GaugeMetricFamily(
            "blocksync_frontend_info",
            "1; what talks to the kernel, and where writes go.",
            labels=["volume", "frontend", "mode"],
        )
        frontend.add_metric([*volume, stats.frontend, stats.mode], 1)
        yield frontend
        for field, (name, text) in GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["volume"])
            gauge.add_metric(volume, getattr(stats, field))
            yield gauge
        for field, (name, text) in COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=["volume"])
            counter.add_metric(volume, getattr(stats, field))
            yield counter
        yield self._requests()
        errors = CounterMetricFamily(
            "blocksync_request_errors", "Requests that were answered with an error.", labels=["volume", "errno"]
        )
        for number, count in sorted(stats.errors.items()):
            errors.add_metric([*volume, number], count)
        yield errors

    def _requests(self) -> Metric:
        summary = SummaryMetricFamily(
            "blocksync_request_seconds", "From a request of the kernel to its answer.", labels=["volume", "kind"]
        )
        for kind, count in sorted(self._stats.requests.items()):
            summary.add_metric([self._volume, kind], count, self._stats.request_seconds.get(kind, 0.0))
        return summary
