"""One network with a server that many tests use, one after the other."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tests.kit.netns import INTERFACE, Lan, Node
from tests.kit.program import Machine, Site


class Village:
    """A network that many tests use, one after the other, with a server in its first node. All have an IPv6 address."""

    def __init__(self, lan: Lan) -> None:
        """Start the server.

        Args:
            lan: Built, with nodes that nobody uses.
        """
        self.lan = lan
        for node in lan.nodes:
            self._address(node)
        self.site = Site(lan.nodes[0], address="[fd99::1]")

    def household(self, home: Path, count: int, container: str) -> list[Machine]:
        """Machines of one share, each in a node of its own, from the second node on."""
        return [
            Machine(node, self.site, container, home=home / f"m{node.number}") for node in self.lan.nodes[1 : 1 + count]
        ]

    def tidy(self) -> None:
        """After a test: what it started is killed, and all cables are as they were."""
        for node in self.lan.nodes[1:]:
            node.namespace.kill_all()
            for process in node.started:
                for pipe in (process.stdin, process.stdout, process.stderr):
                    if pipe is not None:
                        with suppress(OSError):
                            pipe.close()
                process.kill()
                process.wait()
            node.started.clear()
        for node in self.lan.nodes:
            node.shape(None)
            node.loses(0)

    def _address(self, node: Node) -> None:
        node.namespace.ip(f"address add fd99::{node.number:x}/64 dev {INTERFACE} nodad")
