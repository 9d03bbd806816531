"""`make demo`: the main job on real disk images, until three machines have equal bytes; then two neighbours.

    python -m scripts.demo          `make demo`
    UI=1 python -m scripts.demo     keeps it, and a page on it, until Enter: `make demo UI=1`

Leaves no mount, process or file behind, also after Ctrl-C. Prints only what it measured.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import images, neighbours

BLOCKSYNC = Path(sys.executable).with_name("blocksync")
NEEDED_BYTES = 4 << 30
PAGE = 4096
console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)


class DemoError(Exception):
    """A step did not show what it must show."""


class Machines:
    """The volumes, mounts and the server of one run, in one temporary folder; `close` takes all of it away."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.measured: dict[str, float] = {}  # what the README tells; benchmarks/bench_demo.py
        self.server: subprocess.Popen[str] | None = None
        self.daemon: subprocess.Popen[bytes] | None = None
        self.mounts: list[Path] = []
        state = {"XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}
        self.environment = {**os.environ, **state, "BLOCKSYNC_PEERS": "off"}  # nothing leaves this machine

    def blocksync(self, *arguments: str | Path) -> str:
        """Run one blocksync command and return what it prints."""
        command = [BLOCKSYNC, *arguments]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        if result.returncode:
            told = result.stderr.strip()
            raise DemoError(f"blocksync {' '.join(map(str, arguments))}: exit code {result.returncode}: {told}")
        return result.stdout

    def mount(self, name: str) -> Path:
        """Make a volume and mount it."""
        volume, mountpoint = self.home / f"volume-{name}", self.home / f"machine-{name}"
        mountpoint.mkdir()
        self.blocksync("init", volume)
        self.mounts.append(mountpoint)
        self.blocksync("mount", volume, mountpoint)
        return mountpoint

    def serve(self) -> str:
        """Start the server on a free port and return the URL of the demo's container."""
        command: list[str | Path] = [BLOCKSYNC, "serve", self.home / "server", "--listen", "127.0.0.1:0"]
        self.server = subprocess.Popen(
            command,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self.server.stdout is not None
        for line in self.server.stdout:
            if "listening on http://" in line:
                return f"pithos+http://{line.split('http://')[1].strip()}/v1/default/images"
        raise DemoError("the server ended before it was ready")

    def link(self, root: Path, url: str) -> None:
        """Link a folder to the container."""
        self.blocksync("link", root, url, "--token-file", self.home / "server" / "token")

    def reconcile(self, root: Path) -> dict[str, Any]:
        """Reconcile one root and return its summary line."""
        lines = [json.loads(line) for line in self.blocksync("reconcile", root, "--json").splitlines()]
        return next(line for line in reversed(lines) if line["type"] == "summary")

    def statistics(self, mountpoint: Path) -> dict[str, Any]:
        """The volume's figures, with all written data sealed."""
        self.blocksync("flush", mountpoint)
        statistics: dict[str, Any] = json.loads(self.blocksync("stats", mountpoint, "--json"))
        return statistics

    def watch(self) -> str:
        """Start the daemon, and return a link to its page."""
        command: list[str | Path] = [BLOCKSYNC, "watch"]
        self.daemon = subprocess.Popen(command, env=self.environment, stderr=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + 60
        while not (self.home / "state/blocksync/watch.sock").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.blocksync("ui", "--listen", "127.0.0.1:0").strip()

    def close(self) -> None:
        """Unmount, stop, delete: whatever state the run is in."""
        if self.daemon is not None:
            self.daemon.terminate()
            self.daemon.wait()
        for mountpoint in self.mounts:
            if os.path.ismount(mountpoint):
                result = subprocess.run(
                    [BLOCKSYNC, "umount", mountpoint], env=self.environment, capture_output=True, check=False
                )
                if result.returncode:
                    subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False)
        if self.server is not None:
            self.server.terminate()
            try:
                self.server.wait(10)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()
        shutil.rmtree(self.home)


def say(line: str) -> None:
    """Print one or a few lines as they are."""
    console.print(line, markup=False)


def mib(count: int) -> str:
    """A number of bytes for people."""
    return f"{count / (1 << 20):,.1f} MiB"


def volume_table() -> Table:
    """The table of what the volume holds after each step."""
    table = Table(title="The volume, live", title_justify="left")
    for heading in ("after", "files", "logical", "unique", "stored", "dedup"):
        table.add_column(heading, justify="left" if heading == "after" else "right")
    return table


def add_statistics(table: Table, label: str, statistics: dict[str, Any]) -> None:
    """One row of the volume table."""
    sizes = (mib(statistics[key]) for key in ("logical_bytes", "unique_bytes", "stored_bytes"))
    table.add_row(label, str(statistics["files"]), *sizes, f"{statistics['dedup_ratio']:.2f}")


def add_summary(table: Table, label: str, summary: dict[str, Any]) -> None:
    """One row of the reconcile table."""
    table.add_row(
        label,
        f"{summary['bytes_sent']:,}",
        f"{summary['blocks_sent']:,}",
        f"{summary['bytes_received']:,}",
        f"{summary['blocks_received']:,}",
        f"{summary['bytes_read_local']:,}",
        f"{summary['seconds']:.2f}",
    )


def digests(root: Path) -> dict[str, str]:
    """SHA-256 of every file of a folder, read through the file system."""
    found = {}
    for path in sorted(root.iterdir()):
        if path.name != ".blocksync":
            with path.open("rb") as file:
                found[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def compare(roots: list[Path]) -> None:
    """All roots must hold the same names with the same bytes."""
    first, *others = [digests(root) for root in roots]
    for root, other in zip(roots[1:], others, strict=True):
        if other != first:
            raise DemoError(f"{root} differs from {roots[0]}: {sorted(set(first.items()) ^ set(other.items()))}")
    console.print(f"compared: {len(first)} files are byte-identical on {len(roots)} machines")


def expect(condition: bool, text: str) -> None:
    """Stop the demo when a promise does not hold."""
    if not condition:
        raise DemoError(f"not as promised: {text}")


def change_one_page(image: Path) -> None:
    """Overwrite 4 KiB in the middle of an image, as a guest's database would."""
    descriptor = os.open(image, os.O_RDWR)
    try:
        os.pwrite(descriptor, os.urandom(PAGE), 100 * 1024 * 1024)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def fill(machines: Machines) -> Path:
    """Images into a mounted volume: copied, cloned, edited in place."""
    console.print("building three related 512 MiB disk images from this machine's files …")
    family = machines.home / "images"
    family.mkdir()
    built = images.build_family(family)
    mountpoint = machines.mount("a")
    table = volume_table()
    for image in built:
        images.copy_sparse(image, mountpoint / image.name)
        add_statistics(table, f"copy {image.name}", machines.statistics(mountpoint))
    started = time.perf_counter()
    machines.blocksync("clone", mountpoint / "web.img", mountpoint / "web-clone.img")
    seconds = time.perf_counter() - started
    add_statistics(table, f"clone web.img ({seconds:.2f} s)", machines.statistics(mountpoint))
    images.edit_in_place(mountpoint / "web-clone.img", machines.home)
    statistics = machines.statistics(mountpoint)
    add_statistics(table, "edit the clone in place", statistics)
    machines.measured |= {"images": float(statistics["files"]), "stored_bytes": float(statistics["stored_bytes"])}
    console.print(table)
    shutil.rmtree(family)
    return mountpoint


def synchronise(machines: Machines, first: Path) -> None:
    """Up to the server, down to a second volume and to an ordinary folder; then one page, a rename and a clone."""
    url = machines.serve()
    second, folder = machines.mount("b"), machines.home / "machine-c"
    folder.mkdir()
    roots = [first, second, folder]
    table = Table(title="reconcile", title_justify="left")
    for heading in ("step", "bytes sent", "blocks", "received", "blocks", "read here", "seconds"):
        table.add_column(heading, justify="left" if heading == "step" else "right")
    for root in roots:
        machines.link(root, url)
    names = {first: "a, volume", second: "b, volume", folder: "c, folder"}

    def everywhere(label: str) -> list[dict[str, Any]]:
        summaries = [machines.reconcile(root) for root in roots]
        for root, summary in zip(roots, summaries, strict=True):
            add_summary(table, f"{label}: {names[root]}", summary)
        return summaries

    pushed, *_ = everywhere("all")
    machines.measured |= told("push", pushed, "blocks_sent", "bytes_sent", "seconds")
    compare(roots)
    change_one_page(first / "golden.img")
    up, down, plain = everywhere("one 4 KiB page")
    compare(roots)
    expect(up["blocks_sent"] <= 1, f"one page sends at most one block, not {up['blocks_sent']}")
    expect(up["bytes_read_local"] < 1 << 20, f"one page reads under 1 MiB locally, not {up['bytes_read_local']:,}")
    expect(down["blocks_received"] <= 1, f"one page is one block down, not {down['blocks_received']}")
    expect(plain["blocks_received"] <= 1, f"one page is one block down, not {plain['blocks_received']}")
    machines.measured |= told("page", up, "blocks_sent", "bytes_read_local", "seconds")
    machines.measured |= told("page", down, "blocks_received")
    (first / "web-day2.img").rename(first / "web-tuesday.img")
    machines.blocksync("clone", first / "golden.img", first / "golden-2.img")
    moved = everywhere("rename and clone")
    machines.measured["move_blocks"] = float(sum(one["blocks_sent"] + one["blocks_received"] for one in moved))
    for summary in moved:
        expect(summary["blocks_sent"] == summary["blocks_received"] == 0, "rename and clone move no blocks")
    compare(roots)
    console.print(table)


def told(step: str, summary: dict[str, Any], *keys: str) -> dict[str, float]:
    """Some figures of a summary, under names of their own."""
    return {f"{step}_{key}": float(summary[key]) for key in keys}


def keep_open(machines: Machines) -> None:
    """Let somebody look at it."""
    say("\nlook at it in a browser:")
    console.print(machines.watch(), markup=False, soft_wrap=True)  # a link in two lines is none
    if sys.stdin.isatty():
        say(f"and at the files in {machines.home}; Enter takes all of it away")
        sys.stdin.readline()
    else:
        say(f"and at the files in {machines.home}; SIGTERM takes all of it away")
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def take_away(machines: Machines) -> None:
    """End and remove all of it, whoever asks a second time meanwhile (make and timeout(1) both tell us)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # not SIG_IGN, which what we start would have as well
    machines.close()


def main(measured: dict[str, float] | None = None) -> int:
    """Run the demo; 0 when every promise held.

    Args:
        measured: Takes the figures that the README tells.
    """
    free = shutil.disk_usage(tempfile.gettempdir()).free
    if free < NEEDED_BYTES:
        reason = f"demo: {tempfile.gettempdir()} has {mib(free)} free, {mib(NEEDED_BYTES)} are needed; set TMPDIR"
        console.print(reason, soft_wrap=True)
        return 17
    started = time.perf_counter()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # clean up after `kill`, too
    try:
        with ExitStack() as stack:
            machines = Machines(Path(tempfile.mkdtemp(prefix="blocksync-demo-")))
            stack.callback(take_away, machines)
            synchronise(machines, fill(machines))
            shown = neighbours.show(machines.home / "lan", machines.home / "machine-c" / "golden.img", say)
            if measured is not None:
                measured.update(machines.measured | shown)
            if os.environ.get("UI", "0") not in {"", "0"}:
                keep_open(machines)
            else:
                say("look at it in a browser: `make demo UI=1` does the same once more, and keeps it open")
    except KeyboardInterrupt:
        console.print("demo: interrupted; everything was taken away")
        return 130
    except (DemoError, neighbours.NotAsPromisedError, RuntimeError, AssertionError) as error:
        console.print(f"demo: failed: {error}", markup=False)
        return 1
    console.print(f"demo: ok ({time.perf_counter() - started:.0f} s)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
