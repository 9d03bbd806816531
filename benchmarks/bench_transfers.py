"""Transfers: connections, many small files on a slow line, changed blocks; next to rsync and rclone."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from benchmarks.bench_filesystem import blockfs
from benchmarks.bench_sync import BLOCKSYNC, rsync_daemon, serve, write
from benchmarks.harness import Result, seconds
from benchmarks.plots import plot
from benchmarks.proxy import slow_line

FOLDER, PLAIN, VOLUME = "blocksync, folder", "blocksync, folder, plain Pithos", "blocksync, volume"
RTT_MS, MBIT_S = 50.0, 100.0
LINE = f"{RTT_MS:g} ms, {MBIT_S:g} Mbit/s"
LAN_RTT_MS = 1.0
LAN = f"{LAN_RTT_MS:g} ms, {MBIT_S:g} Mbit/s"
CONNECTIONS = (1, 2, 4, 8, 16)
BIG_BLOCK = 4 << 20
REPETITIONS = int(os.environ.get("BENCH_REPETITIONS", "3"))


class Devices:
    """Folders linked to a container of a server, each command a process of its own."""

    def __init__(self, home: Path, machine: str = "") -> None:
        self.home = home
        state, data = str(home / f"{machine}state"), str(home / f"{machine}data")
        self.environment = {**os.environ, "XDG_STATE_HOME": state, "XDG_DATA_HOME": data}

    def apart(self) -> Devices:
        """Another machine: nothing of this one's roots is near to it."""
        return Devices(self.home, "apart")

    def link(self, name: str, url: str) -> Path:
        """A new folder."""
        root = self.home / name
        root.mkdir()
        token = self.home / "server" / "token"
        self.run(BLOCKSYNC, "link", root, url, "--token-file", token)
        return root

    def reconcile(self, root: Path, connections: int | None = None) -> dict[str, Any]:
        """One cycle; returns its summary."""
        child: list[str | Path] = [sys.executable, "-m", "benchmarks.connections_child", str(connections), root]
        command = [BLOCKSYNC, "reconcile", root, "--json"] if connections is None else child
        summary: dict[str, Any] = json.loads(self.run(*command).splitlines()[-1])
        return summary

    def run(self, *command: str | Path) -> str:
        """A command that must not fail."""
        done = subprocess.run(
            list(map(str, command)), env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr[-2000:])
        return done.stdout


@contextmanager
def devices(prefix: str) -> Iterator[Devices]:
    """In a folder of their own."""
    with tempfile.TemporaryDirectory(prefix=f"blocksync-{prefix}-") as home:
        yield Devices(Path(home))


@contextmanager
def slowly(url: str, rtt_ms: float = RTT_MS) -> Iterator[str]:
    """The same container at the other end of a slow line."""
    port = int(url.split("127.0.0.1:")[1].split("/", maxsplit=1)[0])
    with slow_line(port, rtt_ms, MBIT_S) as slow:
        yield url.replace(f":{port}/", f":{slow}/")


# --- connections


def connections() -> list[Result]:
    """Push of new data with a fixed number of connections, on loopback and on the slow line."""
    found: list[Result] = []
    for subject, size, line in (("200 MiB, loopback", 200 << 20, False), (f"32 MiB, {LINE}", 32 << 20, True)):
        for count in CONNECTIONS:
            values = []
            for _ in range(REPETITIONS):
                with (
                    devices("connections") as here,
                    serve(here.home / "server", here.environment) as url,
                    slowly(url) if line else _as_is(url) as there,
                ):
                    root = here.link("first", there)
                    write(root / "image", os.urandom(size))
                    values.append(seconds(lambda: here.reconcile(root, count)))  # noqa: B023 - called at once
            found.append(Result(work=f"{count} connections", subject=subject, unit="s", values=values))
    plot("connections", "push of new data", "connections", found)
    return found


@contextmanager
def _as_is(url: str) -> Iterator[str]:
    yield url


# --- small files


def small() -> list[Result]:
    """Push of 10,000 files of 1 KiB over the slow line; pull of them near, into folder and volume, and far."""
    count = int(os.environ.get("BENCH_SMALL_FILES", "10000"))
    push, near, far = (
        f"push {count:,} x 1 KiB, {LINE}",
        f"pull {count:,} x 1 KiB, loopback",
        f"pull {count:,} x 1 KiB, {LINE}",
    )
    rows = {
        (work, subject): Result(work=work, subject=subject, unit="s", values=[])
        for work, subject in ((push, FOLDER), (near, FOLDER), (near, VOLUME), (far, FOLDER), (push, PLAIN))
    }

    def cycle(here: Devices, root: Path, row: Result) -> None:
        row.values.append(seconds(lambda: row.notes.update(_traffic(here.reconcile(root)))))

    others = {"rsync daemon": _rsync_small} | (
        {} if "BENCH_NO_RCLONE" in os.environ else {"rclone, webdav": _rclone_small}
    )
    rows |= {(push, name): Result(work=push, subject=name, unit="s", values=[]) for name in others}
    for repetition in range(REPETITIONS):
        with devices("small") as here, serve(here.home / "server", here.environment) as url, slowly(url) as there:
            root = here.link("first", there)
            _many(root, count)
            cycle(here, root, rows[push, FOLDER])
            cycle(here, here.link("second", url), rows[near, FOLDER])
            with blockfs(here.home) as volume:
                here.run(BLOCKSYNC, "link", volume, url, "--token-file", here.home / "server" / "token")
                cycle(here, volume, rows[near, VOLUME])
        with devices("far") as here, serve(here.home / "server", here.environment) as url, slowly(url) as there:
            root = here.link("first", url)
            _many(root, count)
            here.reconcile(root)
            # A device of its own: it would take the blocks from the first one's root, of what is another URL to it.
            cycle(here.apart(), here.apart().link("third", there), rows[far, FOLDER])
        with devices("plain") as here, plain_pithos(here) as url, slowly(url) as there:
            root = here.link("first", there)
            _many(root, count)
            cycle(here, root, rows[push, PLAIN])
        for name, measure in others.items():
            if repetition and name.startswith("rclone"):
                continue  # five minutes
            with tempfile.TemporaryDirectory(prefix="blocksync-small-") as home:
                rows[push, name].values.append(measure(Path(home), count))
    return list(rows.values())


@contextmanager
def plain_pithos(here: Devices) -> Iterator[str]:
    """A server without any extension: the one of the tests, which behaves as Synnefo's; yields the URL of a container.

    It stands in for a server that is not to be had as a package. It keeps everything in memory, so the client and the
    line are what is measured.
    """
    process = subprocess.Popen([sys.executable, "-c", PLAIN_SERVER], stdin=PIPE, stdout=PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    url, token = process.stdout.readline().split()
    (here.home / "server").mkdir()
    (here.home / "server" / "token").write_text(token)
    try:
        yield url
    finally:
        process.stdin.close()  # which ends it
        process.wait(30)


PLAIN_SERVER = """
import sys
from tests.fakes.pithos import FakePithos
with FakePithos(block_size=4 << 20) as server:
    print(server.url(), server.token, flush=True)
    sys.stdin.read()
"""


def _many(root: Path, count: int) -> None:
    rng = random.Random(count)
    for number in range(count):
        folder = root / f"d{number // 100}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{number}").write_bytes(rng.randbytes(1024))


def _traffic(summary: dict[str, Any]) -> dict[str, float]:
    return {key: float(summary[key]) for key in ("requests", "bytes_sent", "bytes_received", "blocks_received")}


def _rsync_small(home: Path, count: int) -> float:
    source, store = home / "source", home / "store"
    source.mkdir()
    store.mkdir()
    _many(source, count)
    with rsync_daemon(home, store) as url:
        port = int(url.split("127.0.0.1:")[1].split("/", maxsplit=1)[0])
        with slow_line(port, RTT_MS, MBIT_S) as slow:
            target = url.replace(f":{port}/", f":{slow}/")
            return seconds(lambda: _command("rsync", "-a", f"{source}/", target))


def _rclone_small(home: Path, count: int) -> float:
    source = home / "source"
    source.mkdir()
    _many(source, count)
    with rclone_webdav(home / "store") as port, slow_line(port, RTT_MS, MBIT_S) as slow:
        # The same number of transfers at once as our most.
        return seconds(
            lambda: _command("rclone", "copy", "--transfers=16", source, f":webdav,url='http://127.0.0.1:{slow}':")
        )


@contextmanager
def rclone_webdav(store: Path) -> Iterator[int]:
    """rclone as a WebDAV server on a free port."""
    store.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        ["rclone", "serve", "webdav", f"--addr=127.0.0.1:{port}", str(store)], stderr=subprocess.DEVNULL
    )
    try:
        while server.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield port
    finally:
        server.terminate()
        server.wait(30)


# --- changed blocks


def blocks() -> list[Result]:
    """Pull of a file of 10 x 4 MiB after some of its blocks have changed, on loopback and by a slow LAN."""
    found = [*_blocks("", line=False), *_blocks(f", {LAN}", line=True)]
    plot("blocks", "pull of a file of 10 blocks of 4 MiB", "changed blocks", found)
    return found


def _blocks(where: str, *, line: bool) -> list[Result]:
    subjects = (VOLUME, FOLDER)
    values: dict[tuple[int, str], list[float]] = {(changed, name): [] for changed in range(11) for name in subjects}
    notes: dict[tuple[int, str], dict[str, float]] = {}
    options = ("--block-size", "4MiB")
    for _ in range(REPETITIONS):
        with (
            devices("blocks") as here,
            serve(here.home / "server", here.environment, *options) as near,
            slowly(near, LAN_RTT_MS) if line else _as_is(near) as url,
            blockfs(here.home, *options) as volume,
        ):
            first = here.link("first", url)
            here.run(BLOCKSYNC, "link", volume, url, "--token-file", here.home / "server" / "token")
            others = dict(zip(subjects, (volume, here.link("second", url)), strict=True))
            write(first / "file", os.urandom(10 * BIG_BLOCK))
            for root in (first, *others.values()):
                here.reconcile(root)
            for changed in range(11):
                with (first / "file").open("r+b") as file:
                    for index in range(changed):
                        file.seek(index * BIG_BLOCK)
                        file.write(os.urandom(BIG_BLOCK))
                here.reconcile(first)
                for name, root in others.items():
                    summary = here.reconcile(root)
                    values[changed, name].append(summary["seconds"])
                    notes[changed, name] = _traffic(summary)
    return [
        Result(
            work=f"{changed} of 10 blocks of 4 MiB changed, pull",
            subject=name + where,
            unit="s",
            values=each,
            notes=notes[changed, name],
        )
        for (changed, name), each in values.items()
    ]


def _command(*command: str | Path) -> None:
    subprocess.run(list(map(str, command)), check=True, capture_output=True)
