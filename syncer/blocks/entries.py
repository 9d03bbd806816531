"""What the board keeps of a want, and of somebody who waits for some."""

from __future__ import annotations

import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.pools import Pool
from syncer.errors import SyncerError
from syncer.ports.blocks import Priority, Want


class Caller:
    """Somebody who waits for blocks.

    Attributes:
        left: Ids that it has not taken yet, and that have not failed.
        inbox: What was delivered and it has not begun to take.
        failed: What can't be had.
        wake: Something happened to one of these.
    """

    __slots__ = ("failed", "inbox", "left", "wake")

    def __init__(self) -> None:
        self.left: dict[BlockId, None] = {}
        self.inbox: list[tuple[BlockId, bytes]] = []
        self.failed: dict[BlockId, SyncerError] = {}
        self.wake = trio.Event()


class Delivery:
    """Blocks that one call of `give` delivered.

    Attributes:
        left: So many are not taken yet by everybody.
        done: None are left.
    """

    __slots__ = ("done", "left")

    def __init__(self) -> None:
        self.left = 0
        self.done = trio.Event()


class Entry:
    """One want on the board. Sets of sources are bits: of a source `1 << its place`.

    Attributes:
        want: As the sources see it: what one of the callers wants.
        priority: The most urgent of its callers'.
        callers: Who waits for it, with what each of them wants.
        claims: Sources that have claimed it.
        lacks: Sources that do not have it.
        offers: Sources that offer it.
        seen: Sources that know of it.
        unseen: Sources whose `peek` is to show it.
        stage: Which near source is next; as many as there are near ones: it is open for the far ones.
        far_since: When it became open for the far ones; negative: not yet.
        is_ripe: It has waited long enough for the server's turn.
        why: The last error of a source that lacks it.
        pools: For each source the pool that it is in.
        pending: Callers to whom it was delivered and who have not taken it yet.
        data: What was delivered; None: nothing yet.
        delivery: By which call.
    """

    __slots__ = (
        "callers",
        "claims",
        "data",
        "delivery",
        "far_since",
        "is_ripe",
        "lacks",
        "offers",
        "pending",
        "pools",
        "priority",
        "seen",
        "stage",
        "unseen",
        "want",
        "why",
    )

    def __init__(self, want: Want, priority: Priority, sources: int) -> None:
        self.want = want
        self.priority = priority
        self.callers: dict[Caller, Want] = {}
        self.claims = self.lacks = self.offers = self.seen = self.unseen = 0
        self.stage = 0
        self.far_since = -1.0
        self.is_ripe = False
        self.why: SyncerError | None = None
        self.pools: list[Pool[Entry] | None] = [None] * sources
        self.pending = 0
        self.data: bytes | None = None
        self.delivery: Delivery | None = None

    def wants_elsewhere(self, caller: Caller) -> bool:
        """Whether a caller knows other places for it than those that the sources were told."""
        mine, told = self.callers[caller].places, self.want.places
        if mine is told:
            return False
        versions = [(place.version.path, place.version.tag) for place in told]
        return any((place.version.path, place.version.tag) not in versions for place in mine)
