"""All links of this machine: frames come in, frames go out, interfaces come and go.

    def happened(event: Event) -> None:
        match event:
            case Received(link=link, source=source, frame=frame):
                actions = session.handle_frame(…)
                if actions: links.confirm(event)
                …  links.send(link, answer, source)

    await links.run(happened)

Who reads a frame hands it over before it looks for the next one: a queue and another task were a tenth of the time in
which a question is answered.

No error of a socket or an interface is fatal. What nobody reads in time waits in the kernel's queue, which is bounded,
and then is lost there, where that costs us nothing: however much is sent, so many frames a second of each carrier are
read and no more. What is of no use to us takes the place of several: so a flood costs less than neighbours may.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
import trio

from blockfs.runtime.logs import Log
from syncer.peer.links.address import Address
from syncer.peer.links.host import is_wireless, metered
from syncer.peer.links.interfaces import Facts, Usable, usable
from syncer.peer.links.link import Came, Gone, Link, Received
from syncer.peer.links.sockets import Arrived, Sockets
from syncer.peer.links.watching import Changes, interfaces
from syncer.peer.session.budget import Bucket
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier
from syncer.peer.wire.frames import MAX_FRAME_BYTES

log = Log()

READ_PER_S: Final = 2000  # frames of a carrier. 10,000 wants of a neighbour are 56
USELESS: Final = 4  # so many of them is one that nobody confirmed: forged, of another share, noise
_BATCH: Final = 64
_REST_S: Final = 0.01  # of a reader that has used up its frames: it wakes for 20 at once, not for each
LOOK_S: Final = 0.25  # not more often: containers that come and go make dozens of interfaces a second
_AGAIN_S: Final = 30.0  # after the kernel could not be asked: a sandbox, or too many open files
_MOST_BYTES: Final = 2048
assert _MOST_BYTES > MAX_FRAME_BYTES, "a frame that is too long must be seen to be"

Event: TypeAlias = Came | Gone | Received
Happened: TypeAlias = Callable[[Event], None]


class Links:
    """The interfaces that are used, whichever these are at a moment.

    Attributes:
        counters: What happened since the start: received, received_bytes, stray (on an interface that is not used),
            wakeups (of a reader), sent, sent_to_all, unsent, over_budget, too_long, error_NAME (of errno).
    """

    def __init__(
        self,
        settings: Peers,
        sockets: Mapping[Carrier, Sockets],
        *,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Nothing is heard before `run`.

        Args:
            settings: What the user said.
            sockets: Of `Opened`; whoever opened them closes them, after `run` has ended.
            environment: Whose PATH has nmcli; None: of this process.
        """
        self.counters: Counter[str] = Counter()
        self._settings = settings
        self._sockets = sockets
        self._environment = os.environ if environment is None else environment
        self._links: dict[str, Link] = {}
        self._by_index: dict[int, str] = {}
        self._came: dict[str, Came] = {}
        self._metered: dict[str, bool] = {}
        self._near: list[Usable] = []
        self._paces = {carrier: Bucket(READ_PER_S, READ_PER_S) for carrier in sockets}
        self._is_confirmed = False  # the frame that is told just now
        self._happened: Happened = _nobody

    async def run(self, happened: Happened) -> None:
        """Hear, until cancelled.

        Args:
            happened: Told of each event, in the order in which they are; nothing else is read meanwhile.
        """
        self._happened = happened
        changes = Changes()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, changes, nursery)
                for carrier in self._sockets.values():
                    for waiting in carrier.sockets:
                        nursery.start_soon(self._read, carrier, waiting)
        finally:
            changes.close()
            self._happened = _nobody

    def links(self) -> list[Came]:
        """What is there now."""
        return list(self._came.values())

    def send(self, link: str, frame: bytes, to: Address | None) -> bool:
        """Send a frame, never waiting; None: to all, by as many carriers as it needs for all to hear it.

        Returns:
            Whether it went out. If not, the reason is counted, and the frame is gone.
        """
        known = self._links.get(link)
        if known is None:
            self.counters["unsent"] += 1
            return False
        return known.send(frame, to, trio.current_time())

    def confirm(self, received: Received) -> None:
        """This frame was valid, and no replay: then its sender is there, and hears what goes by the same carrier.

        To be said while the frame is told, by `run`.
        """
        self._is_confirmed = True
        known = self._links.get(received.link)
        if known is not None:
            now = trio.current_time()
            known.confirm(received.frame, received.source, now)
            before = self._came.get(known.name)
            if before is None or known.ways.longest_body(now) != before.bound:  # nothing else of it can be another now
                told = self._came[known.name] = known.came(now)
                self._happened(told)

    async def _read(self, carrier: Sockets, waiting: socket.socket) -> None:
        while True:
            try:
                await trio.lowlevel.wait_readable(waiting)
            except trio.ClosedResourceError:  # of an interface that is gone
                return
            self.counters["wakeups"] += 1
            self._hear(carrier, waiting)
            # What comes faster than we read waits in the kernel's queue, and is lost there when that is full.
            if self._paces[carrier.carrier].ready_at(trio.current_time(), USELESS) > trio.current_time():
                await trio.sleep(_REST_S)

    def _hear(self, carrier: Sockets, waiting: socket.socket) -> None:
        """Read what is there, as far as the pace allows, and tell of the frames of links."""
        pace = self._paces[carrier.carrier]
        for _ in range(_BATCH):
            if not pace.take(trio.current_time(), USELESS):
                return
            try:
                arrived = carrier.receive(waiting, _MOST_BYTES)
            except BlockingIOError:
                pace.give_back(USELESS)
                return
            except OSError:  # of an earlier frame that found nobody; the next call is not concerned
                self.counters["error_receive"] += 1
                continue
            link = None if arrived is None else self._link_of(arrived)
            if arrived is None or link is None:
                self.counters["stray"] += 1
                continue
            self.counters["received"] += 1
            self.counters["received_bytes"] += len(arrived.frame)
            self._is_confirmed = False
            self._happened(Received(link=link, source=arrived.source, frame=arrived.frame))
            if self._is_confirmed:
                pace.give_back(USELESS - 1)

    def _link_of(self, arrived: Arrived) -> str | None:
        name = arrived.name or self._by_index.get(arrived.index, "")
        known = self._links.get(name)
        return name if known is not None and arrived.source.carrier in known.usable.carriers else None

    async def _watch(self, changes: Changes, nursery: trio.Nursery) -> None:
        failed = False
        while True:
            looked_s = trio.current_time()
            try:
                found = interfaces()
            except OSError as error:
                if not failed:
                    log.info("links.unknown", error=error.strerror or str(error))
                failed = True
                await trio.sleep(_AGAIN_S)
                continue
            failed = False
            near = usable(found, msgspec.structs.replace(self._settings, on_metered=Use.ON), self._sockets, _facts)
            if near != self._near:  # NetworkManager is a process each time: not for each container that comes
                self._metered = await metered(self._environment)
                self._near = near
            self._update(usable(found, self._settings, self._sockets, self._facts), nursery)
            await changes.wait()
            await trio.sleep_until(looked_s + LOOK_S)

    def _facts(self, name: str) -> Facts:
        return Facts(wireless=is_wireless(name), metered=self._metered.get(name))

    def _update(self, now_usable: Sequence[Usable], nursery: trio.Nursery) -> None:
        """Put these in the place of what was."""
        before = self._links
        self._links = {}
        for each in now_usable:
            old = before.get(each.interface.name)
            link = old if old is not None and old.usable == each else Link(each, self._sockets, self.counters, old)
            self._links[link.name] = link
        self._leave(before.values())
        for link in self._links.values():
            for carrier, ear in link.join():
                nursery.start_soon(self._read, carrier, ear)
        self._by_index = {link.wire.index: name for name, link in self._links.items()}
        came = {name: link.came(trio.current_time()) for name, link in self._links.items()}
        events: list[Event] = [Gone(link=name) for name in self._came if name not in came]
        events += [told for name, told in came.items() if self._came.get(name) != told]
        for event in events:
            log.info("link.gone" if isinstance(event, Gone) else "link.came", link=event.link)
        self._came = came
        for event in events:
            self._happened(event)

    def _leave(self, before: Iterable[Link]) -> None:
        """Close the ears that no link needs now: one whose interface loses IPv6 for a while hears nothing more."""
        needed = {(link.wire.index, carrier) for link in self._links.values() for carrier in link.usable.carriers}
        for link in before:
            for carrier in link.usable.carriers:
                if (link.wire.index, carrier) not in needed:
                    ear = self._sockets[carrier].leave(link.wire)
                    if ear is not None:
                        trio.lowlevel.notify_closing(ear)
                        ear.close()


def _facts(name: str) -> Facts:
    """Of any interface, as far as they say whether it may be used."""
    del name
    return Facts()


def _nobody(event: Event) -> None:
    """Who is told before `run` and after it."""
