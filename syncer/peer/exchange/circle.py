"""One share on the LAN: who asks for its blocks here, which peers have them, and the connections to these.

All that asks for blocks of the share, of any root and any cycle, meets here: a peer is dialled once for all of them.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

import msgspec
import trio

from blockfs.blocks.ids import BlockId
from blockfs.runtime.logs import Log
from syncer.peer.exchange.channel import HANDSHAKE_S, Channel, greet
from syncer.peer.exchange.fetching import Allowance, Download, Failure
from syncer.peer.exchange.limits import Throttle
from syncer.peer.exchange.source import Asker
from syncer.peer.exchange.tcp import is_link_local
from syncer.peer.session.actions import Action, Answered, LinkId, PeerId
from syncer.peer.session.session import Session
from syncer.peer.wire.incoming import Incoming

log = Log()

IDLE_S: Final = 60.0
REST_S: Final = 60.0  # after a stall, or a broken rule
REFUSED_S: Final = 5.0  # it opened, and wanted no more of us: its places are taken, or its key is another by now
CONTACTS: Final = 256
GREET_S: Final = 0.004  # HELLO and the first question are answered in 0.5 ms
FIRST_GREET_S: Final = 0.02  # once: who is busy answers a little later, and is known from then on
SETTLED_S: Final = 0.5  # who has not answered HELLO by then, by Wi-Fi or because it is busy, is not there
SILENT_S: Final = 3600.0  # who was heard within it may still be there, and slow to answer
_TURNS: Final = 4  # of the loop: what came in while it did other things is read first, whatever the clock says
Dial = Callable[[bytes, int, int], Awaitable[trio.abc.Stream]]
"""Connects to an address of 16 bytes, a port, and the zone of link-local addresses; raises OSError."""


class Lan(msgspec.Struct, kw_only=True, eq=False):
    """What circles share.

    Attributes:
        session: Of all shares.
        spawn: Starts a task, and tells whether it did: none is any more when the exchange ends.
        do: Does what the session tells.
        unix: The wall clock, seconds.
        dial: See `Dial`.
        zone: The kernel's number of a link's interface.
        pace: Of all downloads.
        allowance: Of all downloads.
        may_ask: False: circumstances forbid it.
        linked: Returns when a link has come up, or none does.
    """

    session: Session
    spawn: Callable[..., bool]
    do: Callable[[Sequence[Action]], None]
    unix: Callable[[], float]
    dial: Dial
    zone: Callable[[LinkId], int]
    pace: Throttle
    allowance: Allowance
    may_ask: Callable[[], bool]
    linked: Callable[[], Awaitable[None]]


class Contact:
    """A peer that has answered.

    Attributes:
        answer: The last one.
        address: Where it was reached, 16 bytes; empty: it was not yet.
        link: By which link.
        download: The connection, if there is one.
        blocks, bytes, wasted: Of earlier connections.
    """

    def __init__(self, answer: Answered) -> None:
        self.answer = answer
        self.address, self.link = b"", answer.link
        self.is_new = True  # it has answered since we were connected: so it should be there
        self.download: Download | None = None
        self.blocks = self.bytes = self.wasted = 0
        self.has_opened = False  # when it was dialled last
        self.rests_until = -math.inf
        self.users: set[int] = set()
        self.lock = trio.Lock()
        self.partial: dict[BlockId, Incoming] = {}

    @property
    def has_moved(self) -> bool:
        """Whether the connection goes to a link-local address that it has no more, by its last answer on this link.

        A short answer leaves some addresses out, but link-local ones come first.
        """
        if self.download is None or self.answer.link != self.link or not is_link_local(self.address):
            return False
        return self.address not in self.answer.addresses and any(map(is_link_local, self.answer.addresses))

    def figures(self) -> tuple[int, int, int]:
        """Blocks, their bytes and bytes in vain that came from it."""
        now = self.download
        if now is None:
            return self.blocks, self.bytes, self.wasted
        return self.blocks + now.blocks, self.bytes + now.bytes, self.wasted + now.wasted


class ShareCircle:
    """A `source.Circle` of the exchange.

    Attributes:
        share: Its name in the session.
        contacts: Peers that have answered, the first ones first.
        stalls: How often peers stalled.
        lacks: How often they did not have what they offered.
        mismatches: How often they sent another block than they were asked for.
    """

    def __init__(self, share: str, lan: Lan) -> None:
        self.share = share
        self.contacts: dict[PeerId, Contact] = {}
        self.stalls = self.lacks = self.mismatches = 0
        self._forgotten = [0, 0, 0]
        self._lan = lan
        self._askers: dict[int, tuple[Asker, set[BlockId]]] = {}
        self._somebody = trio.Event()
        self._greet_s = FIRST_GREET_S
        self._begun = trio.current_time()

    # --- Circle

    @property
    def heard_s(self) -> float:
        """See Circle."""
        heard = self._lan.session.neighbours(self.share, trio.current_time())
        return max((each.heard_s for each in heard), default=-math.inf)

    @property
    def last_heard_s(self) -> float:
        """When somebody was heard last, who may be gone since; -inf: nobody ever was."""
        return self._lan.session.last_heard_s(self.share)

    @property
    def is_alone(self) -> bool:
        """See Circle. Who is there answers HELLO, and who comes says it."""
        return trio.current_time() >= self._begun + SETTLED_S and math.isinf(self.last_heard_s)

    async def known(self) -> bool:
        """See Circle."""
        if self.is_alone or not self._lan.may_ask():
            return True  # no pull waits to find out once more
        await self._lan.linked()
        self._somebody = trio.Event() if self._somebody.is_set() else self._somebody
        patience_s, self._greet_s = self._greet_s, GREET_S
        with trio.move_on_after(patience_s):
            await self._somebody.wait()
        for _ in range(_TURNS):
            await trio.lowlevel.checkpoint()
        return trio.current_time() >= max(self._begun + SETTLED_S, self.last_heard_s + SILENT_S)

    def join(self, asker: Asker) -> None:
        """See Circle."""
        self._askers[id(asker)] = (asker, set())

    def leave(self, asker: Asker) -> None:
        """See Circle."""
        self.drop(asker, list(self._askers[id(asker)][1]))
        del self._askers[id(asker)]

    def want(self, asker: Asker, ids: Sequence[BlockId]) -> None:
        """See Circle."""
        self._askers[id(asker)][1].update(ids)
        if self._lan.may_ask():
            now = trio.current_time()
            self._lan.do(self._lan.session.want(self.share, ids, now, self._lan.unix()))

    def drop(self, asker: Asker, ids: Iterable[BlockId]) -> None:
        """See Circle."""
        gone = list(ids)
        self._askers[id(asker)][1].difference_update(gone)
        for _, wanted in self._askers.values():
            if wanted:  # by others, or others of ours
                gone = [each for each in gone if each not in wanted]
        self._lan.session.drop_want(self.share, gone)

    async def connect(self, asker: Asker, peer: PeerId) -> Download | None:
        """See Circle."""
        contact = self.contacts.get(peer)
        if contact is None:
            await trio.lowlevel.checkpoint()
            return None
        async with contact.lock:
            if contact.download is None or contact.download.is_over:
                contact.download = await self._dial(contact)
        if contact.download is not None:
            contact.users.add(id(asker))
        return contact.download

    def release(self, asker: Asker, peer: PeerId) -> None:
        """See Circle."""
        contact = self.contacts.get(peer)
        if contact is None:
            return
        contact.users.discard(id(asker))
        if contact.download is not None and not contact.download.is_over:
            self._lan.spawn(contact.download.hang_up)
            if not contact.users:
                self._lan.spawn(self._end_idle, contact, contact.download)

    def lacked(self, peer: PeerId) -> None:
        """See Circle."""
        now = trio.current_time()
        self.lacks += 1
        self._lan.session.standing.lacked(peer, now)
        if self._lan.session.standing.is_ignored(peer, now):
            log.info("peer.ignored", peer=peer.hex(), reason="it lacks what it offers")
            self._end(peer)

    def wrong(self, peer: PeerId, block: BlockId) -> None:
        """See Circle."""
        self.mismatches += 1
        contact = self.contacts.get(peer)
        if contact is not None:
            self._lan.session.standing.ban(peer, contact.address, trio.current_time())
            log.warning("peer.banned", peer=peer.hex(), share=self.share)
            if contact.download is not None:
                contact.download.accuse(block)
            self._end(peer)

    # --- for the exchange

    def taken(self) -> tuple[int, int, int]:
        """Blocks, their bytes and bytes in vain that came from all peers; of those that are forgotten, too."""
        each = [contact.figures() for contact in self.contacts.values()]
        return tuple(map(sum, zip(self._forgotten, *each, strict=True)))  # type: ignore[return-value]

    def heard(self) -> None:
        """Somebody of the share is there."""
        self._somebody.set()
        now = trio.current_time()
        for asker, _ in list(self._askers.values()):
            asker.heard(now)

    def answered(self, answer: Answered) -> None:
        """A peer has answered a question by a frame."""
        contact = self.contacts.get(answer.peer)
        if contact is None:
            contact = self.contacts[answer.peer] = Contact(answer)
            self._forget_some()
        contact.answer, contact.is_new = answer, True
        if contact.has_moved:
            log.info("peer.moved", peer=answer.peer.hex(), link=answer.link)
            self._end(answer.peer)  # who uses it dials the new address; what it waits for would be a stall
        if trio.current_time() >= contact.rests_until:
            self._offer(answer.peer, answer.ids)

    def left(self, peer: PeerId) -> None:
        """It said that it goes."""
        self._end(peer)

    async def ask(self, peers: Iterable[PeerId], ids: Sequence[BlockId]) -> None:
        """Ask those that are connected."""
        for peer in peers:
            contact = self.contacts.get(peer)
            if contact is not None and contact.download is not None:
                await contact.download.ask(ids)

    def close(self) -> None:
        """No connection any more."""
        for peer in list(self.contacts):
            self._end(peer)

    # --- inside

    def _offer(self, peer: PeerId, ids: Sequence[BlockId]) -> None:
        for asker, wanted in list(self._askers.values()):
            asker.offered(peer, [block for block in ids if block in wanted])

    def _told(self, peer: PeerId) -> Callable[[Sequence[BlockId]], None]:
        def told(ids: Sequence[BlockId]) -> None:
            wanted = self._lan.session.told(self.share, peer, ids)
            if wanted:
                self._offer(peer, wanted)

        return told

    async def _dial(self, contact: Contact) -> Download | None:
        lan, answer = self._lan, contact.answer
        standing = lan.session.standing
        now = trio.current_time()
        if now < contact.rests_until or standing.is_banned(answer.peer, now) or standing.is_ignored(answer.peer, now):
            return None
        for address in standing.open(answer.addresses, answer.link, now):
            channel, contact.has_opened = None, False
            with trio.move_on_after(HANDSHAKE_S):
                channel = await self._reach(contact, address)
            # Not after a cancellation by somebody else: that says nothing of the peer.
            now = trio.current_time()
            if channel is not None:
                standing.reached((address,), answer.link)
                return await self._connected(contact, address, channel)
            if contact.has_opened:
                contact.rests_until = now + REFUSED_S
            elif contact.is_new:
                standing.unreachable(address, answer.link, now)
        return None

    async def _reach(self, contact: Contact, address: bytes) -> Channel | None:
        """Dial and shake hands."""
        lan, answer = self._lan, contact.answer
        stream: trio.abc.Stream | None = None
        channel: Channel | None = None
        try:
            stream = await lan.dial(address, answer.port, lan.zone(answer.link))
            contact.has_opened = True
            begins = lan.session.credentials(self.share, answer.peer, trio.current_time(), lan.unix())
            if begins is not None:
                made = await greet(stream, begins.keys, begins.sender, os.urandom(32))
                channel = made if isinstance(made, Channel) else None
            return channel
        except OSError as error:
            log.info("peer.unreachable", peer=answer.peer.hex(), link=answer.link, error=error.strerror)
            return None
        finally:
            if stream is not None and channel is None:
                with trio.CancelScope(shield=True):
                    await trio.aclose_forcefully(stream)

    async def _connected(self, contact: Contact, address: bytes, channel: Channel) -> Download | None:
        contact.address, contact.link, contact.is_new = address, contact.answer.link, False
        lan = self._lan
        told = self._told(contact.answer.peer)
        download = Download(channel, told, pace=lan.pace, allowance=lan.allowance, partial=contact.partial)
        if not lan.spawn(self._keep, contact, download):
            await channel.close()
            return None
        lan.session.connected(self.share, contact.answer.peer)
        return download

    async def _keep(self, contact: Contact, download: Download) -> None:
        """A connection as long as it lasts."""
        peer = contact.answer.peer
        why = await download.run()
        self._lan.session.disconnected(self.share, peer)
        contact.blocks += download.blocks
        contact.bytes += download.bytes
        contact.wasted += download.wasted
        if contact.download is download:
            contact.download = None
        if why in (Failure.STALLED, Failure.WRONG):
            self.stalls += why is Failure.STALLED
            contact.rests_until = trio.current_time() + REST_S
            contact.partial.clear()
            log.info("peer.let_go", peer=peer.hex(), reason=why.value)

    async def _end_idle(self, contact: Contact, download: Download) -> None:
        with trio.move_on_after(IDLE_S):
            await download.over.wait()
        if not contact.users:
            contact.partial.clear()
            download.end()

    def _end(self, peer: PeerId) -> None:
        contact = self.contacts.get(peer)
        if contact is not None:
            contact.partial.clear()
            if contact.download is not None:
                contact.download.end()

    def _forget_some(self) -> None:
        """Ids change every ten minutes: those that are not connected are forgotten, the oldest first."""
        for peer in list(self.contacts):
            if len(self.contacts) <= CONTACTS:
                break
            contact = self.contacts[peer]
            if contact.download is None:
                del self.contacts[peer]
                self._forgotten = [one + other for one, other in zip(self._forgotten, contact.figures(), strict=True)]
