"""The sync on loopback: 200 MiB new, unchanged, one block changed, pull; next to rsync and its daemon."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.bench_filesystem import blockfs
from benchmarks.harness import Result, seconds

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
FILE_BYTES = 200 << 20
PAGE = 4096
REPETITIONS = 3
VOLUME, FOLDER, RSYNC = "blocksync, volume", "blocksync, folder", "rsync daemon"
STEPS = (
    "push 200 MiB, new",
    "push, unchanged",
    "push, one block changed",
    "pull 200 MiB, new",
    "pull, one block changed",
)


def run() -> list[Result]:
    """All steps on all subjects, each repetition from nothing."""
    rows = {
        (step, name): Result(work=step, subject=name, unit="s", values=[])
        for step in STEPS
        for name in (VOLUME, FOLDER, RSYNC)
    }
    for repetition in range(REPETITIONS):
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="blocksync-bench-")))
            data = os.urandom(FILE_BYTES)
            for name, measure in ((VOLUME, on_volumes), (FOLDER, on_folders), (RSYNC, with_rsync)):
                scratch = home / name.replace(" ", "-")
                scratch.mkdir()
                for step, (elapsed, notes) in zip(STEPS, measure(scratch, data), strict=True):
                    rows[step, name].values.append(elapsed)
                    rows[step, name].notes.update(notes)
        print(f"sync: repetition {repetition + 1} of {REPETITIONS}", file=sys.stderr)
    return list(rows.values())


Step = tuple[float, dict[str, float]]


def on_volumes(home: Path, data: bytes) -> list[Step]:
    """Two mounted volumes and the server."""
    with ExitStack() as stack:
        for name in ("first", "second"):
            (home / name).mkdir()
        first, second = (stack.enter_context(blockfs(home / name)) for name in ("first", "second"))
        return blocksync_steps(home, first, second, data)


def on_folders(home: Path, data: bytes) -> list[Step]:
    """Two ordinary folders and the server."""
    first, second = home / "first", home / "second"
    first.mkdir()
    second.mkdir()
    return blocksync_steps(home, first, second, data)


def blocksync_steps(home: Path, first: Path, second: Path, data: bytes) -> list[Step]:
    """Push and pull through `blocksync serve`."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}

    def reconcile(root: Path) -> Step:
        command: list[str | Path] = [BLOCKSYNC, "reconcile", root, "--json"]
        started = time.perf_counter()  # the whole command, as for rsync: process start included
        reply = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        elapsed = time.perf_counter() - started
        summary: dict[str, Any] = json.loads(reply.stdout.splitlines()[-1])
        keys = ("bytes_sent", "bytes_received", "blocks_sent", "blocks_received", "requests", "bytes_read_local")
        return elapsed, {key: float(summary[key]) for key in keys}

    with serve(home / "server", environment) as url:
        for root in (first, second):
            command = [str(part) for part in (BLOCKSYNC, "link", root, url, "--token-file", home / "server" / "token")]
            subprocess.run(command, env=environment, check=True, capture_output=True)
        write(first / "image", data)
        pushed, unchanged = reconcile(first), reconcile(first)
        pulled = reconcile(second)
        change_page(first / "image")
        changed = reconcile(first)
        return [pushed, unchanged, changed, pulled, reconcile(second)]


@contextmanager
def serve(directory: Path, environment: dict[str, str], *options: str) -> Iterator[str]:
    """A server on a free port; yields the URL of a container."""
    command = [str(BLOCKSYNC), "serve", str(directory), "--listen", "127.0.0.1:0", *options]
    server = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    ready = next(line for line in server.stdout if "listening on http://" in line)
    try:
        yield f"pithos+http://{ready.split('http://')[1].strip()}/v1/default/bench"
    finally:
        server.terminate()
        server.wait(30)


def with_rsync(home: Path, data: bytes) -> list[Step]:
    """The same through an rsync daemon, with its delta transfer on (it is off by default only for local copies)."""
    first, store, second = home / "first", home / "store", home / "second"
    for folder in (first, store, second):
        folder.mkdir()
    with rsync_daemon(home, store) as url:

        def push() -> Step:
            return transfer(f"{first}/", url)

        def pull() -> Step:
            return transfer(f"{url}/", str(second))

        write(first / "image", data)
        pushed, unchanged, pulled = push(), push(), pull()
        change_page(first / "image")
        return [pushed, unchanged, push(), pulled, pull()]


def transfer(source: str, target: str) -> Step:
    """One rsync run, file contents durable at its end as blocksync's are."""
    reply = ""

    def copy() -> None:
        nonlocal reply
        command = ["rsync", "-a", "--fsync", "--stats", source, target]
        reply = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    elapsed = seconds(copy)
    figures = dict(line.split(": ", 1) for line in reply.splitlines() if ": " in line)
    sent, received = (float(figures[f"Total bytes {way}"].replace(",", "")) for way in ("sent", "received"))
    return elapsed, {"bytes_sent": sent, "bytes_received": received}


@contextmanager
def rsync_daemon(home: Path, store: Path) -> Iterator[str]:
    """An rsync daemon on a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    configuration = home / "rsyncd.conf"
    configuration.write_text(
        f"use chroot = no\nuid = {os.getuid()}\ngid = {os.getgid()}\n[store]\npath = {store}\nread only = no\n"
    )
    command = ["rsync", "--daemon", "--no-detach", f"--port={port}", "--address=127.0.0.1", f"--config={configuration}"]
    daemon = subprocess.Popen(command)
    try:
        while daemon.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield f"rsync://127.0.0.1:{port}/store"
    finally:
        daemon.terminate()
        daemon.wait(30)
        shutil.rmtree(store)


def write(path: Path, data: bytes) -> None:
    """Write a file durably."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def change_page(path: Path) -> None:
    """Overwrite 4 KiB in the middle."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.pwrite(descriptor, os.urandom(PAGE), FILE_BYTES // 2)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
