"""`blocksync watch`: bursts, a few changes among a million files, edit to request, what the resting daemon costs.

The million files are made once per run; the state of a synced root is written for them directly (rows, digests, the
server's cursor), because sending them is not what is measured here.
"""

from __future__ import annotations

import os
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import trio

from benchmarks.bench_sync import BLOCKSYNC
from benchmarks.harness import Result
from blockfs.blocks.blocklist import BlockList
from syncer.cli.registry.roots import LinkedRoot, Registry
from syncer.cli.session.opening import open_local, policy_now
from syncer.core.model import ROOT, BaseRow, FileStat, Kind, Nid, Node, Position, RelPath, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.core.paths import split
from syncer.core.planner.identify import evidence
from syncer.engine.observe import container_identity
from syncer.engine.partial.partial_look import PartialLook, look_at_part
from syncer.engine.root_state import RootState
from syncer.local.folder.scan import scan
from syncer.ports.localvalues import Hints, content_of
from syncer.ports.remote import Changes, Remote
from syncer.remote.pithos.client import open_pithos
from syncer.remote.serials import SERIALS
from syncer.state.statedb import StateDB
from syncer.watch import control
from syncer.watch.inotify_source import InotifySource
from syncer.watch.portable_source import PortableSource
from syncer.watch.source import DirtySource

BURST = 60_000
FILES = int(os.environ.get("BLOCKSYNC_BENCH_FILES", "1000000"))
PER_FOLDER = 100
EDITS = 100
IDLE_S = 60.0
OURS, WATCHDOG = "our inotify reader", "watchdog, filtered"
DAEMON = "blocksync watch"


def run() -> list[Result]:
    """All of it."""
    with tempfile.TemporaryDirectory(prefix="blocksync-bench-") as home:
        results = bursts(Path(home))
        with served(Path(home)) as site:
            results += latency(site)
            results += million(site)
    return results


# --- bursts


def bursts(home: Path) -> list[Result]:
    """New files as fast as they can be made, in 60 folders: are all folders told of?"""
    rows: list[Result] = []
    for name, kind in ((OURS, InotifySource), (WATCHDOG, PortableSource)):
        folder = home / f"burst-{name[:3]}"
        for number in range(60):
            (folder / f"{number}").mkdir(parents=True)
        seen, lost, cpu_s, made_s = trio.run(burst, folder, kind)
        rows += [
            Result(work=f"{BURST} new files: not noticed", subject=name, unit="files", values=[float(lost)]),
            Result(work=f"{BURST} new files: lost events told of", subject=name, unit="times", values=[float(seen)]),
            Result(work=f"{BURST} new files: CPU beside making them", subject=name, unit="s", values=[cpu_s]),
            Result(work=f"{BURST} new files: made in", subject=name, unit="s", values=[made_s]),
        ]
    return rows


async def burst(folder: Path, kind: Callable[[bytes], DirtySource]) -> tuple[int, int, float, float]:
    """Times that everything was dirty; files made after the last dirt of their folder; CPU; time to make them."""
    source = kind(os.fsencode(folder))
    await trio.to_thread.run_sync(source.arm)
    told: dict[bytes, float] = {}
    overflows = 0
    command: list[str | Path] = [sys.executable, "-c", MAKER, folder, str(BURST)]
    began_s, cpu_s = time.perf_counter(), time.process_time()
    made_s = 0.0

    async def listen() -> None:
        nonlocal overflows
        while True:
            await source.wait()
            dirt, now = source.take(), time.time()
            if dirt.everything:
                overflows += 1
                told.update({b"%d" % number: now for number in range(60)})
            told.update(dict.fromkeys((*dirt.directories, *(split(path)[0] for path in dirt.entries)), now))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(listen)
        made = await trio.to_thread.run_sync(lambda: subprocess.check_output(command, text=True))
        made_s = time.perf_counter() - began_s
        await trio.sleep(5.0)  # what is late: the queue's rest, watchdog's moves
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(source.close)
    lost = 0
    for line in made.splitlines():
        number, closed = line.split()
        lost += told.get(number.encode(), 0.0) < float(closed)
    return overflows, lost, time.process_time() - cpu_s, made_s


MAKER = """
import os, sys, time
folder, count = sys.argv[1], int(sys.argv[2])
closed = []
for number in range(count):
    place = str(number % 60)
    descriptor = os.open(f"{folder}/{place}/{number}", os.O_CREAT | os.O_WRONLY)
    closed.append((place, time.time()))
    os.close(descriptor)
for place, when in closed:
    print(place, when)
"""


# --- a site: server, proxy that notes requests, daemon


@dataclass
class Site:
    """A server behind a proxy that notes when which file's request arrived."""

    home: Path
    address: str
    environment: dict[str, str]
    arrived: dict[str, float] = field(default_factory=dict)

    def link(self, root: Path) -> LinkedRoot:
        """Link a new folder."""
        root.mkdir(exist_ok=True)
        url = f"pithos+http://{self.address}/v1/default/{root.name}"
        command: list[str | Path] = [BLOCKSYNC, "link", root, url, "--token-file", self.home / "store" / "token"]
        subprocess.run(command, check=True, env=self.environment, stderr=subprocess.DEVNULL)
        return Registry(self.environment).get(os.fsencode(root))

    @contextmanager
    def daemon(self, root: Path) -> Iterator[subprocess.Popen[bytes]]:
        """Watch one root; yields when it rests for the first time."""
        with (self.home / "watch.log").open("ab") as log:
            process = subprocess.Popen([BLOCKSYNC, "watch", root], env=self.environment, stderr=log)
            try:
                while control.live(self.socket) is None:
                    time.sleep(0.05)
                self.until("idle")
                yield process
            finally:
                process.terminate()
                process.wait()

    @property
    def socket(self) -> str:
        """The daemon's."""
        return Registry(self.environment).socket

    def cycles(self) -> int:
        """How many the daemon's root has run."""
        status = control.live(self.socket)
        assert status is not None
        return status.roots[0].cycles

    def until(self, phase: str, cycles: int = 1) -> dict[str, float]:
        """Wait for the daemon's root; returns the figures of its last cycle."""
        for live in control.follow(self.socket):
            (root,) = live.roots
            if root.phase == phase and root.cycles >= cycles:
                return {key: float(value) for key, value in root.last.items()}
        raise AssertionError("the daemon ended")


@contextmanager
def served(home: Path) -> Iterator[Site]:
    """Server and proxy."""
    environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "XDG_DATA_HOME": str(home / "data")}
    command: list[str | Path] = [BLOCKSYNC, "serve", home / "store", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    line = next(line for line in process.stdout if "listening on" in line)
    with ExitStack() as stack:
        stack.callback(process.wait)
        stack.callback(process.terminate)
        site = Site(home=home, address="", environment=environment)
        site.address = stack.enter_context(noting_proxy(line.strip().rpartition("/")[2], site.arrived))
        yield site


@contextmanager
def noting_proxy(target: str, arrived: dict[str, float]) -> Iterator[str]:
    """Pass bytes on; note the time at which each file was first named by the client."""
    host, _, port = target.partition(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, sink: socket.socket, *, note: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                if note:  # in the line of a PUT, or in the body of a request that carries several files
                    for name in re.findall(rb"(?:file|new)-[0-9]+", data):
                        arrived.setdefault(name.decode(), time.time())
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def accept() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.create_connection((host, int(port)))
            threading.Thread(target=pump, args=(client, server), kwargs={"note": True}, daemon=True).start()
            threading.Thread(target=pump, args=(server, client), kwargs={"note": False}, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


# --- edit to request


def latency(site: Site) -> list[Result]:
    """Single edits at random times, 1 s apart on average: from close(2) to the first byte of the PUT."""
    root = site.home / "edits"
    site.link(root)
    rng = random.Random(1)
    edited: dict[str, float] = {}
    with site.daemon(root):
        for number in range(EDITS):
            time.sleep(rng.expovariate(1.0))
            (root / f"file-{number}").write_bytes(rng.randbytes(5000))
            edited[f"file-{number}"] = time.time()
        while not edited.keys() <= site.arrived.keys():
            time.sleep(0.1)
    waited = sorted(site.arrived[name] - when for name, when in edited.items())
    quantiles = statistics.quantiles(waited, n=100)
    return [
        Result(work=f"{EDITS} edits: until the request leaves, p50", subject=DAEMON, unit="s", values=[quantiles[49]]),
        Result(work=f"{EDITS} edits: until the request leaves, p99", subject=DAEMON, unit="s", values=[quantiles[98]]),
    ]


# --- a million files


def million(site: Site) -> list[Result]:
    """A root of a million unchanged files: start, rest, ten changes."""
    root = site.home / "million"
    linked = site.link(root)
    made = subprocess.run([sys.executable, "-c", FILL, root, str(FILES), str(PER_FOLDER)], check=True)
    assert made.returncode == 0
    trio.run(pretend_synced, linked)
    work = f"{FILES:,} files: "
    rows: list[Result] = []
    with site.daemon(root) as process:
        started = site.until("idle")
        time.sleep(2.0)
        before_s = cpu_s(process.pid)
        time.sleep(IDLE_S)
        idle = (cpu_s(process.pid) - before_s) / IDLE_S * 100
        rows += [
            Result(work=work + "survey at the start, nothing changed", subject=DAEMON, unit="s",
                   values=[started["seconds"]]),
            Result(work=work + "RssAnon at rest", subject=DAEMON, unit="MiB", values=[rss_anon_mib(process.pid)]),
            Result(work=work + "CPU at rest", subject=DAEMON, unit="% of a core", values=[idle]),
        ]  # fmt: skip
        cycles = site.cycles()
        for number in range(10):
            (root / f"{number * 7}" / f"new-{number}").write_bytes(b"%d" % number)
        names = {f"new-{number}" for number in range(10)}
        began = time.time()
        while not names <= site.arrived.keys():
            time.sleep(0.01)
        last = max(site.arrived[name] for name in names)
        site.until("idle", cycles + 1)  # they are in the base, too: the next look finds only its own ten
        rows.append(Result(work=work + "10 new, until the last request leaves", subject=DAEMON, unit="s",
                           values=[last - began]))  # fmt: skip
    found = [trio.run(found_ms, linked, root, repetition) for repetition in range(5)]
    rows.append(Result(work=work + "the same, CPU", subject=DAEMON, unit="ms", values=[cpu for _, cpu in found]))
    rows.append(Result(work=work + "10 changed in 10 folders, found and hashed", subject=DAEMON, unit="ms",
                       values=[wall for wall, _ in found]))  # fmt: skip
    return rows


FILL = """
import os, sys
root, count, per = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(count):
    folder = f"{root}/{number // per}"
    if number % per == 0:
        os.mkdir(folder)
    os.close(os.open(f"{folder}/{number}", os.O_CREAT | os.O_WRONLY))
"""


async def pretend_synced(linked: LinkedRoot) -> None:
    """Write the state that a complete cycle would leave."""
    remote = open_pithos(linked.record.url, linked.secret())
    with StateDB.open(linked.state) as database:
        state = RootState(database)
        local = open_local(linked, policy_now(), state)
        listing = await remote.list_objects()
        state.set_container(container_identity(listing.info, listing.position))
        state.set_cursor(listing.position)
        descriptor = os.open(linked.path, os.O_RDONLY | os.O_DIRECTORY)
        stats = sorted(scan(descriptor).stats, key=lambda stat: stat.path)
        os.close(descriptor)
        fresh = state.fresh()
        numbers: dict[RelPath, Nid] = {RelPath(b""): ROOT}
        rows = []
        for stat in stats:
            rows.append(row_of(stat, numbers, fresh))
            if len(rows) == 50_000:
                state.record(rows)
                rows = []
        state.record(rows)
        await local.concluded(None, (), undone=False)
        await local.close()
    await remote.close()


def row_of(stat: FileStat, numbers: dict[RelPath, Nid], fresh: Callable[[], Nid]) -> BaseRow:
    """A base row as if both sides had this entry."""
    above, name = split(stat.path)
    nid = fresh()
    if stat.kind is Kind.DIRECTORY:
        numbers[stat.path] = nid
    content = content_of(BlockList(block_size=65536, size_bytes=0, ids=b"")) if stat.kind is Kind.FILE else None
    node = Node(parent=numbers[above], name=name, kind=stat.kind, content=content, meta=stat.meta)
    tag = evidence(stat.kind, stat.tag)
    remote = RemoteTag(uuid=f"00000000-0000-4000-8000-{nid:012x}", version=0, etag="", size_bytes=0)
    return BaseRow(nid=nid, node=node, local=tag, remote=remote)  # type: ignore[arg-type] # a local tag


async def found_ms(linked: LinkedRoot, root: Path, repetition: int) -> tuple[float, float]:
    """Wall-clock and CPU time from ten dirty names to what the planner gets, the server's answer left out."""
    places = [repetition * 10 + number for number in range(10)]
    for place in places:
        (root / changed_file(place)).write_bytes(b"changed")
    remote = open_pithos(linked.record.url, linked.secret())
    with StateDB.open(linked.state) as database:
        state = RootState(database)
        local = open_local(linked, policy_now(), state)
        cursor = state.cursor()
        assert cursor is not None
        changes = await remote.changes(cursor)
        assert changes is not None
        names = [RelPath(changed_file(place).encode()) for place in places]
        partial = PartialLook(local=local, state=state, hints=Hints(directories=(), entries=names))
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        part = await look_at_part(partial, cast("Remote", _Answered(changes)), check=lambda _: None)
        elapsed_s, work_s = time.perf_counter() - began_s, time.process_time() - began_cpu_s
        await local.close()
    assert part is not None
    assert sum(1 for stat in part.seen.stats if stat.content is not None and stat.tag.size_bytes == 7) == 10
    await remote.close()
    return elapsed_s * 1000, work_s * 1000


def changed_file(place: int) -> str:
    """The file that is changed in a folder."""
    return f"{place}/{place * PER_FOLDER}"


class _Answered:
    """A server that has answered already: all of `Remote` that a look at a part asks."""

    ages = SERIALS

    def __init__(self, found: Changes) -> None:
        self._found = found

    async def changes(
        self,
        since: Position,
        known: Known | None = None,
        *,
        moves: bool = False,
        brief: bool = False,
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        """See Remote."""
        return self._found


def cpu_s(pid: int) -> float:
    """User and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_anon_mib(pid: int) -> float:
    """RssAnon of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) / 1024  # type: ignore[index] # each kernel since 4.5 has it
