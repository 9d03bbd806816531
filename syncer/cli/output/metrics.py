"""The figures of the daemon and of its neighbours in the text format of Prometheus: docs/reference/metrics.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from blockfs.runtime.output import printable

if TYPE_CHECKING:
    from syncer.peer.exchange.figures import Figures
    from syncer.watch.lan import PeersLive
    from syncer.watch.live import DaemonLive

COUNTERS: Final = {
    "tokens_asked": ("blocksync_lan_blocks_asked", "Blocks that were asked for by frames."),
    "tokens_answered": ("blocksync_lan_blocks_offered", "Blocks that devices said they have."),
    "blocks_from_peers": ("blocksync_lan_received_blocks", "Blocks that came from devices."),
    "bytes_from_peers": ("blocksync_lan_received_bytes", "Bytes of them."),
    "wasted_bytes": ("blocksync_lan_wasted_bytes", "Bytes that came of blocks that were of no use any more."),
    "blocks_to_peers": ("blocksync_lan_sent_blocks", "Blocks that devices got from here."),
    "bytes_to_peers": ("blocksync_lan_sent_bytes", "Bytes of them."),
    "busy": ("blocksync_lan_busy", "Requests that were told to come again."),
    "stalls": ("blocksync_lan_stalls", "Devices that sent nothing of what they owed."),
    "lacked": ("blocksync_lan_lacked_blocks", "Blocks that a device offered and did not have."),
    "mismatches": ("blocksync_lan_wrong_blocks", "Blocks that came and were others."),
    "accused": ("blocksync_lan_accused_blocks", "Blocks that were sent, and of which devices said that."),
    "broadcasts_held": ("blocksync_lan_broadcasts_held", "Frames that waited for the budget of broadcasts."),
}
"""Fields of `Figures` that only rise while the daemon takes part. The library adds `_total` to their names."""


def exposition(live: PeersLive) -> str:
    """All figures as text. Of a daemon that takes no part only how many roots there are.

    Args:
        live: What the daemon answered.
    """
    return _text(_Figures(live))


def daemon_exposition(live: DaemonLive) -> str:
    """How the daemon and its roots stand, as text. Roots have their paths; no file has a name.

    Args:
        live: What the daemon answered.
    """
    return _text(_Roots(live))


def sums_exposition(live: DaemonLive) -> str:
    """How the daemon and all its roots together stand, as text: numbers, no path.

    Args:
        live: What the daemon answered.
    """
    return _text(_Sums(live))


def _text(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry).decode()


class _Sums(Collector):
    def __init__(self, live: DaemonLive) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "blocksync_watch_start_timestamp_seconds", "When the daemon began.", value=self._live.started
        )
        states = GaugeMetricFamily("blocksync_watch_roots", "Roots by how they stand.", labels=["state"])
        for state, count in sorted(Counter(root.phase for root in self._live.roots).items()):
            states.add_metric([state], count)
        yield states
        synced = [root.synced for root in self._live.roots if root.synced is not None]
        yield GaugeMetricFamily(
            "blocksync_watch_synced_roots", "Roots of which a cycle of this daemon went through.", value=len(synced)
        )
        if synced:
            yield GaugeMetricFamily(
                "blocksync_watch_synced_timestamp_seconds",
                "When a cycle went through last, of that of them which waits longest.",
                value=min(synced),
            )
        yield GaugeMetricFamily(
            "blocksync_watch_degraded",
            "In how many ways they work less well than they should.",
            value=sum(len(root.degraded) for root in self._live.roots),
        )
        yield CounterMetricFamily(
            "blocksync_watch_cycles",
            "Cycles since the daemon began.",
            value=sum(root.cycles for root in self._live.roots),
        )


class _Roots(Collector):
    def __init__(self, live: DaemonLive) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(
            "blocksync_watch_start_timestamp_seconds", "When the daemon began.", value=self._live.started
        )
        state = GaugeMetricFamily("blocksync_root_state", "1; how the root stands.", labels=["root", "state"])
        since = GaugeMetricFamily("blocksync_root_state_timestamp_seconds", "Since when.", labels=["root"])
        synced = GaugeMetricFamily(
            "blocksync_root_synced_timestamp_seconds", "When a cycle went through last.", labels=["root"]
        )
        remarks = GaugeMetricFamily(
            "blocksync_root_degraded", "In how many ways it works less well than it should.", labels=["root"]
        )
        last = GaugeMetricFamily("blocksync_root_last_cycle_seconds", "What the last cycle took.", labels=["root"])
        cycles = CounterMetricFamily("blocksync_root_cycles", "Cycles since the daemon began.", labels=["root"])
        for root in self._live.roots:
            path = printable(root.root)
            state.add_metric([path, root.phase], 1)
            since.add_metric([path], root.since)
            remarks.add_metric([path], len(root.degraded))
            cycles.add_metric([path], root.cycles)
            if root.synced is not None:
                synced.add_metric([path], root.synced)
            if "seconds" in root.last:
                last.add_metric([path], root.last["seconds"])
        yield from (state, since, synced, remarks, last, cycles)


class _Figures(Collector):
    def __init__(self, live: PeersLive) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        roots = GaugeMetricFamily("blocksync_lan_roots", "Roots of the daemon.", labels=["state"])
        for state in ("on", "off"):
            roots.add_metric([state], sum((state == "off") == bool(share.off) for share in self._live.shares))
        yield roots
        figures = self._live.figures
        if figures is not None:
            yield from _devices(figures)
            yield from _frames(figures)
            for field, (name, text) in COUNTERS.items():
                yield CounterMetricFamily(name, text, value=getattr(figures, field))


def _devices(figures: Figures) -> Iterator[Metric]:
    connected = sum(peer.is_connected for peer in figures.peers)
    yield GaugeMetricFamily("blocksync_lan_links", "Interfaces in use.", value=len(figures.links))
    yield GaugeMetricFamily(
        "blocksync_lan_devices", "Devices that were heard in the last ten minutes.", value=len(figures.peers)
    )
    yield GaugeMetricFamily("blocksync_lan_sources", "Devices to which there is a connection.", value=connected)
    yield GaugeMetricFamily(
        "blocksync_lan_uploads", "Devices that have a connection to here.", value=len(figures.uploads)
    )
    yield GaugeMetricFamily("blocksync_lan_bans", "Devices from which nothing is taken.", value=len(figures.bans))


def _frames(figures: Figures) -> Iterator[Metric]:
    frames = CounterMetricFamily(
        "blocksync_lan_frames", "Frames that were taken or sent.", labels=["direction", "type"]
    )
    for direction, counts in (("in", figures.frames_in), ("out", figures.frames_out)):
        for kind, count in sorted(counts.items()):
            frames.add_metric([direction, kind], count)
    yield frames
    drops = CounterMetricFamily("blocksync_lan_dropped_frames", "Frames that were not taken.", labels=["reason"])
    for reason, count in sorted(figures.drops.items()):
        drops.add_metric([reason], count)
    yield drops
    answers = HistogramMetricFamily("blocksync_lan_answer_seconds", "From a question to each of its answers.")
    ends = [*map(str, figures.latency_ends_s), "+Inf"]
    answers.add_metric([], list(zip(ends, accumulate(figures.latency), strict=True)), figures.latency_s)
    yield answers
