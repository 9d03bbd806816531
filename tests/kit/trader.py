"""An exchange of one node as a process of its own: orders go in as JSON lines, what became of them comes out.

    python -m tests.kit.trader

The first line says what it is: {"key": HEX, "blocks": [FIRST, END], "size": BYTES, "settings": TOML, "evil": null,
"keeps": bool}; it holds the blocks with these numbers, and, if it keeps them, what it has fetched.
Then {"fetch": [FIRST, END]} (from peers alone), {"figures": 0}, {"pause": bool}.
Events: {"ready": PORT}, {"fetched": {"blocks": N, "failed": N, "seconds": S, "cpu": S}}, {"figures": …}.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.board import Blocks
from syncer.cli.registry.settings import parse
from syncer.peer.exchange.exchange import Exchange
from syncer.peer.links.links import Links
from syncer.peer.links.opening import Opened, opened
from syncer.peer.session.keyring import RootKey
from syncer.peer.settings import Peers
from syncer.ports.blocks import Priority, Want
from tests.kit.netns import Node
from tests.kit.peering import Shelf, block, name

PROJECT = Path(__file__).parents[2]
ROOT = "root"


class Trader:
    """Starts the program in a node and talks with it."""

    def __init__(self, node: Node, **what: Any) -> None:
        """Start it; see the module for `what`. It returns when connections are taken and a link is there."""
        self.node = node
        self.log = node.home / "trader.log"
        with self.log.open("w") as log:
            self.process = node.start(
                sys.executable, "-m", "tests.kit.trader",
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=PROJECT, text=True, bufsize=1,
            )  # fmt: skip
        self.tell(
            **{"key": "11" * 32, "blocks": [0, 0], "size": 1000, "settings": "", "evil": None, "keeps": False} | what
        )
        self.port = self.until("ready")

    def tell(self, **order: Any) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")

    def until(self, event: str) -> Any:
        """Wait for an event of this name."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if event in told:
                return told[event]
        raise AssertionError(f"the program ended before it told {event}: {self.log.read_text()[-2000:]}")

    def fetch(self, first: int, end: int) -> dict[str, Any]:
        """Fetch blocks from peers."""
        self.tell(fetch=[first, end])
        return dict(self.until("fetched"))

    def figures(self) -> dict[str, Any]:
        """What the exchange tells of itself."""
        self.tell(figures=0)
        return dict(self.until("figures"))


class _Made(Shelf):
    """Blocks that are made when somebody reads them first."""

    def __init__(self, first: int, end: int, size: int, evil: str | None) -> None:
        super().__init__()
        self._size, self._evil = size, evil
        self._numbers = {_name(number, size): number for number in range(first, end)}
        self._prefixes = {each[:8] for each in self._numbers}

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """See ShareIndex."""
        return [prefix in self._prefixes for prefix in prefixes]

    def keep(self, number: int) -> None:
        """It has been fetched."""
        block_id = _name(number, self._size)
        self._numbers[block_id] = number
        self._prefixes.add(block_id[:8])
        self.came.append(block_id)

    def read(self, block_id: BlockId) -> bytes | None:
        """See ShareIndex."""
        number = self._numbers.get(block_id)
        if number is None or self._evil == "lie":
            return None
        if self._evil == "stall":
            time.sleep(30)
        data = _data(number, self._size)
        return data[:-1] + b"?" if self._evil == "corrupt" else data


@cache
def _name(number: int, size: int) -> BlockId:
    return name(block(number, size))


@cache
def _data(number: int, size: int) -> bytes:
    return block(number, size)


def _say(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


async def _main(what: dict[str, Any], settings: Peers, sockets: Opened) -> None:
    size, keys = what["size"], [RootKey(raw=bytes.fromhex(what["key"]))]
    shelf = _Made(*what["blocks"], size, what["evil"])
    exchange = Exchange(settings, Links(settings, sockets.sockets))
    async with trio.open_nursery() as nursery:
        await nursery.start(exchange.run)
        while not exchange.figures().links:
            await trio.sleep(0.005)
        exchange.share(ROOT, keys, shelf)
        _say(ready=exchange.port)
        async for line in trio.wrap_file(sys.stdin):
            order = json.loads(line)
            if "fetch" in order:
                nursery.start_soon(_fetch, exchange, range(*order["fetch"]), size, shelf if what["keeps"] else None)
            elif "figures" in order:
                _say(figures=msgspec.to_builtins(exchange.figures()))
            elif "pause" in order:
                exchange.share(ROOT, keys, None if order["pause"] else shelf)
                _say(paused=order["pause"])
        nursery.cancel_scope.cancel()


async def _fetch(exchange: Exchange, numbers: range, size: int, shelf: _Made | None) -> None:
    known = {_name(number, size): number for number in numbers}
    wants = [Want(id=block, length=size) for block in known]
    count = 0

    async def receive(batch: Sequence[tuple[BlockId, bytes]]) -> None:
        nonlocal count
        count += len(batch)
        if shelf is not None:
            for each, _ in batch:
                shelf.keep(known[each])

    board = Blocks([exchange.source(ROOT)])
    began, busy = time.perf_counter(), time.process_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(board.run)
        failed = await board.fetch(wants, receive, priority=Priority.LARGE)
        took, used = time.perf_counter() - began, time.process_time() - busy
        nursery.cancel_scope.cancel()
    _say(fetched={"blocks": count, "failed": len(failed), "seconds": took, "cpu": used})


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    _what = json.loads(sys.stdin.readline())
    _settings = parse(f"[peers]\n{_what['settings']}", "settings").peers
    with opened(_settings) as _sockets:
        trio.run(_main, _what, _settings, _sockets)
