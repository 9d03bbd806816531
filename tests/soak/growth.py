"""Half an hour of mixed load: memory, descriptors, threads and databases of the mount must not keep growing."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from blockfs.control.client import ControlClient
from blockfs.control.protocol import Applied, CursorMsg, Expect, InstallFile, NodeRow
from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES: Final = 31
DURATION_S: Final = 30 * 60
SAMPLES: Final = 180
PROJECT: Final = Path(__file__).parents[2]


class Tolerance(msgspec.Struct, frozen=True):
    """What counts as no growth: by the line of least squares through the second half of the samples, over its length.

    Attributes:
        absolute: In the figure's unit.
        share: Of the figure's mean; the larger of the two counts.
    """

    absolute: float
    share: float


TOLERANCES: Final = {
    "rss_anon_bytes": Tolerance(4 << 20, 0.05),
    "descriptors": Tolerance(5, 0.05),
    "threads": Tolerance(2, 0.0),
    "tree_bytes": Tolerance(2 << 20, 0.05),
    "index_bytes": Tolerance(2 << 20, 0.05),
    # These two go up and down by themselves: what is staged waits for a flush, what is dead for a collection.
    "staging_bytes": Tolerance(64 << 20, 0.2),
    "segment_bytes": Tolerance(64 << 20, 0.2),
    "log_bytes": Tolerance(64 << 10, 0.0),
}


def sample(pid: int, volume: Path) -> dict[str, int]:
    """All figures of now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "rss_anon_bytes": int(status["RssAnon"].split()[0]) << 10,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "tree_bytes": (volume / "tree" / "data.mdb").stat().st_size,
        "index_bytes": (volume / "blocks" / "index" / "data.mdb").stat().st_size,
        "staging_bytes": allocated(volume / "staging"),
        "segment_bytes": allocated(volume / "blocks" / "segments"),
        "log_bytes": (volume / "mount.log").stat().st_size,
    }


def allocated(folder: Path) -> int:
    """Bytes that the files of a folder take on the host."""
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # sealed or collected in between
    return total


JOURNAL_ROW_BYTES: Final = 64
"""In the tree, for each change, until there are a million (blockfs.tree.journal): by them the tree grows all along."""


def growth(values: list[int]) -> float:
    """How much a figure grew over the second half, by the line of least squares through it."""
    half = values[len(values) // 2 :]
    return statistics.linear_regression(range(len(half)), half).slope * (len(half) - 1)


class Syncer(threading.Thread):
    """Asks and applies what a syncer does, again and again: changes, hashes, block lists, conditional installs."""

    def __init__(self, volume: Path, applied: Path) -> None:
        super().__init__()
        self.volume = volume
        self.applied = applied
        self.noise = random.Random(3)
        self.ending = threading.Event()
        self.cursor: CursorMsg | None = None
        self.cycles = 0
        self.installed = 0

    def run(self) -> None:
        while not self.ending.wait(0.5):
            with ControlClient(os.fsencode(self.volume)) as client:
                self.cycle(client)
            self.cycles += 1

    def cycle(self, client: ControlClient) -> None:
        _, rows, _, self.cursor = client.changes(self.cursor)
        files = [row for row in rows if row.kind == "file" and not row.writers]
        hashes = client.hashes([(row.ino, row.content_version) for row in files])
        sealed = [row for row, found in zip(files, hashes, strict=True) if found is not None and row.size_bytes]
        if sealed:
            self.install(client, self.noise.choice(sealed))

    def install(self, client: ControlClient, source: NodeRow) -> None:
        """A new file of the same blocks, at a place of its own: as if it had been received."""
        blocks = client.block_list(source.ino, source.content_version, client.status().block_size)
        if blocks is None:
            return  # it changed meanwhile
        handle = client.prepare_file(size_bytes=source.size_bytes, mode=0o600, uid=0, gid=0, mtime_ns=0)
        assert handle is not None
        if client.set_blocks(handle, 0, blocks.ids):
            client.abandon_file(handle)  # collected meanwhile: a syncer would have pinned them
            return
        self.installed += 1
        parent = self.applied.stat().st_ino
        place = InstallFile(handle=handle, parent=parent, name=b"%d" % self.installed, expect=Expect(ino=None))
        assert isinstance(client.apply(place), Applied)
        if self.installed > 20:
            (self.applied / f"{self.installed - 20}").unlink()


def watch(machines: Machines, duration_s: float, report: Report) -> dict[str, list[int]]:
    """Run the load and sample; then everything must be sound."""
    mount = machines.volume("v")
    volume = machines.home / "volume-v"
    for name in ("load", "applied"):
        (mount / name).mkdir()
    pid = machines.mount_pid("v")
    logs = machines.folder("logs")
    command = [sys.executable, "-m", "tests.crash.load", mount, volume, mount / "load", logs, "0", "1"]
    syncer = Syncer(volume, mount / "applied")
    values: dict[str, list[int]] = {name: [] for name in (*TOLERANCES, "changes")}
    with subprocess.Popen(command, cwd=PROJECT, start_new_session=True) as load:
        syncer.start()
        try:
            for number in range(SAMPLES):
                time.sleep(duration_s / SAMPLES)
                assert load.poll() is None, "the load has ended"
                assert syncer.is_alive(), "the syncer has ended"
                figures = sample(pid, volume)
                figures["changes"] = syncer.cursor.sequence if syncer.cursor is not None else 0
                for name, figure in figures.items():
                    values[name].append(figure)
                if number % 15 == 0:
                    report.progress(", ".join(f"{name} {figure:,}" for name, figure in figures.items()))
        finally:
            os.killpg(load.pid, signal.SIGTERM)
            syncer.ending.set()
            syncer.join()
    unexpected = [path.name for path in logs.iterdir() if "unexpected" in path.read_text()]
    assert not unexpected, f"workers failed: {unexpected}"
    report.record("load", syncer_cycles=syncer.cycles, files_installed=syncer.installed)
    machines.run("umount", mount, "--seal")
    machines.run("fsck", volume)
    machines.run("scrub", volume)
    return values


def run(scale: float, report: Report) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory(prefix="blocksync-growth-") as home:
        machines = Machines(Path(home))
        values = watch(machines, DURATION_S * scale, report)
        machines.close()
    growing = []
    for name, tolerance in TOLERANCES.items():
        grown = growth(values[name])
        if name == "tree_bytes":
            grown -= growth(values["changes"]) * JOURNAL_ROW_BYTES
        mean = statistics.mean(values[name][SAMPLES // 2 :])
        allowed = max(tolerance.absolute, tolerance.share * mean)
        report.record(
            name,
            first=values[name][0],
            last=values[name][-1],
            second_half_mean=round(mean),
            growth_over_second_half=round(grown),
            allowed=round(allowed),
            every_tenth=values[name][::10],
        )
        if grown > allowed:
            growing.append(f"{name} grew by {grown:,.0f} over the second half, more than {allowed:,.0f}")
    assert not growing, growing
