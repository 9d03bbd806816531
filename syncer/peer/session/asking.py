"""What we ask of the peers of one share: wants, who offers them, and when to ask again.

    wanted ── want ──> DUE ── sent ──> ASKED ── after 0.3, 1, 5, then each 30 s ──> DUE, or ASKED again if one offers it
                        │                └───── somebody comes ──> DUE, unless two offer it
                        └─────────────── drop_want: gone from wherever it is ───────────────┘

All of it is O(1) for each id and each time it is asked: an id lies in a list for each time it was asked, and the lists
are in order of time by themselves, because all that were asked equally often wait equally long.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import groupby
from typing import Final

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import PeerId

COALESCE_S: Final = 0.002  # wants that come one after the other travel together
AGAIN_S: Final = (0.3, 1.0, 5.0, 30.0)  # after so long ask again, the last one for ever
ENOUGH: Final = 2  # so many live peers that offer a block: who comes is not asked for it
WANTS: Final = 65_536  # most of one share: a window of the board. 10 MiB with all that hangs on them
ANSWERS: Final = 256  # to one question
_STALE: Final = 1024  # so many that are not due any more lie in the order
_PROVIDERS: Final = 8  # of one block; more are not used


class _Asked:
    """Ids that were asked at the same time, for the same number of times."""

    __slots__ = ("due_s", "ids", "times")

    def __init__(self, times: int, due_s: float, ids: list[BlockId]) -> None:
        self.times = times
        self.due_s = due_s
        self.ids = ids


_NEVER: Final = _Asked(0, 0.0, [])


class Asking:
    """The wants of one share."""

    def __init__(self) -> None:
        """Nothing is wanted."""
        self._wants: dict[BlockId, _Asked] = {}  # with the last time they were asked
        self._providers: dict[BlockId, tuple[PeerId, ...]] = {}
        self._due: dict[BlockId, None] = {}
        # A dict's first entry is dear to find once many before it are gone: so the order is here, with some that are
        # not due any more.
        self._order: deque[BlockId] = deque()
        self._flush_s = -math.inf  # the next question may go then
        self._waiting: tuple[deque[_Asked], ...] = tuple(deque() for _ in AGAIN_S)

    def __len__(self) -> int:
        """How many are wanted."""
        return len(self._wants)

    def __contains__(self, block: object) -> bool:
        """Whether it is wanted."""
        return block in self._wants

    def want(self, ids: Iterable[BlockId], now: float) -> int:
        """Want these. Those beyond the most are left out: nothing is ever said of them.

        Returns:
            How many are new.
        """
        wants = self._wants
        new = [block for block in dict.fromkeys(ids) if block not in wants][: WANTS - len(wants)]
        wants.update(dict.fromkeys(new, _NEVER))
        self._due.update(dict.fromkeys(new))
        self._order.extend(new)
        if self._due:
            # The first want travels at once; those that come right behind it wait for each other.
            self._flush_s = max(self._flush_s, now)
        return len(new)

    def drop(self, ids: Iterable[BlockId]) -> None:
        """These are not wanted any more."""
        for block in ids:
            self._wants.pop(block, None)
            self._providers.pop(block, None)
            self._due.pop(block, None)
        if len(self._order) > 2 * len(self._due) + _STALE:
            self._order = deque(self._due)
        if not self._wants:
            for queue in self._waiting:  # nothing to wake up for
                queue.clear()

    def due(self, now: float) -> int:
        """How many are to be asked at this moment."""
        return len(self._due) if self._due and now >= self._flush_s else 0

    def again_at(self) -> float:
        """When `mature` finds something; infinite: never."""
        return min((queue[0].due_s for queue in self._waiting if queue), default=math.inf)

    def flush_at(self) -> float:
        """When something is due, maybe long ago; infinite: nothing is."""
        return self._flush_s if self._due else math.inf

    def mature(self, now: float, live: Callable[[PeerId], bool]) -> None:
        """Make due again what has waited long enough and is offered by no live peer.

        All who are there were asked, and who is connected tells what it gets: to ask for what one offers would be to
        ask for all of it again.
        """
        if self.again_at() > now:
            return
        live = cache(live)  # few peers, for thousands of ids
        for queue in self._waiting:
            while queue and queue[0].due_s <= now:
                asked = queue.popleft()
                enough = []
                for block in asked.ids:
                    if self._wants.get(block) is not asked:
                        continue  # dropped since, and perhaps wanted anew: then another list has it
                    if any(map(live, self._providers.get(block, ()))):
                        enough.append(block)
                    else:
                        self._due[block] = None
                        self._order.append(block)
                self._wait(enough, asked.times, now)
                self._flush_s = max(self._flush_s, now) if self._due else self._flush_s

    def hasten(self, now: float, live: Callable[[PeerId], bool]) -> None:
        """Somebody came: make due what was asked and is offered by fewer than two live peers."""
        live = cache(live)
        for block, asked in self._wants.items():
            if (
                asked is not _NEVER
                and block not in self._due
                and sum(map(live, self._providers.get(block, ()))) < ENOUGH
            ):
                self._due[block] = None
                self._order.append(block)
        if self._due:
            self._flush_s = max(self._flush_s, now)

    def take(self, most: int, now: float) -> tuple[BlockId, ...]:
        """Some that are due, for one question. They count as asked now."""
        taken: list[BlockId] = []
        due, order = self._due, self._order
        while due and len(taken) < most:
            block = order.popleft()
            if due.pop(block, block) is None:
                taken.append(block)
        self._asked(taken, now)
        return tuple(taken)

    def take_beyond(self, kept: int, offset: int, now: float) -> tuple[BlockId, ...]:
        """All that are due but for some, beginning at an offset: others than last time. They count as asked now."""
        due = list(self._due)
        offset %= max(1, len(due))
        due = due[offset:] + due[:offset]
        taken = tuple(due[kept:])
        self._due, self._order = dict.fromkeys(due[:kept]), deque(due[:kept])
        self._asked(taken, now)
        return taken

    def flushed(self, now: float) -> None:
        """All questions of this moment are sent: the next wants wait for each other."""
        self._flush_s = now + COALESCE_S

    def offered(self, ids: Iterable[BlockId], peer: PeerId) -> tuple[BlockId, ...]:
        """A peer says it has these. Returns those that are still wanted."""
        wants, known = self._wants, self._providers
        wanted = tuple([block for block in ids if block in wants])
        grown: dict[tuple[PeerId, ...], tuple[PeerId, ...]] = {}  # few different ones, for thousands of ids
        for block in wanted:
            before = known.get(block, ())
            after = grown.get(before)
            if after is None:
                # The oldest goes: its id is the likeliest to have ended with its epoch.
                after = before if peer in before else (*before, peer)[-_PROVIDERS:]
                grown[before] = after
            known[block] = after
        return wanted

    def _asked(self, taken: Sequence[BlockId], now: float) -> None:
        wants = self._wants
        groups: dict[int, list[BlockId]] = {}
        for last, ids in groupby(taken, wants.__getitem__):  # what was asked together is mostly together again
            groups.setdefault(last.times, []).extend(ids)
        for times, together in groups.items():  # only now: waiting changes how often they were asked
            self._wait(together, times, now)

    def _wait(self, ids: list[BlockId], times: int, now: float) -> None:
        if ids:
            again = min(times, len(AGAIN_S) - 1)
            asked = _Asked(times + 1, now + AGAIN_S[again], ids)
            self._waiting[again].append(asked)
            self._wants.update(dict.fromkeys(ids, asked))


class Question:
    """One question on its way.

    Attributes:
        share: Of which share.
        sender: Who we were when we asked.
        ids: In the order of the tokens.
        at_s: When, monotonic seconds.
    """

    __slots__ = ("_answered", "at_s", "ids", "sender", "share")

    def __init__(self, share: str, sender: bytes, ids: tuple[BlockId, ...], at_s: float) -> None:
        """A question that goes now."""
        self.share = share
        self.sender = sender
        self.ids = ids
        self.at_s = at_s
        self._answered: set[PeerId] = set()

    def take_answer(self, peer: PeerId) -> bool:
        """Whether this is the first answer of a peer, of few peers enough."""
        first = peer not in self._answered and len(self._answered) < ANSWERS
        if first:
            self._answered.add(peer)
        return first


QUESTIONS: Final = 1024  # outstanding ones; 64 at once and 200 a second go: five seconds
ANSWER_S: Final = 10.0  # an answer that is later counts no more


class Questions:
    """All questions that may still be answered."""

    def __init__(self) -> None:
        """None."""
        self._asked: dict[int, Question] = {}  # in the order of time

    def __len__(self) -> int:
        """How many are kept."""
        return len(self._asked)

    def add(self, qid: int, question: Question) -> None:
        """A question goes. The oldest are forgotten."""
        self._asked.pop(qid, None)
        self._asked[qid] = question
        while len(self._asked) > QUESTIONS or self._oldest().at_s < question.at_s - ANSWER_S:
            del self._asked[next(iter(self._asked))]

    def get(self, qid: int, now: float) -> Question | None:
        """The question with this id, if an answer to it still counts."""
        question = self._asked.get(qid)
        return question if question is not None and now - question.at_s <= ANSWER_S else None

    def _oldest(self) -> Question:
        return next(iter(self._asked.values()))
