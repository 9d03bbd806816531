"""`LocalRoot`: what the engine may ask of the local side, and the values it gets back.

Two implementations: `LocalDirectory` (scan, hash, temp file and exchange) and `BlockfsRoot` (journal and conditional
apply of a mount). Rules both keep:

- An observation is complete or names what it could not see (`unknown`): unseen is never absent.
- Every change states the evidence (`expect`) it was decided on. What is not as expected is never destroyed.
- Content is read, and written, only verified: a block against its id.
- A change is durable after the next `barrier`; only then may the StateDB speak of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from blockfs.errors import BlockfsError
from syncer.core.base import BaseIndex
from syncer.core.folding import Folding
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, Nid, RelPath
from syncer.core.rows import BaseRows, Origin
from syncer.errors import LocalChangedError, SyncerError
from syncer.ports.blocks import BlockSource, Receive
from syncer.ports.local import Reader

if TYPE_CHECKING:  # it brings an event loop, and `status` needs what is here, too
    from syncer.local.folder.held import Spill
    from syncer.local.survey.digests import Digests, Survey
    from syncer.ports.state import State

MAX_BLOCKS = 1 << 24
"""Blocks of the largest file that is synced: its block list alone is 512 MiB in memory (1 TiB at 64 KiB)."""

Fetch = Callable[[Sequence[int], Receive], Awaitable[None]]
"""Gets the blocks with these indexes, wherever they are, and has each id received once, verified. Raises why it can't
have one of them, when all the others are received."""

FetchAll = Callable[[Sequence[int], Receive], Awaitable[Mapping[int, Exception]]]
"""Gets the only block of each of several files, named by their places in a list, and has each id received once,
verified. Returns for which of the files that failed, and why, when all the others are received."""

OWN: Final = (SyncerError, BlockfsError, OSError)
"""What may come of one file alone. All else is a fault of the program and ends it."""

Holders = Callable[["Content"], "Sequence[Origin]"]
"""Tells which local files hold a content now, by the books of a cycle. Called in the event loop's thread."""

CopyName = Callable[[bytes, Content | None, Container[bytes]], bytes]
"""Name of a conflict copy, from the name it lost, the content it keeps (None: no file) and the names that are taken."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something in the root that is not synced in this cycle, and why.

    Attributes:
        path: As the filesystem spells it: need not be UTF-8.
        reason: For a person, complete.
        partly: The run counts as partly done (exit 3). False for what is no failure: sockets, files held open.
    """

    path: bytes
    reason: str
    partly: bool = True


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """The whole local side at one time.

    Attributes:
        stats: Every node that can be synced, in no particular order. Files carry their content.
        unknown: Nothing is known at and below these paths; they are neither there nor absent.
        problems: What is left alone and why.
        clock_ns: The filesystem's own time before anything was looked at; see `settled`.
        checkpoint: Where the next observation may start, to be stored once nothing of this one is left undone.
        rules: What is ignored, on both sides; the observation is without it.
        holding: Directories with something in them that is not synced (ignored, special): they are not removed.
        folding: Which names the root takes for one.
        sealed: Those of `unknown` that nothing can have been moved into from here.
    """

    stats: list[FileStat]
    unknown: list[RelPath]
    problems: list[Problem]
    clock_ns: int = 0
    checkpoint: bytes | None = None
    rules: IgnoreRules = msgspec.field(default_factory=IgnoreRules)
    holding: frozenset[RelPath] = frozenset()
    sealed: frozenset[RelPath] = frozenset()
    folding: Folding = msgspec.field(default_factory=Folding)


Patterns = Callable[[], Sequence[bytes]]
"""Reads the root's own ignore patterns, one line each; asked anew for each observation."""


def no_patterns() -> Sequence[bytes]:
    """A root without patterns of its own."""
    return ()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A file's content that is to be staged.

    Attributes:
        path: Where it will go; for messages.
        content: Its identity.
        blocks: Its block list.
        meta: Its mode, mtime and extended attributes; None fields get the root's defaults.
        origins: Local files that probably hold most of the blocks at the same index, likeliest first: the old version,
            the node that this is a copy of, files of equal content.
        fetch: For the blocks that are not known by their places: the root's own are found there, too.
    """

    path: RelPath
    content: Content
    blocks: BlockList
    meta: Meta
    origins: tuple[Origin, ...] = ()
    fetch: Fetch


class Staged(Protocol):
    """A complete, verified, durable file without a visible name. Installed once, or dropped."""

    async def drop(self) -> None:
        """Give it up. Harmless after it was installed."""
        ...


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is made.

    Attributes:
        tag: Evidence for the node as it is now, by our own write.
        copied_to: Where something unexpected that stood in the way was kept, as a conflict copy.
        lacking: Why not all of the metadata could be set; `meta` is then what it really has.
        meta: What a new directory really has, where nobody asked for a mode. None: what was asked for.
    """

    tag: LocalTag
    meta: Meta | None = None
    copied_to: RelPath | None = None
    lacking: str | None = None


class BusyError(LocalChangedError):
    """A file is open for writing and is not replaced now. No failure: tried again in every cycle."""


class PartLook(Protocol):
    """Looks at directories and entries. Blocking.

    Attributes:
        rules: What is ignored, as it was when everything was looked at the last time.
        holding: Directories in which something was met that is not synced.
        folds: Some names are taken for one another.
    """

    rules: IgnoreRules
    holding: set[RelPath]
    folds: bool

    def survey(self, known: Digests) -> Survey:
        """Where something may have changed."""
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

    def is_as_known(self, rows: BaseRows, path: RelPath, nid: Nid, known: Digests) -> bool:
        """Whether a directory of the base, wherever it is now, and all below it is exactly as the base says."""
        ...


class LocalRoot(Protocol):
    """One linked local folder. Safe for many tasks at once.

    Common errors: LocalChangedError (the world is not as expected; nothing was destroyed), RootIdentityError,
    NoSpaceError, OSError for one path's own failure (permission, I/O).

    Attributes:
        path: Absolute path of ROOT.
        block_size: Bytes of a block.
        bytes_read: Content bytes read so far, from files or segments.
    """

    path: bytes
    block_size: int

    @property
    def bytes_read(self) -> int:
        """See above."""
        ...

    async def observe(self, base: BaseIndex, checkpoint: bytes | None, spill: Spill | None = None) -> Observation:
        """Look at the whole root.

        Args:
            base: What both sides last agreed on: content of a file whose evidence is unchanged is taken from there.
            checkpoint: From an earlier observation that is fully contained in `base`, or None.
            spill: Takes blocks of new files that were read and that memory can't hold. A volume reads none.
        """
        ...

    # --- looking at a part

    async def attend(self, state: State) -> bool:
        """Get ready to be looked at; False: only a look at everything will do."""
        ...

    def surveyor(self, rules: IgnoreRules, rows: BaseRows) -> PartLook:
        """Blocking looks at directories, at what these rules don't ignore. Valid as long as the rows are."""
        ...

    def patterns(self) -> Sequence[bytes]:
        """The root's own ignore patterns. Blocking."""
        ...

    async def begin(self) -> int:
        """The filesystem's own time, before anything is looked at."""
        ...

    def settled(
        self, rules: IgnoreRules, rows: BaseRows, paths: Iterable[RelPath] | None, clock_ns: int
    ) -> Mapping[int, bytes | None]:
        """See `Surveyor.settled`. Blocking."""
        ...

    async def kept_contents(self) -> AbstractSet[Content]:
        """Contents whose block lists are at hand."""
        ...

    async def observe_part(self, stats: list[FileStat], base: BaseIndex, clock_ns: int) -> Observation:
        """Complete listed entries by their contents."""
        ...

    async def supersede(self, contents: Sequence[Content]) -> None:
        """Forget the block lists of contents that both sides had and have no more. Others may go with them: a cache."""
        ...

    # --- contents

    def reader(self) -> Reader:
        """For one run of pushes."""
        ...

    async def block_lists(self, stats: Sequence[FileStat]) -> list[BlockList | Exception]:
        """The block lists of observed files in the share's grid, or why one can't be had.

        LocalChangedError: the file is not the one observed any more. An ordinary directory may have to read it.
        """
        ...

    async def block_list(self, stat: FileStat) -> BlockList:
        """The block list of an observed file.

        Raises:
            LocalChangedError: The file is not the one observed any more.
        """
        ...

    async def known_list(self, content: Content, stat: FileStat | None = None) -> BlockList | None:
        """The block list of a content that this root has or had, if it can be had without reading any content.

        Args:
            content: Which.
            stat: A file that may have it now.
        """
        ...

    async def remember_list(self, content: Content, blocks: BlockList) -> None:
        """Keep the block list of a content that both sides have now, for `known_list` after the next change."""
        ...

    async def read_block(self, stat: FileStat, blocks: BlockList, index: int) -> bytes:
        """One block of an observed file, canonical, as it is now: whoever sends it compares it with its id.

        Raises:
            LocalChangedError: The file is gone.
        """
        ...

    async def read_small(self, stats: Sequence[FileStat]) -> list[bytes | LocalChangedError | OSError]:
        """The only block of each of some observed files, as `read_block` reads it, or why it can't be had.

        Args:
            stats: Files of at most one block, with their contents.
        """
        ...

    async def verify_unchanged(self, stat: FileStat) -> None:
        """Look once more before the other side is told: the file is still the one observed.

        Raises:
            LocalChangedError: It is not.
        """
        ...

    def own_blocks(self, holders: Holders) -> BlockSource:
        """The near source `own` of a cycle: the blocks that this root has, wherever they lie in it.

        What `stage` or `create_all` put in its place is found from then on, through install and booking.

        Args:
            holders: By the books of the cycle.
        """
        ...

    async def stage(self, wanted: Wanted) -> Staged:
        """Assemble a file invisibly: every block verified, mode and times set, durable."""
        ...

    def keep_received(self) -> Callable[[BlockId], bytes | None]:
        """Keep at hand what is fetched from now on, until the cycle is over: others may want it before that.

        Returns:
            Reads a block that a `stage` fetched: canonical, not verified; None if it is not there (any more), as those
            of `create_all` never are. Blocking, any thread.
        """
        ...

    async def create(self, path: RelPath, staged: Staged) -> Applied:
        """Give a staged file a name that is free.

        Raises:
            LocalChangedError: The name is taken, or the parent is gone.
        """
        ...

    async def create_all(self, wanted: Sequence[Wanted], fetch: FetchAll) -> list[Applied | Exception]:
        """Stage and name new files of at most one block each; their block lists need not be remembered.

        Args:
            wanted: Which; their own `fetch` need not be used.
            fetch: For the blocks of all that need one.

        Returns:
            For each what `stage` and `create` would have returned or raised: one that fails takes no other with it.
        """
        ...

    async def replace(self, path: RelPath, staged: Staged, expect: LocalTag) -> Applied:
        """Put a staged file in the place of another one, which goes to the trash, or becomes a conflict copy.

        Raises:
            LocalChangedError: The other one is gone or changed; it was left where it is.
        """
        ...

    async def make_directory(self, path: RelPath, meta: Meta) -> Applied:
        """Make a directory under a free name."""
        ...

    async def make_symlink(self, path: RelPath, target: bytes, expect: LocalTag | None) -> Applied:
        """Make a symlink under a free name, or (with `expect`) in the place of another symlink."""
        ...

    async def move(self, source: RelPath, target: RelPath, expect: LocalTag) -> Applied:
        """Rename to a free name; also to and from the park folder. Content may have changed: only the inode counts."""
        ...

    async def trash(self, path: RelPath, kind: Kind, expect: LocalTag) -> None:
        """Take a node away, restorable. A directory must be empty of what we don't know.

        Raises:
            LocalChangedError: It is not as expected; it is still there, or back, or kept as a conflict copy.
        """
        ...

    async def set_meta(self, path: RelPath, meta: Meta, expect: LocalTag, seen: Meta | None = None) -> Applied:
        """Set what has a value; None fields stay.

        Args:
            path: Where.
            meta: What it is to have.
            expect: What it is.
            seen: What it had when that was decided. An extended attribute that somebody gave it, or changed, since then
                stays, but where `meta` has another value than before.
        """
        ...

    async def barrier(self) -> None:
        """Return when every change made so far is durable."""
        ...

    async def finish(self) -> list[RelPath]:
        """After the last change of a cycle: look at displaced files again.

        Returns:
            Conflict copies made of those that somebody still wrote to.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. Idempotent."""
        ...


def settled(tag: LocalTag, clock_ns: int) -> LocalTag:
    """The evidence that may be recorded for a file that was observed after `clock_ns`.

    A write in the same clock tick as the last one changes neither mtime nor ctime. So if both are not older than the
    moment before we looked, the tag proves nothing: it is recorded with ctime 0, equals no real one, and the file is
    hashed again next time. Both clocks are the filesystem's own, so this needs no margin. (A file whose mtime was set
    to the past by us or by `cp -p` would need a second hidden write plus utimes within the tick: not defended.)
    """
    if min(tag.mtime_ns, tag.ctime_ns) < clock_ns or tag.version is not None:
        return tag
    return LocalTag(
        device=tag.device,
        ino=tag.ino,
        btime_ns=tag.btime_ns,
        size_bytes=tag.size_bytes,
        mtime_ns=tag.mtime_ns,
        ctime_ns=0,
    )


def content_of(blocks: BlockList) -> Content:
    """Identity of the content that a block list describes."""
    return Content(size_bytes=blocks.size_bytes, object_hash=blocks.object_hash)
