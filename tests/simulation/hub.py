"""A simulated Ethernet: deterministic from a seed, with all that goes wrong on a real one; it records every frame."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable

import msgspec

AT_ONCE = 10_000  # more events at one instant than any scenario has

Receive = Callable[[bytes, bytes], None]
"""Called with the sender's MAC and the frame."""


class Events:
    """The mock clock: what is planned, in order of time. Equal times keep the order in which they were planned."""

    def __init__(self) -> None:
        self.now = 0.0
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Plan something."""
        self._count += 1
        heapq.heappush(self._planned, (max(when, self.now), self._count, what))

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Plan something for later."""
        self.at(self.now + seconds, what)

    def run(self, until: float, enough: Callable[[], bool] | None = None) -> None:
        """Let time pass until a moment, or until it is enough. The clock stands at the end of it."""
        at_once = 0
        while self._planned and self._planned[0][0] <= until:
            if enough is not None and enough():
                return
            when, _, what = heapq.heappop(self._planned)
            at_once = at_once + 1 if when == self.now else 0
            assert at_once < AT_ONCE, f"time stands still at {when}: somebody is busy with nothing"
            self.now = when
            what()
        if enough is None or not enough():
            self.now = max(self.now, until)


class Weather(msgspec.Struct, frozen=True):
    """What the wire does to frames: chances for each delivery, and times in seconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    late: float = 0.0  # overtaken by others
    delay_s: float = 0.0001
    late_s: float = 0.02


CALM = Weather()


class Captured(msgspec.Struct, frozen=True):
    """A frame as it was sent.

    Attributes:
        at: When.
        link: On which hub.
        source: Who really sent it.
        to: None: broadcast.
        frame: Its bytes.
    """

    at: float
    link: str
    source: bytes
    to: bytes | None
    frame: bytes


class Hub:
    """One broadcast domain. MACs are what its members say they are."""

    def __init__(self, name: str, events: Events, rng: random.Random, weather: Weather, record: list[Captured]) -> None:
        self.name = name
        self.weather = weather
        self._events = events
        self._rng = rng
        self._record = record
        self._members: dict[bytes, Receive] = {}
        self._islands: dict[bytes, int] = {}
        self._taps: list[Receive] = []

    def join(self, mac: bytes, receive: Receive) -> None:
        """Plug in."""
        self._members[mac] = receive

    def tap(self, receive: Receive) -> None:
        """Hear every frame, and nobody knows."""
        self._taps.append(receive)

    def leave(self, mac: bytes) -> None:
        """Unplug. What is under way to it is lost."""
        self._members.pop(mac, None)

    def partition(self, islands: dict[bytes, int]) -> None:
        """Who hears whom: members of the same island. {}: all."""
        self._islands = islands

    def connects(self, one: bytes, other: bytes) -> bool:
        """Whether these hear each other."""
        return self._islands.get(one, 0) == self._islands.get(other, 0)

    def send(self, source: bytes, to: bytes | None, frame: bytes) -> None:
        """A member sends."""
        self._record.append(Captured(self._events.now, self.name, source, to, frame))
        for tap in self._taps:
            tap(source, frame)
        for mac in [to] if to is not None else list(self._members):
            if mac != source and self.connects(source, mac):
                self._carry(source, mac, frame)

    def _carry(self, source: bytes, to: bytes, frame: bytes) -> None:
        weather, rng = self.weather, self._rng
        while rng.random() >= weather.loss:
            delay = weather.delay_s * rng.random()
            if rng.random() < weather.late:
                delay += weather.late_s * rng.random()
            arriving = self._damaged(frame) if rng.random() < weather.corrupt else frame
            self._events.after(delay, lambda arriving=arriving: self._deliver(source, to, arriving))  # type: ignore[misc]
            if rng.random() >= weather.duplicate:
                return

    def _deliver(self, source: bytes, to: bytes, frame: bytes) -> None:
        receive = self._members.get(to)
        if receive is not None:
            receive(source, frame)

    def _damaged(self, frame: bytes) -> bytes:
        damaged = bytearray(frame)
        for _ in range(self._rng.randint(1, 3)):
            damaged[self._rng.randrange(len(damaged))] ^= self._rng.randint(1, 255)
        return bytes(damaged[: self._rng.randint(1, len(damaged))] if self._rng.random() < 0.2 else damaged)
