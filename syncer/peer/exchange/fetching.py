"""The downloading side of one connection: requests under way, how many are of use, and when the peer has stalled.

    get ──> ASKED ── BLOCK, or HEAD, DATA …, END ──> came, and what to do with it is the owner's
              ├ NOTFOUND, BUSY ──> failed
              ├ cancel ──> CANCEL; what still comes of it counts as wasted
              └ the connection ends, the peer stalls or breaks a rule ──> failed, all of them

What is kept of a peer is bounded by what was asked of it: `MOST_BYTES`, in blocks no longer than their wants.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Final, Protocol

import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.meter import Meter
from syncer.peer.exchange.channel import CLOSE_S, Channel
from syncer.peer.exchange.limits import Throttle
from syncer.peer.wire.bodies import TOKEN_BYTES, positions
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.incoming import Incoming
from syncer.peer.wire.messages import (
    MAX_QUERY_TOKENS,
    Block,
    Busy,
    Cancel,
    Close,
    CloseReason,
    Data,
    End,
    Get,
    Have,
    HaveQuery,
    HaveReply,
    Head,
    Message,
    Mismatch,
    NotFound,
    Ping,
)
from syncer.ports.blocks import Want

MOST_BYTES: Final = 8 << 20  # asked of one peer and not here
MOST_REQUESTS: Final = 512  # half of what its line holds
ALL_BYTES: Final = 64 << 20  # of all peers
STALL_S: Final = 1.0  # without a byte
STALL_ONLY_S: Final = 2.0  # if nobody else has what it should send
_REACTION_S: Final = 0.02  # both ends' time between a block and the next request, in the worst of busy moments
_BEGIN_BYTES: Final = 256 << 10  # until its rate is known
_PORTIONS: Final = 4  # of what is asked of a peer a quarter is asked at once: each sending costs as much as a block
_PROGRESS_S: Final = 10.0  # for one record
_QUESTIONS: Final = 64
_LATE: Final = 4096
_RIDS: Final = 1 << 32


class Failure(Enum):
    """Why a block did not come from this peer."""

    LACKED = "lacked"  # it said it had it, and has not
    BUSY = "busy"
    STALLED = "stalled"
    GONE = "gone"  # the connection ended
    WRONG = "wrong"  # it broke the protocol


class Owner(Protocol):
    """Who asked for a block; several may use one connection, also for the same block. Nothing here blocks or raises."""

    def is_open(self, want: Want) -> bool:
        """Whether it is still of use."""
        ...

    def came(self, download: Download, want: Want, block: bytes) -> None:
        """It is here, and not verified."""
        ...

    def failed(self, download: Download, want: Want, why: Failure) -> None:
        """It does not come."""
        ...


class Allowance:
    """Bytes that may be on their way from all peers together."""

    def __init__(self, most: int = ALL_BYTES) -> None:
        """None are."""
        self.left = most


class _Request:
    __slots__ = ("incoming", "is_sent", "owner", "rid", "want")

    def __init__(self, rid: int, owner: Owner, want: Want, incoming: Incoming) -> None:
        self.is_sent = False
        self.rid = rid
        self.owner = owner
        self.want = want
        self.incoming = incoming


class Download:
    """One connection that we have dialled.

    Attributes:
        told: Called with ids that the peer says it has.
        over: `run` has ended, and all requests have failed.
        why: It has.
        rest: Not asked before this time, because it is busy; `trio.current_time()`.
        bytes, wasted: Bytes of blocks that came; that came of what was cancelled.
        trip_s: How long an answer takes, smoothed; None: not measured yet.
    """

    def __init__(
        self,
        channel: Channel,
        told: Callable[[Sequence[BlockId]], None],
        *,
        pace: Throttle | None = None,
        allowance: Allowance | None = None,
        partial: dict[BlockId, Incoming] | None = None,
        patience_s: float = STALL_S,
        words: int = 1,
    ) -> None:
        """A connection after its handshake.

        Args:
            channel: Closed by `run`.
            told: See above.
            pace: Of all downloads.
            allowance: Of all downloads.
            partial: What an earlier connection to the same peer left; what this one leaves is put there.
            patience_s: A peer that sends no byte for so long has stalled.
            words: Tokens by which a block is named in questions: 1, its first 8 bytes; 4, all of its id.
        """
        self._channel = channel
        self.told = told
        self._pace = pace or Throttle(None)
        self._allowance = allowance or Allowance()
        self._partial = {} if partial is None else partial
        self._patience_s = patience_s
        self._words = words
        self._requests: dict[int, _Request] = {}
        self._rids: dict[tuple[Owner, BlockId], int] = {}
        self._next_rid = 0
        self._questions: dict[int, tuple[BlockId, ...]] = {}
        self._answered = trio.Event()
        self._asked: dict[bytes, BlockId] = {}
        self._next_qid = 0
        self._hung_up: list[int] = []  # rids that the peer is still to be told of
        self._late_bytes: dict[int, int] = {}  # by rid: what may still come of what was cancelled
        self._progress_s = -math.inf
        self._owed = 0  # requests that the peer knows of
        self._began_s = math.inf  # it owes us bytes since then
        self._pinged_s: float | None = None
        self._accusation: Mismatch | None = None
        self._scope: trio.CancelScope | None = None
        self._ended = False
        self.over = trio.Event()
        self.why = Failure.GONE
        self._rate = Meter()
        self.rest = -math.inf
        self._arrived = 0  # of what is outstanding: of blocks that came in part
        self.outstanding = self.bytes = self.blocks = self.wasted = 0
        self.trip_s: float | None = None
        self.is_only = False

    @property
    def is_over(self) -> bool:
        """Whether nothing can be asked any more."""
        return self._ended

    @property
    def idle(self) -> bool:
        """Whether nothing is asked."""
        return not self._requests

    def rate(self) -> float | None:
        """Bytes a second while something was asked; None: nothing came yet."""
        return self._rate.rate(trio.current_time())

    def room(self, longest: int) -> int:
        """How many bytes more it is of use to ask for: two blocks, or what keeps the peer busy.

        Args:
            longest: Length of the longest block.
        """
        if self._ended or trio.current_time() < self.rest or len(self._requests) >= MOST_REQUESTS:
            return 0
        rate = self.rate()
        keeps_busy = _BEGIN_BYTES if rate is None else int(rate * ((self.trip_s or 0.0) + _REACTION_S))
        most = min(MOST_BYTES, max(2 * longest, keeps_busy))
        room = most - self.outstanding
        return min(room, self._allowance.left) if room >= most // _PORTIONS else 0

    # --- asking

    async def get(self, owner: Owner, wants: Sequence[Want]) -> None:
        """Ask for blocks that are not asked yet. The owner hears what becomes of each."""
        if self._ended:
            for want in wants:
                owner.failed(self, want, Failure.GONE)
            await trio.lowlevel.checkpoint()
            return
        if not self._requests and wants:
            self._rate.run(trio.current_time())
        requests = [self._request(owner, want) for want in wants]
        await self._pace.spend(sum(want.length for want in wants))
        asked = [each for each in requests if each.rid in self._requests]
        if asked:
            if not self._owed:
                self._began_s = trio.current_time()
            for each in asked:
                each.is_sent = True
            self._owed += len(asked)
            self._set_deadline()
            # If it can't be sent, reading ends, too.
            await self._channel.send(
                [Get(rid=each.rid, id=each.want.id, offset=each.incoming.received) for each in asked]
            )

    def cancel(self, owner: Owner, block: BlockId) -> bool:
        """Let go of an owner's request; nothing is told to it. Returns whether `hang_up` is owed."""
        rid = self._rids.get((owner, block))
        if rid is None:
            return False
        request = self._requests[rid]
        self.wasted += request.incoming.received
        self._drop(request)
        self._hung_up.append(rid)
        self._late_bytes[rid] = request.want.length - request.incoming.received
        if len(self._late_bytes) > _LATE:
            del self._late_bytes[next(iter(self._late_bytes))]
        return True

    async def hang_up(self) -> None:
        """Tell the peer what was cancelled."""
        rids, self._hung_up = self._hung_up, []
        if rids and not self._ended:
            await self._channel.send([Cancel(rid=rid) for rid in rids])

    async def ask(self, ids: Iterable[BlockId]) -> None:
        """Ask which of these it has; `told` hears the answer, and until `forget` what it gets later."""
        fresh = list(ids)
        self._asked.update((block[:TOKEN_BYTES], block) for block in fresh)
        most = MAX_QUERY_TOKENS // self._words
        for begin in range(0, len(fresh), most):
            part = tuple(fresh[begin : begin + most])
            if self._ended or len(self._questions) >= _QUESTIONS:
                break
            self._next_qid = (self._next_qid + 1) % _RIDS
            self._questions[self._next_qid] = part
            tokens = tokens_of(part, self._words)
            await self._channel.send([HaveQuery(qid=self._next_qid, tokens=tokens)])

    async def answered(self) -> None:
        """Wait until the peer has answered all of that, or is gone."""
        while self._questions and not self._ended:
            self._answered = trio.Event() if self._answered.is_set() else self._answered
            await self._answered.wait()

    def forget(self, ids: Iterable[BlockId]) -> None:
        """These are not wanted any more."""
        for block in ids:
            self._asked.pop(block[:TOKEN_BYTES], None)

    # --- hearing

    async def run(self) -> Failure:
        """Listen until the connection ends, and fail what is asked then."""
        why = Failure.GONE
        try:
            self._pinged_s = trio.current_time()
            await self._channel.send([Ping(number=0)])
            why = await self._listen()
        finally:
            self._ended = True
            requests = list(self._requests.values())
            for request in requests:
                self._drop(request)
                if why is Failure.GONE and request.incoming.received:
                    self._partial[request.want.id] = request.incoming
            for request in requests:
                request.owner.failed(self, request.want, why)
            reason = CloseReason.PROTOCOL if why is Failure.WRONG else CloseReason.DONE
            self.why = why
            self.over.set()
            self._answered.set()
            if self._accusation is not None:
                await self._tell(self._accusation)
            await self._channel.close(Close(reason=reason))
        return why

    async def _tell(self, accusation: Mismatch) -> None:
        """Say it, and let the peer hang up: what it says meanwhile would else take our last word off the wire."""
        with trio.move_on_after(CLOSE_S, shield=True):
            if await self._channel.send([accusation]):
                while await self._channel.receive():
                    pass

    def accuse(self, block: BlockId) -> None:
        """This came, and is another block: the peer's last word of us is that, and `run` returns."""
        self._accusation = Mismatch(id=block)
        self.end()

    def end(self) -> None:
        """Let `run` return."""
        self._ended = True
        if self._scope is not None:
            self._scope.cancel()

    async def _listen(self) -> Failure:
        while not self._ended:
            with trio.CancelScope() as self._scope:
                while not self._ended and not self._hung_up:
                    self._set_deadline()
                    messages = await self._channel.receive(self.outstanding - self._arrived)
                    if not messages:
                        return Failure.GONE if self._channel.failed is None else Failure.WRONG
                    for message in messages:
                        why = self._hear(message)
                        if why is not None:
                            return why
            if self._scope.cancelled_caught and trio.current_time() >= self._due_s():
                return Failure.STALLED
            await self.hang_up()
        return Failure.GONE

    def _due_s(self) -> float:
        """When the peer will have stalled, if nothing comes."""
        if not self._owed:
            return math.inf
        patience_s = self._patience_s * (STALL_ONLY_S / STALL_S if self.is_only else 1.0)
        silent_s = max(self._began_s, self._channel.heard_s) + patience_s
        # A byte now and then is no way to keep us waiting for ever.
        return min(silent_s, max(self._began_s, self._progress_s) + _PROGRESS_S)

    def _set_deadline(self) -> None:
        if self._scope is not None:
            self._scope.deadline = self._due_s()

    def _request(self, owner: Owner, want: Want) -> _Request:
        request = _Request(self._next_rid, owner, want, self._resumed(want))
        self._next_rid = (self._next_rid + 1) % _RIDS
        self._requests[request.rid] = request
        self._rids[owner, want.id] = request.rid
        self.outstanding += want.length
        self._arrived += request.incoming.received
        self._allowance.left -= want.length
        return request

    def _resumed(self, want: Want) -> Incoming:
        kept = self._partial.pop(want.id, None)
        return Incoming(want.length) if kept is None else kept

    def _hear(self, message: Message) -> Failure | None:
        """Returns why the connection ends now."""
        match message:
            case Block() | Data() | Head() | End() | NotFound() | Busy():
                return self._progress(message)
            case HaveReply(qid=qid):
                ids = self._questions.pop(qid, None)
                if ids is None or not message.fits(len(ids) * self._words):
                    return Failure.WRONG
                self.told([ids[each // self._words] for each in positions(message.bitmap) if not each % self._words])
                if not self._questions:
                    self._answered.set()
            case Have(tokens=tokens):
                self.told([self._asked[token] for token in tokens[:: self._words] if token in self._asked])
            case Ping(answer=True) if self._pinged_s is not None:
                self.trip_s, self._pinged_s = trio.current_time() - self._pinged_s, None
            case Close():
                return Failure.GONE
            case _:
                return Failure.WRONG
        return None

    def _progress(self, message: Block | Data | Head | End | NotFound | Busy) -> Failure | None:
        request = self._requests.get(message.rid)
        if request is None:
            return self._late(message)
        self._progress_s = trio.current_time()
        match message:
            case Block(content=content):
                self._rate.count(len(content), self._progress_s)
                return self._came(request, request.incoming.whole(content))
            case Head(total=total):
                drop = request.incoming.head(total)
            case Data(content=content):
                drop = request.incoming.data(content)
                self._arrived += len(content)
                self._rate.count(len(content), self._progress_s)
                if drop is None and not request.owner.is_open(request.want):
                    self.cancel(request.owner, request.want.id)
            case End():
                return self._came(request, request.incoming.end())
            case NotFound():
                self._drop(request)
                request.owner.failed(self, request.want, Failure.LACKED)
                return None
            case Busy(retry_ms=retry_ms):
                self._drop(request)
                self.rest = self._progress_s + retry_ms / 1000
                request.owner.failed(self, request.want, Failure.BUSY)
                return None
        return None if drop is None else Failure.WRONG

    def _came(self, request: _Request, block: bytes | Drop) -> Failure | None:
        if isinstance(block, Drop):
            return Failure.WRONG
        self._drop(request)
        self.blocks += 1
        self.bytes += len(block)
        request.owner.came(self, request.want, block)
        return None

    def _late(self, message: Block | Data | Head | End | NotFound | Busy) -> Failure | None:
        """Something of a request that was cancelled, perhaps."""
        left = self._late_bytes.get(message.rid)
        if left is None:
            return Failure.WRONG
        if isinstance(message, Data | Block):
            self.wasted += len(message.content)
            left -= len(message.content)
            self._late_bytes[message.rid] = left
        if not isinstance(message, Data | Head):
            del self._late_bytes[message.rid]
        return None if left >= 0 else Failure.WRONG

    def _drop(self, request: _Request) -> None:
        del self._requests[request.rid], self._rids[request.owner, request.want.id]
        self.outstanding -= request.want.length
        self._arrived -= request.incoming.received
        self._allowance.left += request.want.length
        self._owed -= request.is_sent
        if not self._requests:
            self._rate.stop(trio.current_time())


def tokens_of(ids: Iterable[BlockId], words: int) -> tuple[bytes, ...]:
    """How blocks are named in a question: so many tokens each."""
    return tuple([block[at : at + TOKEN_BYTES] for block in ids for at in range(0, words * TOKEN_BYTES, TOKEN_BYTES)])
