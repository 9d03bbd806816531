"""Links on real interfaces of network namespaces: who hears whom, by what, and what wakes nobody."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.netns import INTERFACE, Lan, Node
from tests.kit.speaker import MAGIC, PROJECT, Speaker, frame
from tests.system.namespaces import passed

ETHERTYPE = 0x88B5
PORT = 17511
BROADCAST = b"\xff" * 6
WITHOUT_RAW = ("setpriv", "--bounding-set=-net_raw", "--inh-caps=-net_raw", "--")
ALL = ["ethernet", "udp6", "udp4"]


def only(carrier: str) -> str:
    return f'carriers = ["{carrier}"]\n'


def up(node: Node, settings: str = "", carriers: list[str] | None = None) -> Speaker:
    speaker = Speaker(node, settings)
    speaker.up(carriers=carriers)
    return speaker


@contextmanager
def raw(node: Node) -> Iterator[socket.socket]:
    with node.inside():
        made = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
    with made:
        yield made


@pytest.mark.parametrize(
    ("carrier", "ipv4", "ipv6"),
    [("ethernet", False, False), ("ethernet", True, True), ("udp6", False, True), ("udp4", True, False)],
)
def test_two_nodes_hear_each_other_by_each_carrier(tmp_path: Path, carrier: str, ipv4: bool, ipv6: bool) -> None:
    with Lan(2, home=tmp_path, ipv4=ipv4, ipv6=ipv6) as lan:
        one, two = (up(node, only(carrier)) for node in lan.nodes)
        assert one.send(frame(1))
        source = two.hears(frame(1))
        assert source["carrier"] == carrier
        assert two.send(frame(2), source)
        assert one.hears(frame(2))["carrier"] == carrier


@pytest.mark.parametrize(
    ("before", "ipv6", "opened", "used"),
    [
        ((), True, ALL, ALL),
        (WITHOUT_RAW, True, ["udp6", "udp4"], ["udp6", "udp4"]),
        (WITHOUT_RAW, False, ["udp6", "udp4"], ["udp4"]),
    ],
)
def test_the_best_that_the_process_and_the_interface_allow_comes_first(
    tmp_path: Path, before: tuple[str, ...], ipv6: bool, opened: list[str], used: list[str]
) -> None:
    with Lan(1, home=tmp_path, ipv6=ipv6) as lan:
        speaker = Speaker(lan.nodes[0], "", *before)
        assert speaker.opened["carriers"] == opened
        assert speaker.opened["refused"] == ({"ethernet": "Operation not permitted"} if before else {})
        assert speaker.up()["carriers"] == used


@pytest.mark.parametrize(("carrier", "bound"), [("ethernet", 1340), ("udp6", 1292), ("udp4", 1312)])
def test_frames_keep_to_a_small_mtu(tmp_path: Path, carrier: str, bound: int) -> None:
    with Lan(2, home=tmp_path, mtu=1400) as lan, lan.capture() as capture:
        one, two = (Speaker(node, only(carrier)) for node in lan.nodes)
        assert one.up()["bound"] == two.up()["bound"] == bound
        longest = frame(1, 60 + bound)
        assert one.send(longest)
        two.hears(longest)
        assert not one.send(frame(1, 61 + bound))
        ours = [told for told in capture.frames() if MAGIC in told.data]
        assert [len(told.data) for told in ours] == [14 + 1400]  # one frame, no fragment


def test_who_has_udp_only_hears_and_is_heard_beside_ethernet(tmp_path: Path) -> None:
    """A frame goes by UDP also when somebody is known who hears nothing else, and once in ten minutes to find out."""
    with Lan(3, home=tmp_path) as lan:
        rich, poor, other = up(lan.nodes[0]), up(lan.nodes[1], only("udp6")), up(lan.nodes[2])
        assert rich.send(frame(1, 200))
        assert poor.hears(frame(1, 200))["carrier"] == "udp6"
        other.hears(frame(1, 200))  # by all carriers, and which is heard first is chance
        assert rich.send(frame(1, 201))  # ten minutes have not passed: by Ethernet alone
        other.hears(frame(1, 201))
        assert poor.send(frame(2))
        rich.hears(frame(2))
        other.hears(frame(2))
        rich.tell(confirm=0)
        assert rich.up()["bound"] == 1392
        assert rich.send(frame(1, 202))
        told = poor.until("received")
        assert (told["frame"], told["source"]["carrier"]) == (frame(1, 202).hex(), "udp6")
        assert poor.send(frame(2, 130), told["source"])
        assert rich.hears(frame(2, 130))["carrier"] == "udp6"


def test_a_cable_that_is_pulled_is_a_link_that_is_gone_until_it_is_back(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        one, two = (up(node) for node in lan.nodes)
        lan.nodes[0].link_down()
        assert one.until("gone") == INTERFACE
        assert not one.send(frame(1))
        lan.nodes[0].link_up()
        one.up(carriers=ALL)
        assert one.send(frame(1, 300))
        two.hears(frame(1, 300))  # the first after a link came goes by all carriers: which is heard first is chance
        assert two.send(frame(2))
        one.hears(frame(2))


def test_an_interface_that_comes_later_is_used_with_no_further_right(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        one, two = (up(node) for node in lan.nodes)
        assert one.opened["held"] is False
        lan.nodes[0].add_interface("lan1")
        one.up("lan1", ["ethernet", "udp6"])
        assert one.send(frame(1), link="lan1")
        source = two.hears(frame(1))
        assert bytes.fromhex(source["host"]).hex(":") != lan.nodes[0].mac
        assert two.send(frame(2), source)
        assert one.until("received", lambda told: told["frame"] == frame(2).hex())["link"] == "lan1"
        lan.nodes[0].remove_interface("lan1")
        assert one.until("gone") == "lan1"
        assert not one.send(frame(1), link="lan1")
        assert one.send(frame(1, 150))
        two.hears(frame(1, 150))


def test_an_interface_that_loses_ipv6_for_a_while_is_heard_by_it_again(tmp_path: Path) -> None:
    """An MTU below 1280 ends it, and the kernel forgets who listened to a group: the ear must be another one then."""
    with Lan(2, home=tmp_path) as lan:
        one, two = (up(node, 'carriers = ["udp6", "udp4"]') for node in lan.nodes)
        for mtu, carriers in ((1000, ["udp4"]), (1500, ["udp6", "udp4"])):
            lan.nodes[0].run("ip", "link", "set", INTERFACE, "mtu", str(mtu))
            one.up(carriers=carriers)
        assert two.send(frame(2))  # by both, to find out who is there
        assert two.send(frame(3))
        assert one.hears(frame(3))["carrier"] == "udp6"


def test_interfaces_that_are_ignored_are_neither_heard_nor_used(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        lan.nodes[0].add_interface("lan1")
        one, two = Speaker(lan.nodes[0], 'ignored_interfaces = ["lan0"]'), up(lan.nodes[1])
        one.up("lan1")
        assert not one.send(frame(1))
        assert two.send(frame(2))
        assert one.until("received")["link"] == "lan1"


def test_what_is_not_ours_wakes_nobody(tmp_path: Path) -> None:
    """Other magic, other EtherType, to another machine, too short, from beyond a router: the kernel drops all of it."""
    with Lan(2, home=tmp_path) as lan:
        one = up(lan.nodes[0])
        garbage = bytes(124)
        with raw(lan.nodes[1]) as sender:
            for _ in range(500):
                sender.sendto(garbage, (INTERFACE, ETHERTYPE, 0, 0, BROADCAST))
                sender.sendto(frame(), (INTERFACE, 0x88B6, 0, 0, BROADCAST))
                sender.sendto(frame(), (INTERFACE, ETHERTYPE, 0, 0, bytes.fromhex("020000000099")))
                sender.sendto(MAGIC[:2], (INTERFACE, ETHERTYPE, 0, 0, BROADCAST))
        with lan.nodes[1].inside():
            zone = socket.if_nametoindex(INTERFACE)
            six = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            four = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with six, four:
            four.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            for data, hops in ((garbage, 255), (frame(), 64), (MAGIC[:2], 255)):
                six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
                six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, hops)
                four.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
                for _ in range(100):
                    six.sendto(data, (lan.nodes[0].link_local, PORT, 0, zone))
                    six.sendto(data, ("ff12::b5b1:c", PORT, 0, zone))
                    four.sendto(data, (lan.nodes[0].ipv4, PORT))
                    four.sendto(data, ("10.99.0.255", PORT))
            six.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS, 255)
            six.sendto(frame(7), (lan.nodes[0].link_local, PORT, 0, zone))
            one.hears(frame(7))
        counters = one.counters()
        assert (counters["wakeups"], counters["received"]) == (1, 1)
        assert "stray" not in counters


@pytest.mark.parametrize("carrier", ["udp6", "udp4"])
def test_an_answer_goes_to_the_process_that_asked_and_to_no_other_of_its_machine(tmp_path: Path, carrier: str) -> None:
    with Lan(2, home=tmp_path) as lan:
        first, second, peer = (up(node, only(carrier)) for node in (lan.nodes[0], lan.nodes[0], lan.nodes[1]))
        ports = []
        for number, asker in enumerate((first, second), 1):
            assert asker.send(frame(number))
            source = peer.hears(frame(number))
            ports.append(source["port"])
            assert peer.send(frame(10 + number), source)
            asker.hears(frame(10 + number))
        assert ports[0] == PORT != ports[1]
        assert peer.send(frame(20))
        for asker in (first, second):
            asker.hears(frame(20))
            assert asker.counters()["received"] == 2  # one answer, one question to all


def test_nothing_is_sent_unasked_and_no_more_than_the_budget(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan, lan.capture() as capture:
        one, two = (up(node) for node in lan.nodes)
        assert not [told for told in capture.frames() if MAGIC in told.data]
        sent = sum(one.send(frame(1)) for _ in range(500))
        counters = one.counters()
        assert sent < 500
        assert counters["over_budget"] == 500 - sent
        assert two.send(frame(2))
        one.hears(frame(2))
        ours = [told for told in capture.frames() if MAGIC in told.data and told.port == "p1"]
        assert len(ours) == counters["sent_to_all"] == sent + 2  # the first went by UDP too, to find who has no more
        assert {told.ethertype for told in ours} == {ETHERTYPE, 0x86DD, 0x0800}


NMCLI = """#!/bin/sh
printf 'GENERAL.DEVICE:lo\\nGENERAL.METERED:unknown\\n\\nGENERAL.DEVICE:lan0\\nGENERAL.METERED:yes (guessed)\\n'
"""


@pytest.mark.parametrize(("said", "serves"), [("on", True), ("ask", False), ("off", None)])
def test_metered_is_what_networkmanager_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, serves: bool | None
) -> None:
    (tmp_path / "nmcli").write_text(NMCLI)
    (tmp_path / "nmcli").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin")
    with Lan(1, home=tmp_path) as lan:
        lan.nodes[0].add_interface("lan1")
        speaker = Speaker(lan.nodes[0], f'on_metered = "{said}"')
        came = speaker.until("came")
        if serves is None:
            assert came["link"] == "lan1"
        else:
            assert (came["link"], came["metered"], came["serves"]) == (INTERFACE, True, serves)


AS_NOBODY = """
import os, socket
from syncer.peer.wire.carrier import Carrier

from syncer.peer.links.sockets import Wire
from syncer.peer.links.opening import opened
from syncer.peer.settings import Peers
from tests.kit.speaker import frame
with opened(Peers()) as made:
    os.setgroups([])
    os.setresgid(65534, 65534, 65534)
    os.setresuid(65534, 65534, 65534)
    sets = dict(line.split() for line in open("/proc/self/status") if line.startswith("Cap"))
    assert int(sets["CapEff:"], 16) == int(sets["CapPrm:"], 16) == 0, sets
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, 0)
        raise SystemExit("a second packet socket was opened")
    except PermissionError:
        pass
    made.sockets[Carrier.ETHERNET].send(frame(3), Wire(name="lan0", index=socket.if_nametoindex("lan0")), None)
"""


def test_a_process_that_opened_as_root_and_became_nobody_sends_without_any_capability(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        hearer = up(lan.nodes[0])
        lan.nodes[1].run(sys.executable, "-c", AS_NOBODY, cwd=PROJECT)
        assert hearer.hears(frame(3))["carrier"] == "ethernet"


AS_SERVICE = """
from syncer.peer.links.capability import held
from syncer.peer.links.opening import opened
from syncer.peer.settings import Peers
assert held()
with opened(Peers()) as made:
    sets = {line.split()[0]: int(line.split()[1], 16) for line in open("/proc/self/status") if line.startswith("Cap")}
    print(*made.sockets, [name for name, value in sets.items() if value and name != "CapBnd:"])
"""


def test_a_service_with_the_ambient_capability_opens_ethernet_and_gives_it_up() -> None:
    told = passed(
        """
        cd "$PROJECT"
        unshare --net setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all,+net_raw \
            --ambient-caps=-all,+net_raw --bounding-set=-all,+net_raw "$PYTHON_BIN/python" -c "$PROGRAM"
        """,
        PROGRAM=AS_SERVICE,
    )
    assert told.splitlines()[-1] == "ethernet udp6 udp4 []"
