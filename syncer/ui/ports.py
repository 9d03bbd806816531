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
        host: The device whose version is in the copy.
        other: The device whose version has the name; None: nobody knows.
    """

    diff: tuple[str, ...] | None
    cells: bytes
    cell_bytes: int
    differing_bytes: int
    host: str
    other: str | None = None


class MountFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A mounted volume of this user.

    Attributes:
        uuid: Of the volume.
        volume: The directory that holds it.
        mountpoint: Where it is mounted.
        staged_bytes: Written, not sealed yet.
        scrub: Blocks that a scrub under way has checked, and of how many; zeros: there is none.
        trouble: Why nothing more is known; empty: it answers.
    """

    uuid: str
    volume: bytes
    mountpoint: bytes
    staged_bytes: int = 0
    scrub: tuple[int, int] = (0, 0)
    trouble: str = ""


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """What a volume held at a moment.

    Attributes:
        at_s: Seconds since the epoch.
        logical_bytes: Of its files.
        unique_bytes: Of their distinct blocks.
        stored_bytes: What it took on its host.
    """

    at_s: float
    logical_bytes: int
    unique_bytes: int
    stored_bytes: int


class SnapshotFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One snapshot: its name, of what it is, when it was made, files and their bytes."""

    name: bytes
    source: bytes
    created_s: float
    files: int
    logical_bytes: int


class SharerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A file that shares: its distinct blocks, those that others have and their bytes, with whom it shares most."""

    path: bytes
    size_bytes: int
    blocks: int
    shared: int
    shared_bytes: int
    other: bytes


class VolumeFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is in a mounted volume, as `stats --map` and `snapshot ls` tell it.

    Attributes:
        files: How many.
        filled_bytes: Of them and of snapshots, without holes.
        now: What it holds.
        past: What it held, the oldest first.
        snapshots: All of them.
        sharers: Files that share most.
        is_whole: Figures are counted; else estimated.
    """

    files: int
    filled_bytes: int
    now: Use
    past: tuple[Use, ...]
    snapshots: tuple[SnapshotFacts, ...]
    sharers: tuple[SharerFacts, ...]
    is_whole: bool


class MapFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The map of a file, as `stats --map FILE` draws it.

    Attributes:
        size_bytes: Of the file.
        block_size: Of the volume.
        blocks: Of the file, or of the part of it that was asked for.
        cells: Holes, staged, own, shared, and with which of the others most (-1: with none of them), in blocks.
        others: Files that share blocks with it, and how many.
        is_whole: Each block was looked at.
        is_behind: The kernel writes to it; what has changed is not told apart.
        first: The block with which the part begins.
        file_blocks: Of the whole file.
    """

    size_bytes: int
    block_size: int
    blocks: int
    cells: tuple[tuple[int, int, int, int, int], ...]
    others: tuple[tuple[bytes, int], ...]
    is_whole: bool
    is_behind: bool
    first: int = 0
    file_blocks: int = 0


class ServerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A server of this user that runs here: its name in addresses, what it serves, where."""

    ident: str
    directory: bytes
    url: str


class ContainerFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A container.

    Attributes:
        name: Of the container.
        objects: How many there are now.
        size_bytes: Their sizes.
        modified_s: When something in it changed last.
        versions: Current and old ones of its objects.
        old_bytes: Sizes of the old ones, each as if it were alone.
        is_counted: These are all versions; else there are more.
    """

    name: str
    objects: int
    size_bytes: int
    modified_s: float
    versions: int = 0
    old_bytes: int = 0
    is_counted: bool = True


class AccountFacts(msgspec.Struct, frozen=True, kw_only=True):
    """An account: what it may store (0: as much as there is), and its containers."""

    name: str
    quota_bytes: int
    containers: tuple[ContainerFacts, ...]


class StoreFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a server keeps.

    Attributes:
        block_size: Bytes.
        stored_bytes: What its folder takes on the disk.
        versions: Of all objects, also of those that were deleted, and what tells of the deletions.
        accounts: By name.
        trouble: Why quotas are not known; empty: they are.
    """

    block_size: int
    stored_bytes: int
    versions: int
    accounts: tuple[AccountFacts, ...]
    trouble: str


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

    def sums(self) -> str | None:
        """Sums of them that everybody on this machine may know; None: it does not answer."""
        ...

    def metrics_token(self) -> str:
        """What who asks for them must show: in a file that only this user can read, made if it is missing."""
        ...

    def peers(self) -> bytes:
        """How the daemon stands on the network, with the keys of `peers --json`.

        Raises:
            SyncerError: It does not answer.
        """
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

    def mounts(self) -> list[MountFacts]:
        """Mounted volumes of this user, by mountpoint."""
        ...

    def volume(self, uuid: str) -> VolumeFacts:
        """What is in a mounted volume. Reads all of its metadata: may take seconds.

        Raises:
            SyncerError, BlockfsError: It is not mounted any more.
        """
        ...

    def servers(self) -> list[ServerFacts]:
        """Servers of this user that run here."""
        ...

    def store(self, ident: str) -> StoreFacts:
        """What one of them keeps.

        Raises:
            SyncerError, BlockfsError: It does not run any more, or its catalogue can't be read.
        """
        ...

    def block_map(self, uuid: str, path: bytes, cells: int, part: tuple[int, int]) -> MapFacts:
        """The map of a file of a mounted volume, in at most so many cells.

        Args:
            uuid: The volume.
            path: The file.
            cells: In how many pieces at most.
            part: The first block, and how many (0: all that follow); it is made to begin and end with a leaf.

        Raises:
            SyncerError, BlockfsError: There is no such file, or no such mount any more.
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
