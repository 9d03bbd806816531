"""A member of a share that asks for blocks and fetches none: how long until everything was offered.

    python -m benchmarks.lan.asker ROOT

ROOT is linked; the program is a device of its share. Orders come as JSON lines: {"ids": FILE, "count": N, "times": N}
asks for N ids of a file (32 bytes each, others each time), so many times. Answered by a list of seconds.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import structlog
import trio

from blockfs.blocks.ids import BlockId
from syncer.cli.registry.roots import Registry
from syncer.cli.session.opening import key_keeper
from syncer.peer.exchange.circle import ShareCircle
from syncer.peer.exchange.exchange import Exchange
from syncer.peer.links.links import Links
from syncer.peer.links.opening import opened
from syncer.peer.session.actions import PeerId
from syncer.peer.settings import Peers
from tests.kit.program import Machine

PROJECT: Final = Path(__file__).parents[2]
REST_S: Final = 0.01  # between questions: two that follow each other at once travel together, and 200 a second go
REFILL_S: Final = 0.5  # after a question of many frames: until 64 may go at once again
PATIENCE_S: Final = 30.0


class Asking:
    """An `Asker` that waits until all is offered."""

    def __init__(self, circle: ShareCircle) -> None:
        """Join."""
        self._circle = circle
        self._missing: set[BlockId] = set()
        self._all = trio.Event()
        self._offered_s = 0.0
        circle.join(self)

    def heard(self, at_s: float) -> None:
        """See Asker."""

    def offered(self, peer: PeerId, ids: Sequence[BlockId]) -> None:
        """See Asker."""
        self._missing.difference_update(ids)
        if not self._missing:
            self._offered_s = time.perf_counter()  # a cycle takes it from here; to wake our task is no part of it
            self._all.set()

    async def ask(self, ids: Sequence[BlockId]) -> float:
        """Seconds from the question until all is offered."""
        self._missing, self._all = set(ids), trio.Event()
        began_s = time.perf_counter()
        self._circle.want(self, ids)
        with trio.fail_after(PATIENCE_S):
            await self._all.wait()
        self._circle.drop(self, ids)
        return self._offered_s - began_s


class AskerProgram:
    """Starts the program in a machine's node and talks with it."""

    def __init__(self, machine: Machine) -> None:
        """It takes part when this returns."""
        self.process = machine.node.start(
            sys.executable, "-m", "benchmarks.lan.asker", machine.root,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True, bufsize=1,
        )  # fmt: skip
        assert self._answer() == "ready"

    def ask(self, ids: Path, count: int, times: int) -> list[float]:
        """Seconds of each question."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"ids": str(ids), "count": count, "times": times}) + "\n")
        return list(self._answer())

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


async def _main(root: str) -> None:
    linked = Registry(os.environ).get(os.fsencode(root))
    settings = Peers()
    with opened(settings) as sockets:
        exchange = Exchange(settings, Links(settings, sockets.sockets))
        async with trio.open_nursery() as nursery:
            await nursery.start(exchange.run)
            while not exchange.figures().links:
                await trio.sleep(0.005)
            exchange.share("asker", key_keeper(linked).keys_now(), None)
            circle = exchange.circle("asker")
            assert circle is not None
            asking = Asking(circle)
            print(json.dumps("ready"), flush=True)
            async for line in trio.wrap_file(sys.stdin):
                order = json.loads(line)
                raw, count = Path(order["ids"]).read_bytes(), order["count"]
                ids = [BlockId(raw[at : at + 32]) for at in range(0, len(raw), 32)]
                seconds = []
                for number in range(order["times"]):
                    first = number * count % (len(ids) - count + 1)
                    seconds.append(await asking.ask(ids[first : first + count]))
                    await trio.sleep(REST_S if count == 1 else REFILL_S)
                print(json.dumps(seconds), flush=True)
            nursery.cancel_scope.cancel()


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    trio.run(_main, sys.argv[1])
