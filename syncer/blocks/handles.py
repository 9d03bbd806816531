"""The state of the board, and what one source sees of it.

A want is in at most one pool of each source that may still serve it: what is spare, what others offer, what another
one has claimed. Whatever happens to a want moves it between pools, so that nobody ever searches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Final

import trio

from blockfs.blocks.hashing import canonical
from blockfs.blocks.ids import BlockId
from syncer.blocks.entries import Caller, Delivery, Entry
from syncer.blocks.meter import Meter
from syncer.blocks.policy import ServerPolicy
from syncer.blocks.pools import Pool
from syncer.errors import NotFoundError, SyncerError
from syncer.ports.blocks import BlockSource, Given, NearBlocks, Priority, Want

_HASHED_HERE: Final = 128 << 10  # bytes; hashing them takes no longer than the way to a thread and back


class Table:
    """All wants of a cycle.

    Attributes:
        open: Those that are not served yet, or are being delivered.
        near: How many of the sources are near.
        claimed_bytes: Lengths of what is claimed, or delivered and not taken.
        budget_bytes: Most of that, except that one block is always allowed.
        policy: Of the server, if there are other far sources beside it.
        own: See `Board`.
        handles: Of the sources, near ones first.
    """

    def __init__(self, sources: int, near: int, budget_bytes: int, policy: ServerPolicy | None) -> None:
        self.open: dict[BlockId, Entry] = {}
        self.near = near
        self.claimed_bytes = 0
        self.budget_bytes = budget_bytes
        self.policy = policy
        self.own: NearBlocks | None = None
        self.ended = False
        self.handles: list[Handle] = []
        self._all = (1 << sources) - 1
        self._far = self._all >> near << near
        self._retired = 0
        self._why: SyncerError | None = None  # the last error of a source that has retired

    def put(self, caller: Caller, want: Want, priority: Priority) -> None:
        """Somebody wants a block; not what it wants already."""
        caller.left[want.id] = None
        entry = self.open.get(want.id)
        if entry is None:
            entry = self.open[want.id] = Entry(want, priority, len(self.handles))
            entry.callers[caller] = want
            entry.lacks, entry.why = self._retired, self._why
            self._opened(entry)
            return
        entry.callers[caller] = want
        if entry.data is not None:
            # Who joins while it is delivered gets it, too.
            entry.pending += 1
            caller.inbox.append((want.id, entry.data))
        elif priority < entry.priority:
            self._leave_pools(entry)
            entry.priority = priority
            self.file(entry)

    def withdraw(self, caller: Caller, block: BlockId) -> None:
        """Somebody does not want it any more."""
        del caller.left[block]
        entry = self.open[block]
        del entry.callers[caller]
        if entry.data is not None:
            self._one_less(entry)
        elif not entry.callers:
            self._close(entry)

    def taken(self, caller: Caller, block: BlockId) -> None:
        """Somebody has got what was delivered to it."""
        del caller.left[block]
        entry = self.open[block]
        del entry.callers[caller]
        self._one_less(entry)

    def deliver(self, entry: Entry, data: bytes, delivery: Delivery, giver: Handle) -> None:
        """Give a verified block to all who want it."""
        # One claim stays until it is taken: the block is in memory.
        kept = giver.bit if entry.claims & giver.bit else entry.claims & -entry.claims
        if entry.claims != kept:
            for handle in self.handles:
                if entry.claims & ~kept & handle.bit:
                    self.release(entry, handle)
        entry.data = data
        entry.delivery = delivery
        entry.pending = len(entry.callers)
        delivery.left += 1
        for caller in entry.callers:
            caller.inbox.append((entry.want.id, data))
            caller.wake.set()
        self._leave_pools(entry)

    def lack(self, entry: Entry, handle: Handle, why: SyncerError | None) -> None:
        """A source does not have it."""
        if entry.claims & handle.bit:
            self.release(entry, handle)
        entry.offers &= ~handle.bit
        entry.lacks |= handle.bit
        entry.why = why or entry.why
        self._opened(entry)
        for other in self.handles:
            if entry.lacks == self._all & ~other.bit:
                other.is_alone_with(entry)

    def retire(self, handle: Handle, why: SyncerError | None) -> None:
        """A source has ended: it lacks everything from now on."""
        self._retired |= handle.bit
        self._why = why or self._why
        if self.policy is not None and handle.index >= self.near:
            self.policy.alone()
            self.look_again()
        for entry in list(self.open.values()):
            if entry.data is None:
                self.lack(entry, handle, why)

    def look_again(self) -> None:
        """The policy may allow another thing now."""
        for handle in self.handles:
            handle.policy_changed()

    def release(self, entry: Entry, handle: Handle) -> None:
        """End a claim. The want is to be filed anew by the caller."""
        length = entry.want.length
        entry.claims &= ~handle.bit
        self.claimed_bytes -= length
        handle.unclaimed(length)
        for other in self.handles:
            if other.denied:
                other.denied = False
                other.has_news()

    def file(self, entry: Entry) -> None:
        """Put a want into the pools where it belongs now."""
        for handle in self.handles:
            if handle.draws:
                old, new = entry.pools[handle.index], handle.pool_of(entry)
                if old is not new:
                    entry.pools[handle.index] = new
                    if old is not None:
                        handle.removed(entry, old)
                    if new is not None:
                        handle.added(entry, new)
            elif not handle.knows_of_news and handle.pool_of(entry) is not None:
                handle.has_news()
            if handle.peeks:
                handle.note(entry)

    def _opened(self, entry: Entry) -> None:
        """Pass a want on to the next sources, or fail it when there are none."""
        while entry.stage < self.near and entry.lacks >> entry.stage & 1:
            entry.stage += 1
        if entry.stage == self.near and entry.far_since < 0:
            entry.far_since = trio.current_time()
            if self.policy is not None:
                self.policy.wanted(entry.want.length)
        if entry.lacks == self._all:
            self._fail(entry)
        else:
            self.file(entry)

    def _fail(self, entry: Entry) -> None:
        """No source has it: neither in this place nor, if it is not a matter of the place, in another one."""
        block = entry.want.id
        why = entry.why or NotFoundError(f"block {block.hex()[:12]} is nowhere: no source has it")
        for caller in list(entry.callers):
            if why.retryable or self._retired & self._far == self._far or not entry.wants_elsewhere(caller):
                del entry.callers[caller], caller.left[block]
                caller.failed[block] = why
                caller.wake.set()
        if not entry.callers:
            self._close(entry)
            return
        self._leave_pools(entry)
        entry.want = next(iter(entry.callers.values()))
        entry.why = self._why
        entry.lacks &= ~self._far | self._retired
        entry.seen &= ~self._far
        self.file(entry)

    def _one_less(self, entry: Entry) -> None:
        entry.pending -= 1
        if not entry.pending:
            self._close(entry)
            assert entry.delivery is not None
            entry.delivery.left -= 1
            if not entry.delivery.left:
                entry.delivery.done.set()

    def _close(self, entry: Entry) -> None:
        del self.open[entry.want.id]
        for handle in self.handles:
            if entry.claims & handle.bit:
                self.release(entry, handle)
        if entry.data is None:
            self._leave_pools(entry)
        entry.data = None  # whoever still looks at the entry must not keep a block in memory

    def _leave_pools(self, entry: Entry) -> None:
        for handle in self.handles:
            pool = entry.pools[handle.index]
            if pool is not None:
                entry.pools[handle.index] = None
                handle.removed(entry, pool)
            if entry.unseen & handle.bit:
                handle.unseen.discard(entry)
        entry.unseen = 0


class Handle:
    """One source's board: `ports.blocks.Board`.

    Attributes:
        source: Whose.
        index: Its place among the sources.
        bit: Its bit in the sets of `Entry`.
        spare: Unclaimed wants that no other source offers.
        offered: Unclaimed wants that another one offers.
        claimed: Wants that one other source has claimed.
        unseen: Wants that `peek` is to show.
        draws: It has called `take` without names. Before that, nothing is in the pools.
        peeks: It has called `peek`. Before that, nothing is in `unseen`.
        denied: The budget had no room for a claim.
        meter: Runs while it has claims.
        held_s: So long it was idle, and wants that nobody had claimed were kept from it.
        own: See `Board`.
    """

    spare: Pool[Entry]
    offered: Pool[Entry]
    claimed: Pool[Entry]

    def __init__(self, table: Table, source: BlockSource, index: int) -> None:
        self.source = source
        self.index = index
        self.bit = 1 << index
        self.unseen = Pool[Entry]()
        self.draws = self.peeks = False
        self.denied = False
        self.meter = Meter()
        self.blocks = self.bytes = self.late = self.wrong = self.lacked = 0
        self.held_s = 0.0
        self.claims = self.claimed_bytes = 0
        self.own = table.own
        self._table = table
        self._news = self._looked = 0
        self._event: trio.Event | None = None
        self._is_near = index < table.near
        self._stage = index if self._is_near else table.near
        self._make_pools()

    def _make_pools(self) -> None:
        self.spare, self.offered, self.claimed = Pool(), Pool(), Pool()

    # --- for the source

    def peek(self, most: int) -> Sequence[Want]:
        """See Board."""
        self._looked = self._news
        if not self.peeks:
            self._begin_to_peek()
        found: list[Want] = []
        while len(found) < most and (entry := self.unseen.pop()) is not None:
            entry.seen |= self.bit
            entry.unseen &= ~self.bit
            found.append(entry.want)
        return found

    @property
    def open(self) -> int:
        """See Board."""
        return len(self._table.open)

    def glance(self, most: int) -> Sequence[Want]:
        """See Board."""
        if self.peeks:
            return self.peek(most)
        found = list(islice(filter(self.is_to_show, self._table.open.values()), most))
        if len(found) < most:
            self._looked = self._news
        for entry in found:
            entry.seen |= self.bit
        return [entry.want for entry in found]

    def take(
        self, most_bytes: int, among: Collection[BlockId] | None = None, *, spare: bool = False, again: bool = False
    ) -> Sequence[Want]:
        """See Board."""
        self._looked = self._news
        allowed = [self.spare, *(() if spare else (self.offered,)), *((self.claimed,) if again else ())]
        taken: list[Want] = []
        if among is not None:
            for block in among:
                entry = self._table.open.get(block)
                if entry is not None and self.pool_of(entry) in allowed:
                    if not self._claim(entry, most_bytes, first=not taken):
                        break
                    most_bytes -= entry.want.length
                    taken.append(entry.want)
            return taken
        if not self.draws:
            self._begin_to_draw()
        self._begin_to_take(allowed)
        while (entry := self._next(allowed)) is not None:
            if not self._claim(entry, most_bytes, first=not taken):
                break
            most_bytes -= entry.want.length
            taken.append(entry.want)
        return taken

    async def give(self, got: Sequence[tuple[Want, bytes]], *, hold: bool = False) -> list[Given]:
        """See Board."""
        table = self._table
        outcomes = [Given.LATE] * len(got)
        fresh = [(at, want, data) for at, (want, data) in enumerate(got) if self.is_open(want)]
        try:
            named = await _name_all([data for _, _, data in fresh])
        except BaseException:  # cancelled: nobody will give these
            for _, want, _ in fresh:
                self._end_claim(table.open.get(want.id))
            raise
        delivery, given_bytes = Delivery(), 0
        for (at, want, _), (block, data) in zip(fresh, named, strict=True):
            entry = table.open.get(want.id)
            if entry is None or entry.data is not None:
                continue
            # A near one may have more of it: an object that was cut keeps the id of its last block as that was.
            if block != want.id or (len(data) > entry.want.length and not self._is_near):
                outcomes[at] = Given.WRONG
                self.wrong += 1
                if not hold:
                    entry.seen &= ~self.bit
                    self._end_claim(entry)
                    table.file(entry)
            else:
                outcomes[at] = Given.RIGHT
                given_bytes += len(data)
                table.deliver(entry, data, delivery, self)
        if delivery.left:
            self.gave(delivery.left, given_bytes)
        self.late += outcomes.count(Given.LATE)
        if delivery.left:
            await delivery.done.wait()
        return outcomes

    def lack(self, wants: Iterable[Want], why: SyncerError | None = None) -> None:
        """See Board."""
        for want in wants:
            entry = self._table.open.get(want.id)
            if entry is not None and entry.data is None and not entry.lacks & self.bit:
                self.lacked += 1
                self._table.lack(entry, self, why)

    def offer(self, wants: Iterable[Want]) -> None:
        """See Board."""
        for want in wants:
            entry = self._table.open.get(want.id)
            if entry is not None and entry.data is None:
                entry.offers |= self.bit
                entry.lacks &= ~self.bit
                self._table.file(entry)

    def heard(self, at_s: float) -> None:
        """See Board."""
        if self._table.policy is not None:
            self._table.policy.heard(at_s)
            self._table.look_again()

    def seek(self, *, over: bool = False, sure: bool = False) -> None:
        """See Board."""
        if self._table.policy is not None:
            self._table.policy.seek(trio.current_time(), over=over, sure=sure)
            self._table.look_again()

    def answering(self, *, over: bool = False) -> None:
        """See Board."""
        if self._table.policy is not None:
            self._table.policy.answering(over=over)
            self._table.look_again()

    def is_open(self, want: Want) -> bool:
        """See Board."""
        entry = self._table.open.get(want.id)
        return entry is not None and entry.data is None

    async def more(self) -> bool:
        """See Board."""
        if self._table.ended or self._news != self._looked:
            await trio.lowlevel.checkpoint()
        else:
            await self._wait()
        return not self._table.ended

    # --- for the table

    def pool_of(self, entry: Entry) -> Pool[Entry] | None:
        """Where a want belongs for this source; None: it is not for this source now."""
        if entry.data is not None or (entry.lacks | entry.claims) & self.bit or entry.stage != self._stage:
            return None
        if entry.claims:
            return self.claimed if not entry.claims & (entry.claims - 1) else None
        return self.offered if entry.offers & ~self.bit else self.spare

    def is_to_show(self, entry: Entry) -> bool:
        """Whether `peek` is to return it."""
        return entry.data is None and not (entry.seen | entry.lacks) & self.bit and entry.stage == self._stage

    def note(self, entry: Entry) -> None:
        """It peeks, and a want may be to show now, or no longer."""
        if not self.is_to_show(entry):
            if entry.unseen & self.bit:
                entry.unseen &= ~self.bit
                self.unseen.discard(entry)
        elif not entry.unseen & self.bit:
            entry.unseen |= self.bit
            self.unseen.add(entry)
            self.has_news()

    def added(self, entry: Entry, pool: Pool[Entry]) -> None:
        """A want belongs into one of the pools now."""
        pool.add(entry)
        self.has_news()

    def removed(self, entry: Entry, pool: Pool[Entry]) -> None:
        """A want does not belong there any more."""
        pool.discard(entry)

    def is_alone_with(self, entry: Entry) -> None:
        """All other sources lack a want."""

    def policy_changed(self) -> None:
        """The server's policy may allow another thing now."""

    def gave(self, blocks: int, size_bytes: int) -> None:
        """So many blocks of it were delivered, of so many bytes together."""
        self.blocks += blocks
        self.bytes += size_bytes
        if not self._is_near and self._table.policy is not None:
            self._table.policy.devices.count(size_bytes, trio.current_time())

    def unclaimed(self, length: int) -> None:
        """One of its claims is over."""
        self.claims -= 1
        self.claimed_bytes -= length
        if not self.claims:
            self.meter.stop(trio.current_time())

    @property
    def knows_of_news(self) -> bool:
        """Whether it was told that it should look, and has not looked since."""
        return self._news != self._looked

    def has_news(self) -> None:
        """`peek` or `take` may give something new."""
        self._news += 1
        if self._event is not None:
            self.wake()

    def wake(self) -> None:
        """Whoever waits looks again whether it should."""
        if self._event is not None:
            self._event.set()
            self._event = None

    # --- inside

    async def _wait(self) -> None:
        await self._next_event().wait()

    def _next_event(self) -> trio.Event:
        if self._event is None:
            self._event = trio.Event()
        return self._event

    def _begin_to_peek(self) -> None:
        self.peeks = True
        for entry in self._table.open.values():
            if self.is_to_show(entry):
                entry.unseen |= self.bit
                self.unseen.add(entry)

    def _begin_to_draw(self) -> None:
        self.draws = True
        for entry in self._table.open.values():
            pool = entry.pools[self.index] = self.pool_of(entry)
            if pool is not None:
                pool.add(entry)

    def _begin_to_take(self, allowed: Sequence[Pool[Entry]]) -> None:
        """`_next` is called some times now, without an await in between."""

    def _next(self, allowed: Sequence[Pool[Entry]]) -> Entry | None:
        """The want to claim next: the most urgent one that is unclaimed, else one that is."""
        best: Entry | None = None
        for pool in allowed:
            entry = None if pool is self.claimed and best is not None else pool.first()
            if entry is not None and (best is None or entry.priority < best.priority):
                best = entry
        return best

    def _claim(self, entry: Entry, room: int, *, first: bool) -> bool:
        """Claim a want, if there is room for it."""
        length, table = entry.want.length, self._table
        if length > room and not first:
            return False
        fits = not table.claimed_bytes or table.claimed_bytes + length <= table.budget_bytes
        if not fits or (self.claimed_bytes and self.claimed_bytes + length > table.budget_bytes // 2):
            self.denied = True
            return False
        if not self.claims:
            self.meter.run(trio.current_time())
        self.claims += 1
        self.claimed_bytes += length
        table.claimed_bytes += length
        entry.claims |= self.bit
        entry.seen |= self.bit
        table.file(entry)
        return True

    def _end_claim(self, entry: Entry | None) -> None:
        if entry is not None and entry.data is None and entry.claims & self.bit:
            self._table.release(entry, self)
            self._table.file(entry)


async def _name_all(blocks: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Id and canonical form of each."""
    if sum(map(len, blocks)) <= _HASHED_HERE:
        return _named(blocks)
    return await trio.to_thread.run_sync(_named, blocks)


def _named(blocks: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    named: list[tuple[bytes, bytes]] = []
    for data in blocks:
        short = canonical(data) if data.endswith(b"\0") else data
        named.append((hashlib.sha256(short).digest(), short))
    return named
