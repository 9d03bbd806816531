"""Where a block comes from: wants, the board that they lie on, and the sources that serve them. Pure: no I/O.

A cycle's wants of all files lie on one *board*, keyed by block id. A *source* is a place that may have blocks: the
root's own blocks, other roots of this machine, devices on the LAN (peers), the remote. Each source sees the board
through a handle of its own, a `Board`. The scheduler behind the handles is `syncer.blocks.board.Blocks`.

Source: docs/design/board.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum, IntEnum
from typing import Protocol, TypeAlias

import msgspec

from blockfs.blocks.blocklist import BlockList
from blockfs.blocks.ids import BlockId
from syncer.core.model import Content, RelPath, RemoteTag
from syncer.errors import SyncerError


class VersionRef(msgspec.Struct, frozen=True, kw_only=True):
    """One version of one object of the remote.

    Attributes:
        path: Where it is.
        tag: Which version. Only a remote reads what is in it.
        content: Its bytes' identity in the share's grid.
    """

    path: RelPath
    tag: RemoteTag
    content: Content


class Place(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """Where a remote finds a block. Compared by identity: a block list is long.

    Attributes:
        version: The object that has it.
        blocks: The block list of that version, verified.
        index: Of the block in it.
    """

    version: VersionRef
    blocks: BlockList
    index: int


class Want(msgspec.Struct, frozen=True, kw_only=True, eq=False, gc=False):
    """One block that somebody waits for. Compared by identity; `id` is its name on the board.

    Attributes:
        id: SHA-256 of the canonical block. Never `ZERO_BLOCK`: a hole is nowhere.
        length: Most bytes that its canonical form may have, at least 1; more is no answer of a far source. What the
            budget counts. Who receives more puts only so many in place: an object that was cut keeps its last id.
        places: Where the remote has it. Empty: nobody knows a file that has it, so only near sources and peers can
            serve it.
    """

    id: BlockId
    length: int
    places: tuple[Place, ...] = ()


class Priority(IntEnum):
    """Which wants are shown and claimed first. Of one priority: in the order in which they were wanted."""

    READ = 0  # somebody waits in a read
    SMALL = 1  # the whole of a file of one block
    LARGE = 2  # all else


class Given(Enum):
    """What became of a block that a source gave."""

    RIGHT = "right"  # verified, and delivered to all who wait for it
    LATE = "late"  # nobody waits for it any more, or somebody was faster; it was not hashed
    WRONG = "wrong"  # not the bytes of that id; unless `hold`, the claim is gone and the want open again (for it, too)


class SourceStats(msgspec.Struct, frozen=True, kw_only=True):
    """What one source did in a cycle.

    Attributes:
        blocks: Blocks that it gave and that were delivered.
        bytes: Of these, canonical.
        late: Blocks that it gave when nobody waited for them any more: transferred twice, or in vain.
        wrong: Blocks that it gave and that were not what they should be.
        lacked: Times that it said it does not have a block.
        held_s: Of the remote: time in which it was idle, because a device may have what is wanted.
        seconds: Time in which it had claimed at least one block. `bytes / seconds` is its rate.
    """

    blocks: int = 0
    bytes: int = 0
    late: int = 0
    wrong: int = 0
    lacked: int = 0
    held_s: float = 0.0
    seconds: float = 0.0


Receive: TypeAlias = Callable[[Sequence[tuple[BlockId, bytes]]], Awaitable[None]]
"""Takes blocks that were fetched: verified, canonical, each id once. Never called twice at a time for one `fetch`.
Awaited: a slow receiver slows the sources. What it raises comes out of `fetch`, and takes no other receiver's block."""


class NearBlocks(Protocol):
    """Where blocks are. Blocking; any thread. What can't be looked up or read is not there, and no failure."""

    def which(self, ids: Sequence[BlockId]) -> Collection[BlockId]:
        """Those of some blocks that may be here. No content is read."""
        ...

    def read(self, ids: Sequence[BlockId], *, checked: bool) -> Mapping[BlockId, bytes]:
        """Those of some blocks that can be read.

        Args:
            ids: Some that `which` returned.
            checked: What was read before was not the right one: look at all places, and compare with the id. False:
                the first place will do, for the board compares.
        """
        ...


class Board(Protocol):
    """The open wants, as one source sees them. Saying nothing of a want is "maybe".

    A far source (peers, the remote) may rely on this:

    - It sees a want as soon as all near sources lack it, without an answer from any other far source.
    - A want is known by its id. The same id may be put on the board again after it was delivered or withdrawn; it is
      then a new want, shown again.
    - Every method without `await` is O(1) per want that it returns or is given. None of them blocks; call them from
      the trio thread only. No `await` lies between looking (`peek`, `take`) and what you decide with it.
    - A claim lasts until `give` or `lack` for that want; or until the want is served or withdrawn, which is silent:
      `is_open` is then False. Whoever claims must end each claim, also when its request fails: bytes that are claimed
      and not delivered count against the budget, and no source may hold more than half of it.
    - `give` may be called for what was not claimed, or is no longer; it is RIGHT if somebody still waits for it.
    - Any number of the source's own tasks may use its handle at the same time. Cancelling such a task in `give` does
      not take back what it gave.

    Attributes:
        own: What the root itself has, beside any want: a remote whose contents are cut otherwise may make of it what
            need not travel. None: nothing.
    """

    own: NearBlocks | None

    @property
    def open(self) -> int:
        """How many wants there are, with those that were delivered and are not taken yet."""
        ...

    def peek(self, most: int) -> Sequence[Want]:
        """Wants to ask around for, most urgent first. Claims nothing.

        Each want is returned once: what was not returned yet, whether another source has claimed it or not. It is
        returned again if it was given wrongly by this source, or is wanted anew.

        Args:
            most: Return at most so many.
        """
        ...

    def glance(self, most: int) -> Sequence[Want]:
        """Some of what `peek` would return, in any order. Before the first `peek` that costs nothing for all others.

        Args:
            most: Return at most so many. If there are as many, there may be others: `more` returns at once.
        """
        ...

    def take(
        self, most_bytes: int, among: Collection[BlockId] | None = None, *, spare: bool = False, again: bool = False
    ) -> Sequence[Want]:
        """Claim wants: nobody else is given these. Most urgent first.

        Args:
            most_bytes: Stop before the sum of lengths exceeds this; but at least one, if any is open and the memory
                budget allows.
            among: Only these, and in this order. Costs O(len(among)): ids that are served, claimed, lacked or unknown
                are passed over, so give a few at a time.
            spare: Only what no other source offers.
            again: Also what one other source has claimed (the end-game): one duplicate of each. What nobody has
                claimed comes first.

        Returns:
            What is claimed now. Empty: nothing such is open, or the budget is used up; `more` tells when to try again.
        """
        ...

    async def give(self, got: Sequence[tuple[Want, bytes]], *, hold: bool = False) -> list[Given]:
        """Hand over blocks. They are verified here, once (many bytes in a thread), and made canonical.

        Returns when whoever waits for them has taken them, so that a slow receiver slows the source.

        Args:
            got: Claimed or not.
            hold: What is wrong stays claimed: the source has another way to get it.

        Returns:
            What became of each. After WRONG: a new `take`, or `lack`; with `hold`, `give` or `lack`.
        """
        ...

    def lack(self, wants: Iterable[Want], why: SyncerError | None = None) -> None:
        """Say that this source does not have them: they are open for the others, and no longer for this one.

        Ends the claim, if there is one, and takes back `offer`. A want that all sources lack has failed.

        Args:
            wants: Claimed or not.
            why: What `fetch` tells whoever waits; of several sources' errors the last. None: it just is not there.
        """
        ...

    def offer(self, wants: Iterable[Want]) -> None:
        """Say that somebody behind this source has them: others that ask for `spare` ones leave them alone.

        Takes back `lack`, where the want is still open. Offering is no claim.
        """
        ...

    def heard(self, at_s: float) -> None:
        """Say that a device of this share was heard on the network at this time (`trio.current_time()`).

        For 60 s from then the remote leaves new wants alone for 20 ms, so that answers can arrive, and leaves offered
        ones to whoever offers them. For a source of peers: as `run` begins (if somebody was heard before) and later.
        """
        ...

    def seek(self, *, over: bool = False, sure: bool = False) -> None:
        """Say that it is being found out whether a device is there; `over`: that it was found out.

        Meanwhile the remote has no more than the first window. Whoever begins must end it, within milliseconds once
        frames are sent: `heard` ends it too, and the end of the source.

        Args:
            over: No more time is needed.
            sure: Nobody is there: who was had told so long ago. Else somebody may only be slow to answer.
        """
        ...

    def answering(self, *, over: bool = False) -> None:
        """Say that devices were asked over connections about what was shown, and will answer; `over`: that they have.

        Meanwhile the remote has nothing that was shown just now. Whoever begins must end it, and not wait long for who
        does not answer; the end of the source ends it too.
        """
        ...

    def is_open(self, want: Want) -> bool:
        """Whether it is still of use: look before each request; if it is False, cancel what is under way for it."""
        ...

    async def more(self) -> bool:
        """Wait until `peek` or `take` may give something new since the last call of one of them.

        Returns:
            False: the end, no want will ever come.
        """
        ...


class BlockSource(Protocol):
    """Somebody who may have blocks. It may outlive the cycle; a board does not.

    Attributes:
        name: "own", "roots", "peers" or "remote": key of the statistics.
        near: On this machine. Near sources are asked in order, each for what those before it lack, and all of them
            before any far one. Far ones race.
    """

    @property
    def name(self) -> str:
        """Which source this is."""
        ...

    @property
    def near(self) -> bool:
        """Whether it is on this machine."""
        ...

    async def run(self, board: Board) -> None:
        """Serve the board until `more` is False. It is cancelled at the end of the cycle.

        What concerns a block is told by `lack`. If this returns or raises a `SyncerError` earlier, the source lacks
        everything from then on, with that error.
        """
        ...


class Fetcher(Protocol):
    """Has blocks delivered: `syncer.blocks.board.Blocks`."""

    async def fetch(
        self, wants: Sequence[Want], receive: Receive, *, priority: Priority
    ) -> Mapping[BlockId, SyncerError]:
        """Have blocks delivered.

        Args:
            wants: At most 65,536; of those with one id the first counts.
            receive: Is given each block once, in this task; see Receive.
            priority: Of all of them.

        Returns:
            What can't be had and why, when everything else is delivered.
        """
        ...


class ShareIndex(Protocol):
    """The serving direction: the blocks of one share that is served on this machine.

    No method tells of, or gives, a block outside the share. Methods block; any thread.

    Attributes:
        share: Which share.
    """

    @property
    def share(self) -> str:
        """Which share."""
        ...

    def match(self, prefixes: Sequence[bytes]) -> list[bool]:
        """For each 8-byte prefix of an id: whether the share has such a block. Fast: a look-up each."""
        ...

    def read(self, block: BlockId) -> bytes | None:
        """A block from a file or block directory of this share, not verified (the asker does); None: not there."""
        ...

    def recent(self, since: int) -> tuple[int, Sequence[BlockId]]:
        """What came in lately, also for files that are not installed yet.

        Args:
            since: The number that the last call returned; 0 at first.

        Returns:
            A number for the next call, and the ids that came in since.
        """
        ...
