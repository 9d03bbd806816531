"""The real program on nodes of a network of its own: the server, and machines that are linked to it.

with Lan(3, home=folder) as lan:
    server = Site(lan.nodes[0])
    one, other = (Machine(node, server) for node in lan.nodes[1:])
    one.watch()
    one.until("peers", is_there)
    other("reconcile", other.root)
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.kit.netns import Node

BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")


class Machine:
    """One node with a folder that is linked to the container."""

    def __init__(self, node: Node, server: Site) -> None:
        """Make the folder and link it."""
        self.node = node
        self.server = server
        self.root = node.home / "root"
        self.root.mkdir()
        self("link", self.root, server.url, "--token-file", server.token_file)
        self.log = node.home / "watch.log"

    def __call__(self, *arguments: str | Path, expect: int | None = 0) -> str:
        """Run a verb to its end; returns its stdout."""
        return str(self.node.run(BLOCKSYNC, *arguments, expect=expect).stdout)

    def json(self, *arguments: str | Path) -> dict[str, Any]:
        """The last JSON line of a command."""
        return dict(json.loads(self(*arguments, "--json").splitlines()[-1]))

    def watch(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the daemon."""
        with self.log.open("ab") as log:
            return self.node.start(BLOCKSYNC, "watch", *options, stderr=log)

    def until(self, verb: str, is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Follow the daemon until it is as wanted."""
        # Both verbs end at once where there is no daemon yet.
        while True:
            process = self.node.start(
                BLOCKSYNC, verb, "--follow", "--json", stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            assert process.stdout is not None
            for line in process.stdout:
                told = json.loads(line)
                if told["type"] != "error" and is_so(told):
                    process.kill()
                    return dict(told)
            assert process.wait() == 10, self.log.read_text()


class Site:
    """The server, in a node of its own."""

    def __init__(self, node: Node, *options: str) -> None:
        """Start it; it listens when this returns. Options are those of `serve`."""
        self.node = node
        self.folder = node.home / "server"
        self.process = node.start(
            BLOCKSYNC, "serve", self.folder, "--listen", f"{node.ipv4}:8800", *options, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert any("listening on" in line for line in self.process.stdout)
        self.url = f"pithos+http://{node.ipv4}:8800/v1/default/images"
        self.token_file = self.folder / "token"


def is_there(told: dict[str, Any]) -> bool:
    """What `peers` tells: the daemon has a key and a link, so whoever comes from now on is heard."""
    return bool(told["figures"] and told["figures"]["links"])


def has_peer(told: dict[str, Any]) -> bool:
    """What `peers` tells: somebody is there."""
    return bool(told["figures"] and told["figures"]["peers"])
