"""Which block is asked of which peer: the rarest first, each of one peer, and at the end some of two. Pure.

    WANTED ── offered ──> in a queue of each peer that has it ── next, start ──> FLYING ── done ──> forgotten
                             ↑ fail, if another peer has it                        │ fail: nobody else has it
                             └──────────────────────────────────────────────────┴──> WANTED

A peer's blocks lie in queues by how many have them. When that changes, a block is put into another queue as well, and
is passed over where it lay before: so each offer, start and failure costs a few steps, however many blocks there are.
What a peer has and can't be asked for now is *parked* there: another peer or another source brings it.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import PeerId

PROVIDERS: Final = 8  # of one block, at most; also so many peers are used
SLOW: Final = 2.0  # a block is asked for twice if the first will take so many times longer than the second
_LEAST_S: Final = 0.01  # nothing is asked for twice to save less


class Fate(Enum):
    """What becomes of a block that did not come."""

    QUEUED = "queued"  # others have it
    FLYING = "flying"  # it is on its way from another one
    NOBODY = "nobody"  # no peer has it, as far as we know
    DONE = "done"  # it is not wanted any more


class _Peer:
    __slots__ = ("has", "parked", "queues")

    def __init__(self) -> None:
        self.has: set[BlockId] = set()
        self.queues: list[list[BlockId]] = [[] for _ in range(PROVIDERS)]  # by how many have it, less one
        self.parked: dict[BlockId, float] = {}  # since when


class Swarm:
    """The wants of one cycle, and the peers that have them."""

    def __init__(self, draw: Callable[[int], int]) -> None:
        """Nothing is wanted.

        Args:
            draw: Chance: one of so many numbers, from 0 on.
        """
        self._draw = draw
        self._wanted: set[BlockId] = set()
        self._gated: set[BlockId] = set()  # of these, what may not be asked of peers yet
        # No object for each block: with two lists in it, looking for garbage took an eighth of a transfer's time.
        self._providers: dict[BlockId, tuple[PeerId, ...]] = {}
        self._flying: dict[BlockId, tuple[PeerId, ...]] = {}
        self._peers: dict[PeerId, _Peer] = {}

    def __len__(self) -> int:
        """How many blocks are wanted."""
        return len(self._wanted)

    def __contains__(self, block: object) -> bool:
        """Whether it is wanted."""
        return block in self._wanted

    # --- what is wanted, and who has it

    def want(self, ids: Iterable[BlockId], *, ready: bool = True) -> None:
        """These are wanted from now on.

        Args:
            ids: What.
            ready: Whether they may be asked of peers; False: not before `make_ready`.
        """
        if ready:
            self._wanted.update(ids)
        else:
            new = set(ids) - self._wanted
            self._gated |= new
            self._wanted |= new

    def make_ready(self, block: BlockId) -> tuple[PeerId, ...]:
        """It may be asked of peers now. Returns who has it."""
        self._gated.discard(block)
        self._queue(block)
        return self.providers(block)

    def done(self, block: BlockId) -> tuple[PeerId, ...]:
        """It is here, or not wanted any more. Returns from whom it is still on its way."""
        self._wanted.discard(block)
        self._gated.discard(block)
        for peer in self._providers.pop(block, ()):
            self._peers[peer].has.discard(block)
            self._peers[peer].parked.pop(block, None)
        return self._flying.pop(block, ())

    def offered(self, peer: PeerId, ids: Iterable[BlockId]) -> list[BlockId]:
        """A peer has these. Returns those that nobody had until now."""
        known = self._peers.setdefault(peer, _Peer())
        first = []
        grown: dict[tuple[PeerId, ...], tuple[PeerId, ...]] = {}  # few different ones, for thousands of blocks
        for block in ids:
            before = self._providers.get(block, ())
            if block not in self._wanted or block in known.has or len(before) >= PROVIDERS:
                continue
            if not before:
                first.append(block)
            self._providers[block] = grown.setdefault(before, (*before, peer))
            known.has.add(block)
            self._queue(block)
        return first

    def lacks(self, peer: PeerId, block: BlockId) -> None:
        """A peer has not what it offered."""
        before = self.providers(block)
        if peer in before:
            self._providers[block] = _without(before, peer)
            self._peers[peer].has.discard(block)
            self._peers[peer].parked.pop(block, None)
            self._queue(block)

    def leave(self, peer: PeerId) -> list[BlockId]:
        """A peer is gone. What was asked of it must have failed before. Returns what nobody has any more."""
        known = self._peers.get(peer)
        if known is None:
            return []
        orphans = []
        for block in list(known.has):
            self.lacks(peer, block)
            if not self.providers(block) and not self.flying(block):
                orphans.append(block)
        del self._peers[peer]
        return orphans

    def providers(self, block: BlockId) -> tuple[PeerId, ...]:
        """Who has it, as far as we know."""
        return self._providers.get(block, ())

    # --- what is asked of whom

    def next(self, peer: PeerId, now: float) -> BlockId | None:
        """What to ask of a peer next, the rarest of what it has; by chance among equals. Owed: `start` or `park`.

        Args:
            peer: Who has room for it.
            now: Seconds of any clock.
        """
        known = self._peers.get(peer)
        for rarity, queue in enumerate(known.queues if known is not None else (), start=1):
            while queue:
                at = self._draw(len(queue))
                queue[at], queue[-1] = queue[-1], queue[at]
                block = queue.pop()
                providers = self._providers.get(block, ())
                if len(providers) != rarity or peer not in providers:
                    continue
                if block not in self._flying:
                    return block
                self.park(peer, block, now)
        return None

    def start(self, peer: PeerId, block: BlockId) -> None:
        """It is asked of this peer."""
        self._flying[block] = (*self.flying(block), peer)
        self._peers[peer].parked.pop(block, None)

    def flying(self, block: BlockId) -> tuple[PeerId, ...]:
        """Of whom it is asked."""
        return self._flying.get(block, ())

    def fail(self, peer: PeerId, block: BlockId, *, lacks: bool) -> Fate:
        """It did not come from this peer.

        Args:
            peer: Of whom it was asked.
            block: What.
            lacks: Whether this peer is not asked for it again.
        """
        if block not in self._wanted:
            return Fate.DONE
        left = _without(self._flying.pop(block, ()), peer)
        if left:
            self._flying[block] = left
        if lacks:
            self.lacks(peer, block)
        if left:
            return Fate.FLYING
        if not self.providers(block):
            return Fate.NOBODY
        self._queue(block)
        return Fate.QUEUED

    # --- what can't be asked now

    def park(self, peer: PeerId, block: BlockId, now: float) -> None:
        """It can't be asked of this peer now: somebody else brings it, perhaps."""
        self._peers[peer].parked.setdefault(block, now)

    def unpark(self, peer: PeerId) -> None:
        """Something has changed: what is parked at this peer, and not flying, may be asked for again."""
        known = self._peers.get(peer)
        for block in list(known.parked) if known is not None else ():
            if known is not None and block not in self._flying:
                known.queues[len(self._providers[block]) - 1].append(block)

    def parked(self, peer: PeerId, most: int) -> list[tuple[BlockId, float]]:
        """Some of what is parked at a peer, and since when; others with each call."""
        known = self._peers.get(peer)
        some = []
        for _ in range(min(most, len(known.parked)) if known is not None else 0):
            assert known is not None
            block = next(iter(known.parked))
            since = known.parked[block] = known.parked.pop(block)
            some.append((block, since))
        return some

    def _queue(self, block: BlockId) -> None:
        """Let each who has it find it, where blocks lie of which there are as many."""
        if block not in self._flying and block not in self._gated:
            providers = self.providers(block)
            for peer in providers:
                self._peers[peer].queues[len(providers) - 1].append(block)


def _without(peers: tuple[PeerId, ...], peer: PeerId) -> tuple[PeerId, ...]:
    return tuple([each for each in peers if each != peer])


def is_worth_twice(theirs_s: float, ours_s: float) -> bool:
    """Whether an idle peer, which will take `ours_s`, should bring what another one will in `theirs_s`."""
    return theirs_s > max(SLOW * ours_s, _LEAST_S)
