"""A command and its neighbours: it loads no more than is of use, and with a session of its own it gives as it gets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import trio

from blockfs.blocks.ids import BlockId
from syncer.blocks.recent import RecentBlocks
from syncer.cli.lan import lanlink
from syncer.cli.lan.solitude import LATER_S, LOOKS
from syncer.cli.registry.roots import FORMAT, LinkedRoot, Registry, RootRecord, encoded_path
from syncer.peer.exchange.exchange import Exchange
from syncer.peer.exchange.limits import Throttle
from syncer.peer.session.keyring import RootKey
from tests.kit.peering import Shelf, block, name, on_a_clock
from tests.kit.stations import Station, Wire, running

LATER = """
import sys
from importlib import import_module
from syncer.cli.lan.lanlink import PARTS
for part in PARTS:
    import_module(part)
before = set(sys.modules)
import syncer.peer.exchange.exchange, syncer.peer.links.links, syncer.peer.links.opening, syncer.watch.lan
print(sorted(set(sys.modules) - before))
"""


def test_who_has_all_meanwhile_loads_no_further_part(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    async def main() -> None:
        with trio.CancelScope() as cycle:

            def load(part: str) -> None:
                loaded.append(part)
                if len(loaded) == 2:
                    trio.from_thread.run_sync(cycle.cancel)

            monkeypatch.setattr(lanlink, "import_module", load)
            await lanlink._load()

    trio.run(main)
    assert loaded == list(lanlink.PARTS[:2])


def test_after_the_last_part_it_is_looked_once_more_whether_anything_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> bool:
        with trio.CancelScope() as cycle:

            def load(part: str) -> None:
                if part == lanlink.PARTS[-1]:
                    trio.from_thread.run_sync(cycle.cancel)

            monkeypatch.setattr(lanlink, "import_module", load)
            await lanlink._load()
            return True
        return False

    assert not trio.run(main)


def test_the_parts_are_all_there_is_to_load() -> None:
    """What is loaded behind them is loaded by who waits for the server's answer, too."""
    done = subprocess.run([sys.executable, "-c", LATER], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_where_no_daemon_has_a_socket_what_asks_it_is_not_loaded(tmp_path: Path) -> None:
    program = (
        f"import trio, sys; from syncer.cli.lan import lanlink; trio.run(lanlink._connected, {f'{tmp_path}/s'!r}); "
    )
    told = "print('syncer.watch.control' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program + told], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


# --- a session of its own

KEY = RootKey(raw=b"k" * 32)
BLOCKS = [block(number) for number in range(10)]


class Root(Shelf):
    """What a root has."""

    def __init__(self) -> None:
        super().__init__(BLOCKS)
        self.recent_blocks = RecentBlocks()
        self.closed = 0

    def rest(self) -> None:
        pass

    def close(self) -> None:
        self.closed += 1


class Command:
    """A command without a daemon, at a place on a wire in memory."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wire, self.index, self.keys = Wire(), Root(), [KEY]
        self.stations: list[Station] = []
        self.environment = {"HOME": str(home), "XDG_STATE_HOME": str(home / "state")}
        self.registry = Registry(self.environment)
        record = RootRecord(
            format=FORMAT, uuid="u1", path=encoded_path(b"/home/anna/images"), url="pithos+http://h/a/c",
            block_size=1000, folder=None, volume_uuid="v1",
        )  # fmt: skip
        self.registry.write(record, "secret")
        (self.root,) = self.registry.look().roots
        monkeypatch.setattr(lanlink, "PARTS", ())
        monkeypatch.setattr(lanlink, "shared_root", lambda _: self.index)
        monkeypatch.setattr(lanlink, "key_of_share", lambda _: SimpleNamespace(keys_now=lambda: tuple(self.keys)))
        monkeypatch.setattr("syncer.peer.links.opening.opened", _no_sockets)
        monkeypatch.setattr("syncer.peer.links.links.Links", lambda *_, **__: None)
        monkeypatch.setattr("syncer.peer.exchange.exchange.Exchange", self._exchange)
        self.giving = lanlink.Giving(self.root)

    def _exchange(self, *_: object) -> Exchange:
        self.stations.append(Station(self.wire))
        return self.stations[-1].exchange

    @asynccontextmanager
    async def asks(self, giving: lanlink.Giving | None = None) -> AsyncIterator[None]:
        """A cycle lacks something, for as long as the block lasts."""
        async with lanlink._opened(self.root, self.registry, self.environment, giving) as source:
            assert source is not None
            yield


@contextmanager
def _no_sockets(_: object) -> Iterator[SimpleNamespace]:
    yield SimpleNamespace(sockets=None)


@asynccontextmanager
async def neighbour(wire: Wire, key: RootKey = KEY) -> AsyncIterator[Station]:
    """Somebody of the share, who has nothing."""
    station = Station(wire)
    async with running(station):
        station.exchange.share("root", [key], Shelf())
        yield station


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Command:
    return Command(tmp_path, monkeypatch)


@on_a_clock
async def test_a_command_without_a_daemon_gives_while_it_asks_and_counts_that(command: Command) -> None:
    async with neighbour(command.wire) as other:
        async with command.asks(command.giving):
            assert len(await other.fetches(BLOCKS[:7])) == 7
        assert (command.giving.blocks, command.giving.bytes) == (7, 7000)
        assert command.index.closed


@on_a_clock
async def test_who_is_served_when_it_ends_asks_others_and_holds_nothing_against_it(command: Command) -> None:
    async with neighbour(command.wire) as other:
        async with command.asks(command.giving):
            assert len(await other.fetches(BLOCKS[:5])) == 5
        await trio.sleep(0.1)
        assert await other.fetches(BLOCKS[5:]) == {}
        figures = other.exchange.figures()
        assert (figures.frames_in["bye"], figures.peers, figures.bans) == (1, (), ())
        assert (figures.stalls, figures.lacked, figures.mismatches) == (0, 0, 0)
        async with command.asks(command.giving):  # the next one, of the same address
            assert len(await other.fetches(BLOCKS[5:])) == 5


@on_a_clock
async def test_whose_download_it_cuts_off_gets_the_rest_from_another_one_at_once(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncer.blocks.handles._HASHED_HERE", 1 << 30)  # the clock would jump while a thread works
    many = [block(number) for number in range(1000)]
    for data in many:
        command.index.add(data)
    got: dict[BlockId, bytes] = {}
    async with neighbour(command.wire) as other, neighbour(command.wire) as third:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:

                async def fetch() -> None:
                    got.update(await other.fetches(many))

                async with command.asks(command.giving):
                    (station,) = command.stations
                    for each in (station, third):
                        each.exchange.uploads.pace = Throttle(400_000)
                    nursery.start_soon(fetch)
                    while not station.exchange.uploads.blocks:
                        await trio.sleep(0.1)
                    third.exchange.share("root", [KEY], Shelf(many))
                    while not third.exchange.uploads.blocks:
                        await trio.sleep(0.1)
                assert not got
        assert set(got) == {name(data) for data in many}
        assert 0 < command.giving.blocks < len(many)
        figures = other.exchange.figures()
        assert (figures.stalls, figures.lacked, figures.mismatches, figures.bans) == (0, 0, 0, ())


@on_a_clock
async def test_who_heard_nobody_a_few_times_asks_the_server_first_until_somebody_is_heard(command: Command) -> None:
    solitude = command.root.solitude
    for _ in range(LOOKS):
        assert solitude.later_s() == 0
        async with command.asks():
            await trio.sleep(lanlink.LOOK_S / 2)  # the cycle had all it lacked: that tells nothing
        assert solitude.later_s() == 0
        async with command.asks():
            await trio.sleep(2 * lanlink.LOOK_S)
    assert solitude.later_s() == LATER_S
    async with neighbour(command.wire), command.asks():
        await trio.sleep(2 * lanlink.LOOK_S)
    assert solitude.later_s() == 0


@on_a_clock
async def test_somebody_who_left_meanwhile_was_there(command: Command) -> None:
    for _ in range(LOOKS):
        async with command.asks():
            async with neighbour(command.wire):
                await trio.sleep(2 * lanlink.LOOK_S)
            await trio.sleep(2 * lanlink.LOOK_S)
    assert command.root.solitude.later_s() == 0


def test_where_a_daemon_runs_it_is_asked_at_once(command: Command) -> None:
    for _ in range(LOOKS):
        command.root.solitude.looked(heard=False)
    (source,) = lanlink.peers_for(command.root, command.registry, command.environment, no_peers=False)
    assert source.later_s() == LATER_S
    Path(command.registry.socket).touch()
    assert source.later_s() == 0


@on_a_clock
async def test_a_command_that_is_to_give_nothing_gives_nothing(command: Command) -> None:
    async with neighbour(command.wire) as other, command.asks():
        assert await other.fetches(BLOCKS) == {}


@on_a_clock
async def test_a_root_that_is_paused_meanwhile_gives_no_more_and_goes_on_when_resumed(command: Command) -> None:
    async with neighbour(command.wire) as other, command.asks(command.giving):
        assert len(await other.fetches(BLOCKS[:5])) == 5
        command.root.pause(paused=True)
        await trio.sleep(2 * lanlink.ATTEND_S)
        assert await other.fetches(BLOCKS[5:]) == {}
        command.root.pause(paused=False)
        await trio.sleep(2 * lanlink.ATTEND_S)
        assert len(await other.fetches(BLOCKS[5:])) == 5


@pytest.mark.parametrize("what", ["all", "root"])
def test_peers_that_are_switched_off_meanwhile_get_nothing(command: Command, what: str) -> None:
    @on_a_clock
    async def main() -> None:
        async with neighbour(command.wire) as other, command.asks(command.giving):
            assert len(await other.fetches(BLOCKS[:5])) == 5
            switch: LinkedRoot | Registry = command.root if what == "root" else command.registry
            switch.set_peers(on=False)
            await trio.sleep(2 * lanlink.ATTEND_S)
            assert await other.fetches(BLOCKS[5:]) == {}
            assert other.exchange.figures().peers == ()

    main()


@on_a_clock
async def test_a_key_that_is_rotated_meanwhile_is_taken_over(command: Command) -> None:
    new = RootKey(raw=b"n" * 32)
    async with command.asks(command.giving):
        command.keys = [new, KEY]
        await trio.sleep(2 * lanlink.ATTEND_S)
        async with neighbour(command.wire, new) as other:
            assert set(await other.fetches(BLOCKS)) == {name(data) for data in BLOCKS}


def test_where_a_daemon_gives_a_command_keeps_nothing_for_peers(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def relayed(*_: object) -> AsyncIterator[object]:
        yield object()

    async def connected(_: str) -> object:
        await trio.lowlevel.checkpoint()
        return object()

    async def main() -> None:
        async with command.asks(command.giving):
            pass

    monkeypatch.setattr(lanlink, "_connected", connected)
    monkeypatch.setattr("syncer.peer.exchange.relay.relayed", relayed)
    trio.run(main)
    command.giving.recent.came([BlockId(b"b" * 32)])
    assert not command.giving.recent
    assert command.stations == []
