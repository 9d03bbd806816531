"""`LocalRoot`: what the engine may ask of the local side.

Two implementations: `LocalDirectory` (scan, hash, temp file and exchange) and `BlockfsRoot` (journal and conditional
apply of a mount). Rules both keep:

- An observation is complete or names what it could not see (`unknown`): unseen is never absent.
- Every change states the evidence (`expect`) it was decided on. What is not as expected is never destroyed.
- Content is read, and written, only verified: a block against its id.
- A change is durable after the next `barrier`; only then may the StateDB speak of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal, Protocol

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.base import BaseIndex
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, LocalTag, Nid, RelPath
from syncer.core.rows import BaseRows
from syncer.ports.blocks import BlockSource, Fetcher
from syncer.ports.localvalues import (
    Applied,
    Change,
    Hints,
    Holders,
    LocalCounters,
    Observation,
    Piece,
    Spill,
    Staged,
    StageOrder,
)


class BlockReader(Protocol):
    """Reads blocks for a push. Whoever sends need not compare them with their ids once more."""

    async def read(self, pieces: Sequence[Piece]) -> list[bytes | Exception]:
        """Blocks of observed files, all of them read in one thread.

        A file of several blocks is looked at before its first one is read: what was written to since it was observed
        costs no traffic.

        Returns:
            For each the block, canonical and verified; or why it can't be had: LocalChangedError (the file is not what
            was observed), OSError, BlockfsError.
        """
        ...


class KeptLists(Protocol):
    """Block lists of contents that both sides have, kept from one cycle to the next. A cache. Blocking, any thread."""

    def save(self, content: Content, blocks: BlockList) -> None:
        """Keep one, if it is long enough to be worth it."""
        ...

    def contents(self) -> set[Content]:
        """Whose lists are kept."""
        ...


class PartLook(Protocol):
    """Looks at directories and entries. Blocking; valid as long as the rows are that it was made with.

    Attributes:
        rules: What is ignored, as it was when everything was looked at the last time.
        holding: Directories in which something was met that is not synced.
        folds: Some names are taken for one another.
    """

    rules: IgnoreRules
    holding: set[RelPath]
    folds: bool

    def where(self) -> tuple[Collection[RelPath], Collection[RelPath]]:
        """Where something may have changed: directories to be listed; single entries, not what is beside or below them.

        Raises:
            UnboundedError: That can't be told, or something is parked: only a look at everything puts that right.
        """
        ...

    def is_directory(self, path: RelPath) -> bool:
        """Whether there is one now."""
        ...

    def listing(self, path: RelPath) -> list[FileStat]:
        """One directory in full."""
        ...

    def entries(self, path: RelPath, names: Iterable[bytes]) -> list[FileStat] | None:
        """Some entries of a directory; None: list it.

        Raises:
            LocalChangedError: There is no such directory.
        """
        ...

    def is_free(self, path: RelPath) -> bool:
        """Whether nothing has this name now. False if that can't be told."""
        ...

    def is_as_known(self, path: RelPath, nid: Nid) -> bool:
        """Whether a directory of the base, wherever it is now, and all below it is exactly as the base says."""
        ...


class LocalRoot(Protocol):
    """One linked local folder. Safe for many tasks at once.

    Common errors: LocalChangedError (the world is not as expected; nothing was destroyed), RootIdentityError,
    NoSpaceError, OSError for one path's own failure (permission, I/O).

    Attributes:
        kind: A folder's blocks are found by the block lists of its files; a volume finds them by their ids.
        block_size: Bytes of a block of the share.
        counters: What was read so far.
        lists: Block lists in the share's grid.
    """

    block_size: int
    counters: LocalCounters

    @property
    def lists(self) -> KeptLists:
        """See above."""
        ...

    @property
    def kind(self) -> Literal["folder", "volume"]:
        """See above."""
        ...

    async def observe(self, base: BaseIndex, spill: Spill | None = None) -> Observation:
        """Look at the whole root.

        Args:
            base: What both sides last agreed on: content of a file whose evidence is unchanged is taken from there.
            spill: Takes blocks of new files that were read, while others are read. A volume reads none.
        """
        ...

    async def attend(self, hints: Hints) -> bool:
        """Get ready to be looked at in part; False: only a look at everything will do."""
        ...

    def part(self, rows: BaseRows, rules: IgnoreRules) -> PartLook:
        """What looks at a part, at what these rules don't ignore. Maybe twice after `attend`. Blocking.

        Raises:
            UnboundedError: The root's own patterns are others by now.
        """
        ...

    async def complete(self, look: PartLook, stats: list[FileStat], base: BaseIndex) -> Observation:
        """Complete entries that were looked at by their contents."""
        ...

    async def concluded(self, looked: Collection[RelPath] | None, gone: Collection[Content], *, undone: bool) -> None:
        """After a cycle: keep what makes the next look short. Each kind of root knows what that is.

        Args:
            looked: Directories that were looked at; None: all.
            gone: Contents that both sides had and have no more: their block lists are forgotten.
            undone: Something was left undone, so the rows do not have all that was seen.
        """
        ...

    # --- contents

    def reader(self) -> BlockReader:
        """For one run of pushes."""
        ...

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """The block lists of observed files in the share's grid, or why one can't be had.

        LocalChangedError: the file is not the one observed any more; it is looked at. An ordinary directory may have to
        read it.
        """
        ...

    def list_of(self, content: Content, tag: LocalTag | None) -> BlockList | None:
        """The block list of a content that this root has or had, if it can be had without reading any. Blocking.

        Args:
            content: Which.
            tag: Evidence of a file that may have it now.
        """
        ...

    def own_blocks(self, holders: Holders) -> BlockSource:
        """The near source `own` of a cycle: the blocks that this root has, wherever they lie in it.

        What `stage` put in its place is found from then on, through install and booking.

        Args:
            holders: By the books of the cycle.
        """
        ...

    async def stage(self, orders: Sequence[StageOrder], blocks: Fetcher) -> list[Staged | Exception]:
        """Assemble files invisibly: every block verified, attributes and times set, durable. Block lists are kept.

        Equal blocks are fetched once. Each file has its own outcome: one that fails keeps what came of it for the next
        run, unless the disk is full, and takes no other with it.
        """
        ...

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        """Keep at hand what is fetched from now on, until the cycle is over: others may want it before that.

        Returns:
            Reads a block that a `stage` fetched: canonical, not verified; None if it is not there (any more), or, as
            contents of small files, not yet. Blocking, in a thread of trio's.
        """
        ...

    async def apply(self, changes: Sequence[Change]) -> list[Applied | Exception]:
        """Make changes that do not need each other, each conditional, each destroying nothing unseen.

        Returns:
            Of each what was made, or why not: LocalChangedError (the world is not as expected: the name is taken, what
            was there is gone or changed; that is still there, or back, or kept as a conflict copy), BusyError,
            NoSpaceError, OSError. One that fails takes no other with it.
        """
        ...

    async def barrier(self) -> None:
        """Return when every change made so far is durable."""
        ...

    async def settle(self) -> list[RelPath]:
        """After the last change of a cycle: look at displaced files again.

        Returns:
            Conflict copies made of those that somebody still wrote to.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. Idempotent."""
        ...
