"""The source of blocks "peers": what devices on the LAN have of a cycle's wants is fetched from them.

    board ── peek ──> asked around ── offered by a peer ──> in the swarm ── take ──> asked of one peer ── give ──> board

It asks as soon as something is wanted, connects to whoever has some of it, and takes of the board only what a peer has
offered. A want that nobody offers is left to others, and lacked in the end, so that no cycle waits for ever.

Where nobody was heard a few wants find out whether somebody is there: whatever the board has, that costs one frame.

Source: docs/design/board.md, docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import trio

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.fetching import Download, Failure
from syncer.peer.exchange.swarm import PROVIDERS, Fate, Swarm, is_worth_twice
from syncer.peer.session.actions import PeerId
from syncer.peer.wire.bodies import MAX_TOKENS
from syncer.ports.blocks import Board, Given, Want

PEERS: Final = PROVIDERS
HEARD_S: Final = 60.0
ANSWER_S: Final = 1.5  # two more questions are asked within it
ASKED_PER_S: Final = 2500  # wants, by the slowest links that ask: their answers come so much later
SOON_S: Final = 0.5  # a peer that is connected and has not answered by then is not waited for the next time
ALONE_S: Final = 0.5  # nobody was heard, and nobody is within it: from then on all is asked around for
_FEW: Final = MAX_TOKENS  # one frame has room for so many
_PEEK: Final = 4096
_AT_ONCE: Final = 64  # requests in one message to a peer
_MISSES: Final = 256  # wants that others have claimed are passed over, so many in a row
_SWEEP_S: Final = 0.2  # so often we look what others have brought,
_SWEPT: Final = 2048  # at so many wants: half a hundredth of a core, at most
_IDLE_S: Final = 0.02  # so often an idle peer looks whether it can help
_HELP: Final = 16  # and at so many blocks
_OTHERS_S: Final = 0.25  # what another source has claimed for so long may be fetched twice
_UNKNOWN_S: Final = 0.1  # that a block takes from a peer from which none came yet
_PASSING: Final = frozenset({Failure.BUSY, Failure.GONE})  # the same peer may be asked for it again


class Asker(Protocol):
    """Who asks the peers of a share. Nothing here blocks."""

    def heard(self, at_s: float) -> None:
        """A peer of the share is there."""
        ...

    def offered(self, peer: PeerId, ids: Sequence[BlockId]) -> None:
        """A peer can be reached, and has these of what was wanted; none: it is there."""
        ...


class Circle(Protocol):
    """A share, as far as the LAN is concerned: who is there, and the connections to them. Of the exchange, or a relay.

    Attributes:
        heard_s: When a peer was heard last, `trio.current_time()`; -inf: never.
        is_alone: No peer was ever heard, and one that is there would have said so.
    """

    @property
    def heard_s(self) -> float:
        """See above."""
        ...

    @property
    def is_alone(self) -> bool:
        """See above."""
        ...

    async def known(self) -> bool:
        """Return when it is known whether somebody is there, as far as that can be: milliseconds.

        Returns:
            That nobody is: who was had told so long ago. False: somebody is, or may be slow to answer.
        """
        ...

    def join(self, asker: Asker) -> None:
        """From now on this one is told."""
        ...

    def leave(self, asker: Asker) -> None:
        """It wants nothing any more, and is told nothing."""
        ...

    def want(self, asker: Asker, ids: Sequence[BlockId]) -> None:
        """Ask around for these until `drop`."""
        ...

    def drop(self, asker: Asker, ids: Iterable[BlockId]) -> None:
        """These are here, or not wanted any more."""
        ...

    async def connect(self, asker: Asker, peer: PeerId) -> Download | None:
        """A connection to a peer, of which others may make use as well; None: it can't be reached, or must not be."""
        ...

    def release(self, asker: Asker, peer: PeerId) -> None:
        """This asker does not use the connection any more."""
        ...

    def lacked(self, peer: PeerId) -> None:
        """It has not what it offered."""
        ...

    def wrong(self, peer: PeerId, block: BlockId) -> None:
        """It sent something else than the block that it was asked for."""
        ...


class PeerSource:
    """A `BlockSource`; one serves any number of cycles, also at the same time.

    Args:
        circle: The share.
        draw: Chance.
    """

    name: Final = "peers"
    near: Final = False

    def __init__(self, circle: Circle, draw: Callable[[int], int] = random.randrange) -> None:
        self._circle = circle
        self._draw = draw

    async def run(self, board: Board) -> None:
        """See BlockSource."""
        await Cycle(self._circle, board, self._draw).run()


class _Line:
    """A peer that is used in this cycle."""

    __slots__ = ("answers", "asked", "download", "got", "has_got", "has_news", "is_over", "is_wrong", "peer", "wake")

    def __init__(self, peer: PeerId, download: Download) -> None:
        self.peer = peer
        self.download = download
        self.asked: dict[BlockId, Want] = {}
        self.got: list[tuple[Want, bytes]] = []  # to be given to the board
        self.has_got = trio.Event()
        self.wake = trio.Event()
        self.has_news = False
        self.answers = True  # in time, the last time
        self.is_over = False
        self.is_wrong = False  # it sent what nobody asked for


class Cycle:
    """One board. Asker and owner of requests."""

    def __init__(self, circle: Circle, board: Board, draw: Callable[[int], int], *, gated: bool = False) -> None:
        """Nothing is asked before `run`.

        Args:
            circle: The share.
            board: Whose wants.
            draw: Chance.
            gated: Wants are only asked around for; `fetch` tells which of them can be claimed.
        """
        self._gated = gated
        self._circle = circle
        self._board = board
        self._swarm = Swarm(draw)
        self._wants: dict[BlockId, Want] = {}
        self._held: set[BlockId] = set()  # claimed, and asked of nobody now
        self._unanswered: deque[tuple[float, list[BlockId]]] = deque()
        self._swept: deque[BlockId] = deque()
        self._lines: dict[PeerId, _Line] = {}
        self._reaching: set[PeerId] = set()
        self._others: dict[PeerId, None] = {}  # there is no place for them yet
        self._something = trio.Event()
        self._somebody = trio.Event()
        self._longest = 1
        self._seeks = False
        self._owing = 0  # questions to peers that mostly answer at once
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Serve the board until it ends."""
        self._circle.join(self)
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                if trio.current_time() - self._circle.heard_s < HEARD_S:
                    self._board.heard(self._circle.heard_s)
                else:
                    self._seeks = True
                    is_alone = self._circle.is_alone
                    self._board.seek(over=is_alone, sure=is_alone)
                nursery.start_soon(self._sweep)
                try:
                    while self._seeks and await self._board.more():
                        await self._find_somebody()
                    while await self._board.more():
                        await self._look()
                finally:
                    self._nursery = None  # it takes no more tasks soon, and others may still call
                nursery.cancel_scope.cancel()
        finally:
            for line in self._lines.values():
                for block in line.asked:
                    line.download.cancel(self, block)
                line.download.forget(self._wants)
                self._circle.release(self, line.peer)
            self._circle.leave(self)

    def fetch(self, block: BlockId) -> None:
        """This want can be claimed from now on; only if `gated`."""
        for peer in self._swarm.make_ready(block):
            if peer in self._lines:
                self._lines[peer].wake.set()

    # --- what is wanted

    async def _find_somebody(self) -> None:
        """Ask around for a few wants, and leave all others alone until somebody is heard, or nobody has been."""
        if wants := self._board.glance(_FEW):
            self._wanted(wants)
            with trio.move_on_after(ALONE_S):
                await self._somebody.wait()

    async def _look(self) -> None:
        """Take notice of new wants, and that claims may be free again.

        No await between a `peek` that shows nothing and `more`: what is new in between would be seen by nobody.
        """
        while wants := self._board.peek(_PEEK):
            self._wanted(wants)
            await trio.lowlevel.checkpoint()
        for line in self._lines.values():
            line.has_news = True
            line.wake.set()

    def _wanted(self, wants: Sequence[Want]) -> None:
        now = trio.current_time()
        ids = [want.id for want in wants]
        self._swept.extend([block for block in ids if block not in self._wants])
        self._wants.update(zip(ids, wants, strict=True))
        self._longest = max(self._longest, *[want.length for want in wants])
        patience_s = ANSWER_S + len(self._wants) / ASKED_PER_S
        self._unanswered.append((now + patience_s, ids))
        self._swarm.want(ids, ready=not self._gated)
        self._something.set()
        self._circle.want(self, ids)
        if self._seeks:  # only now they are asked
            self._seeks = False
            self._start(self._seek)
        for line in self._lines.values():
            if line.answers and self._nursery is not None:
                self._owe(1)
                self._start(self._ask_soon, line, ids)
            else:
                self._start(line.download.ask, ids)

    async def _ask_soon(self, line: _Line, ids: Sequence[BlockId]) -> None:
        """Ask a peer, and have the board wait for its answer; once, if it does not answer soon."""
        try:
            await line.download.ask(ids)  # never broken off: half a message would be left on the wire
            with trio.move_on_after(SOON_S) as scope:
                await line.download.answered()
        finally:
            self._owe(-1)
        if scope.cancelled_caught:
            line.answers = False
            await line.download.answered()
            line.answers = True

    def _owe(self, count: int) -> None:
        before, self._owing = self._owing, self._owing + count
        if not before or not self._owing:
            self._board.answering(over=not self._owing)

    async def _seek(self) -> None:
        """Tell the board when it makes no sense to wait any longer for somebody who was not heard yet."""
        self._board.seek(over=True, sure=await self._circle.known())

    async def _sweep(self) -> None:
        """Notice what others brought, and say of what nobody offers that we lack it."""
        while True:
            if not self._wants:
                self._something = trio.Event()
                await self._something.wait()
            await trio.sleep(_SWEEP_S)
            gone: list[BlockId] = []
            for _ in range(min(_SWEPT, len(self._swept))):
                block = self._swept.popleft()
                want = self._wants.get(block)
                if want is not None:
                    (self._swept if self._board.is_open(want) else gone).append(block)
            if gone:
                self._done(gone)
            now, silent = trio.current_time(), []
            while self._unanswered and self._unanswered[0][0] <= now:
                ids = self._unanswered.popleft()[1]
                wanted = [self._wants[block] for block in ids if block in self._wants]
                silent += [want for want in wanted if not self._swarm.providers(want.id)]
            self._board.lack(silent)

    def _done(self, ids: Sequence[BlockId]) -> None:
        """These are not wanted any more."""
        for block in ids:
            self._wants.pop(block, None)
            self._held.discard(block)
            for peer in self._swarm.done(block):
                line = self._lines.get(peer)
                if line is not None and line.asked.pop(block, None) is not None:
                    line.wake.set()
                    if line.download.cancel(self, block):
                        self._start(line.download.hang_up)
        self._circle.drop(self, ids)
        for line in self._lines.values():
            line.download.forget(ids)

    # --- Asker

    def heard(self, at_s: float) -> None:
        """See Asker."""
        self._somebody.set()
        self._board.heard(at_s)

    def offered(self, peer: PeerId, ids: Sequence[BlockId]) -> None:
        """See Asker."""
        self._somebody.set()
        self._board.heard(trio.current_time())
        first = self._swarm.offered(peer, ids)
        self._board.offer([self._wants[block] for block in first])
        line = self._lines.get(peer)
        if line is not None:
            line.wake.set()
        elif ids or self._wants:
            # Who has nothing yet is told what is missing, and tells us when it gets it.
            self._others[peer] = None
            self._engage()

    # --- peers

    def _engage(self) -> None:
        """Use peers that are known, as far as there are places."""
        while self._others and len(self._lines) + len(self._reaching) < PEERS:
            peer = next(iter(self._others))
            del self._others[peer]
            if peer not in self._lines and peer not in self._reaching:
                self._reaching.add(peer)
                self._start(self._use, peer)

    async def _use(self, peer: PeerId) -> None:
        is_worth = True
        while is_worth:
            self._reaching.add(peer)  # also when it is reached again: nobody else does so meanwhile
            try:
                download = await self._circle.connect(self, peer)
            finally:
                self._reaching.discard(peer)
            is_worth = download is not None and await self._use_line(peer, download)
        self._lack(self._swarm.leave(peer))
        self._engage()

    async def _use_line(self, peer: PeerId, download: Download) -> bool:
        """Use a connection as long as it lasts. Returns whether another one is worth a try: it was cut off in use."""
        line = self._lines[peer] = _Line(peer, download)
        before = download.blocks
        self._count_lines()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._give, line)
            nursery.start_soon(download.ask, list(self._wants))
            nursery.start_soon(self._notice_end, line)
            await self._ask(line)
        del self._lines[peer]
        self._circle.release(self, peer)
        self._count_lines()
        return download.why is Failure.GONE and download.blocks > before and not line.is_wrong

    def _count_lines(self) -> None:
        for line in self._lines.values():
            line.download.is_only = len(self._lines) == 1

    async def _ask(self, line: _Line) -> None:
        """Keep a peer busy as long as the connection lasts."""
        while not line.download.is_over:
            wants = self._choose(line)
            if wants:
                await line.download.get(self, wants)
                continue
            line.wake = trio.Event()
            with trio.move_on_at(self._next_look(line)):
                await line.wake.wait()

    async def _notice_end(self, line: _Line) -> None:
        await line.download.over.wait()
        line.is_over = True
        line.wake.set()
        line.has_got.set()

    def _next_look(self, line: _Line) -> float:
        now = trio.current_time()
        if line.download.rest > now:
            return line.download.rest
        return now + _IDLE_S if line.download.idle and self._swarm.parked(line.peer, 1) else math.inf

    def _choose(self, line: _Line) -> list[Want]:
        """What to ask of a peer now. No await until it is in the books."""
        chosen: list[Want] = []
        room, misses = line.download.room(self._longest), 0
        while room > 0 and misses < _MISSES and len(chosen) < _AT_ONCE:
            block = self._swarm.next(line.peer, trio.current_time())
            if block is None:
                if not line.has_news:
                    break
                line.has_news = False
                self._swarm.unpark(line.peer)
                continue
            want = self._claimed(block, room)
            if want is None:
                self._swarm.park(line.peer, block, trio.current_time())
                misses += 1
            elif not self._board.is_open(want):
                self._done([block])
            else:
                self._book(line, want)
                chosen.append(want)
                room -= want.length
        if room > 0 and not chosen and line.download.idle:
            chosen = self._help(line)
        return chosen

    def _claimed(self, block: BlockId, room: int, *, again: bool = False) -> Want | None:
        """The want, if it is ours now; or if it is not open any more."""
        want = self._wants[block]
        if block in self._held:
            self._held.discard(block)
            return want
        taken = self._board.take(room, among=(block,), again=again)
        return taken[0] if taken else want if not self._board.is_open(want) else None

    def _help(self, line: _Line) -> list[Want]:
        """For a peer with nothing to do, a block that another one, or another source, is slow to bring."""
        now = trio.current_time()
        rate = line.download.rate()
        for block, since in self._swarm.parked(line.peer, _HELP):
            want = self._wants[block]
            ours_s = want.length / rate if rate else _UNKNOWN_S
            flying = self._swarm.flying(block)
            if not self._board.is_open(want):
                self._done([block])
            elif len(flying) == 1 and is_worth_twice(self._left_s(flying[0], now - since), ours_s):
                return [self._book(line, want)]
            elif not flying and is_worth_twice(now - since, max(ours_s, _OTHERS_S)):
                claimed = self._claimed(block, want.length, again=True)
                if claimed is not None and self._board.is_open(claimed):
                    return [self._book(line, claimed)]
        return []

    def _left_s(self, peer: PeerId, waited_s: float) -> float:
        """How long a peer will take for what is asked of it."""
        line = self._lines.get(peer)
        rate = line.download.rate() if line is not None else None
        return line.download.outstanding / rate if line is not None and rate else waited_s

    def _book(self, line: _Line, want: Want) -> Want:
        self._swarm.start(line.peer, want.id)
        line.asked[want.id] = want
        return want

    # --- Owner

    def is_open(self, want: Want) -> bool:
        """See Owner."""
        return self._board.is_open(want)

    def came(self, download: Download, want: Want, block: bytes) -> None:
        """See Owner."""
        line = self._line_of(download)
        if line is not None:
            line.got.append((want, block))
            line.has_got.set()
            line.wake.set()

    def failed(self, download: Download, want: Want, why: Failure) -> None:
        """See Owner."""
        line = self._line_of(download)
        if line is None or line.asked.pop(want.id, None) is None:
            return
        if why is Failure.LACKED:
            self._circle.lacked(line.peer)
        self._again(line.peer, want, lacks=why not in _PASSING, is_claimed=True)
        line.wake.set()

    def _line_of(self, download: Download) -> _Line | None:
        return next((line for line in self._lines.values() if line.download is download), None)

    def _again(self, peer: PeerId, want: Want, *, lacks: bool, is_claimed: bool) -> None:
        """A block did not come from this peer."""
        fate = self._swarm.fail(peer, want.id, lacks=lacks)
        if fate is Fate.QUEUED:
            if is_claimed:
                self._held.add(want.id)
            for other in self._swarm.providers(want.id):
                if other in self._lines:
                    self._lines[other].wake.set()
        elif fate is Fate.NOBODY:
            self._board.lack([want])

    def _lack(self, ids: Iterable[BlockId]) -> None:
        self._held.difference_update(ids)
        self._board.lack([self._wants[block] for block in ids])

    async def _give(self, line: _Line) -> None:
        """Hand what came to the board; it hashes and delivers, while the next blocks come."""
        while True:
            while not line.got:
                if line.is_over:
                    return
                line.has_got = trio.Event()
                await line.has_got.wait()
            got, line.got = line.got, []
            outcomes = await self._board.give(got)
            for (want, _), outcome in zip(got, outcomes, strict=True):
                line.asked.pop(want.id, None)
                if outcome is Given.WRONG:
                    self._again(line.peer, want, lacks=True, is_claimed=False)
            if Given.WRONG in outcomes and not line.is_wrong:
                line.is_wrong = True
                self._circle.wrong(line.peer, got[outcomes.index(Given.WRONG)][0].id)
            self._done(
                [want.id for (want, _), outcome in zip(got, outcomes, strict=True) if outcome is not Given.WRONG]
            )

    def _start(self, task: Callable[..., object], *arguments: object) -> None:
        if self._nursery is not None:
            self._nursery.start_soon(task, *arguments)  # type: ignore[arg-type]
