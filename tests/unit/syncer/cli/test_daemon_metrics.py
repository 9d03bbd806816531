"""How the daemon stands, in the text format of Prometheus: what everybody may know, and what its user may."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncer.cli.output.metrics import daemon_exposition, sums_exposition
from syncer.watch.live import DaemonLive, RootLive

ROOTS = [
    RootLive(root="/secret/a", uuid="u1", phase="idle", since=5.0, cycles=3, synced=100.0, degraded=["slow", "old"]),
    RootLive(root="/secret/b", uuid="u2", phase="idle", since=6.0, cycles=4, synced=90.0),
    RootLive(root="/secret/c", uuid="u3", phase="consent", since=7.0, detail="would delete secret.txt"),
]
LIVE = DaemonLive(pid=1, started=1.0, roots=ROOTS)


def samples(text: str) -> dict[tuple[str, *tuple[str, ...]], float]:
    return {
        (sample.name, *(label for _, label in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_sums_are_of_all_roots_together() -> None:
    assert samples(sums_exposition(LIVE)) == {
        ("blocksync_watch_start_timestamp_seconds",): 1,
        ("blocksync_watch_roots", "idle"): 2,
        ("blocksync_watch_roots", "consent"): 1,
        ("blocksync_watch_synced_roots",): 2,
        ("blocksync_watch_synced_timestamp_seconds",): 90,
        ("blocksync_watch_degraded",): 2,
        ("blocksync_watch_cycles_total",): 7,
    }


def test_before_the_first_cycle_there_is_no_time_of_it() -> None:
    found = samples(sums_exposition(DaemonLive(pid=1, started=1.0, roots=ROOTS[2:])))
    assert found["blocksync_watch_synced_roots",] == 0
    assert ("blocksync_watch_synced_timestamp_seconds",) not in found


def test_sums_name_nothing_of_the_users() -> None:
    """Every user of the machine may ask for them."""
    told = sums_exposition(LIVE)
    assert not [word for word in ("secret", "u1", "slow") if word in told]
    assert "secret.txt" not in daemon_exposition(LIVE)


@pytest.mark.parametrize("text", [sums_exposition(LIVE), daemon_exposition(LIVE)], ids=["sums", "all"])
def test_the_page_has_every_metric(text: str) -> None:
    page = (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text()
    names = dict(line.split()[2:] for line in text.splitlines() if line.startswith("# TYPE"))
    assert names
    assert {name for name, kind in names.items() if f"| `{name}` | {kind} |" not in page} == set()
