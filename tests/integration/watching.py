"""A daemon process for tests, and waiting for what it does without asking again and again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from syncer.cli.registry.roots import Registry
from syncer.watch import control
from syncer.watch.live import DaemonLive, RootLive
from tests.integration.syncing import BLOCKSYNC

_PROJECT: Final = Path(__file__).parents[2]
OF_DAYS: Final = (sys.executable, "-m", "tests.integration.daemon_of_days")
"""The same daemon; `Watching.pass_a_day` makes a day pass for it."""


class Watching:
    """A running `blocksync watch`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.socket = Registry(os.environ).socket

    def until(self, is_so: Callable[[DaemonLive], bool]) -> DaemonLive:
        """Follow the daemon until it, or the world after what it did, is as wanted."""
        for live in control.follow(self.socket):
            if is_so(live):
                return live
        raise AssertionError("the daemon ended")

    def until_root(self, path: Path, *phases: str) -> RootLive:
        """Follow it until a root is in one of these phases."""
        found = self.until(lambda live: root_of(live, path).phase in phases)
        return root_of(found, path)

    def until_there(self, path: Path, content: bytes) -> None:
        """Follow it until a file has this content."""
        self.until(lambda _: path.is_file() and path.read_bytes() == content)

    def pass_a_day(self) -> None:
        """Of one that was begun as `OF_DAYS`."""
        self.process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """No goodbye."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Ask it to end; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def root_of(live: DaemonLive, path: Path) -> RootLive:
    """One root's state."""
    return next(root for root in live.roots if root.root == str(path))


@contextmanager
def watching(
    log: Path, *arguments: str | Path, program: Sequence[str | Path] = (BLOCKSYNC, "watch")
) -> Iterator[Watching]:
    """A daemon of its own, ready as a service manager understands it; its log goes on in a file."""
    with log.open("a") as errors, tempfile.TemporaryDirectory() as folder:
        address = os.path.join(folder, "notify")
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(address)
            manager.settimeout(60)
            process = subprocess.Popen(
                [*program, *arguments],
                stderr=errors,
                env={**os.environ, "NOTIFY_SOCKET": address},
                cwd=_PROJECT,  # `-m tests.…` is found from there
            )
            try:
                assert b"READY=1" in manager.recv(4096), log.read_text()
                yield Watching(process)
            finally:
                if process.poll() is None:
                    process.terminate()
                process.wait(60)
