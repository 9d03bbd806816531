"""Many files: a rescan of a million unchanged ones, and the rename of a folder with a hundred thousand."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.bench_sync import serve
from benchmarks.bench_transfers import FOLDER, devices
from benchmarks.harness import Result, seconds

FILES = int(os.environ.get("BENCH_FILES", "1000000"))
RENAMED = int(os.environ.get("BENCH_RENAMED_FILES", "100000"))
PER_FOLDER = 100
REPETITIONS = 5


def rescan() -> list[Result]:
    """A whole cycle of an ordinary folder in which nothing changed, on a server on which nothing changed."""
    with tempfile.TemporaryDirectory(prefix="blocksync-rescan-") as home:
        root, state = Path(home, "root"), Path(home, "state")
        make_files(root, FILES)
        child("prepare", root, state)
        warm = [child("cycle", root, state) for _ in range(REPETITIONS)]
        cold = []
        if os.geteuid() == 0:
            for _ in range(3):
                subprocess.run(["sync"], check=True)
                Path("/proc/sys/vm/drop_caches").write_text("3")
                cold.append(child("cycle", root, state))
    found = []
    for name, runs in (("warm", warm), ("cold", cold)):
        if runs:
            notes = {key: max(run[key] for run in runs) for key in ("cpu_s", "rss_anon_bytes", "second_rss_bytes")}
            work = f"rescan of {FILES:,} unchanged files, {name}"
            found.append(
                Result(work=work, subject=FOLDER, unit="s", values=[run["seconds"] for run in runs], notes=notes)
            )
    return found


def make_files(root: Path, count: int) -> None:
    """Small files, a hundred in each folder."""
    for number in range(count // PER_FOLDER):
        folder = root / f"a{number % 100}" / f"d{number}"
        folder.mkdir(parents=True)
        descriptor = os.open(folder, os.O_RDONLY)
        for file in range(PER_FOLDER):
            made = os.open(f"f{file}.txt", os.O_CREAT | os.O_WRONLY, 0o644, dir_fd=descriptor)
            os.write(made, b"%d %d\n" % (number, file))
            os.close(made)
        os.close(descriptor)


def child(what: str, root: Path, state: Path) -> dict[str, float]:
    """Run `rescan_child` in a process of its own: its memory is measured, too."""
    command = [sys.executable, "-m", "benchmarks.rescan_child", what, str(root), str(state)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(out) if out else {}
    return result


def rename() -> list[Result]:
    """A folder with many files gets another name: the cycle that tells the server, and the one that follows it."""
    found = []
    with devices("rename") as here, serve(here.home / "server", here.environment) as url:
        first, second = here.link("first", url), here.link("second", url)
        make_files(first / "folder", RENAMED)
        shutil.copytree(first / "folder", second / "folder")  # adopted as it is: pulling it is not what is measured
        for root in (first, second, first, second):
            here.reconcile(root)
        (first / "folder").rename(first / "renamed")
        for root, what in ((first, "told to the server"), (second, "followed")):
            summary: dict[str, Any] = {}
            elapsed = seconds(lambda: summary.update(here.reconcile(root)))  # noqa: B023 - called at once
            keys = ("moved", "requests", "bytes_sent", "bytes_received", "blocks_sent", "blocks_received", "pulled")
            notes = {key: float(summary[key]) for key in keys}
            work = f"rename of a folder with {RENAMED:,} files, {what}"
            found.append(Result(work=work, subject=FOLDER, unit="s", values=[elapsed], notes=notes))
    return found
