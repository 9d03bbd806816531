"""What goes to the local side and comes back from it: looks, orders, outcomes (`ports.local` has the methods)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Container, Mapping, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import ZERO_BLOCK, BlockId
from syncer.core.folding import Folding
from syncer.core.ignore import IgnoreRules
from syncer.core.model import Content, FileStat, Kind, LocalTag, Meta, RelPath
from syncer.core.rows import Origin
from syncer.errors import EXPECTED, LocalChangedError
from syncer.ports.blocks import VersionRef

T = TypeVar("T")
R = TypeVar("R")

MAX_BLOCKS = 1 << 24
"""Blocks of the largest file that is synced: its block list alone is 512 MiB in memory (1 TiB at 64 KiB)."""

SMALL_BYTES: Final = 256 << 10
"""See `StageOrder.is_small`."""

OWN: Final = EXPECTED
"""What may come of one file alone. All else is a fault of the program and ends it."""

Holders = Callable[["Content"], "Sequence[Origin]"]
"""Tells which local files hold a content now, by the books of a cycle. Called in the event loop's thread."""

CopyName = Callable[[bytes, Content | None, Container[bytes]], bytes]
"""Name of a conflict copy, from the name it lost, the content it keeps (None: no file) and the names that are taken."""


class Hints(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. A hint is never evidence: what is there is looked at.

    Attributes:
        directories: In which something may have changed; None: nobody watched, so the root finds out itself.
        entries: Further paths that may have changed: themselves, not what lies beside or below them.
        brief: One of many cycles between looks at everything: evidence that may once in a while be wrong counts.
    """

    directories: Collection[RelPath] | None = None
    entries: Collection[RelPath] = ()
    brief: bool = False


class LocalCounters(msgspec.Struct, kw_only=True):
    """What a root has read so far.

    Attributes:
        bytes_read: Content bytes, from files or segments.
        total_bytes: Sizes of the files to hash, of this look; 0 where nothing is hashed.
        done_bytes: How much of that is done; holes count.
        own_blocks: Of files that were staged, blocks that were here already, in known places: nobody was asked for
            them. What a file has in common with its version before, or a killed run left, does not count, nor holes.
    """

    bytes_read: int = 0
    total_bytes: int = 0
    done_bytes: int = 0
    own_blocks: int = 0


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
        rules: What is ignored, on both sides; the observation is without it.
        holding: Directories with something in them that is not synced (ignored, special): they are not removed.
        folding: Which names the root takes for one.
        sealed: Those of `unknown` that nothing can have been moved into from here.
    """

    stats: list[FileStat]
    unknown: list[RelPath]
    problems: list[Problem]
    clock_ns: int = 0
    rules: IgnoreRules = msgspec.field(default_factory=IgnoreRules)
    holding: frozenset[RelPath] = frozenset()
    sealed: frozenset[RelPath] = frozenset()
    folding: Folding = msgspec.field(default_factory=Folding)


class HeldBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block that was read.

    Attributes:
        data: Canonical.
        is_file: It is all of a file.
    """

    data: bytes
    is_file: bool


Spill = Callable[[Mapping[BlockId, HeldBlock]], Awaitable[bool]]
"""Brings blocks to where they are wanted. False: no more of them; these may have got there or not."""


Patterns = Callable[[], Sequence[bytes]]
"""Reads the root's own ignore patterns, one line each; asked anew for each observation."""


def no_patterns() -> Sequence[bytes]:
    """A root without patterns of its own."""
    return ()


class StageOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be staged.

    Attributes:
        path: Where it will go.
        content: Its identity.
        blocks: Its block list, in the share's grid.
        meta: Its mode, mtime and extended attributes; None fields get the root's defaults.
        origins: Local files that probably hold most of the blocks at the same index, likeliest first: the old version,
            the node that this is a copy of, files of equal content.
        version: The object that has the blocks that are not here; None: a file of here, which the server does not have.
        new: Nothing is replaced, so nobody's owner need be kept.
    """

    path: RelPath
    content: Content
    blocks: BlockList
    meta: Meta
    origins: tuple[Origin, ...] = ()
    version: VersionRef | None = None
    new: bool = False

    @property
    def is_small(self) -> bool:
        """Of one block at most, and takes longer to name than to write: many are staged together."""
        return len(self.blocks) <= 1 and self.content.size_bytes <= SMALL_BYTES

    def own_blocks(self, origin: Origin, theirs: BlockList) -> int:
        """How many blocks another file has at the same index, holes not counted; 0 for this one's version before."""
        if origin.path == self.path:
            return 0
        changed = self.blocks.changed_from(theirs).values()
        holes = self.blocks.ids.count(ZERO_BLOCK) - sum(each == ZERO_BLOCK for each in changed)
        return len(self.blocks) - len(changed) - holes


class Staged(Protocol):
    """A complete, verified, durable file without a visible name. Installed once, or dropped."""

    async def drop(self) -> None:
        """Give it up. Harmless after it was installed."""
        ...


class Install(msgspec.Struct, frozen=True, kw_only=True):
    """Give a staged file its name.

    Attributes:
        path: The name.
        staged: The file.
        expect: What it replaces, which goes to the trash, or becomes a conflict copy; None: the name is free.
    """

    path: RelPath
    staged: Staged
    expect: LocalTag | None = None


class MakeDirectory(msgspec.Struct, frozen=True, kw_only=True):
    """Make a directory under a free name."""

    path: RelPath
    meta: Meta


class MakeLink(msgspec.Struct, frozen=True, kw_only=True):
    """Make a symlink under a free name, or (with `expect`) in the place of another symlink."""

    path: RelPath
    target: bytes
    expect: LocalTag | None = None


class Rename(msgspec.Struct, frozen=True, kw_only=True):
    """Rename to a free name; also to and from the park folder. Content may have changed: only the inode counts."""

    source: RelPath
    target: RelPath
    expect: LocalTag


class Remove(msgspec.Struct, frozen=True, kw_only=True):
    """Take a node away, restorable. A directory must be empty of what we don't know.

    Attributes:
        path: Where.
        kind: What it is.
        expect: Its evidence.
        is_double: It was deleted by nobody: another node, or a conflict copy of it, stands for it.
        origin: Where people had it, if it was parked since: the trash gives it back there.
    """

    path: RelPath
    kind: Kind
    expect: LocalTag
    is_double: bool = False
    origin: RelPath | None = None


class ChangeMeta(msgspec.Struct, frozen=True, kw_only=True):
    """Set what has a value; None fields stay.

    Attributes:
        path: Where.
        meta: What it is to have.
        expect: What it is.
        seen: What it had when that was decided. An extended attribute that somebody gave it, or changed, since then
            stays, but where `meta` has another value than before.
    """

    path: RelPath
    meta: Meta
    expect: LocalTag
    seen: Meta | None = None


Change: TypeAlias = Install | MakeDirectory | MakeLink | Rename | Remove | ChangeMeta


class Applied(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is made.

    Attributes:
        tag: Evidence for the node as it is now, by our own write; None: it is gone, as it was to be.
        copied_to: Where something unexpected that stood in the way was kept, as a conflict copy.
        lacking: Why not all of the metadata could be set; `meta` is then what it really has.
        meta: What a new directory really has, where nobody asked for a mode. None: what was asked for.
    """

    tag: LocalTag | None
    meta: Meta | None = None
    copied_to: RelPath | None = None
    lacking: str | None = None


class Piece(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One block of an observed file. Compared by identity: a block list is long.

    Attributes:
        stat: The file as it was observed.
        blocks: Its block list in the share's grid.
        index: Of the block in it.
    """

    stat: FileStat
    blocks: BlockList
    index: int

    @property
    def id(self) -> BlockId:
        """The block's id; of an empty file, that of nothing."""
        return self.blocks[self.index] if len(self.blocks) else ZERO_BLOCK


class BusyError(LocalChangedError):
    """A file is open for writing and is not replaced now. No failure: tried again in every cycle."""


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


def single(block_size: int, content: Content) -> BlockList:
    """The block list of a content of at most one block, which has that block's id."""
    ids = bytes(content.object_hash) if content.size_bytes else b""
    return BlockList(block_size=block_size, size_bytes=content.size_bytes, ids=ids)


def outcomes(items: Sequence[T], work: Callable[[T], R]) -> list[R | Exception]:
    """Work on each item. One that fails by a fault of its own takes no other with it."""
    found: list[R | Exception] = []
    for item in items:
        try:
            found.append(work(item))
        except OWN as error:
            found.append(error)
    return found
