"""Half an hour of mixed load on a mount of each front-end and mode, side by side.

Memory, descriptors, threads, databases and the host's space must not keep growing; what is deleted in the end is gone
from the host.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import lmdb
import msgspec

from blockfs.control.client import ControlClient
from blockfs.control.protocol import Applied, CursorMsg, Expect, InstallFile, NodeRow
from blockfs.tree.schema import Table
from tests.kit.hostfs import mounted_file
from tests.soak.report import Report
from tests.system.machines import Machines

MINUTES: Final = 32
DURATION_S: Final = 30 * 60
SAMPLES: Final = 180
PROJECT: Final = Path(__file__).parents[2]
HOST_BYTES: Final = 16 << 30
"""Of the native mount's XFS, in a sparse file."""
WAYS: Final = {
    "pyfuse3": ("--frontend", "pyfuse3"),
    "kernel": ("--frontend", "kernel", "--no-native"),
    "native": ("--frontend", "kernel", "--native"),
}
"""Options of each mount."""
LEFT_BYTES: Final = 16 << 20
"""What the segments of a volume may take when all that was in it is deleted and collected."""


class Tolerance(msgspec.Struct, frozen=True):
    """What counts as no growth over the second half, see `growth`.

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
    "hot_bytes": Tolerance(64 << 20, 0.2),
    "log_bytes": Tolerance(64 << 10, 0.0),
}


def sample(pid: int, volume: Path) -> dict[str, int]:
    """All figures of now."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return {
        "rss_anon_bytes": int(status["RssAnon"].split()[0]) << 10,
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "threads": int(status["Threads"]),
        "tree_bytes": (volume / "tree" / "data.mdb").stat().st_size - journal_bytes(volume / "tree"),
        "index_bytes": (volume / "blocks" / "index" / "data.mdb").stat().st_size,
        "staging_bytes": allocated(volume / "staging"),
        "segment_bytes": allocated(volume / "blocks" / "segments"),
        "hot_bytes": allocated(volume / "hot"),
        "log_bytes": (volume / "mount.log").stat().st_size,
    }


def allocated(folder: Path) -> int:
    """Bytes that the files of a folder take on the host; 0 if there is none."""
    total = 0
    if not folder.exists():
        return total
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # sealed or collected in between
    return total


def journal_bytes(tree: Path) -> int:
    """What the tree's journal takes of its file, which it may: a row for each inode there ever was, up to a million."""
    with lmdb.open(str(tree), readonly=True, max_dbs=len(Table)) as environment, environment.begin() as transaction:
        journal = environment.open_db(Table.JOURNAL.name.lower().encode(), txn=transaction, create=False)
        found = transaction.stat(journal)
    return int(found["psize"] * (found["branch_pages"] + found["leaf_pages"] + found["overflow_pages"]))


WINDOW: Final = 9
"""Samples of which the least counts, a minute and a half: a load goes up and down, and comes back to where it was."""


def growth(values: list[int]) -> float:
    """How much a figure grew over the second half: by the line of least squares through the least of each window.

    What leaks raises these, too; what is only in use for a while does not.
    """
    half = values[len(values) // 2 :]
    least = [min(half[at : at + WINDOW]) for at in range(0, len(half), WINDOW)]
    return statistics.linear_regression(range(len(least)), least).slope * (len(least) - 1)


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


class Watched:
    """One mount under load: what is sampled of it, and what it must be in the end."""

    def __init__(self, way: str, machines: Machines, report: Report) -> None:
        self.way = way
        self.machines = machines
        self.report = report
        self.mount = machines.remount("v", *WAYS[way])
        self.volume = machines.home / "volume-v"
        self.pid = machines.mount_pid("v")
        self.values: dict[str, list[int]] = {name: [] for name in TOLERANCES}
        told = json.loads(machines.run("stats", self.mount, "--json").stdout)
        assert (told["frontend"], told["mode"]) == (
            "pyfuse3" if way == "pyfuse3" else "kernel",
            "native" if way == "native" else "writeback",
        ), told

    def watch(self, duration_s: float) -> None:
        """Run the load and sample; then everything must be sound."""
        for name in ("load", "applied"):
            (self.mount / name).mkdir()
        logs = self.machines.folder("logs")
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "tests.crash.load",
            self.mount,
            self.volume,
            self.mount / "load",
            logs,
            "0",
            "1",
        ]
        syncer = Syncer(self.volume, self.mount / "applied")
        with subprocess.Popen(command, cwd=PROJECT) as load:
            syncer.start()
            try:
                for number in range(SAMPLES):
                    time.sleep(duration_s / SAMPLES)
                    assert load.poll() is None, "the load has ended"
                    assert syncer.is_alive(), "the syncer has ended"
                    self._sample(is_told=number % 15 == 0)
            finally:
                load.terminate()
                syncer.ending.set()
                syncer.join()
        unexpected = {
            path.name: found.splitlines()[-3:]
            for path in logs.iterdir()
            if '["unexpected"' in (found := path.read_text())
        }
        assert not unexpected, f"{self.way}: workers failed: {unexpected}"
        self.report.record(f"{self.way}: load", syncer_cycles=syncer.cycles, files_installed=syncer.installed)
        self._end()

    def _sample(self, *, is_told: bool) -> None:
        figures = sample(self.pid, self.volume)
        for name, figure in figures.items():
            self.values[name].append(figure)
        if is_told:
            told = ", ".join(f"{name} {figure:,}" for name, figure in figures.items())
            self.report.progress(f"{self.way}: {told}")

    def _end(self) -> None:
        self.machines.run("umount", self.mount, "--seal")
        self.machines.run("fsck", self.volume)
        self.machines.run("scrub", self.volume)
        self.machines.remount("v", *WAYS[self.way])
        for name in ("load", "applied"):
            shutil.rmtree(self.mount / name)
        with ControlClient(os.fsencode(self.volume)) as client:
            for each in client.snapshots():  # the load may have ended between making one and deleting it
                client.delete_snapshot(each.name)
        process = os.pidfd_open(self.machines.mount_pid("v"))
        self.machines.run("umount", self.mount, "--seal")
        select.select([process], [], [])  # until it ends, the host's filesystem is busy
        os.close(process)
        self.machines.run("gc", self.volume)
        left = {name: allocated(self.volume / name) for name in ("blocks/segments", "staging", "hot")}
        self.report.record(f"{self.way}: all deleted", **left)
        assert sum(left.values()) <= LEFT_BYTES, f"{self.way}: deleted, and still there: {left}"

    def growing(self) -> list[str]:
        """What grew more than it may."""
        found = []
        for name, tolerance in TOLERANCES.items():
            values = self.values[name]
            grown = growth(values)
            mean = statistics.mean(values[SAMPLES // 2 :])
            allowed = max(tolerance.absolute, tolerance.share * mean)
            self.report.record(
                f"{self.way}: {name}",
                first=values[0],
                last=values[-1],
                second_half_mean=round(mean),
                growth_over_second_half=round(grown),
                allowed=round(allowed),
                every_tenth=values[::10],
            )
            if grown > allowed:
                found.append(f"{self.way}: {name} grew by {grown:,.0f} over the second half, more than {allowed:,.0f}")
        return found


@contextmanager
def watched(way: str, home: Path, report: Report) -> Iterator[Watched]:
    """A mount of a new volume: a native one on an XFS of its own."""
    home.mkdir()
    with ExitStack() as stack:
        if way == "native":
            home = stack.enter_context(mounted_file(home, HOST_BYTES, "mkfs.xfs", "-q")) / "home"
            home.mkdir()
        machines = Machines(home)
        stack.callback(machines.close)
        machines.run("init", home / "volume-v")
        machines.folder("v")
        yield Watched(way, machines, report)


def run(scale: float, report: Report) -> None:
    """See the module."""
    with tempfile.TemporaryDirectory(prefix="blocksync-growth-") as home, ExitStack() as stack:
        mounts = [stack.enter_context(watched(way, Path(home, way), report)) for way in WAYS]
        with ThreadPoolExecutor(len(mounts)) as threads:
            ended = [threads.submit(each.watch, DURATION_S * scale) for each in mounts]
    failed = [str(failure) for each in ended if (failure := each.exception()) is not None]
    growing = [line for each in mounts if len(each.values["tree_bytes"]) == SAMPLES for line in each.growing()]
    assert not failed + growing, failed + growing
