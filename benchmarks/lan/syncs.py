"""Syncs of one machine with the real program: nobody there, one neighbour that has all, a slow neighbour."""

from __future__ import annotations

import json
import signal
import statistics
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final

from benchmarks.lan.office import BLOCK, BLOCKSYNC, Daemon, Office, office, until_pulled, write
from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times
from tests.kit.program import Machine, is_there

_FILE: Final = 1 * MIB
_FIRST_SHARE: Final = 32  # docs/design/board.md, section 3: the server's first window
_FIRST_BYTES: Final = 4 * MIB
_SLOW_PEER_MBIT_S: Final = 10.0
_FAST_SERVER_MBIT_S: Final = 1000.0


def nobody(sizes: Sizes) -> list[Row]:
    """What looking for peers costs where there are none: two daemons, one of which does not; one at a time works."""
    passes: dict[str, list[float]] = {"on": [], "off": []}
    pulls: dict[float | None, dict[str, list[float]]] = {
        mbit_s: {"on": [], "off": []} for mbit_s in (None, _FAST_SERVER_MBIT_S)
    }
    with office(2) as here:
        machines = dict(zip(passes, (here.fresh(node) for node in here.lan.nodes[2:]), strict=True))
        daemons = {"on": Daemon(machines["on"]), "off": Daemon(machines["off"], "--no-peers")}
        machines["on"].until("peers", is_there)
        machines["off"].until("status", lambda live: live["phase"] == "idle")
        # What is loaded by the first block that is missing is not what a pass costs.
        turns = count()
        _by_turns(here, daemons, "first", 1024, next(turns))
        for repetition in range(sizes.repetitions):
            for number in range(sizes.passes):
                for name, cycle_s in _by_turns(
                    here, daemons, f"small-{repetition}-{number}", 1024, next(turns)
                ).items():
                    passes[name].append(cycle_s)
            for mbit_s, found in pulls.items():
                here.server.node.shape(mbit_s)
                for number in range(sizes.pulls):
                    file = f"large-{repetition}-{number}-{mbit_s}"
                    for name, cycle_s in _by_turns(here, daemons, file, sizes.folder_bytes, next(turns)).items():
                        found[name].append(cycle_s)
            here.server.node.shape(None)
        assert daemons["on"].total()["blocks_from_peers"] == 0
    added = _of_pairs(passes, sizes.passes, lambda on, off: (on - off) * 1000)
    without_s = _of_pairs(passes, sizes.passes, lambda _on, off: off * 1000)
    return [
        Row(
            part="nobody", work="nobody there: added to a cycle that lacks 1 block", unit="ms", limit=5.0, values=added,
            beside="the cycle without peers, ms", beside_values=without_s,
        ),
        *(
            Row(
                part="nobody",
                work=f"nobody there: added to a pull of {sizes.folder_bytes // MIB} MiB, server {_speed(mbit_s)}",
                unit="%", limit=1.0,
                values=_of_pairs(found, sizes.pulls, lambda on, off: (on / off - 1) * 100),
                beside="the pull without peers, s", beside_values=_of_pairs(found, sizes.pulls, lambda _on, off: off),
            )
            for mbit_s, found in pulls.items()
        ),
    ]  # fmt: skip


def alone(sizes: Sizes) -> list[Row]:
    """As `nobody`, without a daemon: `reconcile` by turns, with peers and with `--no-peers`; its cycle's own time."""
    switches: dict[str, tuple[str, ...]] = {"on": (), "off": ("--no-peers",)}
    passes: dict[str, list[float]] = {name: [] for name in switches}
    pulls: dict[float | None, dict[str, list[float]]] = {
        mbit_s: {name: [] for name in switches} for mbit_s in (None, _FAST_SERVER_MBIT_S)
    }
    turns = count()
    with office(2) as here:
        machines = dict(zip(switches, (here.fresh(node) for node in here.lan.nodes[2:]), strict=True))

        def pull(found: dict[str, list[float]], name: str, size: int) -> None:
            here.publish(**{name: size})
            for which in list(switches)[:: 1 if next(turns) % 2 else -1]:
                machine = machines[which]
                # A process of its own: in one of the tests' forks nothing would have to be loaded.
                told = machine.node.run(BLOCKSYNC, "reconcile", machine.root, "--json", *switches[which]).stdout
                found[which].append(float(json.loads(told.splitlines()[-1])["seconds"]))

        for machine in machines.values():
            machine("reconcile", machine.root)
        for repetition in range(sizes.repetitions):
            for number in range(sizes.passes):
                pull(passes, f"small-{repetition}-{number}", 1024)
            for mbit_s, found in pulls.items():
                here.server.node.shape(mbit_s)
                for number in range(sizes.pulls):
                    pull(found, f"large-{repetition}-{number}-{mbit_s}", sizes.folder_bytes)
            here.server.node.shape(None)
    return [
        Row(
            part="alone", work="`reconcile` without a daemon, nobody there: added to a cycle that lacks 1 block",
            unit="ms", limit=5.0, values=_of_pairs(passes, sizes.passes, lambda on, off: (on - off) * 1000),
            beside="the cycle without peers, ms",
            beside_values=_of_pairs(passes, sizes.passes, lambda _on, off: off * 1000),
        ),
        *(
            Row(
                part="alone",
                work=f"the same: added to a pull of {sizes.folder_bytes // MIB} MiB, server {_speed(mbit_s)}",
                unit="%", limit=1.0,
                values=_of_pairs(found, sizes.pulls, lambda on, off: (on / off - 1) * 100),
                beside="the pull without peers, s", beside_values=_of_pairs(found, sizes.pulls, lambda _on, off: off),
            )
            for mbit_s, found in pulls.items()
        ),
    ]  # fmt: skip


def _speed(mbit_s: float | None) -> str:
    return "without a limit" if mbit_s is None else f"of {mbit_s:,g} Mbit/s"


def _of_pairs(found: dict[str, list[float]], each: int, figure: Callable[[float, float], float]) -> list[float]:
    """The median of a figure of so many pairs, on and off: one for each repetition."""
    every = [figure(on, off) for on, off in zip(found["on"], found["off"], strict=True)]
    return [statistics.median(every[at : at + each]) for at in range(0, len(every), each)]


def _by_turns(here: Office, daemons: dict[str, Daemon], name: str, size: int, turn: int) -> dict[str, float]:
    """Seconds of the cycle in which each of them pulls a new file, while the other one is stopped.

    Not paused: a root that is resumed looks for its neighbours anew. Each is the first one in every other turn: the
    server has read the file when the second one asks.
    """
    before = {which: daemon.total()["pulled"] for which, daemon in daemons.items()}
    for daemon in daemons.values():
        daemon.process.send_signal(signal.SIGSTOP)
    write(here.publisher.root / name, size)
    here.push()
    found = {}
    order = list(daemons) if turn % 2 else list(reversed(daemons))
    for which, daemon in ((each, daemons[each]) for each in order):
        daemon.process.send_signal(signal.SIGCONT)
        until_pulled([daemon], before[which] + 1)
        found[which] = float(next(cycle for cycle in reversed(daemon.cycles()) if cycle.get("pulled"))["seconds"])
        daemon.process.send_signal(signal.SIGSTOP)
    for daemon in daemons.values():
        daemon.process.send_signal(signal.SIGCONT)
    return found


def folder(sizes: Sizes) -> list[Row]:
    """64 MiB that one neighbour has; server and link have no limit. A daemon that has heard it, and a new machine."""
    size = sizes.folder_bytes
    files = {f"{number:03}": _FILE for number in range(size // _FILE)}
    heard: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    for _ in range(sizes.repetitions):
        with office(3) as here:
            holder, other = (here.fresh(node) for node in here.lan.nodes[2:4])
            daemons = [Daemon(holder), Daemon(other)]
            for machine in (holder, other):
                machine.until("peers", is_there)
            other("pause")
            here.publish(**files)
            until_pulled(daemons[:1], len(files))
            holder.until("status", lambda live: live["phase"] == "idle")
            other("resume")
            until_pulled(daemons[1:], len(files))
            heard.append(dict(daemons[1].total()) | {"wasted": other.json("peers")["figures"]["wasted_bytes"]})
            daemons[1].stop()
            new.append(_reconciled(here.fresh(here.lan.nodes[4])))
    named = f"{size // MIB} MiB that one peer has"
    first = min(size // _FIRST_SHARE, _FIRST_BYTES)
    return [
        *_shares("folder", f"{named}, it was heard", heard, size, first),
        *_shares("folder", f"{named}, a new machine's `reconcile`", new, size, first),
        Row(
            part="folder", work=f"{named}: bytes that came twice", unit="%", limit=2.0,
            values=[each["wasted"] / max(1, each["bytes_from_peers"]) * 100 for each in heard],
        ),
    ]  # fmt: skip


def _shares(part: str, named: str, told: Sequence[dict[str, Any]], size: int, first: int) -> list[Row]:
    from_server = [each["blocks_received"] * BLOCK for each in told]
    return [
        Row(
            part=part, work=f"{named}: from the peer", unit="MB", limit=60.0 * size / (64 * MIB), least=True,
            values=[each["bytes_from_peers"] / 1e6 for each in told],
            beside="from the server, MB", beside_values=[each / 1e6 for each in from_server],
            notes={"seconds": told[-1]["seconds"], "bytes_received": told[-1]["bytes_received"]},
        ),
        Row(
            part=part, work=f"{named}: from the server beyond its first window", unit="MB", limit=0.0,
            values=[max(0, each - first) / 1e6 for each in from_server],
        ),
    ]  # fmt: skip


def _reconciled(machine: Machine) -> dict[str, Any]:
    return machine.json("reconcile", machine.root)


def slow_peer(sizes: Sizes) -> list[Row]:
    """A peer of 10 Mbit/s that has all, beside a server of 1 Gbit/s; beside it the server alone."""
    both: list[float] = []
    alone: list[float] = []
    from_peer: list[float] = []
    with office(2) as here:
        slow, pulling = here.lan.nodes[2:]
        here.publish(image=sizes.slow_bytes)
        holder = here.fresh(slow)
        daemon = Daemon(holder)
        until_pulled([daemon], 1)
        holder.until("peers", is_there)
        slow.shape(_SLOW_PEER_MBIT_S)
        here.server.node.shape(_FAST_SERVER_MBIT_S)
        for _ in range(sizes.repetitions):
            for found, options in ((alone, ["--no-peers"]), (both, [])):
                machine = here.fresh(pulling)
                puller = Daemon(machine, *options)
                until_pulled([puller], 1)
                told = puller.total()
                puller.stop()
                found.append(float(told["seconds"]))
                if not options:
                    from_peer.append(told["bytes_from_peers"] / 1e6)
    work = f"a peer of 10 Mbit/s beside a server of 1 Gbit/s, {sizes.slow_bytes // MIB} MiB"
    row = times("slow", work, 1.1, both, "the server alone, s", alone)
    row.notes["mb_from_peer"] = statistics.median(from_peer)
    return [row]
