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
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from syncer.cli.registry.roots import Registry
from syncer.watch import control
from tests.kit import starting
from tests.kit.netns import Argument, Node

BLOCKSYNC: Final = Path(sys.executable).with_name("blocksync")
PROJECT: Final = Path(__file__).parents[2]
CONTAINER: Final = "images"
PORT: Final = 8800
_LOOK_S: Final = 0.05
SHARE_BLOCK: Final = 64 << 10
"""Of a new container, bytes."""
WITHOUT_RAW: Final = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", "--")
"""Before a command: it may not open a packet socket, as nobody but root may."""


class Machine:
    """One node with a folder that is linked to a container."""

    def __init__(
        self,
        node: Node,
        server: Site,
        container: str = CONTAINER,
        *,
        root: Path | None = None,
        home: Path | None = None,
    ) -> None:
        """Link it.

        Args:
            node: Where.
            server: Of the share.
            container: The share.
            root: The folder; default: `root` in its home.
            home: Its HOME, with the XDG folders below; default: the node's.
        """
        self.node = node if home is None else replace(node, home=home)
        self.node.home.mkdir(parents=True, exist_ok=True)
        self.server = server
        self.root = self.node.home / "root" if root is None else root
        self.root.mkdir(exist_ok=True)
        self.log = self.node.home / "watch.log"
        self.link(self.root, container)

    def link(self, root: Path, container: str, *options: str | Path) -> None:
        """Link one more folder."""
        self("link", root, self.server.url_of(container), "--token-file", self.server.token_file, *options)

    def __call__(self, *arguments: str | Path, expect: int | None = 0) -> str:
        """Run a command; returns its stdout."""
        network = f"/proc/{self.node.namespace.pid}/ns/net"
        done = starting.run(arguments, environment=self.node.environment, network=network)
        told = f"{done.stdout}\n{done.stderr}"
        assert expect in {None, done.returncode}, f"node {self.node.number}: {arguments}: {done.returncode}\n{told}"
        return done.stdout

    def json(self, *arguments: str | Path, expect: int | None = 0) -> dict[str, Any]:
        """The last JSON line of a command; it says nothing else."""
        return dict([json.loads(line) for line in self(*arguments, "--json", expect=expect).splitlines()][-1])

    def settings(self, text: str) -> None:
        """Its config.toml: lines of the table `[peers]`."""
        settings = self.node.home / ".config/blocksync/config.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(f"[peers]\n{text}\n")

    def watch(
        self, *options: str, before: Sequence[Argument] = (), crooked: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """Start the daemon.

        Args:
            options: Of `watch`.
            before: A command that runs it.
            crooked: What is wrong with it: see tests/kit/crooked.py.
        """
        program = [sys.executable, "-m", "tests.kit.crooked", *crooked, "--"] if crooked else [BLOCKSYNC]
        with self.log.open("ab") as log:
            return self.node.start(*before, *program, "watch", *options, stderr=log, cwd=PROJECT)

    def begin(self, *arguments: str | Path, crooked: Sequence[str] = ()) -> subprocess.Popen[str]:
        """Start a command that says what it did by JSON lines; `end` waits for them."""
        program = [sys.executable, "-m", "tests.kit.crooked", *crooked, "--"] if crooked else [BLOCKSYNC]
        return self.node.start(
            *program, *arguments, "--json", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=PROJECT
        )

    def until(self, what: Literal["peers", "status"], is_so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Ask the daemon again and again until it, or the world, is as wanted.

        Args:
            what: What it tells, with the keys of this verb's `--json`: "peers", or "status" of one root after another.
            is_so: What is waited for.
        """
        socket = Registry(self.node.environment).socket
        while True:
            with suppress(control.NotWatchingError):  # not yet
                if what == "peers":
                    told = [msgspec.to_builtins(control.peers(socket))]
                else:
                    told = [msgspec.to_builtins(root) for root in next(control.follow(socket)).roots]
                for each in told:
                    if is_so(each):
                        return dict(each)
            time.sleep(_LOOK_S)


class Site:
    """The server, in a node of its own."""

    def __init__(self, node: Node, *options: str, port: int = PORT, address: str | None = None) -> None:
        """Start it; returns when it listens.

        Args:
            node: Where.
            options: Of `serve`.
            port: TCP.
            address: Where it listens; default: the node's IPv4 address.
        """
        self.node = node
        self.folder = node.home / ("server" if port == PORT else f"server-{port}")
        self.address = f"{address or node.ipv4}:{port}"
        self.token_file = self.folder / "token"
        self._options = options
        self.start()

    def start(self) -> None:
        """Again, after `kill`: with all that it had."""
        self.process = self.node.start(
            BLOCKSYNC, "serve", self.folder, "--listen", self.address, *self._options, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert any("listening on" in line for line in self.process.stdout)

    def kill(self) -> None:
        """SIGKILL."""
        self.node.kill(self.process)

    @property
    def url(self) -> str:
        """Of a container."""
        return self.url_of(CONTAINER)

    def url_of(self, container: str) -> str:
        """Of this container."""
        return f"pithos+http://{self.address}/v1/default/{container}"


def end(process: subprocess.Popen[str], expect: int | None = 0) -> dict[str, Any]:
    """Wait for a command that `Machine.begin` has started; returns its last JSON line."""
    out, errors = process.communicate()
    assert expect is None or process.returncode == expect, f"exit code {process.returncode}\n{out}\n{errors}"
    return dict(json.loads(out.splitlines()[-1]))


def is_there(told: dict[str, Any]) -> bool:
    """What `peers` tells: the daemon has a key and a link, so whoever comes from now on is heard."""
    return bool(told["figures"] and told["figures"]["links"])


def has_peer(told: dict[str, Any]) -> bool:
    """What `peers` tells: somebody is there."""
    return bool(told["figures"] and told["figures"]["peers"])


def is_idle(told: dict[str, Any]) -> bool:
    """What `status` tells: what it has is on the server, and in the index for others."""
    return bool(told["phase"] == "idle")
