"""What the page costs beside a sync, and how soon it is there: `python -m benchmarks page [--quick]`, with Chromium.

A root of many small files is synced while a browser looks at the page. The page's process is asked by /proc: processor
time as a share of one core, memory as its part of what is in RAM (PSS). Pages that have much to show are those of
`page_of_many`. With `--quick` there is a little of everything, to see that it works.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from playwright.sync_api import expect

from benchmarks import page_of_many
from benchmarks.harness import Result
from benchmarks.plots import limits
from scripts.screens import Scene
from tests.kit.chromium import Visit, chromium, visit

FILES = int(os.environ.get("BENCH_PAGE_FILES", "100000"))
QUICK_FILES = 10_000
ROUNDS = int(os.environ.get("BENCH_REPETITIONS", "3"))
PAINTS = 7
_TICKS = os.sysconf("SC_CLK_TCK")
_REST_S = 10.0
_LOOK_S = 0.05  # between looks at its memory: what it reads of a state is mapped for that long


ALLOWED = {"first paint": 0.3, "processor": 2.0, "memory": 30.0, "from click to picture": 1.0}
"""By what a row's name begins with; others may take what they take."""


def run(*, is_quick: bool = False) -> list[Result]:
    """All rows; with their plot, unless it is quick."""
    files, rounds_of_it = (QUICK_FILES, 1) if is_quick else (FILES, ROUNDS)
    rounds = [_run(files) for _ in range(rounds_of_it)]
    found = [
        Result(
            work=rows[0].work,
            subject="page",
            unit=rows[0].unit,
            values=[value for row in rows for value in row.values],
            notes=rows[-1].notes,
        )
        for rows in zip(*rounds, strict=True)
    ]
    found += page_of_many.run(page_of_many.QUICK if is_quick else page_of_many.Many())
    if not is_quick:
        draw(found)
    return found


def draw(found: list[Result]) -> None:
    """Their plot."""
    limits("page", "What the page takes", [row for row in found if _allowed(row)], _allowed)


def _allowed(row: Result) -> float:
    """What it may take, in its unit; 0: nothing is said."""
    return next((most for begin, most in ALLOWED.items() if row.work.startswith(begin)), 0.0)


def _run(files: int) -> list[Result]:
    home = Path(tempfile.mkdtemp(prefix="blocksync-page-"))
    scene = Scene(home)
    try:
        with scene.running("serve", home / "server", "--listen", "127.0.0.1:0") as server:
            assert server.stdout is not None
            address = next(line for line in server.stdout if "listening on" in line).split()[-1]
            root = home / "many"
            root.mkdir()
            url = f"pithos+{address}/v1/default/many"
            scene("link", root, url, "--token-file", home / "server/token")
            with scene.running("watch") as daemon, chromium() as browser:
                scene.until(root, "idle")
                with visit(browser, scene.link()) as seen:
                    return _measure(seen, scene, root, page_of(daemon.pid), files)
    finally:
        shutil.rmtree(home)


def _measure(seen: Visit, scene: Scene, root: Path, pid: int, files: int) -> list[Result]:
    paints = [_paint_s(seen) for _ in range(PAINTS)]
    scene("pause", root)
    _fill(root, files)  # while it's paused: what is there at once is one cycle
    scene("resume", root)
    expect(seen.page.get_by_text("Syncing", exact=True)).to_be_visible()
    began_s, used_s, most_bytes = time.monotonic(), used(pid), 0
    while seen.page.get_by_text("Syncing", exact=True).count():
        most_bytes = max(most_bytes, memory(pid))
        time.sleep(_LOOK_S)
    busy_s = time.monotonic() - began_s
    busy = 100 * (used(pid) - used_s) / busy_s
    expect(seen.page.get_by_text("In step", exact=True)).to_be_visible()
    used_s = used(pid)
    time.sleep(_REST_S)
    rest = 100 * (used(pid) - used_s) / _REST_S
    about = f"beside a sync of {files:,} files"
    return [
        Result(work="first paint", subject="page", unit="s", values=paints),
        Result(
            work=f"processor, {about}", subject="page", unit="% of a core", values=[busy], notes={"seconds": busy_s}
        ),
        Result(work=f"memory (PSS), {about}", subject="page", unit="MB", values=[most_bytes / 1e6]),
        Result(work="processor, when all is in step", subject="page", unit="% of a core", values=[rest]),
    ]


def _paint_s(seen: Visit) -> float:
    seen.go("/")
    return float(seen.page.evaluate(page_of_many.PAINTED)) / 1000


def _fill(root: Path, files: int) -> None:
    """Files of a few bytes, a thousand in a folder."""
    for folder in range(files // 1000):
        (root / f"{folder}").mkdir()
        for number in range(1000):
            (root / f"{folder}/{number}").write_bytes(b"%d %d" % (folder, number))


def page_of(daemon: int) -> int:
    """The page's process."""
    children = Path(f"/proc/{daemon}/task").glob("*/children")
    for pid in (int(each) for path in children for each in path.read_text().split()):
        if b"syncer.cli.ui.child" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return pid
    raise RuntimeError("the daemon has no page")


def used(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory(pid: int) -> int:
    """Bytes in RAM; of pages that it shares with others its part."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
