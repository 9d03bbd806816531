"""The daemon's figures in the text format of Prometheus, read back by the library's own parser."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from syncer.cli.main import run
from syncer.cli.output.metrics import COUNTERS, exposition
from syncer.peer.exchange.figures import BanFigures, Figures, PeerFigures, UploadFigures
from syncer.watch.lan import PeersLive, ShareLive

ANNA = PeerFigures(
    share="u1", peer="a1" * 16, link="lan0", addresses=("fe80::1",), heard_s=3.0, is_connected=True,
    bytes_per_s=2e6, blocks=5, bytes=5 * 65536, wasted_bytes=0, load=1,
)  # fmt: skip
BEN = msgspec.structs.replace(ANNA, peer="b2" * 16, is_connected=False)
COUNTS = {field: number for number, field in enumerate(COUNTERS, start=1)}
FIGURES = Figures(
    port=17511, links=("lan0", "lan1", "lan2"), peers=(ANNA, BEN),
    bans=(BanFigures(peer="c3" * 16, address="fe80::3", for_s=1800.0),),
    uploads=(UploadFigures(peer="a1" * 16, address="fe80::1", blocks=1, bytes=2),),
    frames_in={"whohas": 3}, frames_out={"ihave": 2, "whohas": 4}, drops={"replay": 9},
    latency=(5, 0, 2, 1), latency_ends_s=(0.001, 0.01, 0.1), latency_s=0.5, **COUNTS,
)  # fmt: skip
OTHERS = {
    "port", "links", "peers", "bans", "uploads", "frames_in", "frames_out", "drops", "latency", "latency_ends_s",
    "latency_s",
}  # fmt: skip


def live(figures: Figures | None) -> PeersLive:
    roots = {"/a": "", "/b": "it is paused", "/c": ""}
    shares = [ShareLive(root=root, uuid=root, off=off) for root, off in roots.items()]
    return PeersLive(off="", shares=shares, figures=figures)


def samples(told: PeersLive) -> dict[tuple[str, *tuple[str, ...]], float]:
    families = text_string_to_metric_families(exposition(told))
    return {
        (sample.name, *(text for _, text in sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_every_figure_of_the_daemon_is_a_metric() -> None:
    found = samples(live(FIGURES))
    for field, (name, _) in COUNTERS.items():
        assert found[f"{name}_total",] == COUNTS[field]
    assert {field.name for field in msgspec.structs.fields(Figures)} == {*COUNTERS, *OTHERS}
    counted = [found[f"blocksync_lan_{name}",] for name in ("links", "devices", "sources", "uploads", "bans")]
    assert counted == [3, 2, 1, 1, 1]
    assert found["blocksync_lan_frames_total", "out", "whohas"] == 4
    assert found["blocksync_lan_frames_total", "in", "whohas"] == 3
    assert found["blocksync_lan_dropped_frames_total", "replay"] == 9


def test_classes_of_time_add_up_as_a_histogram_has_them() -> None:
    found = samples(live(FIGURES))
    classes = [found["blocksync_lan_answer_seconds_bucket", end] for end in ("0.001", "0.01", "0.1", "+Inf")]
    assert classes == [5, 5, 7, 8]
    assert (found["blocksync_lan_answer_seconds_count",], found["blocksync_lan_answer_seconds_sum",]) == (8, 0.5)


def test_a_daemon_that_takes_no_part_tells_of_its_roots_alone() -> None:
    assert samples(live(None)) == {("blocksync_lan_roots", "on"): 2, ("blocksync_lan_roots", "off"): 1}


def test_the_page_has_every_metric() -> None:
    page = (Path(__file__).parents[4] / "docs/reference/metrics.md").read_text()
    types = [line.split()[2:] for line in exposition(live(FIGURES)).splitlines() if line.startswith("# TYPE")]
    names = dict(types)
    assert names
    assert {name for name, kind in names.items() if f"| `{name}` | {kind} |" not in page} == set()


def test_the_verb_prints_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("syncer.watch.control.peers", lambda _: live(FIGURES))
    assert run(["peers", "--metrics"]) == 0
    assert capsys.readouterr().out == exposition(live(FIGURES))


@pytest.mark.parametrize("other", ["--json", "--follow", "off"])
def test_another_form_is_asked_for_alone(other: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["peers", "--metrics", other]) == 2
    assert "--metrics" in capsys.readouterr().err
