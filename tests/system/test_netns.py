"""The networks that tests, benchmarks and the demo run in: what they promise, and that nothing of them is left."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit import netns
from tests.kit.netns import INTERFACE, Lan, Namespace, Node, NoNamespacesError
from tests.system.machines import BLOCKSYNC

PORT = 4242
ETHERTYPE = 0x88B5
ALL = b"\xff" * 6
MARK = b"the end".ljust(64)
PATIENCE_S = 60


class Wire:
    """Raw frames of one node: no address has to be found before one leaves."""

    def __init__(self, node: Node) -> None:
        with node.inside():
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETHERTYPE))
        self._socket.setsockopt(socket.SOL_SOCKET, netns.SO_RCVBUFFORCE, 8 << 20)
        self._socket.settimeout(PATIENCE_S)

    def send(self, count: int = 1, data: bytes = bytes(64)) -> None:
        for _ in range(count):
            self._socket.sendto(data, (INTERFACE, ETHERTYPE, 0, 0, ALL))

    def until_mark(self) -> int:
        """How many frames came before the mark."""
        count = 0
        while self._socket.recv(65536) != MARK:
            count += 1
        return count

    def close(self) -> None:
        self._socket.close()


@contextmanager
def wires(lan: Lan) -> Iterator[list[Wire]]:
    made = [Wire(node) for node in lan.nodes]
    try:
        yield made
    finally:
        for wire in made:
            wire.close()


def reaches(source: Node, target: Node, family: socket.AddressFamily) -> bool:
    """Over UDP; the kernel finds the neighbour itself."""
    if family == socket.AF_INET6:
        with source.inside():
            address: tuple[str | int | None, ...] = (target.link_local, PORT, 0, socket.if_nametoindex(INTERFACE))
    else:
        address = (target.ipv4, PORT)
    with target.inside():
        waiting = socket.socket(family, socket.SOCK_DGRAM)
    with source.inside():
        sender = socket.socket(family, socket.SOCK_DGRAM)
    with waiting, sender:
        waiting.bind(("", PORT))
        waiting.settimeout(PATIENCE_S)
        sender.sendto(b"datagram", address)
        return waiting.recv(100) == b"datagram"


def interfaces(namespace: Namespace) -> set[str]:
    with namespace.inside():
        return {name for _, name in socket.if_nameindex()}


def test_nodes_reach_each_other_over_link_local_ipv6_and_ipv4(tmp_path: Path) -> None:
    with Lan(3, home=tmp_path) as lan:
        assert interfaces(lan.nodes[0].namespace) == {"lo", INTERFACE}
        for family in (socket.AF_INET6, socket.AF_INET):
            assert reaches(lan.nodes[0], lan.nodes[2], family)


def test_a_node_without_ipv4_has_its_link_local_address_only(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path, ipv4=False) as lan:
        assert "inet " not in lan.nodes[0].run("ip", "address", "show", INTERFACE).stdout
        assert reaches(*lan.nodes, socket.AF_INET6)


def test_a_node_without_ipv6_has_ipv4_only(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path, ipv6=False) as lan:
        assert "inet6" not in lan.nodes[0].run("ip", "address", "show", INTERFACE).stdout
        assert reaches(*lan.nodes, socket.AF_INET)


def test_a_frame_is_as_long_as_the_mtu_at_most(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path, mtu=1400) as lan, wires(lan) as (one, two):
        one.send(data=bytes(1400))
        with pytest.raises(OSError, match="Message too long"):
            one.send(data=bytes(1401))
        one.send(data=MARK)
        assert two.until_mark() == 1


def test_a_capture_has_each_frame_once_and_says_who_sent_it(tmp_path: Path) -> None:
    with Lan(3, home=tmp_path) as lan, wires(lan) as (one, two, _):
        one.send()
        with lan.capture() as capture:
            one.send(5)
            two.send(2)
            one.send(data=MARK)
            two.send(data=MARK)
            told = capture.until(lambda frames: sum(frame.data.endswith(MARK) for frame in frames) == 2)
            told = [frame for frame in told if frame.ethertype == ETHERTYPE]
        assert sorted(frame.port for frame in told) == ["p1"] * 6 + ["p2"] * 3
        assert {(len(frame.data), frame.is_broadcast) for frame in told} == {(14 + 64, True)}


def test_loss_takes_about_what_it_is_told_and_only_what_matches(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan, wires(lan) as (one, two):
        for node, per_mille, match, least, most in (
            (lan.nodes[0], 300, "ether type 0x88b5", 550, 850),
            (lan.nodes[0], 1000, "ether type 0x88b6", 1000, 1000),
            (lan.nodes[1], 1000, "", 0, 0),
            (lan.nodes[1], 0, "", 1000, 1000),
        ):
            node.loses(per_mille, match)
            one.send(1000)
            node.loses(0)
            one.send(data=MARK)
            assert least <= two.until_mark() <= most


def test_a_cable_that_is_pulled_carries_nothing_until_it_is_back(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan, wires(lan) as (one, two):
        lan.nodes[1].link_down()
        one.send(10)
        lan.nodes[1].link_up()
        one.send(3)
        one.send(data=MARK)
        assert two.until_mark() == 3
        assert reaches(*lan.nodes, socket.AF_INET6)


def test_a_shaped_cable_has_its_rate_each_way_and_can_be_freed(tmp_path: Path) -> None:
    with Lan(1, home=tmp_path) as lan:
        node = lan.nodes[0]
        shown = {}
        for rate in (200, 1000, None):
            node.shape(rate)
            shown[rate] = [
                namespace.do("tc", "qdisc", "show", "dev", interface)
                for namespace, interface in ((node.namespace, INTERFACE), (node.switch, node.port))
            ]
        assert ["tbf" in line and "rate 200Mbit" in line for line in shown[200]] == [True, True]
        assert ["tbf" in line and "rate 1Gbit" in line for line in shown[1000]] == [True, True]
        assert ["tbf" in line for line in shown[None]] == [False, False]


def test_interfaces_come_and_go(tmp_path: Path) -> None:
    with Lan(1, home=tmp_path) as lan:
        node = lan.nodes[0]
        node.add_interface("lan1")
        assert interfaces(node.namespace) == {"lo", INTERFACE, "lan1"}
        node.remove_interface(INTERFACE)
        assert interfaces(node.namespace) == {"lo", "lan1"}


def test_each_node_runs_the_program_with_a_home_of_its_own(tmp_path: Path) -> None:
    with Lan(2, home=tmp_path) as lan:
        for node in lan.nodes:
            node.run(BLOCKSYNC, "status")
            node.run("sh", "-c", "echo kept >$HOME/file")
        assert [(tmp_path / f"node-{number}/file").read_text() for number in (1, 2)] == ["kept\n"] * 2


def processes(lan: Lan) -> list[int]:
    return [pid for node in lan.nodes for pid in node.namespace.processes()]


@pytest.mark.parametrize("end", [lambda: None, lambda: 1 // 0], ids=["done", "exception"])
def test_everything_is_gone_afterwards(tmp_path: Path, end: Callable[[], None]) -> None:
    machine = socket.if_nameindex()
    try:
        with Lan(2, home=tmp_path) as lan:
            started = lan.nodes[0].start("sleep", "infinity", stdout=subprocess.PIPE)
            forked = int(lan.nodes[1].run("sh", "-c", "setsid sleep infinity >/dev/null 2>&1 & echo $!").stdout)
            holders = [node.namespace.pid for node in lan.nodes] + [lan.switch.pid]
            assert forked in processes(lan)
            end()
    except ZeroDivisionError:
        pass
    assert started.returncode is not None
    assert not any(Path(f"/proc/{pid}/ns/net").exists() for pid in (*holders, forked))
    assert socket.if_nameindex() == machine


def test_what_cannot_be_ended_in_one_node_spares_none_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end() -> None:
        Node.end(lan.nodes[1])
        raise AssertionError("process 7 can't be killed")

    lan = Lan(2, home=tmp_path).__enter__()
    started = [node.start("sleep", "infinity") for node in lan.nodes]
    monkeypatch.setattr(lan.nodes[1], "end", end)
    with pytest.raises(AssertionError, match="process 7"):
        lan.__exit__(None, None, None)
    assert all(process.returncode is not None for process in started)
    assert not any(Path(f"/proc/{node.namespace.pid}/ns/net").exists() for node in lan.nodes)


def test_two_networks_side_by_side_do_not_meet(tmp_path: Path) -> None:
    with (
        Lan(1, home=tmp_path / "a") as left,
        Lan(2, home=tmp_path / "b") as right,
        wires(left) as (stranger,),
        wires(right) as (one, two),
    ):
        stranger.send(10)
        one.send(data=MARK)
        assert two.until_mark() == 0


def test_a_run_that_is_killed_leaves_no_namespace(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from tests.kit.netns import Lan\n"
        "with Lan(1, home=Path(sys.argv[1])) as lan:\n"
        "    print(lan.nodes[0].namespace.pid, lan.switch.pid, flush=True); sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    assert run.stdin is not None
    assert run.stdout is not None
    holders = [os.pidfd_open(int(pid)) for pid in run.stdout.readline().split()]
    run.kill()
    run.wait()
    run.stdin.close()
    run.stdout.close()
    for descriptor in holders:
        assert netns.ended(descriptor)
        os.close(descriptor)


def test_without_the_capabilities_it_fails_and_names_them() -> None:
    program = (
        "from pathlib import Path; from tests.kit import netns\n"
        "assert not netns.available()\n"
        "with netns.Lan(1, home=Path('/nowhere')): pass\n"
    )
    done = subprocess.run(
        ["setpriv", "--bounding-set=-net_admin,-sys_admin", "--inh-caps=-all", sys.executable, "-c", program],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert NoNamespacesError.__name__ in done.stderr
    assert "CAP_NET_ADMIN, CAP_SYS_ADMIN" in done.stderr
