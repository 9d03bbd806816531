"""A network with a server and machines that are linked to it: the real program, and what its daemons told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.kit.netns import Lan, Node
from tests.kit.program import BLOCKSYNC, Machine, Site

BLOCK: Final = 64 << 10
PATIENCE_S: Final = 1800.0
_LOOK_S: Final = 0.01
_PIECE: Final = 4 << 20


class Office:
    """The network.

    Attributes:
        lan: All nodes; the first is the server's.
        server: The server.
        publisher: A machine that pushes, and is not there when others pull.
    """

    def __init__(self, lan: Lan, *options: str) -> None:
        """Start the server and link the publisher; it has made the share's key."""
        self.lan = lan
        self.server = Site(lan.nodes[0], *options)
        self.publisher = Machine(lan.nodes[1], self.server)
        self.publisher("reconcile", self.publisher.root)

    def fresh(self, node: Node) -> Machine:
        """A machine with an empty root and without a past, in place of the one that was in this node."""
        for each in node.home.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        return Machine(node, self.server)

    def publish(self, **files: int) -> None:
        """Have the server get further files of random bytes, by name and size."""
        for name, size in files.items():
            write(self.publisher.root / name, size)
        self.push()

    def push(self) -> None:
        """Have the server get what the publisher has."""
        self.publisher("reconcile", self.publisher.root)


def write(path: Path, size: int) -> None:
    """A file of random bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        for at in range(0, size, _PIECE):
            file.write(os.urandom(min(_PIECE, size - at)))


@contextmanager
def office(machines: int, *options: str) -> Iterator[Office]:
    """A network with a server, a publisher and nodes for so many machines more; nothing of it is left."""
    with (
        tempfile.TemporaryDirectory(prefix="blocksync-lan-") as home,
        Lan(machines + 2, home=Path(home)) as lan,
    ):
        yield Office(lan, *options)


class Daemon:
    """`blocksync watch` of a machine."""

    def __init__(self, machine: Machine, *options: str) -> None:
        """Start it."""
        self.machine = machine
        self.process = machine.watch(*options)

    def cycles(self) -> list[dict[str, Any]]:
        """What it told of each cycle, the oldest first."""
        lines = self.machine.log.read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]
        return [each for each in told if each["event"] == "watch.cycle"]

    def total(self) -> Counter[str]:
        """The figures of all cycles together."""
        found: Counter[str] = Counter()
        for cycle in self.cycles():
            found.update({key: value for key, value in cycle.items() if isinstance(value, int | float)})
        return found

    def is_alive(self) -> bool:
        """Whether it runs; for messages."""
        return self.process.poll() is None

    def stop(self) -> None:
        """As a user would; it says BYE."""
        self.process.terminate()
        self.process.wait()


def until_pulled(daemons: Sequence[Daemon], files: int) -> list[float]:
    """Wait until each daemon has told of cycles that pulled so many files in all. Returns when, `time.monotonic()`."""
    deadline = time.monotonic() + PATIENCE_S
    done: dict[int, float] = {}
    sizes = [-1] * len(daemons)
    while len(done) < len(daemons):
        for number, daemon in enumerate(daemons):
            size = daemon.machine.log.stat().st_size
            if number not in done and size != sizes[number]:
                sizes[number] = size
                if daemon.total()["pulled"] >= files:
                    done[number] = time.monotonic()
        now = time.monotonic()
        waiting = [daemon for number, daemon in enumerate(daemons) if number not in done]
        assert now < deadline, f"{len(waiting)} nodes did not get everything"
        assert all(daemon.is_alive() for daemon in waiting), waiting[0].machine.log.read_text()[-2000:]
        time.sleep(_LOOK_S)
    return [done[number] for number in range(len(daemons))]


def cpu_s(process: subprocess.Popen[Any]) -> float:
    """Processor time of a process until now, seconds. It was started through nsenter, which has become it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


__all__ = ["BLOCK", "BLOCKSYNC", "Daemon", "Office", "cpu_s", "office", "until_pulled", "write"]
