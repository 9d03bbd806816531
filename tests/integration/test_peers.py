"""Blocks go from node to node in a network of its own: who gets them, who does not, and what a bad peer can do."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from syncer.peer.wire.handshake import Dialled
from syncer.peer.wire.keys import derive
from tests.kit.netns import Lan, Node
from tests.kit.trader import Trader

OTHER_KEY = "22" * 32
ETHERNET_TYPE_IPV4 = 0x0800


def test_blocks_come_over_link_local_addresses_alone(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path, ipv4=False) as lan, lan.capture() as capture:
        one, two = lan.nodes
        seed, asker = Trader(one, blocks=[0, 300]), Trader(two)
        assert asker.fetch(0, 300) | {"seconds": 0, "cpu": 0} == {"blocks": 300, "failed": 0, "seconds": 0, "cpu": 0}
        told, given = asker.figures(), seed.figures()
        frames = capture.frames()
    assert [peer["addresses"] for peer in told["peers"]] == [[one.link_local]]
    assert told["blocks_from_peers"] == given["blocks_to_peers"] == 300
    assert told["bytes_from_peers"] == given["bytes_to_peers"] == 300_000
    assert told["wasted_bytes"] == 0
    assert not [frame for frame in frames if frame.ethertype == ETHERNET_TYPE_IPV4]
    assert not [frame for frame in frames if b"xxxxxxxx" in frame.data]  # the blocks are full of it


def test_blocks_come_over_ipv4_where_there_is_no_ipv6(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path, ipv6=False) as lan:
        one, two = lan.nodes
        Trader(one, blocks=[0, 20])
        asker = Trader(two)
        assert asker.fetch(0, 20)["blocks"] == 20
        assert [peer["addresses"] for peer in asker.figures()["peers"]] == [[one.ipv4]]


def test_who_has_another_key_gets_nothing(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        one, two = lan.nodes
        seed, stranger = Trader(one, blocks=[0, 20]), Trader(two, key=OTHER_KEY)
        fetched = stranger.fetch(0, 20)
        assert (fetched["blocks"], fetched["failed"]) == (0, 20)
        assert stranger.figures()["peers"] == []
        given = seed.figures()
    assert given["blocks_to_peers"] == 0
    assert given["peers"] == []
    assert "ihave" not in given["frames_out"]
    assert given["drops"]["hint"] > 0


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.0\r\n\r\n" + bytes(80), b"key"], ids=["nothing", "http", "other key"]
)
def test_a_connection_that_proves_no_key_is_closed_without_a_byte(tmp_path: Path, said: bytes) -> None:
    if said == b"key":
        said = Dialled(derive(bytes.fromhex(OTHER_KEY), 5), b"s" * 16, b"e" * 32).greeting
    with Lan(2, home=tmp_path) as lan:
        one, two = lan.nodes
        seed = Trader(one, blocks=[0, 1])
        with _knock(two, one, seed.port) as knocking:
            knocking.sendall(said)
            assert _rest(knocking) == b""


def test_a_paused_node_serves_nothing(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        one, two = lan.nodes
        seed, asker = Trader(one, blocks=[0, 20]), Trader(two)
        assert asker.fetch(0, 10)["blocks"] == 10
        seed.tell(pause=True)
        assert seed.until("paused") is True
        assert asker.fetch(10, 20)["failed"] == 10
        assert seed.figures()["blocks_to_peers"] == 10
        seed.tell(pause=False)
        assert seed.until("paused") is False
        assert asker.fetch(10, 20)["blocks"] == 10


def test_a_peer_that_is_killed_in_mid_transfer_is_replaced(tmp_path: Path) -> None:
    with Lan(3, home=tmp_path) as lan:
        one, two, three = lan.nodes
        slow = 'upload_limit = "3MB"'
        victim = Trader(one, blocks=[0, 100], size=100_000, settings=slow)
        Trader(two, blocks=[0, 100], size=100_000, settings=slow)
        asker = Trader(three, size=100_000)
        asker.tell(fetch=[0, 100])
        while not victim.figures()["blocks_to_peers"]:
            pass
        one.kill(victim.process)
        fetched = asker.until("fetched")
    assert (fetched["blocks"], fetched["failed"]) == (100, 0)


def test_of_four_peers_hardly_anything_comes_twice(tmp_path: Path) -> None:
    """What all of them sent, and what the asker got: both tell the same, and it is what was wanted."""
    size, count = 100_000, 640
    with Lan(5, home=tmp_path) as lan:
        *homes, node = lan.nodes
        givers = [Trader(home, blocks=[0, count], size=size, settings='upload_limit = "12MB"') for home in homes]
        asker = Trader(node, size=size)
        fetched = asker.fetch(0, count)
        told, given = asker.figures(), [giver.figures() for giver in givers]
    assert (fetched["blocks"], fetched["failed"]) == (count, 0)
    sent = [each["bytes_to_peers"] for each in given]
    assert all(sent), sent
    assert told["bytes_from_peers"] + told["wasted_bytes"] <= sum(sent) <= 1.02 * count * size
    assert told["blocks_from_peers"] <= sum(each["blocks_to_peers"] for each in given)


@pytest.mark.parametrize("evil", ["lie", "corrupt", "stall"])
def test_an_evil_peer_costs_nothing_but_time(tmp_path: Path, evil: str) -> None:
    with Lan(3, home=tmp_path) as lan:
        bad, good, node = lan.nodes
        Trader(bad, blocks=[0, 110], size=10_000, evil=evil)
        Trader(good, blocks=[0, 100], size=10_000)
        asker = Trader(node, size=10_000)
        fetched = asker.fetch(0, 100)
        # The good peer alone may have been quick enough: these only the other one can give.
        nowhere_else = asker.fetch(100, 110)
        told = asker.figures()
    assert (fetched["blocks"], fetched["failed"]) == (100, 0)
    assert (nowhere_else["blocks"], nowhere_else["failed"]) == (0, 10)
    assert [ban["address"] for ban in told["bans"]] == ([bad.link_local] if evil == "corrupt" else [])
    assert told[{"lie": "lacked", "corrupt": "mismatches", "stall": "stalls"}[evil]] > 0


def _knock(node: Node, at: Node, port: int) -> socket.socket:
    """A connection that says what a test wants."""
    with node.inside():
        made = socket.socket(socket.AF_INET6)
        made.connect((at.link_local, port, 0, socket.if_nametoindex("lan0")))
    made.settimeout(120)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
    return made


def _rest(connection: socket.socket) -> bytes:
    """All that comes until the other side closes it."""
    try:
        return b"".join(iter(lambda: connection.recv(4096), b""))
    except ConnectionResetError:
        return b""
