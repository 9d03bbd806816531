"""The remote side as the engine sees it: `Remote`, what may be asked of a container, and the values it gets back.

Rules that every implementation keeps (the contract suite in tests/contract checks them):

- Reads are pinned to a version and verified: a block against its id, a block list against object hash and size.
- Every mutating call is conditional on what the engine decided on (`expect`), so nobody's newer version is replaced
  unknowingly. Where a server can't promise that (plain Pithos), a version that slipped in between is found afterwards
  and reported as `ForeignVersion`: the engine keeps it as a conflict copy.
- After a lost reply the client looks, compares and adopts; it never repeats blindly.
- `.blocksync` and names below are reserved: never listed, except those of parked nodes below `.blocksync/park/`. Two
  more may be named by requests: `.blocksync/lan-key`, the key of the share, which listings and changes tell beside, and
  the directory `.blocksync` that it is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import msgspec

from blockfs.blocks.blocklist import BlockList
from syncer.core.model import Ages, Position, RelPath, RemoteStat, RemoteTag
from syncer.core.partial.listing_diff import Known
from syncer.core.planner.overwrites import ForeignVersion, Overwrite
from syncer.core.subtrees import SubtreeMove
from syncer.errors import SyncerError
from syncer.ports.blocks import BlockSource, VersionRef
from syncer.ports.orders import Writes


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """How contents are named in a share: every side of it speaks of blocks of this size.

    Attributes:
        block_size: Bytes of a block. Read from the remote, never assumed.
        block_hash: Name of the hash function, "sha256" (others are refused).
    """

    block_size: int
    block_hash: str


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote can, as far as it makes a difference to who uses it.

    Attributes:
        atomic: A condition holds with its write. False: what was overwritten unseen is found afterwards.
        moves_trees: Most objects of a directory that is moved, and told as moved, as one; 0: object by object.
        holds_back: Writes are seen by others only after a commit.
        waits: How a change is noticed, for `status`: the remote tells of it, it is asked now and then, or files are
            watched.
        reads: So many contents of one block may come by one request; 1: each by its own.
    """

    atomic: bool
    moves_trees: int
    holds_back: bool
    waits: Literal["told", "polling", "files"]
    reads: int


class RemoteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a remote says of itself.

    Attributes:
        identity: UUID text of its life; None where there is none (plain Pithos).
        grid: Of the share.
        can: What it can.
        text: The same for a person, in a few words.
    """

    identity: str | None
    grid: Grid
    can: Capabilities
    text: str


class KnownList(msgspec.Struct, frozen=True, kw_only=True):
    """A block list that we have of an earlier version of an object: only what differs from it need travel.

    Attributes:
        tag: Which version's.
        blocks: The list. If it is not that version's, the transfer costs more, and no harm is done.
    """

    tag: RemoteTag
    blocks: BlockList


@dataclass(slots=True)
class Counters:
    """What a client has done so far. Mutable, owned by the client; `snapshot` to compare later.

    Attributes:
        bytes_sent: Request bodies, without headers, every attempt counted.
        bytes_received: Response bodies, without headers, every attempt counted.
        blocks_sent: Blocks in accepted or refused POSTs and plain PUTs of files.
        blocks_received: Blocks received and verified.
        requests: HTTP requests (or their like), every attempt counted.
        mutating_requests: Those of them that may change the container: all but HEAD and GET. Block POSTs count.
    """

    bytes_sent: int = 0
    bytes_received: int = 0
    blocks_sent: int = 0
    blocks_received: int = 0
    requests: int = 0
    mutating_requests: int = 0

    def snapshot(self) -> Counters:
        """A copy that no longer changes."""
        return Counters(
            bytes_sent=self.bytes_sent,
            bytes_received=self.bytes_received,
            blocks_sent=self.blocks_sent,
            blocks_received=self.blocks_received,
            requests=self.requests,
            mutating_requests=self.mutating_requests,
        )

    def since(self, earlier: Counters) -> Counters:
        """What was done after `earlier` was taken."""
        return Counters(
            bytes_sent=self.bytes_sent - earlier.bytes_sent,
            bytes_received=self.bytes_received - earlier.bytes_received,
            blocks_sent=self.blocks_sent - earlier.blocks_sent,
            blocks_received=self.blocks_received - earlier.blocks_received,
            requests=self.requests - earlier.requests,
            mutating_requests=self.mutating_requests - earlier.mutating_requests,
        )


class RefusedName(msgspec.Struct, frozen=True, kw_only=True):
    """An object that can't be synced because of what it is called or what it is. Reported, never fatal.

    Attributes:
        name: The object's name as the server wrote it; may hold anything.
        reason: Why, for a person.
        size_bytes: Of the object.
    """

    name: str
    reason: str
    size_bytes: int = 0


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A complete, error-free listing of the container: the evidence that a missing object is deleted.

    Attributes:
        info: The container as seen before the first page.
        objects: Sorted by path; only what has an object of its own: a directory that is merely implied by the names
            below it is not here (`core.identify_remote` adds those as `implicit`, without a tag). Of the reserved names
            only those below `.blocksync/park/` are.
        refused: Objects whose names or kinds we don't take, with reasons.
        position: The moment, that of the last change of the container at least, deletions included: where `changes`
            goes on. An earlier one than before means that the server was restored from a backup.
        lan_key: The object with the share's key; None: there is none.
    """

    info: RemoteInfo
    position: Position
    objects: list[RemoteStat]
    refused: list[RefusedName] = msgspec.field(default_factory=list)
    lan_key: RemoteStat | None = None


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that changed in a container since a moment, as it is now. Complete, or there is none.

    Attributes:
        info: The container.
        position: Where the next question begins; that of the question if nothing changed.
        objects: What exists and is new or changed (our own writes, too), sorted by path. Reserved names are left out as
            in a `Listing`.
        deleted: Names that no longer exist, as bytes; may hold anything.
        refused: Changed objects whose names or kinds we don't take, with reasons.
        moves: Subtrees that were moved as one, in order; only if that was asked for. What was moved with them is not
            among the others, unless it changed again.
        complete: Every version after the question that still exists is told: silence about one proves that it is gone.
            Not so where a listing was held against the base.
        lan_key: The object with the share's key, if it may be another one by now.
        lan_key_gone: There is no such object any more, or a listing did not have it.
    """

    info: RemoteInfo
    position: Position
    objects: list[RemoteStat]
    deleted: list[bytes]
    refused: list[RefusedName]
    complete: bool = True
    moves: list[SubtreeMove] = msgspec.field(default_factory=list)
    lan_key: RemoteStat | None = None
    lan_key_gone: bool = False


class KeySign(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at a container told of the share's key.

    Attributes:
        stat: The object; None: nothing was told, or it is gone.
        gone: There is no such object.
    """

    stat: RemoteStat | None = None
    gone: bool = False


class Secret(msgspec.Struct, frozen=True, kw_only=True):
    """A small object.

    Attributes:
        tag: Its version.
        raw: Its bytes, verified; None: it is no file, of another size than was asked for, or damaged.
    """

    tag: RemoteTag
    raw: bytes | None

    def __repr__(self) -> str:
        return f"Secret(tag={self.tag!r})"


class Remote(Writes, Protocol):
    """One container of a remote, as the engine sees it. Safe for many tasks at once.

    Common errors of all methods (syncer.errors): RemoteUnavailableError (13; its subclass `http.BadReplyError` when the
    answer makes no sense), AuthError (12), NotFoundError (10; the container is gone), NoSpaceError (17; its
    disk is full) and OverQuotaError (17, or 3 for one of many; this is too large),
    UnsafeNameError (3; a path the remote can't hold). Object-level ones are named below.

    Attributes:
        counters: What was done so far.
        ages: Which of two versions or moments is the later one.
        source: The only way to contents: blocks of versions, for any number of boards.
    """

    counters: Counters
    ages: Ages
    source: BlockSource

    async def open(self, *, create: bool = False) -> RemoteInfo:
        """What the container is. Remembered after the first call.

        Args:
            create: Make it if there is none.

        Raises:
            NotFoundError: There is no such container.
        """
        ...

    async def list_objects(self) -> Listing:
        """The complete listing, or an error: never a part of it.

        Metadata and symlink targets are filled in where the listing carries them; else they are None, and `resolve`
        fetches them.
        """
        ...

    async def changes(
        self,
        since: Position,
        known: Known | None = None,
        *,
        moves: bool = False,
        brief: bool = False,
        own: Sequence[RemoteTag] = (),
    ) -> Changes | None:
        """What changed since a moment.

        Args:
            since: From a `Listing`, from earlier `Changes` or from `wait`.
            known: What to hold a listing against, where the server tells no changes. It is asked in a thread.
            moves: Tell subtrees that were moved as one in that way, where the server can.
            brief: Evidence that is rarely wrong may count as "nothing changed". False: then rather list.
            own: What has one of these versions as its newest one need not be told: the base has them.

        Returns:
            None when that can't be told: `since` is of another container or of a past that a restored backup undid,
            there is nothing to hold a listing against or it is torn, the server can't leave out what is our own. Then
            list the container.
        """
        ...

    async def wait(self, seen: Position | None) -> Position:
        """Return when something may have changed since a moment; our own writes count, too.

        Cancelling ends the wait at once, here and on the server. It takes no connection from the other requests.

        Args:
            seen: What this returned before. None: return at once.

        Returns:
            The moment up to which it has looked.
        """
        ...

    async def resolve(self, stats: Sequence[RemoteStat]) -> list[RemoteStat | SyncerError]:
        """Fill in what a listing on a plain Pithos lacks: mode, mtime, symlink target. Pinned to the stats' versions.

        Returns:
            One for each; ConflictOnRemoteError: that version is no longer readable; CorruptionError: not as it was
            written.
        """
        ...

    async def writers(self, versions: Sequence[VersionRef]) -> list[str]:
        """Which devices the contents of these versions are from; empty where nobody knows, or it can't be told now."""
        ...

    async def secret(self, path: RelPath, most_bytes: int) -> Secret | None:
        """What shares have beside their files: a small object as it is now, read as a whole; None when there is none.

        Args:
            path: Where.
            most_bytes: What is longer, or than a block, is not read.
        """
        ...

    async def block_lists(self, asks: Sequence[tuple[VersionRef, KnownList | None]]) -> list[BlockList | SyncerError]:
        """The block lists of exactly these versions, their Merkle roots and sizes verified against the tags.

        Args:
            asks: Each with what we have already, to save traffic.

        Returns:
            One for each; ConflictOnRemoteError: that version is no longer readable; CorruptionError: what the server
            sent does not have the tag's hash or size.
        """
        ...

    async def replaced_unseen(self, write: Overwrite) -> list[ForeignVersion]:
        """What a write replaced unseen that was booked and of which no more was heard; see `overwrites.unseen`.

        Empty also if it was never done, and on a server with atomic conditions.
        """
        ...

    async def close(self) -> None:
        """Give the connections back. Idempotent."""
        ...
