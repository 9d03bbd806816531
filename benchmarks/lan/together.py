"""Nodes of one share that begin together: how often a slow server sends each block, and who is last."""

from __future__ import annotations

import statistics
import time
from typing import Final

from benchmarks.lan.office import BLOCK, Daemon, office, until_pulled
from benchmarks.lan.sizes import MIB, Sizes
from benchmarks.rows import Row, times

_IMAGES: Final = 4
_TOGETHER_S: Final = 0.5
_BASE_BYTES: Final = 1 * MIB
_SMALL: Final = 1024
_FOLDER: Final = 100  # small files in one folder


class _Run:
    """What became of nodes that began together, with a base that they have synced before.

    Attributes:
        last_s: From the first start until the last one was done.
        blocks: That the server sent to all of them.
        other_bytes: What else came from the server: listings and block lists.
        wasted_bytes: That came from peers in vain.
    """

    def __init__(self, count: int, mbit_s: float, files: dict[str, int], block: int) -> None:
        with office(count) as here:
            here.publish(base=_BASE_BYTES)
            machines = [here.fresh(node) for node in here.lan.nodes[2:]]
            for machine in machines:
                machine("reconcile", machine.root)
            here.publish(**files)
            here.server.node.shape(mbit_s)
            began_s = time.monotonic()
            daemons = [Daemon(machine) for machine in machines]
            assert time.monotonic() - began_s < _TOGETHER_S, "the nodes did not start together"
            folders = {name.rpartition("/")[0] for name in files} - {""}
            done = until_pulled(daemons, len(files) + len(folders))
            told = [daemon.total() for daemon in daemons]
            self.last_s = max(done) - began_s
            self.blocks = sum(each["blocks_received"] for each in told)
            self.other_bytes = sum(each["bytes_received"] for each in told) - self.blocks * block
            figures = [machine.json("peers")["figures"] for machine in machines]
            self.wasted_bytes = sum(each["wasted_bytes"] for each in figures)


def family(sizes: Sizes) -> list[Row]:
    """A new image family."""
    size = sizes.image_bytes
    files = {f"image-{number}": size // _IMAGES for number in range(_IMAGES)}
    work = f"{sizes.nodes} nodes, {_named(size)} of new images"
    return _rows("family", work, sizes, files, BLOCK, sizes.families)


def small(sizes: Sizes) -> list[Row]:
    """Many new small files."""
    count = sizes.small_files
    files = {f"{number // _FOLDER}/{number}": _SMALL for number in range(count)}
    return _rows(
        "small", f"{sizes.nodes} nodes, {count:,} new files of 1 KiB", sizes, files, _SMALL, sizes.repetitions
    )[:1]


def _rows(part: str, work: str, sizes: Sizes, files: dict[str, int], block: int, repetitions: int) -> list[Row]:
    # By turns: one alone, then all.
    runs = [[_Run(count, sizes.server_mbit_s, files, block) for count in (1, sizes.nodes)] for _ in range(repetitions)]
    alone, together = ([run[number] for run in runs] for number in range(2))
    blocks = sum(size // block for size in files.values())
    copies = Row(
        part=part, work=f"{work}, server of {sizes.server_mbit_s:g} Mbit/s: copies it sends", unit="times",
        values=[run.blocks / blocks for run in together], limit=1.15 if part == "family" else 1.2,
        beside="one alone, copies", beside_values=[run.blocks / blocks for run in alone],
        notes={
            "other_mb": statistics.median(run.other_bytes for run in together) / 1e6,
            "other_mb_alone": statistics.median(run.other_bytes for run in alone) / 1e6,
            "wasted_mb": statistics.median(run.wasted_bytes for run in together) / 1e6,
            "last_s": statistics.median(run.last_s for run in together),
            "alone_s": statistics.median(run.last_s for run in alone),
        },
    )  # fmt: skip
    last = times(
        part, "the same: the last node done", 1.3, [run.last_s for run in together], "one alone, s",
        [run.last_s for run in alone],
    )  # fmt: skip
    return [copies, last]


def _named(size: int) -> str:
    return f"{size // (1024 * MIB)} GiB" if size % (1024 * MIB) == 0 else f"{size // MIB} MiB"
