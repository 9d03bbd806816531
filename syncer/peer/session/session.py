"""The session of LAN peers: who is there, and who has what, asked and answered by frames.

Pure: time, randomness and bytes are arguments, and what is to be done is returned. The shell gives it every frame
(`handle_frame`), wants, links and keys, calls `tick` at `next_deadline`, and does what the returned actions say, in
their order. Blocks themselves travel over connections, which are not this module's. All times are `now`, monotonic
seconds, and `unix_s`, the wall clock in seconds; both at the moment of the call.

Nothing is sent unless something is wanted, asked, new or ending: an idle session has no deadline.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from blockfs.blocks.ids import BlockId
from syncer.peer.session.actions import (
    Action,
    Address,
    Answered,
    AskConnected,
    Heard,
    Left,
    Link,
    LinkId,
    LookUp,
    PeerId,
    Send,
    Ticket,
)
from syncer.peer.session.answering import Answering, Newcomer, Reply, Request
from syncer.peer.session.asking import COALESCE_S, Asking, Question, Questions
from syncer.peer.session.budget import hellos
from syncer.peer.session.counters import Counters
from syncer.peer.session.keyring import Keyring, RootKey, ShareKey
from syncer.peer.session.neighbours import KNOWN_S, Neighbour, Neighbours, is_near
from syncer.peer.session.outbound import Outbound
from syncer.peer.session.receiving import Received, Receiver
from syncer.peer.session.sender import Sender
from syncer.peer.session.standing import Standing
from syncer.peer.wire.bodies import MAX_TOKENS, TOKEN_BYTES, IHave, Presence, WhoHas, positions
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.frames import FrameType
from syncer.peer.wire.keys import EpochKeys, epoch_of, nearby_epoch

DISCOVERY_S: Final = 1.0  # while somebody is there, so often a question asks also those who have nothing
HASTEN_S: Final = 1.0  # so often, at most, all is asked again because somebody came
BROADCASTS: Final = 8  # frames of one flush; with more wants than that connected peers are asked over their connections
AT_ONCE: Final = 8  # questions that are made before they are sent: who is asked begins while we make the next ones
_QID_BYTES: Final = 4
_WHOHAS_BYTES: Final = 8  # of a question's body before its tokens


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """What a connection begins with.

    Attributes:
        sender: Our sender id, 16 bytes, for the preamble.
        keys: Of the share, in our epoch: its hint goes into the preamble, its psk into the handshake.
    """

    sender: bytes
    keys: EpochKeys


class _Share:
    """One share that we take part in."""

    __slots__ = ("answers", "asking", "discovered_s", "hasten_s", "hastened_s", "neighbours")

    def __init__(self) -> None:
        self.asking = Asking()
        self.neighbours = Neighbours()
        self.answers = True
        self.discovered_s = -math.inf
        self.hastened_s = -math.inf  # when it was asked again last, because somebody came
        self.hasten_s = math.inf  # when it will be


class Session:
    """All shares of this process, on all links.

    Attributes:
        counters: What happened.
        standing: Bans and the like, for the shell to read, and to tell of connections.
        load: What we tell of our load: 0 idle to 255.
        serves: Whether the circumstances let us serve now; if not, nobody is told that we could.
    """

    def __init__(self, entropy: Callable[[int], bytes]) -> None:
        """No share and no link.

        Args:
            entropy: So many random bytes from the system, new ones also after the machine was copied.
        """
        self.counters = Counters()
        self.standing = Standing()
        self.load = 0
        self.serves = True
        self._entropy = entropy
        self._keyring = Keyring()
        self._sender = Sender(entropy)
        self._receiver = Receiver(self._keyring, self._sender, self.counters)
        self._outbound = Outbound(self._sender, self.counters)
        self._answering = Answering(entropy)
        self._hellos = hellos()
        self._questions = Questions()
        self._shares: dict[str, _Share] = {}

    # --- shares and links

    def follow(
        self, share: str, keys: Sequence[RootKey], now: float, unix_s: float, *, answers: bool = True
    ) -> list[Action]:
        """Take part in a share, or learn new keys of it.

        Args:
            share: Our name for it: roots with the same key are one share.
            keys: The present key, then those that still count.
            now: Monotonic seconds.
            unix_s: Wall clock.
            answers: Whether questions are looked up; False: its roots are paused.
        """
        self._shares.setdefault(share, _Share()).answers = answers
        if not answers:
            self._answering.forget(share)
        is_new = self._keyring.set(share, keys)
        self._receiver.keep_only(share, self._keyring.valid(share, unix_s))
        if not is_new:
            return []
        return [send for link in self._outbound.links() for send in self._presence(share, link, now, unix_s)]

    def unfollow(self, share: str, now: float, unix_s: float) -> list[Action]:
        """Take part no longer: its key can't be read, or the user wants it so."""
        goodbye = self._goodbye(share, now, unix_s)
        self._keyring.remove(share)
        self._receiver.keep_only(share, ())
        self._answering.forget(share)
        self._shares.pop(share, None)
        return goodbye

    def link_up(self, link: Link, now: float, unix_s: float) -> list[Action]:
        """A link came up, or is another now. HELLO is said if it was not up, or its addresses are others."""
        hello: list[Action] = []
        if self._outbound.up(link):
            self.standing.renewed(link.id)
            hello += [send for share in self._shares for send in self._presence(share, link.id, now, unix_s)]
        return hello + self.tick(now, unix_s)

    def link_down(self, link: LinkId) -> None:
        """A link is gone. What was heard by it fades with time: the peer may be reached by another."""
        self._outbound.down(link)

    def listen(self, port: int) -> None:
        """Connections are taken at this TCP port; 0: none are, so no question is answered."""
        self._outbound.port = port

    def close(self, now: float, unix_s: float) -> list[Action]:
        """The end: say BYE. The session is not used after it."""
        return [send for share in self._shares for send in self._goodbye(share, now, unix_s)]

    # --- asking

    def want(self, share: str, ids: Iterable[BlockId], now: float, unix_s: float) -> list[Action]:
        """Ask for these until `drop_want`; 65,536 of a share at most, nothing is said of others."""
        state = self._shares.get(share)
        if state is None:
            return []
        state.asking.want(ids, now)
        return self.tick(now, unix_s)

    def drop_want(self, share: str, ids: Iterable[BlockId]) -> None:
        """These are here now, or of no use any more."""
        if share in self._shares:
            self._shares[share].asking.drop(ids)

    def told(self, share: str, peer: PeerId, ids: Iterable[BlockId]) -> tuple[BlockId, ...]:
        """A connected peer said that it has these (HAVER, HAVE). Returns those that are wanted."""
        state = self._shares.get(share)
        return state.asking.offered(ids, peer) if state is not None else ()

    # --- peers and connections

    def neighbours(self, share: str, now: float) -> list[Neighbour]:
        """Who of a share was heard in the last ten minutes."""
        state = self._shares.get(share)
        return state.neighbours.all(now, within_s=KNOWN_S) if state is not None else []

    def last_heard_s(self, share: str) -> float:
        """When somebody of a share was heard last, who may be gone since; -inf: nobody ever was."""
        state = self._shares.get(share)
        return -math.inf if state is None else state.neighbours.last_s

    def connected(self, share: str, peer: PeerId) -> None:
        """A connection to this peer is made: it is asked over it when there is much to ask."""
        if share in self._shares:
            self._shares[share].neighbours.connected(peer)

    def disconnected(self, share: str, peer: PeerId) -> None:
        """It is gone."""
        if share in self._shares:
            self._shares[share].neighbours.disconnected(peer)

    def credentials(self, share: str, peer: PeerId, now: float, unix_s: float) -> Credentials | None:
        """What to begin a connection to this peer with: the key under which it was heard. None: no such share."""
        key = self._receiver.key_of(share, peer) or self._keyring.present(share)
        epoch = self._sender.at(now, unix_s)
        return None if key is None else Credentials(sender=self._sender.id, keys=key.of(epoch))

    def welcome(
        self, epoch16: int, hint: bytes, sender: bytes, now: float, unix_s: float
    ) -> tuple[ShareKey, EpochKeys] | None:
        """Which key a connection to us must prove, from its preamble. None: no share of ours, or a banned peer."""
        epoch = nearby_epoch(epoch16, epoch_of(unix_s))
        if epoch is None or self.standing.is_banned(sender, now):
            return None
        key = self._keyring.match(epoch, hint, sender, unix_s)
        return None if key is None else (key, key.of(epoch))

    def counts(self, key: ShareKey, unix_s: float) -> bool:
        """Whether who has proven this key is still of its share."""
        return self._keyring.counts(key, unix_s)

    # --- frames

    def handle_frame(self, frame: bytes, link: LinkId, source: Address, now: float, unix_s: float) -> list[Action]:
        """Take what came by a link, whatever it is.

        Args:
            frame: All bytes, from the magic on.
            link: By which link.
            source: Where an answer goes.
            now: Monotonic seconds.
            unix_s: Wall clock.
        """
        if not self._outbound.is_up(link):
            return []  # it waited in a queue as its link went
        received = self._receiver.receive(frame, now, unix_s)
        if received is None:
            return []
        peer = PeerId(received.header.sender)
        if self.standing.is_banned(peer, now):
            return self._drop(Drop.BANNED)
        share = received.key.share
        state = self._shares[share]
        if received.header.type is FrameType.BYE:
            return [Left(share=share, peer=peer)] if state.neighbours.left(peer) else []
        actions: list[Action] = []
        if state.neighbours.heard(peer, link, source, now):
            actions.append(Heard(share=share, peer=peer, link=link))
        match received.body:
            case WhoHas() as question:
                actions += self._asked(state, received, question, link, source, now)
            case IHave() as answer:
                actions += self._answered(state, share, peer, answer, link, now)
            case Presence() as presence:
                near = tuple(filter(is_near, presence.addresses))
                state.neighbours.reachable(peer, near, presence.port, 0)
                if presence.asks:
                    self.standing.reached(near, link)  # it came: what was closed there may be open now
                    state.hasten_s = max(now, state.hastened_s + HASTEN_S) if len(state.asking) else math.inf
                    actions += self._hear_newcomer(state, received.key, link, source, now, unix_s)
        return actions

    def looked_up(self, ticket: Ticket, held: Sequence[bool], now: float, unix_s: float) -> list[Action]:
        """What the index of the share said to a `LookUp`. Owed for each of them, all False if that failed."""
        share = self._answering.share_of(ticket)
        known = self._shares[share].neighbours.known(now) if share in self._shares else 0
        self._answering.looked_up(ticket, held, known, now)
        return self.tick(now, unix_s)

    def tick(self, now: float, unix_s: float) -> list[Action]:
        """Do what is due."""
        actions: list[Action] = []
        for due in self._answering.due(now):
            actions += self._answer(due, now, unix_s) if isinstance(due, Reply) else self._say_hello(due, now, unix_s)
        for state in self._shares.values():
            state.asking.mature(now, partial(self._is_good, state, now))
            if state.hasten_s <= now:
                state.hastened_s, state.hasten_s = now, math.inf
                state.asking.hasten(now, partial(self._is_good, state, now))
        return actions + self._ask(now, unix_s)

    def next_deadline(self, now: float) -> float | None:
        """When to call `tick`, monotonic seconds; None: not before something happens."""
        soonest, flush_s = self._answering.next_due(), math.inf
        for state in self._shares.values():
            if len(state.asking):
                soonest = min(soonest, state.asking.again_at(), state.hasten_s)
                flush_s = min(flush_s, state.asking.flush_at())
        ready_s = None if math.isinf(flush_s) else self._outbound.ready_at(now)
        if ready_s is not None:
            soonest = min(soonest, max(ready_s, flush_s))
        return None if math.isinf(soonest) else soonest

    # --- inside

    def _answers(self, state: _Share, link: LinkId) -> bool:
        return self.serves and state.answers and self._outbound.answers(link)

    def _asked(
        self, state: _Share, received: Received, question: WhoHas, link: LinkId, source: Address, now: float
    ) -> list[Action]:
        if not self._answers(state, link):
            return []
        if self._answering.is_full():
            return self._drop(Drop.BUSY)
        request = Request(
            key=received.key,
            peer=PeerId(received.header.sender),
            question=question,
            bound=received.header.length,
            link=link,
            source=source,
        )
        ticket = self._answering.accept(request, state.neighbours.known(now))
        if ticket is None:
            return []
        return [LookUp(ticket=ticket, share=received.key.share, tokens=question.tokens)]

    def _hear_newcomer(
        self, state: _Share, key: ShareKey, link: LinkId, source: Address, now: float, unix_s: float
    ) -> list[Action]:
        """Somebody came, and asks who is there: who would not answer its questions says nothing now, either."""
        if not self._answers(state, link):
            return []
        if self._answering.is_full() or not self._hellos.take(now):
            return self._drop(Drop.BUSY)
        self._answering.came(Newcomer(key=key, link=link, source=source), state.neighbours.known(now), now)
        return self.tick(now, unix_s)

    def _say_hello(self, newcomer: Newcomer, now: float, unix_s: float) -> list[Send]:
        if not self._outbound.is_up(newcomer.link) or not self._keyring.counts(newcomer.key, unix_s):
            return []
        epoch = self._sender.at(now, unix_s)
        return self._outbound.hello(newcomer.key, newcomer.link, newcomer.source, epoch)

    def _answered(
        self, state: _Share, share: str, peer: PeerId, answer: IHave, link: LinkId, now: float
    ) -> list[Action]:
        question = self._questions.get(answer.qid, now)
        if question is None or (question.share, question.sender) != (share, answer.asker):
            return self._drop(Drop.QUESTION)
        if answer.count != len(question.ids) or not question.take_answer(peer):
            return self._drop(Drop.QUESTION)
        self.counters.took(now - question.at_s)
        near = tuple(filter(is_near, answer.addresses))
        state.neighbours.reachable(peer, near, answer.port, answer.load)
        addresses = self.standing.open(near, link, now)
        if not addresses or not answer.port or self.standing.is_ignored(peer, now):
            return []
        ids = state.asking.offered((question.ids[each] for each in positions(answer.bitmap)), peer)
        self.counters.tokens_answered += len(ids)
        return [
            Answered(
                share=share,
                peer=peer,
                ids=ids,
                addresses=addresses,
                port=answer.port,
                load=answer.load,
                link=link,
            )
        ]

    def _answer(self, reply: Reply, now: float, unix_s: float) -> list[Send]:
        request = reply.request
        if not self._outbound.is_up(request.link) or not self._keyring.counts(request.key, unix_s):
            return []
        epoch = self._sender.at(now, unix_s)
        body = IHave(
            qid=request.question.qid,
            asker=request.peer,
            count=len(request.question.tokens),
            load=self.load,
            port=self._outbound.port,
            addresses=self._outbound.addresses(request.link),
            bitmap=reply.bitmap,
        ).encode(request.bound)
        if body is None:
            return []  # the question was shorter than any of ours is
        return self._outbound.answer(request.key, body, request.link, request.source, epoch)

    def _ask(self, now: float, unix_s: float) -> list[Action]:
        asking = deque([(share, state) for share, state in self._shares.items() if state.asking.due(now)])
        bound = self._outbound.bound() if asking else 0
        if not bound:
            return []
        most = min(MAX_TOKENS, (bound - _WHOHAS_BYTES) // TOKEN_BYTES)
        actions: list[Action] = []
        for share, state in asking:
            actions += self._by_connections(share, state, BROADCASTS * most, now)
        sent = 0  # what is due still goes with the next `tick`, at once
        while asking and sent < AT_ONCE and self._outbound.ready(now):
            sent += 1
            share, state = asking.popleft()
            actions += self._question(share, state, most, now, unix_s)
            if state.asking.due(now):
                asking.append((share, state))  # behind the other shares
            else:
                state.asking.flushed(now)
        return actions

    def _by_connections(self, share: str, state: _Share, broadcast: int, now: float) -> list[Action]:
        peers = tuple(each for each in state.neighbours.connections() if self._is_good(state, now, each))
        if not peers or state.asking.due(now) <= broadcast:
            return []
        offset = int.from_bytes(self._entropy(_QID_BYTES), "big")
        return [AskConnected(share=share, peers=peers, ids=state.asking.take_beyond(broadcast, offset, now))]

    def _question(self, share: str, state: _Share, most: int, now: float, unix_s: float) -> list[Action]:
        epoch = self._sender.at(now, unix_s)
        ids = state.asking.take(most, now)
        # Who is not known yet is asked to show up with each flush; who is, less often: each would answer.
        pause_s = DISCOVERY_S if state.neighbours.anybody(now) else COALESCE_S
        discovery = now - state.discovered_s >= pause_s
        if discovery:
            state.discovered_s = now
        qid = int.from_bytes(self._entropy(_QID_BYTES), "big")
        tokens = tuple([block[:TOKEN_BYTES] for block in ids])
        body = WhoHas(qid=qid, tokens=tokens, discovery=discovery).encode(self._outbound.bound())
        self._questions.add(qid, Question(share, self._sender.id, ids, now))
        self.counters.questions += 1
        self.counters.tokens_asked += len(ids)
        actions: list[Action] = []
        for key in self._keyring.in_use(share, now, unix_s):
            actions += self._outbound.question(key, body, epoch, now)
        return actions

    def _presence(self, share: str, link: LinkId, now: float, unix_s: float) -> list[Send]:
        epoch = self._sender.at(now, unix_s)
        return self._outbound.presence(link, FrameType.HELLO, self._keyring.valid(share, unix_s), epoch, now)

    def _goodbye(self, share: str, now: float, unix_s: float) -> list[Action]:
        epoch = self._sender.at(now, unix_s)
        keys = self._keyring.valid(share, unix_s)
        links = self._outbound.links()
        return [send for link in links for send in self._outbound.presence(link, FrameType.BYE, keys, epoch, now)]

    def _is_good(self, state: _Share, now: float, peer: PeerId) -> bool:
        bad = self.standing.is_banned(peer, now) or self.standing.is_ignored(peer, now)
        return not bad and state.neighbours.is_live(peer, now) and self._can_be_reached(state, now, peer)

    def _can_be_reached(self, state: _Share, now: float, peer: PeerId) -> bool:
        neighbour = state.neighbours.get(peer)
        if neighbour is None or not neighbour.addresses or state.neighbours.is_connected(peer):
            return True
        return bool(self.standing.open(neighbour.addresses, neighbour.link, now))

    def _drop(self, why: Drop) -> list[Action]:
        self.counters.drops[why] += 1
        return []
