"""What users do while blocks are on their way: start together, switch off, pause, rotate, reconcile beside a daemon."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from syncer.cli.registry.roots import Registry
from syncer.peer.settings import Peers
from syncer.watch.control import short
from tests.kit.program import SHARE_BLOCK, Machine, Site, end, has_peer, is_there
from tests.system.lan.trial import MIB, SLOW_MBIT_S, Ground, has, on_volume, pulled, put, put_away

SLOW_UPLOAD = 'upload_limit = "2MB"'
ON_THE_WAY = 16
"""Blocks that were sent, and came to nobody because their receiver had all by then."""
_LOOK_S = 0.05


def _slow_transfer(ground: Ground, mib: int = 6) -> tuple[Machine, Machine, dict[str, bytes], subprocess.Popen[str]]:
    """One gives to another, slowly, and has begun to."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = put(one, image=mib * MIB)
    one("reconcile", one.root)
    one.watch()
    one.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    asks = two.begin("reconcile", two.root)
    one.until("peers", lambda told: any(upload["blocks"] for upload in told["figures"]["uploads"]))
    return one, two, files, asks


def the_first_pull_of_a_daemon(ground: Ground) -> None:
    """A device that has just been linked has no key yet: the cycle reads it first, and then asks its neighbours."""
    one, two = ground.machines(2)
    files = ground.seed(one, image=4 * MIB)
    two.watch()
    two.until("status", lambda _: has(two, files))
    told = two.until("peers", lambda told: told["figures"])
    assert told["figures"]["blocks_from_peers"] > MIB // SHARE_BLOCK


def two_that_start_together(ground: Ground) -> None:
    """Nobody has anything but the server: each fetches other blocks, and they give them to each other."""
    one, two, three = ground.machines(3)
    files = put(one, image=8 * MIB)
    one("reconcile", one.root)
    ground.server.shape(SLOW_MBIT_S)
    pair = (two, three)
    for machine in pair:
        machine.watch()
    for machine in pair:
        machine.until("status", lambda _, machine=machine: has(machine, files))
    figures = [machine.until("peers", lambda told: told["figures"])["figures"] for machine in pair]
    assert all(each["blocks_from_peers"] for each in figures), figures
    assert sum(each["blocks_from_peers"] for each in figures) >= 8 * MIB // SHARE_BLOCK // 4


def _published(ground: Ground, count: int, mib: int) -> tuple[list[Machine], dict[str, bytes]]:
    """Machines without a daemon, and a folder that is on the server alone: who made it is not there any more."""
    maker, *machines = ground.machines(count + 1)
    files = put(maker, image=mib * MIB // 2, other=mib * MIB // 2)
    maker("reconcile", maker.root)
    return machines, files


def _has_given(one: Machine, process: subprocess.Popen[str], bytes_: int = MIB // 2) -> bool:
    """Wait until connections that others have begun to this machine have been sent so many bytes; or it has ended."""
    while process.poll() is None:
        told = str(one.node.run("ss", "--no-header", "--tcp", "--info", "sport", "=", f":{Peers().port}").stdout)
        if sum(map(int, re.findall(r"bytes_sent:(\d+)", told))) >= bytes_:
            return True
        time.sleep(_LOOK_S)
    return False


def reconciles_that_start_together(ground: Ground) -> None:
    """No daemon at all: each is a member as long as it pulls, and the server gives the folder little more than once."""
    (one, two), files = _published(ground, 2, 64)
    ground.server.shape(100)
    begun = [machine.begin("reconcile", machine.root) for machine in (one, two)]
    first, second = (end(each) for each in begun)
    assert has(one, files)
    assert has(two, files)
    copies = (first["bytes_received"] + second["bytes_received"]) / (64 * MIB)
    assert copies <= 1.5, (copies, first, second)
    for gave, got in ((first, second), (second, first)):
        assert got["bytes_from_peers"] > 8 * MIB, (first, second)
        # What was on its way when somebody had all came to nobody; what was faster elsewhere came twice.
        in_vain = gave["blocks_to_peers"] - got["blocks_from_peers"]
        assert 0 <= in_vain <= got["blocks_in_vain"] + ON_THE_WAY, (first, second)
        assert 0 <= gave["bytes_to_peers"] - got["bytes_from_peers"] <= in_vain * SHARE_BLOCK, (first, second)


def a_reconcile_that_gives_is_killed(ground: Ground) -> None:
    """SIGKILL in mid-transfer: the other one gets the rest from the server."""
    (one, two), files = _published(ground, 2, 8)
    ground.server.shape(SLOW_MBIT_S * 2)
    gives, asks = (machine.begin("reconcile", machine.root) for machine in (one, two))
    is_giving = _has_given(one, gives)  # who was kept from the processor for long has all before it gives anything
    one.node.kill(gives)
    ground.server.shape(None)
    summary = end(asks)
    assert has(two, files)
    assert summary["blocks_from_peers"] > 0 or not is_giving
    one("reconcile", one.root)
    assert has(one, files)


def many_small_files(ground: Ground) -> None:
    """One question is for all that a cycle lacks, as far as a frame has room: a thousand files are no thousand frames.

    A machine that others keep busy answers late, and is asked again.
    """
    one, two = ground.machines(2)
    files = put(one, **{f"small{number}": 1000 for number in range(1000)})
    one("reconcile", one.root)
    one.watch()
    one.until("peers", is_there)
    one.until("status", lambda live: live["phase"] == "idle")
    ground.server.shape(SLOW_MBIT_S)
    two.watch()
    told = two.until("peers", lambda _: has(two, files))
    figures = told["figures"]
    assert figures["blocks_from_peers"] > 500
    asked = figures["frames_out"]["whohas"]
    assert asked <= 50


def seven_that_pull_at_once_from_one(ground: Ground) -> None:
    """Eight of one share: who has got some gives it on, and the server gives little."""
    one, *others = machines = ground.machines(8)
    one.watch()
    one.until("peers", is_there)
    for machine in others:
        machine.watch()
    for machine in others:
        machine.until("status", lambda live: live["phase"] == "idle")
    ground.server.shape(SLOW_MBIT_S)
    files = put(one, image=3 * MIB)
    for machine in machines:
        machine.until("status", lambda _, machine=machine: has(machine, files))
    figures = [machine.json("peers")["figures"] for machine in others]
    assert all(each["blocks_from_peers"] for each in figures), [each["blocks_from_peers"] for each in figures]
    assert sum(each["blocks_from_peers"] for each in figures) >= 7 * 3 * MIB // SHARE_BLOCK // 2


def two_users_of_one_machine(ground: Ground) -> None:
    """Each has a daemon, and the second one another port: others get blocks from both, also when one of them ends."""
    one, three = ground.machines(2)
    two = Machine(one.node, ground.village.site, ground.name, home=ground.home / "second")
    files = put(one, image=3 * MIB)
    daemons = []
    for machine in (one, two):
        machine("reconcile", machine.root)
        daemons.append(machine.watch())
        machine.until("peers", is_there)
    ports = [machine.json("peers")["figures"]["port"] for machine in (one, two)]
    assert ports[0] != ports[1]
    ground.server.shape(SLOW_MBIT_S)
    pulled(three, files)
    one.node.kill(daemons[0])
    before = two.json("peers")["figures"]["blocks_to_peers"]
    files |= put(two, later=3 * MIB)
    ground.server.shape(None)
    two("reconcile", two.root, expect=None)
    two.until("status", lambda live: live["phase"] == "idle")
    ground.server.shape(SLOW_MBIT_S)
    three("reconcile", three.root)
    assert has(three, files)
    assert two.json("peers")["figures"]["blocks_to_peers"] > before


def who_gives_switches_off_in_mid_transfer(ground: Ground) -> None:
    """`peers off`: not one block more, and who asked gets the rest from the server."""
    one, two, files, asks = _slow_transfer(ground)
    one("peers", "off")
    given = one.json("peers")
    assert given["shares"][0]["off"]
    blocks = given["figures"]["blocks_to_peers"]
    ground.server.shape(None)
    summary = end(asks)
    assert has(two, files)
    assert summary["blocks_received"] > 0
    assert one.json("peers")["figures"]["blocks_to_peers"] <= blocks + 1


def who_asks_switches_off_in_mid_transfer(ground: Ground) -> None:
    """`peers off` while the daemon pulls: the rest comes from the server."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = ground.seed(one, image=6 * MIB)
    two.watch()
    two.until("peers", lambda told: told["figures"] and told["figures"]["blocks_from_peers"])
    two("peers", "off", two.root)
    one.until("peers", lambda told: not has_peer(told))
    ground.server.shape(None)
    two.until("status", lambda _: has(two, files))


def a_root_is_paused_in_mid_transfer(ground: Ground) -> None:
    """A paused root is not served any more, also on a connection that is there."""
    one, two, files, asks = _slow_transfer(ground)
    one("pause", one.root)
    given = one.json("peers")
    assert given["shares"][0]["off"] == "it is paused"
    ground.server.shape(None)
    summary = end(asks)
    assert has(two, files)
    assert summary["blocks_received"] > 0
    assert one.json("peers")["figures"]["blocks_to_peers"] <= given["figures"]["blocks_to_peers"] + 1


def the_key_is_rotated_in_mid_transfer(ground: Ground) -> None:
    """What is under way goes on; then both have the new key and find each other by it."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = ground.seed(one, image=6 * MIB)
    two.watch()
    two.until("peers", lambda told: told["figures"] and told["figures"]["blocks_from_peers"])
    one("peers", "rotate", one.root)
    two.until("status", lambda _: has(two, files))
    before = two.json("peers")["figures"]
    assert before["blocks_from_peers"] > 2 * MIB // SHARE_BLOCK
    more = put(one, later=3 * MIB)
    two.until("status", lambda _: has(two, files | more))
    assert two.json("peers")["figures"]["blocks_from_peers"] > before["blocks_from_peers"]


def settings_that_change_in_mid_transfer(ground: Ground) -> None:
    """SIGHUP takes over config.toml: another limit, no interface at all, and none of what can't be understood."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    files = ground.seed(one, image=6 * MIB)
    daemon = two.watch()
    two.until("peers", lambda told: told["figures"] and told["figures"]["blocks_from_peers"])
    two.settings('download_limit = "40MB"')
    daemon.send_signal(signal.SIGHUP)
    two.until("status", lambda _: has(two, files))
    more = put(one, later=3 * MIB)
    two.until("status", lambda _: has(two, files | more))
    assert two.json("peers")["figures"]["blocks_from_peers"] > MIB // SHARE_BLOCK
    two.settings('ignored_interfaces = ["*"]')
    daemon.send_signal(signal.SIGHUP)
    two.until("peers", lambda told: told["figures"] and not told["figures"]["links"])
    one.until("peers", lambda told: not has_peer(told))
    two.settings("uploads = many")
    daemon.send_signal(signal.SIGHUP)
    two.until("peers", lambda told: "config.toml" in told["shares"][0]["off"])
    two.settings("")
    daemon.send_signal(signal.SIGHUP)
    two.until("peers", has_peer)


def _beside_a_daemon(ground: Ground) -> tuple[Machine, Machine, dict[str, bytes], subprocess.Popen[bytes]]:
    """The second one lacks files that the first one has, and has a daemon that does not know it."""
    one, two = ground.machines(2)
    one.settings(SLOW_UPLOAD)
    one.watch()
    one.until("peers", is_there)
    two("reconcile", two.root)
    daemon = two.watch(crooked=["deaf"])
    one.until("peers", has_peer)
    two.until("status", lambda live: live["phase"] == "idle")
    files = put(one, image=4 * MIB)
    one.until("status", lambda live: live["phase"] == "idle" and live["cycles"] > 1)
    one("reconcile", one.root)
    ground.server.shape(SLOW_MBIT_S)
    return one, two, files, daemon


def a_reconcile_beside_a_daemon(ground: Ground) -> None:
    """It has no session of its own: its blocks come through the daemon's."""
    _, two, files, _ = _beside_a_daemon(ground)
    summary = pulled(two, files)
    assert two.json("peers")["figures"]["blocks_from_peers"] >= summary["blocks_from_peers"]


def the_daemon_is_killed_while_a_reconcile_uses_it(ground: Ground) -> None:
    """What it was bringing comes from elsewhere."""
    one, two, files, daemon = _beside_a_daemon(ground)
    asks = two.begin("reconcile", two.root)
    one.until("peers", lambda told: told["figures"]["blocks_to_peers"])
    two.node.kill(daemon)
    ground.server.shape(None)
    end(asks)
    assert has(two, files)


@contextmanager
def _older_daemon(machine: Machine, answer: bytes) -> Iterator[list[bytes]]:
    """A daemon of another release that answers whatever it does not know with this."""
    heard: list[bytes] = []
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    path = Registry(machine.node.environment).socket
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with listener:
        with short(path) as address:
            listener.bind(address)
        listener.listen()

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    heard.append(connection.recv(4096))
                    if answer:
                        connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield heard
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def a_reconcile_beside_an_older_daemon(ground: Ground) -> None:
    """A daemon that hangs up at the question, or answers with an error, is no failure: it asks by itself."""
    one, two, three = ground.machines(3)
    files = ground.seed(one, image=4 * MIB)
    for machine, answer in ((two, b""), (three, b'{"error":"unknown question"}\n')):
        with _older_daemon(machine, answer) as heard:
            pulled(machine, files)
            assert any(b"blocks" in question for question in heard)


def the_server_dies_when_the_block_lists_are_known(ground: Ground) -> None:
    """The pull completes from peers alone; then the cycle says that the server is away."""
    site = Site(ground.server, port=8801, address="[fd99::1]")
    try:
        one = Machine(ground.village.lan.nodes[1], site, home=ground.home / "m2")
        two = Machine(ground.village.lan.nodes[2], site, home=ground.home / "m3")
        one.settings(SLOW_UPLOAD)
        files = put(one, image=5 * MIB, other=2 * MIB)
        one("reconcile", one.root)
        one.watch()
        one.until("peers", is_there)
        ground.server.shape(1)
        asks = two.begin("reconcile", two.root)
        one.until("peers", lambda told: told["figures"]["blocks_to_peers"] >= 8)
        site.kill()
        summary = end(asks, expect=None)
        assert has(two, files), (summary, asks.returncode)
        assert asks.returncode in (0, 13)
    finally:
        site.kill()


def the_server_is_out_of_reach_when_the_block_lists_are_known(ground: Ground) -> None:
    """Its cable is pulled: nothing answers, and nothing says so."""
    one, two, files, asks = _slow_transfer(ground, mib=5)
    ground.server.link_down()
    try:
        one.until("peers", lambda _: has(two, files))
    finally:
        ground.server.link_up()
    end(asks, expect=None)
    assert has(two, files)


def volumes_of_other_block_sizes(ground: Ground) -> None:
    """Volumes give and get: one with the share's blocks, one with smaller ones, one with larger ones."""
    machines: list[Machine] = []
    try:
        machines.append(on_volume(ground, 1))
        one = machines[0]
        files = ground.seed(one, image=4 * MIB + 12345, small=100)
        for at, block_size in ((2, "16KiB"), (3, "256KiB")):
            machines[-1]("resume")
            machines.append(on_volume(ground, at, block_size))
            last = machines[-1]
            pulled(last, files)
            last.watch()
            last.until("peers", is_there)
            # The one before gives no more: the next one gets all from this one.
            machines[-2]("pause")
        folder = ground.machines(4)[3]
        pulled(folder, files)
    finally:
        for machine in machines:
            put_away(machine)
