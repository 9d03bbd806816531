"""How questions of others are answered: whether, when, and never with more bytes than the question had.

    WHOHAS ── coin ──> LOOKED UP ── has some, or discovery ──> WAITS (jitter) ── due ──> IHAVE, to the asker alone
               └ silent: one of many, not this time    └ silent: has none
    HELLO, "who is there?" ── coin ──────────────────────────> WAITS (jitter) ── due ──> HELLO, to the asker alone

All of it is bounded: `WORK` questions in work, each at most as long as its frame. One beyond that is dropped; who asked
asks again.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from syncer.peer.session.actions import Address, LinkId, PeerId, Ticket
from syncer.peer.session.budget import WORK
from syncer.peer.session.keyring import ShareKey
from syncer.peer.wire.bodies import WhoHas, bitmap_of

CROWD: Final = 8  # more known peers than these: answers wait, each for another time
IMPLOSION: Final = 16  # more than these: about CROWD of them answer, by chance. Who asked asks again
JITTER_EACH_S: Final = 0.00025
JITTER_MOST_S: Final = 0.010
_FRACTION: Final = 1 << 32


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A question of somebody.

    Attributes:
        key: The key it was sealed with, for the answer.
        peer: Who asks.
        question: What.
        bound: Length of its body: the answer's is no longer.
        link: By which link it came, and the answer goes.
        source: To where.
    """

    key: ShareKey
    peer: PeerId
    question: WhoHas
    bound: int
    link: LinkId
    source: Address


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is due.

    Attributes:
        request: What it answers.
        bitmap: One bit for each token.
    """

    request: Request
    bitmap: bytes


class Newcomer(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who came, and asks who is there.

    Attributes:
        key: The key it was said under, for the answer.
        link: By which link it came, and the answer goes.
        source: To where.
    """

    key: ShareKey
    link: LinkId
    source: Address


def keeps_silent(known: int, chance: float) -> bool:
    """Whether to leave this question to others.

    Args:
        known: How many peers of the share there are.
        chance: 0 to 1, random.
    """
    return known > IMPLOSION and chance >= CROWD / known


def jitter_s(known: int, chance: float) -> float:
    """How long an answer waits, so that those of many peers don't come at once."""
    return chance * min(JITTER_MOST_S, JITTER_EACH_S * known) if known > CROWD else 0.0


class Answering:
    """The questions of others that are in work."""

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        """None."""
        self._entropy = entropy
        self._tickets = 0
        self._looked_up: dict[Ticket, Request] = {}
        self._waiting: list[tuple[float, int, Reply | Newcomer]] = []  # a heap, soonest first

    def __len__(self) -> int:
        """How many are in work."""
        return len(self._looked_up) + len(self._waiting)

    def is_full(self) -> bool:
        """Whether no more questions are taken now."""
        return len(self) >= WORK

    def accept(self, request: Request, known: int) -> Ticket | None:
        """Take a question. None: others answer it.

        Args:
            request: The question.
            known: How many peers of the share there are.
        """
        if keeps_silent(known, self._chance(known)):
            return None
        self._tickets += 1
        ticket = Ticket(self._tickets)
        self._looked_up[ticket] = request
        return ticket

    def share_of(self, ticket: Ticket) -> str | None:
        """Of which share a question is that is being looked up. None: there is none, any more."""
        request = self._looked_up.get(ticket)
        return request.key.share if request is not None else None

    def looked_up(self, ticket: Ticket, held: Sequence[bool], known: int, now: float) -> None:
        """What the index says of a question's tokens. If none, there is no answer, unless it was asked who is there."""
        request = self._looked_up.pop(ticket, None)
        if request is None:
            return  # forgotten meanwhile, with its share
        assert len(held) == len(request.question.tokens)
        if any(held) or request.question.discovery:
            self._wait(ticket, Reply(request=request, bitmap=bitmap_of(held)), known, now)

    def came(self, newcomer: Newcomer, known: int, now: float) -> None:
        """Somebody asks who is there: one of many keeps silent, here too."""
        if not keeps_silent(known, self._chance(known)):
            self._tickets += 1
            self._wait(Ticket(self._tickets), newcomer, known, now)

    def due(self, now: float) -> list[Reply | Newcomer]:
        """The answers that go now."""
        replies = []
        while self._waiting and self._waiting[0][0] <= now:
            replies.append(heapq.heappop(self._waiting)[2])
        return replies

    def next_due(self) -> float:
        """When the next answer goes; infinite: none waits."""
        return self._waiting[0][0] if self._waiting else math.inf

    def forget(self, share: str) -> None:
        """Answer nothing more of a share."""
        self._looked_up = {key: each for key, each in self._looked_up.items() if each.key.share != share}
        self._waiting = [each for each in self._waiting if _key_of(each[2]).share != share]
        heapq.heapify(self._waiting)

    def _wait(self, ticket: Ticket, what: Reply | Newcomer, known: int, now: float) -> None:
        heapq.heappush(self._waiting, (now + jitter_s(known, self._chance(known)), ticket, what))

    def _chance(self, known: int) -> float:
        """0 to 1, random; among few nothing depends on it."""
        return int.from_bytes(self._entropy(4), "big") / _FRACTION if known > CROWD else 0.0


def _key_of(what: Reply | Newcomer) -> ShareKey:
    return what.request.key if isinstance(what, Reply) else what.key
