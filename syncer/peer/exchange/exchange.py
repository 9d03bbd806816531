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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from typing import Final, Protocol

import msgspec
import trio

from blockfs.runtime.logs import Log
from syncer.peer.exchange import tcp
from syncer.peer.exchange.arrivals import Arrivals
from syncer.peer.exchange.circle import Lan, ShareCircle
from syncer.peer.exchange.fetching import Allowance
from syncer.peer.exchange.figures import Figures, figures_of, is_called
from syncer.peer.exchange.joint import Joint
from syncer.peer.exchange.limits import Throttle, Uploads
from syncer.peer.exchange.lookups import Held, LookUps
from syncer.peer.exchange.source import PeerSource
from syncer.peer.links.address import Address
from syncer.peer.links.host import is_on_battery
from syncer.peer.links.link import Came, Gone, Received
from syncer.peer.links.links import Event, Happened
from syncer.peer.session.actions import Action, Answered, AskConnected, Heard, Left, LinkId, LookUp, Send
from syncer.peer.session.actions import Link as SessionLink
from syncer.peer.session.keyring import RootKey
from syncer.peer.session.session import Session
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.drops import Drop
from syncer.peer.wire.keys import EPOCH_S
from syncer.ports.blocks import ShareIndex

log = Log()

POWER_S: Final = 0.5  # so often, at most, we look whether the machine runs on its battery, if that matters at all
LINK_S: Final = 0.1  # the first link is there within it, after the start: the kernel is asked, and NetworkManager
KEPT_BYTES: Final = 8 << 20  # twice the longest block


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
        arrivals: Who has a connection to us.
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
        self.arrivals = Arrivals(self, entropy=entropy, unix=unix)
        self.port = 0
        self._settings = settings
        self._wires = wires
        self._unix = unix
        self._transport = transport
        self._on_battery = on_battery
        self._power = (-math.inf, Use.ON)
        self._pace = Throttle(settings.download_bytes_per_s)
        self._came: dict[str, Came] = {}
        self._roots: dict[str, _Root] = {}
        self._circles: dict[str, ShareCircle] = {}
        self._indexes: dict[str, Joint] = {}
        self._look_ups = LookUps(self._held, self._looked_up, self.spawn)
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
                spawn=self.spawn,
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

        Nothing happens when it has just ended: whoever begins another one tells that of all roots.

        Args:
            uuid: Of the root. Roots with a key in common are one share, and others never are.
            keys: The present key first, then those that still count.
            index: What is served of it; None: nothing is, it is paused. It is still asked for.
        """
        if self._lan is None:
            return
        name = self._circle_of(uuid, keys)
        if uuid in self._roots and self._roots[uuid].circle != name:
            self.unshare(uuid)  # another passphrase, on this root alone: who has the other one is none of its peers
        self._roots[uuid] = _Root(circle=name, keys=tuple(keys), index=index)
        if name not in self._circles:
            self._circles[name] = ShareCircle(name, self._lan)
            self._indexes[name] = Joint(name, self._unix)
        self._follow(name, keys)

    def _circle_of(self, uuid: str, keys: Sequence[RootKey]) -> str:
        """The share that these keys are of: the oldest one if some were taken for several until now."""
        raw = {key.raw for key in keys}
        others = [root for other, root in self._roots.items() if other != uuid]
        same = {root.circle for root in others if raw & {key.raw for key in root.keys}}
        if same:
            return next(name for name in self._circles if name in same)
        before, taken = self._roots.get(uuid), {root.circle for root in others}
        if before is not None and before.circle not in taken:
            return before.circle
        return next(name for name in _names(uuid) if name not in taken)

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
        """A source of blocks for this root, which takes part."""
        circle = self.circle(uuid)
        assert circle is not None, "the exchange does not run, or was not told of the root"
        return PeerSource(circle)

    def circle(self, uuid: str) -> ShareCircle | None:
        """The share of this root; None: it takes no part."""
        root = self._roots.get(uuid)
        return None if root is None else self._circles[root.circle]

    def index_of(self, share: str) -> Joint | None:
        """See Host."""
        return self._indexes.get(share)

    def links(self) -> Iterable[Came]:
        """See Host."""
        return self._came.values()

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
        roots = [root for root in self._roots.values() if root.circle == name]
        known = {key.raw: key for root in roots for key in root.keys} | {key.raw: key for key in keys}
        ordered = list({key.raw: key for key in [*keys, *known.values()]}.values())
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
                    self._look_ups.take(action, self.uploads)
                case Answered(share=share) if share in self._circles:
                    self._circles[share].answered(action)
                case AskConnected(share=share, peers=peers, ids=ids) if share in self._circles:
                    self.spawn(self._circles[share].ask, peers, ids)
                case Heard(share=share) if share in self._circles:
                    self._circles[share].heard()
                case Left(share=share, peer=peer) if share in self._circles:
                    self._circles[share].left(peer)
        self._alarm.deadline = self._due()

    def spawn(self, task: Callable[..., object], *arguments: object) -> bool:
        """See Host."""
        if self._nursery is None:
            return False
        self._nursery.start_soon(task, *arguments)  # type: ignore[arg-type]
        return True

    def _held(self, share: str) -> Held:
        """What tells of tokens whether their blocks may be had of a share now."""
        index = self._indexes.get(share)
        return index.match if index is not None and self.may_serve() else _nothing

    def _looked_up(self, question: LookUp, held: list[bool]) -> None:
        self.session.load = self.uploads.load
        self._do(self.session.looked_up(question.ticket, held, trio.current_time(), self._unix()))

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
        self.session.serves = self.may_serve()
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

    async def _listen(self, nursery: trio.Nursery) -> None:
        try:
            listener, self.port = await self._transport.listen(self._settings.port)
        except OSError as error:
            log.warning("peers.no_port", error=error.strerror)
            return
        self.session.listen(self.port)
        nursery.start_soon(self.arrivals.take, listener)

    # --- circumstances

    def may_serve(self) -> bool:
        """See Host."""
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


def _names(uuid: str) -> Iterator[str]:
    """Names for a root's share: another root may have kept the first one, and have another key by now."""
    yield uuid
    yield from (f"{uuid}-{number}" for number in count(2))


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
