"""The exchange of blocks on the LAN: the session, the links, and the connections, as one task.

    async with trio.open_nursery() as nursery:
        await nursery.start(exchange.run)
        exchange.share(uuid, keys, index)
        blocks = Blocks([…, exchange.source(uuid), …])

It has no rules of its own: `session` decides what is asked and answered, `circle` who is dialled, `source` what is
fetched, `serving` what is given. Without a want, a question or a change of links it sends nothing and never wakes.

Source: docs/design/peer-protocol.md.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Final, Protocol

import msgspec
import trio

from blockfs.runtime.logs import Log
from syncer.peer.exchange import tcp
from syncer.peer.exchange.channel import HANDSHAKE_S, Channel, greeting
from syncer.peer.exchange.circle import Lan, ShareCircle
from syncer.peer.exchange.fetching import Allowance
from syncer.peer.exchange.figures import Figures, figures_of, is_called
from syncer.peer.exchange.joint import Joint
from syncer.peer.exchange.limits import Door, Throttle, Uploads
from syncer.peer.exchange.serving import Serving
from syncer.peer.exchange.source import PeerSource
from syncer.peer.links.address import Address
from syncer.peer.links.host import is_on_battery
from syncer.peer.links.link import Came, Gone, Received
from syncer.peer.links.links import Event, Happened
from syncer.peer.session.actions import Action, Answered, AskConnected, Heard, Left, LinkId, LookUp, Send
from syncer.peer.session.actions import Link as SessionLink
from syncer.peer.session.budget import inbound_connections
from syncer.peer.session.keyring import RootKey
from syncer.peer.session.session import Session
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.handshake import answer, parse_preamble
from syncer.peer.wire.keys import EPOCH_S
from syncer.ports.blocks import ShareIndex

log = Log()

CONNECTION_S: Final = 600.0  # then it is begun anew, under the key and the epoch of that time
POWER_S: Final = 0.5  # so often, at most, we look whether the machine runs on its battery, if that matters at all
LINK_S: Final = 0.1  # the first link is there within it, after the start: the kernel is asked, and NetworkManager
QUESTIONS: Final = 64  # are looked up at once: 10,000 ids, 10 ms
KEPT_BYTES: Final = 8 << 20  # twice the longest block
PAUSE_S: Final = 0.1  # if the system has no more file descriptors for who comes in


class Wires(Protocol):
    """Frames of all interfaces; `links.Links` is one."""

    async def run(self, happened: Happened) -> None:
        """Hear, until cancelled, and tell what happened."""
        ...

    def send(self, link: str, frame: bytes, to: Address | None) -> bool:
        """Send a frame, never waiting."""
        ...

    def confirm(self, received: Received) -> None:
        """This frame was valid."""
        ...


class Transport(Protocol):
    """Connections; the module `tcp` is one."""

    async def listen(self, port: int) -> tuple[trio.abc.Listener[trio.SocketStream], int]:
        """See `tcp.listen`."""
        ...

    async def dial(self, address: bytes, port: int, zone: int) -> trio.abc.Stream:
        """See `tcp.dial`."""
        ...


class _Root(msgspec.Struct, frozen=True, kw_only=True):
    """A root of this machine that takes part."""

    circle: str
    keys: tuple[RootKey, ...]
    index: ShareIndex | None


class Exchange:
    """All shares of this process on the LAN.

    Attributes:
        session: For figures.
        uploads: For figures.
        port: TCP; 0 as long as no connections are taken.
    """

    def __init__(
        self,
        settings: Peers,
        wires: Wires,
        *,
        entropy: Callable[[int], bytes] = os.urandom,
        unix: Callable[[], float] = time.time,
        transport: Transport = tcp,
        on_battery: Callable[[], bool] = is_on_battery,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            settings: What the user said.
            wires: Of this process; `run` runs them.
            entropy: Random bytes.
            unix: The wall clock.
            transport: Takes and makes connections.
            on_battery: Whether the machine runs on its battery.
        """
        self.session = Session(entropy)
        self.uploads = Uploads(settings.uploads, Throttle(settings.upload_bytes_per_s))
        self.port = 0
        self._settings = settings
        self._wires = wires
        self._entropy = entropy
        self._unix = unix
        self._transport = transport
        self._on_battery = on_battery
        self._power = (-math.inf, Use.ON)
        self._pace = Throttle(settings.download_bytes_per_s)
        self._door = Door()
        self._came: dict[str, Came] = {}
        self._roots: dict[str, _Root] = {}
        self._circles: dict[str, ShareCircle] = {}
        self._indexes: dict[str, Joint] = {}
        self._questions: dict[str, list[LookUp]] = {}  # of shares of which something is just looked up
        self._clocks_agree = True
        self._alarm = trio.CancelScope()
        self._linked = trio.Event()
        self._lan: Lan | None = None
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Take part until cancelled; then say BYE."""
        _keep_freed_memory()
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            self._lan = Lan(
                session=self.session,
                spawn=self._spawn,
                do=self._do,
                unix=self._unix,
                dial=self._transport.dial,
                zone=self._zone,
                pace=self._pace,
                allowance=Allowance(),
                may_ask=self._may_ask,
                linked=partial(self._linked_until, trio.current_time() + LINK_S),
            )
            try:
                await self._listen(nursery)
                nursery.start_soon(self._wires.run, self._happened)
                nursery.start_soon(self._tick)
                task_status.started()
                await trio.sleep_forever()
            finally:
                self._do(self.session.close(trio.current_time(), self._unix()))
                self._lan = self._nursery = None  # it takes no more tasks soon, and others may still call

    # --- shares

    def share(self, uuid: str, keys: Sequence[RootKey], index: ShareIndex | None) -> None:
        """Take part in a root's share, or learn that its keys or its index are others now. Only while `run` runs.

        Args:
            uuid: Of the root. Roots with a key in common are one share.
            keys: The present key first, then those that still count.
            index: What is served of it; None: nothing is, it is paused. It is still asked for.
        """
        before = self._roots.get(uuid)
        raw = {key.raw for key in keys}
        same = [root.circle for root in self._roots.values() if raw & {key.raw for key in root.keys}]
        name = before.circle if before is not None else same[0] if same else uuid
        self._roots[uuid] = _Root(circle=name, keys=tuple(keys), index=index)
        self._follow(name, keys)

    def unshare(self, uuid: str) -> None:
        """Take part no longer. Connections of a share that no root has end."""
        root = self._roots.pop(uuid, None)
        if root is None:
            return
        others = [each for each in self._roots.values() if each.circle == root.circle]
        if others:
            self._follow(root.circle, others[0].keys)
            return
        self._indexes.pop(root.circle).set(())
        self._circles.pop(root.circle).close()
        self._do(self.session.unfollow(root.circle, trio.current_time(), self._unix()))

    def source(self, uuid: str) -> PeerSource:
        """A source of blocks for this root."""
        return PeerSource(self.circle(uuid))

    def circle(self, uuid: str) -> ShareCircle:
        """The share of this root."""
        return self._circles[self._roots[uuid].circle]

    def unban(self, who: str = "") -> int:
        """Lift bans. Returns how many held until now.

        Args:
            who: Whose, as figures show it: the beginning of an id, four digits or more, or an address; empty: all.
        """
        standing = self.session.standing
        named = [ban for ban in standing.bans(trio.current_time()) if not who or is_called(ban, who)]
        for ban in named:
            standing.unban(ban.peer)
        return len(named)

    def figures(self) -> Figures:
        """Who is there, what came and went, and what is held against whom; of this moment."""
        now = trio.current_time()
        return figures_of(self.session, self._circles, self.uploads, self.port, list(self._came), now)

    def _follow(self, name: str, keys: Sequence[RootKey]) -> None:
        """Let the session and the index know what all roots of a share say."""
        assert self._lan is not None, "the exchange does not run"
        roots = [root for root in self._roots.values() if root.circle == name]
        known = {key.raw: key for root in roots for key in root.keys} | {key.raw: key for key in keys}
        ordered = list({key.raw: key for key in [*keys, *known.values()]}.values())
        if name not in self._circles:
            self._circles[name] = ShareCircle(name, self._lan)
            self._indexes[name] = Joint(name, self._unix)
        indexes = [root.index for root in roots if root.index is not None]
        self._indexes[name].set(indexes)
        now, unix_s = trio.current_time(), self._unix()
        self._do(self.session.follow(name, ordered, now, unix_s, answers=bool(indexes)))

    # --- what the session tells

    def _do(self, actions: Sequence[Action]) -> None:
        for action in actions:
            match action:
                case Send(link=link, to=to, frame=frame):
                    assert to is None or isinstance(to, Address)
                    self._wires.send(link, frame, to)
                case LookUp():
                    self._take_question(action)
                case Answered(share=share) if share in self._circles:
                    self._circles[share].answered(action)
                case AskConnected(share=share, peers=peers, ids=ids) if share in self._circles:
                    self._spawn(self._circles[share].ask, peers, ids)
                case Heard(share=share) if share in self._circles:
                    self._circles[share].heard()
                case Left(share=share, peer=peer) if share in self._circles:
                    self._circles[share].left(peer)
        self._alarm.deadline = self._due()

    def _spawn(self, task: Callable[..., object], *arguments: object) -> bool:
        if self._nursery is None:
            return False
        self._nursery.start_soon(task, *arguments)  # type: ignore[arg-type]
        return True

    def _take_question(self, question: LookUp) -> None:
        if question.share in self._questions:
            self._questions[question.share].append(question)
        elif self.uploads.is_warm():
            self._look_up_here(question)
        elif self._spawn(self._look_up, question.share):
            self._questions[question.share] = [question]

    def _look_up_here(self, question: LookUp) -> None:
        held: Sequence[bool] = [False] * len(question.tokens)
        try:
            held = self.uploads.look_up_here(self._held(question.share), question.tokens)
        finally:  # whatever became of it, its place among those in work is free again
            self._looked_up([question], held)

    async def _look_up(self, share: str) -> None:
        """Look up what is asked of a share, together with what is asked meanwhile: a thread is as dear as 1,000 ids."""
        waiting, owed = self._questions[share], list[LookUp]()
        try:
            while waiting:
                owed = waiting[:QUESTIONS]
                del waiting[:QUESTIONS]
                tokens = [token for each in owed for token in each.tokens]
                self._looked_up(owed, await self.uploads.look_up(self._held(share), tokens))
                owed = []
        finally:
            del self._questions[share]
            # Whatever became of the look-up: their places among those in work are free again.
            owed += waiting
            self._looked_up(owed, [False] * sum(len(each.tokens) for each in owed))

    def _held(self, share: str) -> Callable[[Sequence[bytes]], Sequence[bool]]:
        """What tells of tokens whether their blocks may be had of a share now."""
        index = self._indexes.get(share)
        return index.match if index is not None and self._may_serve() else _nothing

    def _looked_up(self, questions: Sequence[LookUp], held: Sequence[bool]) -> None:
        self.session.load = self.uploads.load
        now, unix = trio.current_time(), self._unix()
        answers = iter(held)
        for each in questions:
            self._do(self.session.looked_up(each.ticket, list(islice(answers, len(each.tokens))), now, unix))

    async def _tick(self) -> None:
        while True:
            # Whoever does something sets the alarm anew. To wake a task for that would be half of a question's time.
            with trio.CancelScope(deadline=self._due()) as self._alarm:
                await trio.sleep_forever()
            self._do(self.session.tick(trio.current_time(), self._unix()))

    def _due(self) -> float:
        deadline = self.session.next_deadline(trio.current_time())
        return math.inf if deadline is None else deadline

    # --- links

    def _happened(self, event: Event) -> None:
        match event:
            case Received():
                self._frame(event)
            case Came():
                self._came[event.link] = event
                self._linked.set()
                self._do(self.session.link_up(_link(event), trio.current_time(), self._unix()))
            case Gone():
                self._came.pop(event.link, None)
                self.session.link_down(LinkId(event.link))

    def _frame(self, received: Received) -> None:
        valid = self.session.counters.frames_in
        before = valid.total()
        now = trio.current_time()
        link = LinkId(received.link)
        actions = self.session.handle_frame(received.frame, link, received.source, now, self._unix())
        self._do(actions)  # first: somebody waits for an answer
        if valid.total() > before:
            self._wires.confirm(received)
        if self._clocks_agree and self.session.counters.drops[Drop.EPOCH]:
            self._clocks_agree = False  # once: anybody may send such frames
            log.warning("peers.clock_differs", link=received.link, epoch_s=EPOCH_S)

    async def _linked_until(self, deadline: float) -> None:
        with trio.move_on_at(deadline):
            await self._linked.wait()

    def _zone(self, link: LinkId) -> int:
        came = self._came.get(link)
        return 0 if came is None else came.index

    # --- who comes in

    async def _listen(self, nursery: trio.Nursery) -> None:
        try:
            listener, self.port = await self._transport.listen(self._settings.port)
        except OSError as error:
            log.warning("peers.no_port", error=error.strerror)
            return
        self.session.listen(self.port)
        nursery.start_soon(self._accept, listener)

    async def _accept(self, listener: trio.abc.Listener[trio.SocketStream]) -> None:
        pace, failed = inbound_connections(), False
        async with listener:
            while True:
                while not pace.take(trio.current_time()):
                    await trio.sleep_until(pace.ready_at(trio.current_time()))
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if not failed:
                        log.warning("peers.accept_failed", error=error.strerror)
                    failed = True
                    await trio.sleep(PAUSE_S)
                    continue
                failed = False
                comes, taken = tcp.there(stream), tcp.here(stream)
                if not comes or not taken or not self.admit(stream, comes[0], partial(self._came_right, *taken)):
                    stream.socket.close()

    def admit(self, stream: trio.abc.Stream, address: bytes, is_right: Callable[[], bool] = lambda: True) -> bool:
        """Let somebody in who has come.

        Args:
            stream: The caller's, if this says False.
            address: From where.
            is_right: Whether it came by a link on which we serve now.

        Returns:
            False: there is no place.
        """
        banned = self.session.standing.is_banned(address, trio.current_time())
        may = self._nursery is not None and not banned and is_right() and self._may_serve()
        return may and self._door.enter(address) and self._spawn(self._receive, stream, address, is_right)

    def _came_right(self, address: bytes, zone: int) -> bool:
        """Whether what was taken at this address of ours came by a link on which we serve."""
        serving = [came for came in self._came.values() if came.serves and address in came.addresses]
        return any(not tcp.is_link_local(address) or came.index == zone for came in serving)

    async def _receive(self, stream: trio.abc.Stream, address: bytes, is_right: Callable[[], bool]) -> None:
        """A connection that somebody else has begun."""
        is_proven = False
        try:
            peer, share, channel = b"", "", None
            with trio.move_on_after(HANDSHAKE_S):
                peer, share, channel = await self._shake_hands(stream)
                # Until its first record it may be a recording, and has only the place of a handshake.
                is_proven = channel is not None and await channel.first()
            index = self._indexes.get(share)
            if is_proven:
                self._door.proven()
            if is_proven and channel is not None and index is not None:
                is_served = partial(self._is_served, index, is_right)
                with trio.move_on_after(CONNECTION_S), self.uploads.connected(peer, address) as connection:
                    await Serving(channel, index, self.uploads, connection, is_served, index.scrub).run()
        finally:
            self._door.leave(address, proven=is_proven)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)

    async def _shake_hands(self, stream: trio.abc.Stream) -> tuple[bytes, str, Channel | None]:
        """Who it is, for which share, and what it says; None: it holds no key, or has gone."""
        said = await greeting(stream)
        preamble = Drop.SIZE if said is None else parse_preamble(said)
        if said is None or isinstance(preamble, Drop):
            return b"", "", None
        now, unix_s = trio.current_time(), self._unix()
        welcome = self.session.welcome(preamble.epoch16, preamble.hint, preamble.sender, now, unix_s)
        if welcome is None:
            return b"", "", None
        share, keys = welcome
        answered = answer(said, keys, self._entropy(32))
        if isinstance(answered, Drop):
            return b"", "", None
        reply, secured = answered
        try:
            await stream.send_all(reply)
        except trio.BrokenResourceError:
            return b"", "", None
        return preamble.sender, share, Channel(stream, secured)

    # --- circumstances

    def _is_served(self, index: Joint, is_right: Callable[[], bool]) -> bool:
        return is_right() and bool(index) and self._may_serve()

    def _may_serve(self) -> bool:
        return self._use() is Use.ON

    def _may_ask(self) -> bool:
        return self._use() is not Use.OFF

    def _use(self) -> Use:
        """What the settings say of the present power supply."""
        if self._settings.on_battery is Use.ON:
            return Use.ON
        now = trio.current_time()
        at, use = self._power
        if now - at >= POWER_S:
            use = self._settings.on_battery if self._on_battery() else Use.ON
            self._power = (now, use)
        return use


def _keep_freed_memory() -> None:
    """Have glibc keep what is freed for the next blocks.

    Its thresholds follow the largest buffer that was freed: memory below it is not mapped anew each time, and twice as
    much of what is free stays with the process. Until then four records of 64 KiB in a row were fresh pages each time:
    sealing one took 28 µs, 13 with this. Another C library does what it likes.

    Source: mallopt(3), M_MMAP_THRESHOLD.
    """
    bytearray(KEPT_BYTES)


def _nothing(tokens: Sequence[bytes]) -> Sequence[bool]:
    return [False] * len(tokens)


def _link(came: Came) -> SessionLink:
    return SessionLink(
        id=LinkId(came.link),
        bound=came.bound,
        wireless=came.wireless,
        answers=came.serves,
        addresses=came.addresses,
    )
