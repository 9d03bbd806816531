"""Whole exchanges in one process, on a wire in memory and a clock that jumps: who gets in, who gets what, silence."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable, Sequence
from itertools import count, repeat
from typing import TypeVar

import pytest
import structlog
import structlog.testing
import trio
import trio.testing

from blockfs.blocks.ids import BlockId
from syncer.peer.exchange.channel import Channel, greet
from syncer.peer.exchange.circle import ShareCircle
from syncer.peer.exchange.fetching import Download
from syncer.peer.exchange.limits import Throttle
from syncer.peer.session.actions import PeerId
from syncer.peer.session.keyring import RootKey
from syncer.peer.settings import Use
from syncer.peer.wire.bodies import MAX_TOKENS
from syncer.peer.wire.frames import FrameType
from syncer.peer.wire.keys import derive, epoch_of
from syncer.peer.wire.messages import Close, CloseReason, Ping
from syncer.ports.blocks import Want
from tests.kit.peering import Inline, Shelf, block, name, on_a_clock
from tests.kit.stations import Station, Wire, running

KEY, OTHER = RootKey(raw=b"k" * 32), RootKey(raw=b"o" * 32)
BLOCKS = [block(number) for number in range(50)]
A = TypeVar("A")
R = TypeVar("R")
STRANGER = bytes.fromhex("fe80") + bytes(13) + b"\xee"


async def handshake(station: Station, address: bytes = STRANGER, key: RootKey = KEY) -> Channel | None:
    """Connect as somebody who holds the key; None: not let in."""
    stream = station.knock(address)
    if stream is None:
        return None
    keys = derive(key.raw, epoch_of(1e9 + trio.current_time()))
    made = await greet(stream, keys, b"a stranger's id.", b"e" * 32)
    return made if isinstance(made, Channel) else None


@on_a_clock
async def test_one_fetches_from_the_other_and_both_tell_the_same() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        assert await two.fetches(BLOCKS) == {name(data): data for data in BLOCKS}
        came, went = two.exchange.figures(), one.exchange.figures()
    assert (came.blocks_from_peers, came.bytes_from_peers) == (50, 50_000)
    assert (went.blocks_to_peers, went.bytes_to_peers) == (50, 50_000)
    assert came.peers[0].addresses == ("fe80::1",)
    assert came.peers[0].link == "lan0"


@on_a_clock
async def test_few_questions_cover_all_small_files_of_a_cycle() -> None:
    """The first one is to find somebody. Each of the others has as many wants as a frame has room for."""
    wire, small = Wire(), [block(number, 100) for number in range(1000)]
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(small))
        two.exchange.share("root", [KEY], Shelf())
        assert len(await two.fetches(small)) == 1000
        asked = two.exchange.figures()
    assert asked.frames_out["whohas"] <= 1 + math.ceil(1000 / MAX_TOKENS)
    assert asked.tokens_asked == 1000


@pytest.mark.parametrize("speeds", [(9_000_000,) * 4, (1_000_000, 3_000_000, 9_000_000, 27_000_000)])
@on_a_clock
async def test_of_several_peers_hardly_anything_comes_twice(speeds: Sequence[int]) -> None:
    """What all of them sent, beside what was wanted. It is the last blocks of slow ones, however much is wanted."""
    wire, wanted = Wire(), [block(number, 50_000) for number in range(1200)]
    givers, taker = [Station(wire) for _ in speeds], Station(wire)
    for giver, bytes_per_s in zip(givers, speeds, strict=True):
        giver.exchange.uploads = Inline(pace=Throttle(bytes_per_s))
    async with running(*givers, taker):
        for giver in givers:
            giver.exchange.share("root", [KEY], Shelf(wanted))
        taker.exchange.share("root", [KEY], Shelf())
        assert len(await taker.fetches(wanted)) == len(wanted)
        came, went = taker.exchange.figures(), [giver.exchange.figures() for giver in givers]
    sent, size = [figures.bytes_to_peers for figures in went], sum(map(len, wanted))
    assert all(sent), sent
    assert size <= came.bytes_from_peers + came.wasted_bytes <= sum(sent) <= 1.02 * size


class Slow(Inline):
    """Each look takes a tenth of a second; what is looked up is noted."""

    looked: list[object]

    async def look(self, what: Callable[[A], R], at: A) -> R:
        """See Uploads."""
        self.looked.append(at)
        await trio.sleep(0.1)
        return what(at)


def questions(uploads: Slow) -> list[int]:
    """How many tokens each look-up was for."""
    return [len(each) for each in uploads.looked if isinstance(each, list) and len(each[0]) == 8]


@on_a_clock
async def test_questions_that_come_while_others_are_looked_up_are_looked_up_together() -> None:
    blocks = [block(number, 10) for number in range(1000)]
    wire, uploads = Wire(), Slow()
    one, two = Station(wire), Station(wire)
    one.exchange.uploads, uploads.looked = uploads, []
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(blocks))
        two.exchange.share("root", [KEY], Shelf())
        assert len(await two.fetches(blocks)) == 1000
        figures = two.exchange.figures()
    assert figures.frames_out["whohas"] >= 6
    assert sum(questions(uploads)[:2]) >= 1000
    assert figures.tokens_answered >= 1000


@pytest.mark.parametrize(("waits_for_disk", "in_a_thread"), [(False, 1), (True, 3)])
def test_an_index_that_is_in_memory_is_asked_without_a_thread(waits_for_disk: bool, in_a_thread: int) -> None:
    faults = count() if waits_for_disk else repeat(0)

    @on_a_clock
    async def ask() -> None:
        wire, uploads = Wire(), Slow(faults=lambda: next(faults))
        one, two = Station(wire), Station(wire)
        one.exchange.uploads, uploads.looked = uploads, []
        async with running(one, two):
            one.exchange.share("root", [KEY], Shelf(BLOCKS))
            two.exchange.share("root", [KEY], Shelf())
            for number in range(3):
                assert await two.fetches(BLOCKS[number : number + 1])
            assert len(questions(uploads)) == in_a_thread
            await trio.sleep(60)
            assert await two.fetches(BLOCKS[3:4])
        assert len(questions(uploads)) == in_a_thread + 1  # what was in memory may not be any more

    ask()


@on_a_clock
async def test_nobody_says_anything_when_nothing_is_wanted() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        await two.fetches(BLOCKS)
        wire.frames.clear()
        await trio.sleep(3600)
        assert wire.frames == []
        assert not two.exchange.figures().peers or not two.exchange.figures().peers[0].is_connected
    assert len(wire.frames) == 2  # BYE, of each


@on_a_clock
async def test_who_does_not_answer_is_not_there_if_nobody_was_heard_for_an_hour() -> None:
    """Not an hour after somebody came who then was heard all the time: he may still be there."""
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf())
        circle = one.exchange.circle("root")
        assert circle is not None
        assert not await circle.known()  # somebody may be slow to answer HELLO
        await trio.sleep(0.5)
        assert await circle.known()
        assert await at_once(circle)  # it is alone since it began
        async with running(two):
            two.exchange.share("root", [KEY], Shelf(BLOCKS))
            for number in range(100):
                await trio.sleep(50)
                assert len(await one.fetches(BLOCKS[number % 50 : number % 50 + 1])) == 1
        await trio.sleep(3590)
        assert not await circle.known()
        await trio.sleep(10)
        assert await circle.known()
        assert not await at_once(circle)  # somebody may have come back to a network on which nobody asked


async def at_once(circle: ShareCircle) -> bool:
    """Whether it knows who is there without having waited for an answer."""
    began = trio.current_time()
    await circle.known()
    return trio.current_time() == began


@on_a_clock
async def test_what_one_gets_while_another_asks_goes_on_to_it() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    shelf = Shelf()
    got: dict[BlockId, bytes] = {}
    async with running(one, two):
        one.exchange.share("root", [KEY], shelf)
        two.exchange.share("root", [KEY], Shelf())

        async def fetch() -> None:
            got.update(await two.fetches(BLOCKS))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetch)
            await trio.sleep(0.6)
            for data in BLOCKS:
                shelf.add(data)
    assert len(got) == 50


@on_a_clock
async def test_who_has_another_key_gets_no_answer_and_no_connection() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [OTHER], Shelf())
        assert await two.fetches(BLOCKS) == {}
        assert wire.connections == 0
        assert await handshake(one, key=OTHER) is None
        assert one.exchange.figures().blocks_to_peers == 0


@on_a_clock
async def test_a_member_of_one_share_gets_nothing_of_another() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS[:10]))
        one.exchange.share("another", [OTHER], Shelf(BLOCKS[10:]))
        channel = await handshake(one)
        assert channel is not None
        notes = _Notes()
        download = Download(channel, lambda ids: None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(download.run)
            await download.get(notes, [Want(id=name(data), length=1000) for data in BLOCKS])
            while not download.idle:
                await trio.sleep(0.01)
            download.end()
        assert notes.got == 10
        assert notes.lost == 40


class _Notes:
    def __init__(self) -> None:
        self.got = self.lost = 0

    def is_open(self, want: Want) -> bool:
        return True

    def came(self, *_: object) -> None:
        self.got += 1

    def failed(self, *_: object) -> None:
        self.lost += 1


@on_a_clock
async def test_who_says_nothing_has_a_place_for_a_second() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        silent = [one.knock(bytes(15) + bytes([number])) for number in range(9)]
        assert [each is not None for each in silent] == [True] * 8 + [False]
        await trio.sleep(1.1)
        assert await handshake(one) is not None


@on_a_clock
async def test_a_recording_of_a_greeting_gets_no_block_and_no_place() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        shelf = Shelf(BLOCKS)
        one.exchange.share("root", [KEY], shelf)
        keys = derive(KEY.raw, epoch_of(1e9 + trio.current_time()))
        stream = one.knock(STRANGER)
        assert stream is not None
        listener, recorder = trio.testing.memory_stream_pair()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(greet, listener, keys, b"a stranger's id.", b"e" * 32)
            recorded = await recorder.receive_some(80)
            nursery.cancel_scope.cancel()
        await stream.send_all(recorded)
        assert len(await stream.receive_some(100)) == 48
        await stream.send_all(bytes(200))
        assert await stream.receive_some(100) == b""
        assert shelf.reads == 0
        assert len(one.exchange.arrivals) == 0


class Rush(trio.abc.Listener[trio.SocketStream]):
    """Somebody connects without end, and is gone at once; now and then the system has no descriptor left."""

    def __init__(self) -> None:
        self.accepted = 0
        self.socket = self

    async def accept(self) -> trio.SocketStream:
        await trio.lowlevel.checkpoint()
        self.accepted += 1
        if self.accepted % 100 == 0:
            raise OSError(errno.EMFILE, "Too many open files")
        return self  # type: ignore[return-value]

    def getpeername(self) -> None:
        raise OSError(errno.ENOTCONN, "gone")

    def getsockname(self) -> None:
        raise OSError(errno.ENOTCONN, "gone")

    def close(self) -> None:
        pass

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@on_a_clock
async def test_who_connects_without_end_is_taken_a_hundred_times_a_second() -> None:
    station, rush = Station(Wire()), Rush()

    async def listen(port: int) -> tuple[Rush, int]:
        await trio.lowlevel.checkpoint()
        return rush, port

    station.listen = listen  # type: ignore[method-assign]
    with structlog.testing.capture_logs() as told:
        async with running(station):
            before = rush.accepted
            await trio.sleep(10)
            assert before <= 64
            assert 800 <= rush.accepted - before <= 1100
    assert {line["event"] for line in told} == {"peers.accept_failed"}


@on_a_clock
async def test_one_address_has_four_places() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        for _ in range(4):
            channel = await handshake(one)
            assert channel is not None
            await channel.send([Ping(number=1)])
        await trio.testing.wait_all_tasks_blocked()
        assert await handshake(one) is None
        assert await handshake(one, bytes(16)) is not None


@on_a_clock
async def test_where_nobody_opens_is_left_alone_for_ten_minutes_then_for_twenty() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        wire.firewalled = True
        assert await two.fetches(BLOCKS[:1]) == {}
        assert wire.connections == 1
        assert await two.fetches(BLOCKS[:1]) == {}
        assert wire.connections == 1
        await trio.sleep(601)
        assert await two.fetches(BLOCKS[:1]) == {}
        assert wire.connections == 2
        await trio.sleep(601)
        wire.firewalled = False
        assert await two.fetches(BLOCKS[:1]) == {}
        await trio.sleep(601)
        assert len(await two.fetches(BLOCKS[:1])) == 1


@on_a_clock
async def test_a_cycle_that_ends_while_it_dials_says_nothing_of_the_peer() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        wire.dial_s = 0.5
        with trio.move_on_after(0.1):
            await two.fetches(BLOCKS)
        assert wire.connections == 0
        wire.dial_s = 0
        assert len(await two.fetches(BLOCKS)) == 50


@on_a_clock
async def test_who_sent_a_wrong_block_is_out_for_an_hour() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        shelf = Shelf(BLOCKS)
        shelf.blocks[name(BLOCKS[0])] = b"something else"
        one.exchange.share("root", [KEY], shelf)
        two.exchange.share("root", [KEY], Shelf(BLOCKS))
        assert await two.fetches(BLOCKS[:1]) == {}
        assert [ban.address for ban in two.exchange.figures().bans] == ["fe80::1"]
        assert await two.fetches(BLOCKS[1:2]) == {}
        assert await handshake(two, one.address) is None
        (ban,) = two.exchange.figures().bans
        for nobody in ("fe80::2", ban.peer[:3], "f" * 32, "fe80"):
            assert two.exchange.unban(nobody) == 0
        assert two.exchange.unban() == 1
        assert len(await two.fetches(BLOCKS[1:2])) == 1


@on_a_clock
async def test_who_sent_a_wrong_block_hears_of_it_looks_and_offers_it_no_more() -> None:
    """Breaks as a machine with a bad disk that gives the same wrong block to each of its neighbours."""
    wire = Wire()
    one, two, three = Station(wire), Station(wire), Station(wire)
    shelf = Shelf(BLOCKS)
    shelf.blocks[name(BLOCKS[0])] = b"something else"
    async with running(one, two, three):
        one.exchange.share("root", [KEY], shelf)
        for other in (two, three):
            other.exchange.share("root", [KEY], Shelf())
        with structlog.testing.capture_logs() as logs:
            assert await two.fetches(BLOCKS[:1]) == {}
            await trio.sleep(1)
        (damaged,) = [line for line in logs if line["event"] == "share.block_damaged"]
        assert damaged["block"] == name(BLOCKS[0]).hex()
        assert (two.exchange.figures().mismatches, one.exchange.figures().accused) == (1, 1)
        assert len(await three.fetches(BLOCKS[:2])) == 1
        assert three.exchange.figures().bans == ()
        shelf.add(BLOCKS[0])  # it was mended
        await trio.sleep(3601)
        assert len(await three.fetches(BLOCKS[:1])) == 1


@on_a_clock
@pytest.mark.parametrize("who", ["id", "ID", "address", "zone"])
async def test_a_ban_is_lifted_by_the_name_that_is_shown(who: str) -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        two.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.session.standing.ban(PeerId(b"\xab" * 16), one.address, trio.current_time())
        names = {"id": "abab", "ID": "ABABABAB", "address": "fe80::1", "zone": "fe80::1%lan0"}
        assert two.exchange.unban(names[who]) == 1
        assert two.exchange.figures().bans == ()


@on_a_clock
async def test_on_battery_it_asks_and_does_not_serve() -> None:
    wire = Wire()
    one, two = Station(wire, on_battery=Use.ASK), Station(wire)
    one.on_battery = True
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS[:10]))
        two.exchange.share("root", [KEY], Shelf(BLOCKS[10:]))
        assert len(await one.fetches(BLOCKS[10:20])) == 10
        assert await two.fetches(BLOCKS[:10]) == {}
        told = one.exchange.session.counters.frames_out
        assert (told[FrameType.HELLO], told[FrameType.IHAVE]) == (1, 0), "it only came"
        one.on_battery = False
        await trio.sleep(60)
        assert len(await two.fetches(BLOCKS[:10])) == 10


@on_a_clock
@pytest.mark.parametrize("why", ["battery", "pause", "off", "metered"])
async def test_a_connection_ends_within_a_second_when_nothing_is_served_any_more(why: str) -> None:
    """Breaks as a machine on its battery that sends on for ten minutes."""
    wire = Wire()
    one = Station(wire, on_battery=Use.ASK)
    is_right = True
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        ours, theirs = trio.testing.memory_stream_pair()
        assert one.exchange.arrivals.admit(theirs, STRANGER, lambda: is_right)
        keys = derive(KEY.raw, epoch_of(1e9 + trio.current_time()))
        channel = await greet(ours, keys, b"a stranger's id.", b"e" * 32)
        assert isinstance(channel, Channel)
        await channel.send([Ping(number=7)])
        assert await channel.receive() == [Ping(number=7, answer=True)]
        await trio.sleep(5)
        began = trio.current_time()
        one.on_battery = why == "battery"
        is_right = why != "metered"
        if why == "pause":
            one.exchange.share("root", [KEY], None)
        elif why == "off":
            one.exchange.unshare("root")
        assert await channel.receive() == [Close(reason=CloseReason.REFUSED)]
        assert trio.current_time() - began <= 1


@pytest.mark.parametrize("good", [0, 1])
@on_a_clock
async def test_a_look_up_that_fails_leaves_no_question_in_work(good: int) -> None:
    answers = iter([[True]] * good)

    class Broken(Shelf):
        def match(self, prefixes: Sequence[bytes]) -> list[bool]:
            for answer in answers:
                return answer
            raise ValueError("a bug")

    wire = Wire()
    one, two = Station(wire), Station(wire)

    async def ask() -> None:
        async with running(one, two):
            one.exchange.share("root", [KEY], Broken(BLOCKS))
            two.exchange.share("root", [KEY], Shelf())
            await two.fetches(BLOCKS[:1])
            await two.fetches(BLOCKS[1:2])

    with pytest.raises(BaseExceptionGroup):
        await ask()
    assert len(one.exchange.session._answering) == 0


@on_a_clock
async def test_roots_with_the_same_key_are_one_share() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("here", [KEY], Shelf(BLOCKS[:25]))
        one.exchange.share("there", [KEY], Shelf(BLOCKS[25:]))
        two.exchange.share("root", [KEY], Shelf())
        assert len(await two.fetches(BLOCKS)) == 50
        one.exchange.unshare("here")
        assert set(await two.fetches(BLOCKS)) == {name(data) for data in BLOCKS[25:]}
        one.exchange.share("there", [KEY], None)
        assert await two.fetches(BLOCKS) == {}
        one.exchange.unshare("there")
        assert await two.fetches(BLOCKS) == {}


@on_a_clock
async def test_a_root_that_gets_another_key_than_the_others_is_a_share_of_its_own() -> None:
    """A passphrase on one of two roots: its blocks are not for who has the other key, and nothing is asked of them."""
    wire = Wire()
    one, two, three = Station(wire), Station(wire), Station(wire)
    async with running(one, two, three):
        two.exchange.share("root", [KEY], Shelf(BLOCKS[40:]))
        three.exchange.share("root", [OTHER], Shelf())
        one.exchange.share("here", [KEY], Shelf(BLOCKS[:25]))
        one.exchange.share("there", [KEY], Shelf(BLOCKS[25:30]))
        assert len(await two.fetches(BLOCKS[:2])) == 2
        one.exchange.share("here", [OTHER], Shelf(BLOCKS[:25]))
        one.exchange.share("there", [KEY], Shelf(BLOCKS[25:30]))  # a cycle of it
        assert set(await two.fetches(BLOCKS[:40])) == {name(data) for data in BLOCKS[25:30]}
        assert set(await three.fetches(BLOCKS[:40])) == {name(data) for data in BLOCKS[:25]}
        assert await one.fetches(BLOCKS[40:], root="here") == {}
        assert len(await one.fetches(BLOCKS[40:], root="there")) == 10
        frames = len(wire.frames)
        for _ in range(3):  # neither takes the other's key: nobody is told of a new one
            one.exchange.share("here", [OTHER], Shelf(BLOCKS[:25]))
            one.exchange.share("there", [KEY], Shelf(BLOCKS[25:30]))
        assert len(wire.frames) == frames


@on_a_clock
async def test_roots_that_get_the_same_key_later_are_one_share_from_then_on() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        two.exchange.share("root", [KEY], Shelf(BLOCKS[40:]))
        one.exchange.share("here", [KEY], Shelf(BLOCKS[:20]))
        one.exchange.share("there", [OTHER], Shelf(BLOCKS[20:40]))
        one.exchange.share("there", [KEY], Shelf(BLOCKS[20:40]))
        assert len(await two.fetches(BLOCKS[:40])) == 40
        for root in ("here", "there"):
            assert len(await one.fetches(BLOCKS[40:], root=root)) == 10
        one.exchange.unshare("here")
        assert set(await two.fetches(BLOCKS[:40])) == {name(data) for data in BLOCKS[20:40]}


@on_a_clock
async def test_a_connection_ends_with_its_key() -> None:
    """Another passphrase: the old one ends at once, also for who is connected."""
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        channel = await handshake(one)
        assert channel is not None
        await channel.send([Ping(number=1)])
        assert await channel.receive() == [Ping(number=1, answer=True)]
        one.exchange.share("root", [OTHER], Shelf(BLOCKS))
        await trio.sleep(1)
        assert await channel.receive() == [Close(reason=CloseReason.REFUSED)]
        assert await channel.receive() == []


@on_a_clock
async def test_a_new_key_takes_the_place_of_the_old_one() -> None:
    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        assert len(await two.fetches(BLOCKS[:10])) == 10
        old = RootKey(raw=KEY.raw, until_unix_s=1e9 + 86_400)
        one.exchange.share("root", [OTHER, old], Shelf(BLOCKS))
        assert len(await two.fetches(BLOCKS[10:20])) == 10  # it does not know of it yet
        two.exchange.share("root", [OTHER, old], Shelf())
        assert len(await two.fetches(BLOCKS[20:30])) == 10
        await trio.sleep(90_000)
        assert await handshake(one) is None
        assert len(await two.fetches(BLOCKS[30:])) == 20


@on_a_clock
async def test_a_fault_of_the_index_is_no_answer() -> None:
    class Broken(Shelf):
        def read(self, block: BlockId) -> bytes | None:
            raise OSError(5, "Input/output error")

    wire = Wire()
    one, two = Station(wire), Station(wire)
    async with running(one, two):
        one.exchange.share("root", [KEY], Broken(BLOCKS))
        two.exchange.share("root", [KEY], Shelf())
        assert await two.fetches(BLOCKS[:2]) == {}
        assert one.exchange.figures().blocks_to_peers == 0


@on_a_clock
async def test_a_connection_ends_with_its_epoch() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        channel = await handshake(one)
        assert channel is not None
        said = 0
        while await channel.send([Ping(number=1)]) and Ping(number=1, answer=True) in await channel.receive():
            said += 1
            await trio.sleep(50)
        assert said == 12


@on_a_clock
async def test_without_a_link_it_goes_on() -> None:
    wire = Wire()
    one = Station(wire)
    async with running(one):
        one.exchange.share("root", [KEY], Shelf(BLOCKS))
        one.lose_all_links()
        await trio.testing.wait_all_tasks_blocked()
        assert await one.fetches(BLOCKS[:1]) == {}
        assert await handshake(one) is not None
