"""The readers of links: what they do when more comes than anybody can want, and when sockets fail."""

from __future__ import annotations

import errno
import socket
from collections import Counter
from collections.abc import Iterator

import msgspec
import pytest
import trio
import trio.testing

from syncer.peer.links.address import Address
from syncer.peer.links.interfaces import Usable
from syncer.peer.links.link import Came, Link, Received
from syncer.peer.links.links import READ_PER_S, USELESS, Event, Links
from syncer.peer.links.rtnetlink import RUNNING, UP, Interface
from syncer.peer.links.sockets import Arrived, Wire
from syncer.peer.links.watching import Changes
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier

USABLE = Usable(
    interface=Interface(index=2, name="lan0", mtu=1500, flags=UP | RUNNING),
    carriers=(Carrier.ETHERNET,),
    wireless=False,
    metered=False,
    use=Use.ON,
)


class Flood:
    """A carrier that always has a frame, and whose sends fail as told."""

    carrier = Carrier.ETHERNET
    sockets = ()

    def __init__(self, *errors: int) -> None:
        self.errors: Iterator[int] = iter(errors)
        self.sent: list[bytes] = []

    def send(self, frame: bytes, wire: Wire, to: Address | None) -> None:
        code = next(self.errors, 0)
        if code:
            raise OSError(code, "no")
        self.sent.append(frame)

    def receive(self, waiting: socket.socket, most_bytes: int) -> Arrived | None:
        return Arrived(frame=b"frame", name="lan0", source=Address(carrier=self.carrier, host=b"source"))

    def join(self, wire: Wire) -> None:
        return None

    def leave(self, wire: Wire) -> None:
        return None

    def close(self) -> None: ...


def flooded(*, is_valid: bool) -> tuple[Counter[str], list[Event]]:
    """Ten seconds of a reader whose socket always has a frame."""
    told: list[Event] = []

    async def main() -> Counter[str]:
        flood = Flood()
        links = Links(Peers(), {Carrier.ETHERNET: flood})

        def happened(event: Event) -> None:
            told.append(event)
            if isinstance(event, Received) and is_valid:
                links.confirm(event)

        links._happened = happened
        links._links["lan0"] = Link(USABLE, {Carrier.ETHERNET: flood}, links.counters)
        here, there = socket.socketpair()
        with here, there, trio.move_on_after(10):
            there.send(b"readable from now on")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(links._read, flood, here)
        return links.counters

    return trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0)), told


@pytest.mark.parametrize(("is_valid", "per_s"), [(True, READ_PER_S), (False, READ_PER_S / USELESS)])
def test_so_many_frames_a_second_are_read_however_many_come(is_valid: bool, per_s: float) -> None:
    counters, told = flooded(is_valid=is_valid)
    assert per_s * 10 <= counters["received"] <= per_s * 11 + 1  # all of a burst, and ten seconds
    assert sum(isinstance(event, Received) for event in told) == counters["received"]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr("syncer.peer.links.link.log.info", lambda event, **_: lines.append(event), raising=False)
    return lines


def test_an_error_of_a_send_costs_that_frame_and_is_told_once(told: list[str]) -> None:
    down = [errno.ENETDOWN] * 3
    flood = Flood(*down, 0, *down, errno.ENOBUFS)
    counters: Counter[str] = Counter()
    link = Link(USABLE, {Carrier.ETHERNET: flood}, counters)
    sent = [link.send(bytes([number]), None, 0.0) for number in range(9)]
    assert sent == [False, False, False, True, False, False, False, False, True]
    assert flood.sent == [b"\x03", b"\x08"]
    assert counters == {"unsent": 7, "error_ENETDOWN": 6, "error_ENOBUFS": 1, "sent": 2, "sent_to_all": 2}
    assert told == ["link.failed"]


def test_a_full_queue_is_counted_and_not_told(told: list[str]) -> None:
    link = Link(USABLE, {Carrier.ETHERNET: Flood(errno.ENOBUFS, errno.EAGAIN)}, Counter())
    assert [link.send(b"x", None, 0.0) for _ in range(3)] == [False, False, True]
    assert told == []


def test_containers_that_come_and_go_cost_few_looks_and_no_question_to_network_manager(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hundred changes a second for ten seconds; breaks as a process that NetworkManager is asked with for each."""
    looks, asked = 0, 0
    wire = USABLE.interface

    def found() -> list[Interface]:
        nonlocal looks
        looks += 1
        return [wire, Interface(index=100 + looks, name=f"veth{looks}", mtu=1500, flags=UP | RUNNING, master=99)]

    async def metered(environment: object) -> dict[str, bool]:
        nonlocal asked
        asked += 1
        return {"lan0": False}

    class Busy(Changes):
        async def wait(self) -> None:
            await trio.sleep(0.01)

    monkeypatch.setattr("syncer.peer.links.links.interfaces", found)
    monkeypatch.setattr("syncer.peer.links.links.metered", metered)
    monkeypatch.setattr("syncer.peer.links.links.Changes", Busy)
    told: list[Event] = []

    async def main() -> None:
        nonlocal wire
        links = Links(Peers(), {Carrier.ETHERNET: Flood()})
        with trio.move_on_after(10):
            await links.run(told.append)
        assert (looks, asked) == (40, 1)
        wire = msgspec.structs.replace(wire, mtu=1400)
        with trio.move_on_after(1):
            await links.run(told.append)
        assert asked == 2

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))
    assert [event.bound for event in told if isinstance(event, Came)] == [1440, 1340]


def test_what_is_for_an_interface_that_is_gone_is_not_sent() -> None:
    links = Links(Peers(), {})
    assert links.send("lan0", b"frame", None) is False
    assert links.counters["unsent"] == 1
