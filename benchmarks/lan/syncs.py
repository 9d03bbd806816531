"""Syncs of one machine with the real program: nobody there, one neighbour that has all, a slow neighbour."""

from __future__ import annotations

import json
import signal
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import count, islice
from typing import Any, Final

from benchmarks.lan.office import BLOCK, BLOCKSYNC, Daemon, Office, office, until_pulled
from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times
from syncer.cli.lan.solitude import LOOKS
from syncer.peer.exchange.circle import SETTLED_S
from tests.kit.program import Machine, is_there

_FILE: Final = 1 * MIB
_FIRST_SHARE: Final = 32  # docs/design/board.md, section 3: the server's first window
_FIRST_BYTES: Final = 4 * MIB
_SLOW_PEER_MBIT_S: Final = 10.0
_FAST_SERVER_MBIT_S: Final = 1000.0

Pull = Callable[[str, int, str], float]
"""Publishes a file by this name and size, and pulls it with peers "on" or "off". Returns the seconds of the cycle."""

Turns = dict[str, list[float]]
"""Seconds, by the same words."""


def nobody(sizes: Sizes) -> list[Row]:
    """What looking for peers costs a daemon where there are none: one daemon, with peers and without by turns.

    Not two, of which one does not look: two daemons that both did not differed by up to 11 % in medians of 20 pulls.
    """
    return _by_turns(sizes, "nobody", ("nobody there", "nobody there"), _watching)


def alone(sizes: Sizes) -> list[Row]:
    """The same without a daemon: `reconcile` of one root, with peers and with `--no-peers`."""
    return _by_turns(sizes, "alone", ("`reconcile` without a daemon, nobody there", "the same"), _reconciling)


def _watching(here: Office) -> Pull:
    machine = here.fresh(here.lan.nodes[2])
    daemon = Daemon(machine)
    machine.until("peers", is_there)

    def pull(name: str, size: int, switch: str) -> float:
        machine("peers", switch)
        began_s, before = time.monotonic(), daemon.total()["pulled"]
        daemon.process.send_signal(signal.SIGSTOP)
        here.publish(**{name: size})
        time.sleep(max(0.0, began_s + SETTLED_S - time.monotonic()))  # then it knows that nobody answers its HELLO
        daemon.process.send_signal(signal.SIGCONT)
        until_pulled([daemon], before + 1)
        cycle = next(cycle for cycle in reversed(daemon.cycles()) if cycle.get("pulled"))
        assert not cycle["blocks_from_peers"]
        return float(cycle["seconds"])

    pull("first", 1024, "on")  # what is loaded by the first block that is missing is not what a pass costs
    return pull


def _reconciling(here: Office) -> Pull:
    machine = here.fresh(here.lan.nodes[2])

    def pull(name: str, size: int, switch: str) -> float:
        here.publish(**{name: size})
        # A process of its own: in one of the tests' forks nothing would have to be loaded.
        words = ("reconcile", machine.root, "--json", *(() if switch == "on" else ("--no-peers",)))
        told = machine.node.run(BLOCKSYNC, *words).stdout
        return float(json.loads(told.splitlines()[-1])["seconds"])

    for look in range(LOOKS):  # that hear nobody: from then on it knows (ADR 18)
        pull(f"look-{look}", 2 * MIB, "on")
    return pull


def _by_turns(sizes: Sizes, part: str, words: tuple[str, str], start: Callable[[Office], Pull]) -> list[Row]:
    """What peers add to pulls of one block and of many.

    Args:
        sizes: How much.
        part: Its name.
        words: What the first row is about, and the others.
        start: Makes who pulls, in each repetition.
    """
    passes: Turns = {"on": [], "off": []}
    pulls: dict[float | None, Turns] = {mbit_s: {"on": [], "off": []} for mbit_s in (None, _FAST_SERVER_MBIT_S)}
    for _ in range(sizes.repetitions):
        with office(1) as here:
            pull, turns = start(here), count()
            for mbit_s, size, pairs, found in (
                (None, 1024, sizes.passes, passes),
                *((mbit_s, sizes.folder_bytes, sizes.pulls, found) for mbit_s, found in pulls.items()),
            ):
                here.server.node.shape(mbit_s)
                for turn in islice(turns, pairs):
                    for switch in ("on", "off") if turn % 2 else ("off", "on"):
                        found[switch].append(pull(f"{turn}-{switch}", size, switch))
    return [
        Row(
            part=part, work=f"{words[0]}: added to a cycle that lacks 1 block", unit="ms", limit=5.0,
            values=_of_pairs(passes, sizes.passes, lambda on, off: (on - off) * 1000),
            beside="the cycle without peers, ms",
            beside_values=_of_pairs(passes, sizes.passes, lambda _on, off: off * 1000),
        ),
        *(
            Row(
                part=part,
                work=f"{words[1]}: added to a pull of {sizes.folder_bytes // MIB} MiB, server {_speed(mbit_s)}",
                unit="%", limit=1.0,
                values=_of_pairs(found, sizes.pulls, lambda on, off: (on / off - 1) * 100),
                beside="the pull without peers, s", beside_values=_of_pairs(found, sizes.pulls, lambda _on, off: off),
            )
            for mbit_s, found in pulls.items()
        ),
    ]  # fmt: skip


def _speed(mbit_s: float | None) -> str:
    return "without a limit" if mbit_s is None else f"of {mbit_s:,g} Mbit/s"


def _of_pairs(found: Turns, each: int, figure: Callable[[float, float], float]) -> list[float]:
    """The median of a figure of so many pairs, on and off: one for each repetition."""
    every = [figure(on, off) for on, off in zip(found["on"], found["off"], strict=True)]
    return [statistics.median(every[at : at + each]) for at in range(0, len(every), each)]


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
