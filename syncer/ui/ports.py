"""What the page asks of the program: values, and one interface. Made by the command line, as `watch.work.RootPorts` is.

Whatever changes something is the command itself, run as a process of its own: the page can do nothing that the command
line can't, and says what the command said.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from syncer.watch.live import DaemonLive


class CycleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """How a cycle went, as `status` tells it.

    Attributes:
        ended_s: When, seconds since the epoch.
        exit_code: What it ended with.
        error: What broke it off; None: nothing.
        counts: By the keys of `reconcile`'s summary.
    """

    ended_s: float
    exit_code: int
    error: str | None
    counts: dict[str, int | float]


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the last cycle had to say of a path.

    Attributes:
        path: Below the root; need not be UTF-8.
        is_failure: It is not synced; else it is a remark.
        text: Why.
        since_s: Since when, seconds since the epoch.
    """

    path: bytes
    is_failure: bool
    text: str
    since_s: float


class RootFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one root without asking the server: see `blocksync status`.

    Attributes:
        uuid: Its name in the registry.
        path: Absolute; need not be UTF-8.
        url: Its container.
        is_volume: A mounted volume; else an ordinary folder.
        block_size: Bytes.
        condition: As `status` has it, or "damaged": its record can't be read.
        detail: Why, in words; empty if there is nothing to say.
        last: The last cycle.
        shared: The last one in which blocks came from elsewhere than the server, or went to peers.
        pending: What the last cycle left undone, and its remarks.
        conflicts: How many conflict copies there are.
        is_paused: The daemon is to leave it alone.
        lan_off: Why devices on the network are not asked; empty: they are.
    """

    uuid: str
    path: bytes
    url: str = ""
    is_volume: bool = False
    block_size: int = 0
    condition: str = "ok"
    detail: str = ""
    last: CycleFacts | None = None
    shared: CycleFacts | None = None
    pending: tuple[Pending, ...] = ()
    conflicts: int = 0
    is_paused: bool = False
    lan_off: str = ""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended.

    Attributes:
        exit_code: Its exit code.
        lines: What it printed, line by line: JSON.
        message: What it told a person last; empty: nothing.
    """

    exit_code: int
    lines: tuple[bytes, ...]
    message: str


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A conflict copy, and what has its name.

    Attributes:
        diff: As `diff -u` has it, without the names: `-` is what has the name, `+` what is in the copy. None: they are
            no short texts.
        cells: For each piece of the longer file 0 equal, 1 they differ, 2 only in the copy, 3 only in the other one.
        cell_bytes: How long a piece is.
        differing_bytes: How much differs.
    """

    diff: tuple[str, ...] | None
    cells: bytes
    cell_bytes: int
    differing_bytes: int


class PagePorts(Protocol):
    """The program, for the page. All but `run` block, for a short time, and are called in a thread.

    Attributes:
        device: What this machine is called.
    """

    device: str

    def roots(self) -> list[RootFacts]:
        """What is linked, by path."""
        ...

    def live(self) -> DaemonLive | None:
        """How the daemon stands; None: it does not answer."""
        ...

    def metrics(self) -> str | None:
        """The daemon's figures in the text format of Prometheus; None: it does not answer."""
        ...

    def metrics_token(self) -> str:
        """What who asks for them must show: in a file that only this user can read, made if it is missing."""
        ...

    def pause(self, uuid: str, *, paused: bool) -> None:
        """What `blocksync pause` and `resume` do.

        Raises:
            SyncerError: It is not linked any more.
        """
        ...

    def expedite(self, uuid: str) -> bool:
        """Have the daemon look at everything of a root now; returns whether it watches it."""
        ...

    def compare(self, uuid: str, path: bytes) -> Compared:
        """How the conflict copy at a path and what has its name differ. Reads both: may take long.

        Raises:
            SyncerError: It is none, or there are no two files.
        """
        ...

    async def run(
        self,
        arguments: Sequence[bytes],
        heard: Callable[[bytes], None] | None = None,
        *,
        given: bytes = b"",
    ) -> Ran:
        """Run `blocksync ARGUMENTS`.

        Args:
            arguments: Verb, options and arguments.
            heard: Is told each line of its stdout as it comes; then `Ran` has none.
            given: Its stdin.
        """
        ...
