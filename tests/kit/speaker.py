"""The links of one node as a process of their own: events come out as JSON lines, orders go in.

    python -m tests.kit.speaker [SETTINGS.toml]

Orders: {"send": LINK, "frame": HEX, "to": ADDRESS | null}, {"confirm": N} (the Nth that was received), {"counters": 0}.
Events: {"opened": …}, {"came": …}, {"gone": …}, {"received": …}, {"sent": …}, {"counters": …}.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog
import trio

from syncer.cli.registry.settings import parse
from syncer.peer.links.address import Address
from syncer.peer.links.capability import held
from syncer.peer.links.link import Came, Gone, Received
from syncer.peer.links.links import Event, Links
from syncer.peer.links.opening import Opened, opened
from syncer.peer.wire.carrier import Carrier
from tests.kit.netns import Argument, Node

PROJECT = Path(__file__).parents[2]
MAGIC = bytes.fromhex("b5b10c")


def frame(sender: int = 1, size: int = 124) -> bytes:
    """What begins as a frame does, of this sender; nothing else of it is read by links."""
    return (MAGIC + bytes(13) + sender.to_bytes(16, "big")).ljust(size, b"\x55")


class Speaker:
    """Starts the program in a node and talks with it."""

    def __init__(self, node: Node, settings: str = "", *before: Argument) -> None:
        """Start; `before` is a command that runs it (setpriv …)."""
        folder = node.home / ".config"
        folder.mkdir(exist_ok=True)
        (folder / "peers.toml").write_text(f"[peers]\n{settings}")
        command = [*before, sys.executable, "-m", "tests.kit.speaker", folder / "peers.toml"]
        self.node = node
        self.process = node.start(
            *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True, bufsize=1
        )
        self.opened = self.until("opened")
        self.frames = 0

    def until(self, name: str, fits: Callable[[Any], bool] = lambda _: True) -> Any:
        """Wait for an event of this name; those before are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            if name in told and fits(told[name]):
                return told[name]
        raise AssertionError(f"the program ended before it told {name}")

    def up(self, link: str = "lan0", carriers: list[str] | None = None) -> Any:
        """Wait until this link is there, with these carriers."""
        return self.until(
            "came", lambda came: came["link"] == link and (carriers is None or came["carriers"] == carriers)
        )

    def tell(self, **order: Any) -> None:
        """Give an order."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")

    def send(self, data: bytes, to: Any = None, link: str = "lan0") -> bool:
        """Send a frame; whether it went out."""
        self.tell(send=link, frame=data.hex(), to=to)
        return bool(self.until("sent")["done"])

    def hears(self, data: bytes) -> Any:
        """Wait for exactly this frame; returns its source."""
        return self.until("received", lambda received: received["frame"] == data.hex())["source"]

    def counters(self) -> dict[str, int]:
        """Of its links."""
        self.tell(counters=0)
        return dict(self.until("counters"))


def _show(**event: object) -> None:
    print(json.dumps(event), flush=True)


async def _obey(links: Links, received: list[Received]) -> None:
    orders = trio.wrap_file(sys.stdin)
    async for line in orders:
        order = json.loads(line)
        if "send" in order:
            to = order["to"] and Address(
                carrier=Carrier(order["to"]["carrier"]),
                host=bytes.fromhex(order["to"]["host"]),
                port=order["to"]["port"],
            )
            _show(sent={"done": links.send(order["send"], bytes.fromhex(order["frame"]), to)})
        elif "confirm" in order:
            links.confirm(received[order["confirm"]])
        else:
            _show(counters=dict(links.counters))


async def _run(made: Opened, path: str) -> None:
    links = Links(parse(Path(path).read_text(), path).peers, made.sockets)
    received: list[Received] = []

    def happened(event: Event) -> None:
        match event:
            case Came():
                told = msgspec.structs.asdict(event)
                _show(came=told | {"addresses": [address.hex() for address in event.addresses]})
            case Gone(link=link):
                _show(gone=link)
            case Received(link=link, source=source, frame=data):
                received.append(event)
                shown = {"carrier": source.carrier, "host": source.host.hex(), "port": source.port}
                _show(received={"link": link, "frame": data.hex(), "source": shown})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(links.run, happened)
        await _obey(links, received)
        await trio.sleep_forever()


def main(path: str) -> None:
    """Run until killed."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    with opened(parse(Path(path).read_text(), path).peers) as made:
        _show(opened={"carriers": list(made.sockets), "refused": made.refused, "held": held()})
        trio.run(_run, made, path)


if __name__ == "__main__":
    main(sys.argv[1])
