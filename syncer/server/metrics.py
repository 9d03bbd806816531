"""The figures of a server in the text format of Prometheus. Names and meanings: docs/reference/metrics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from blockfs.build import release
from syncer.server.store.store import StoreFigures

GAUGES: Final = {
    "accounts": ("blocksync_server_accounts", "Accounts that have ever written."),
    "containers": ("blocksync_server_containers", "Containers of all accounts."),
    "objects": ("blocksync_server_objects", "Objects that exist now."),
    "bytes_used": ("blocksync_server_logical_bytes", "Sum of their sizes."),
    "versions": ("blocksync_server_versions", "Versions of objects that can be read, deletions included."),
    "blocks": ("blocksync_server_blocks", "Distinct blocks that are stored."),
    "stored_bytes": ("blocksync_server_stored_bytes", "Bytes that blocks take on the host."),
    "free_bytes": ("blocksync_server_free_bytes", "Room that is left on the host."),
}
"""Fields of `StoreFigures`: name and help text."""


def exposition(
    figures: StoreFigures | None,
    counts: Counter[tuple[str, int]],
    seconds: Mapping[str, float],
    connections: tuple[int, int],
    tokens: int,
) -> str:
    """All figures as text.

    Args:
        figures: Of the store; None: they could not be had, and are left out.
        counts: Requests by method and status.
        seconds: What they took, by method.
        connections: With a token, and without.
        tokens: How many count.
    """
    registry = CollectorRegistry()
    registry.register(_Figures(figures, counts, seconds, connections, tokens))
    ProcessCollector(registry=registry)
    return generate_latest(registry).decode()


class _Figures(Collector):
    def __init__(
        self,
        figures: StoreFigures | None,
        counts: Counter[tuple[str, int]],
        seconds: Mapping[str, float],
        connections: tuple[int, int],
        tokens: int,
    ) -> None:
        self._figures = figures
        self._counts = counts
        self._seconds = seconds
        self._connections = connections
        self._tokens = tokens

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("blocksync_server_build_info", "1; the release that serves.", labels=["version"])
        build.add_metric([release()], 1)
        yield build
        found = {} if self._figures is None else msgspec.structs.asdict(self._figures)
        yield GaugeMetricFamily(
            "blocksync_server_store_readable", "1 if the figures of the store could be read.", value=float(bool(found))
        )
        for field, value in found.items():
            name, text = GAUGES[field]
            yield GaugeMetricFamily(name, text, value=value)
        yield GaugeMetricFamily("blocksync_server_tokens", "Tokens that count now.", value=self._tokens)
        connections = GaugeMetricFamily("blocksync_server_connections", "Connections that are open.", labels=["token"])
        for shown, count in zip(("yes", "no"), self._connections, strict=True):
            connections.add_metric([shown], count)
        yield connections
        yield from self._requests()

    def _requests(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "blocksync_server_requests", "Requests that were answered.", labels=["method", "status"]
        )
        for (method, status), count in sorted(self._counts.items()):
            requests.add_metric([method, str(status)], count)
        yield requests
        summary = SummaryMetricFamily(
            "blocksync_server_request_seconds", "From the head of a request to that of its reply.", labels=["method"]
        )
        for method, taken in sorted(self._seconds.items()):
            count = sum(count for (name, _), count in self._counts.items() if name == method)
            summary.add_metric([method], count, taken)
        yield summary
