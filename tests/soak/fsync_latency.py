"""fsync of a small file while another streams 10 GB: how much longer it takes than on the idle mount.

The same is measured on the host's filesystem: what the stream costs there, the mount can't give back.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES: Final = 8
ALONE: Final = True
STREAM_BYTES: Final = 10 * 10**9
IDLE_SAMPLES: Final = 200
BETWEEN_S: Final = 0.05  # between two fsyncs: an editor, a database, not a loop that is a load of its own
LIMIT: Final = 3.0  # times the idle latency, issue 3 section 2
CHUNK: Final = 1 << 20

_STREAM = """
import os, sys
path, size = sys.argv[1], int(sys.argv[2])
noise = bytearray(os.urandom(1 << 20))
with open(path, "wb", buffering=0) as file:
    for number in range(size >> 20):
        for page in range(0, 1 << 20, 4096):
            noise[page : page + 8] = number.to_bytes(8, "big")  # no two blocks are equal
        file.write(noise)
"""


class Latencies(msgspec.Struct, frozen=True):
    """Seconds per fsync."""

    samples: list[float]

    @property
    def figures(self) -> dict[str, float]:
        """Milliseconds."""
        ranked = sorted(self.samples)
        return {
            "median_ms": round(statistics.median(ranked) * 1000, 2),
            "p95_ms": round(ranked[int(len(ranked) * 0.95)] * 1000, 2),
            "max_ms": round(ranked[-1] * 1000, 2),
            "samples": len(ranked),
        }


def one_fsync(descriptor: int, number: int) -> float:
    """Overwrite a page of a file and make it durable."""
    os.pwrite(descriptor, number.to_bytes(8, "big") * 512, number % 16 * 4096)
    started = time.perf_counter()
    os.fsync(descriptor)
    return time.perf_counter() - started


def measure(folder: Path, stream_bytes: int) -> tuple[Latencies, Latencies, float]:
    """Latencies on the idle filesystem, during a stream, and how long the stream took."""
    descriptor = os.open(folder / "small", os.O_RDWR | os.O_CREAT)
    try:
        idle = []
        for number in range(IDLE_SAMPLES):
            idle.append(one_fsync(descriptor, number))
            time.sleep(BETWEEN_S)
        started = time.monotonic()
        loaded = []
        with subprocess.Popen([sys.executable, "-c", _STREAM, folder / "stream", str(stream_bytes)]) as stream:
            while stream.poll() is None:
                loaded.append(one_fsync(descriptor, len(loaded)))
                time.sleep(BETWEEN_S)
        assert stream.returncode == 0
        return Latencies(idle), Latencies(loaded), time.monotonic() - started
    finally:
        os.close(descriptor)


def run(scale: float, report: Report) -> None:
    """See the module."""
    stream_bytes = round(STREAM_BYTES * scale)
    with tempfile.TemporaryDirectory(prefix="blocksync-fsync-") as home:
        machines = Machines(Path(home))
        host = machines.folder("host")
        ratios = {}
        for name, folder in {"host": host, "mount": machines.volume("v")}.items():
            idle, loaded, seconds = measure(folder, stream_bytes)
            ratios[name] = loaded.figures["median_ms"] / idle.figures["median_ms"]
            report.record(
                name,
                idle=idle.figures,
                during_stream=loaded.figures,
                ratio_of_medians=round(ratios[name], 2),
                stream_bytes=stream_bytes,
                stream_mb_per_s=round(stream_bytes / seconds / 1e6),
            )
            (folder / "stream").unlink()
        machines.close()
    assert ratios["mount"] <= LIMIT, f"{ratios['mount']:.1f} times the idle latency, on the host {ratios['host']:.1f}"
