"""The real program on a network of its own: daemons that find each other, and what users see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncer.cli.lan.solitude import LOOKS, Solitude
from syncer.peer.links.capability import CAP_NET_RAW
from tests import effort
from tests.kit.netns import Lan
from tests.kit.program import BLOCKSYNC, CONTAINER, Machine, Site, has_peer, is_there

SHARE_BLOCK = 64 << 10
SLOW_MBIT_S = 8.0  # so that the server can't have sent all before a neighbour has answered


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Machine, Machine]]:
    with Lan(3, home=tmp_path) as lan:
        server = Site(lan.nodes[0])
        yield Machine(lan.nodes[1], server), Machine(lan.nodes[2], server)


def sockets(machine: Machine) -> str:
    """What is open on the network, by program."""
    return str(machine.node.run("ss", "--no-header", "--tcp", "--udp", "--packet", "--listening", "--processes").stdout)


def daemons_of_one_share_find_each_other_and_show_it(two: tuple[Machine, Machine]) -> None:
    one, other = two
    one.watch()
    one.until("peers", is_there)
    other.watch()
    seen = one.until("peers", has_peer)
    assert [(share["root"], share["off"]) for share in seen["shares"]] == [(str(one.root), "")]
    assert [peer["link"] for peer in seen["figures"]["peers"]] == ["lan0"]
    text = one("peers")
    assert f"{one.root}  on\n" in text
    assert "lan0" in text
    following = one.node.start(BLOCKSYNC, "peers", "--follow", "--json", stdout=subprocess.PIPE, text=True)
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["figures"]["peers"]
    assert "blocksync" in sockets(one)
    assert one.json("peers", "unban") == {"type": "unban", "version": 1, "lifted": 0}


def a_root_that_is_switched_off_or_paused_leaves_the_lan_at_once(two: tuple[Machine, Machine]) -> None:
    one, other = two
    one.watch()
    one.until("peers", is_there)
    other.watch()
    one.until("peers", has_peer)
    other("peers", "off", other.root)
    one.until("peers", lambda told: not has_peer(told))
    assert "off: by `blocksync peers off` for this root" in other("peers")
    other("peers", "on")
    one.until("peers", has_peer)
    other("pause")
    one.until("peers", lambda told: not has_peer(told))
    assert "off: it is paused" in other("peers")


def a_daemon_that_was_started_without_peers_sends_no_frame(two: tuple[Machine, Machine]) -> None:
    sends_no_frame(two[0], "--no-peers")


def a_daemon_of_a_machine_whose_settings_say_no_sends_no_frame(two: tuple[Machine, Machine]) -> None:
    sends_no_frame(two[0])


def sends_no_frame(one: Machine, *options: str) -> None:
    if not options:
        settings = one.node.home / ".config/blocksync/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text("[peers]\nenabled = false\n")
    one.watch(*options)
    one.until("status", lambda live: live["phase"] == "idle")
    assert one.json("peers")["off"]
    assert "blocksync" not in sockets(one)


def a_new_key_is_taken_over_by_the_daemon_that_runs(two: tuple[Machine, Machine]) -> None:
    one, other = two
    one.watch()
    one.until("status", lambda live: live["phase"] == "idle")
    assert one.json("peers", "rotate", one.root)["daemon"]
    one.until("peers", is_there)
    other.watch()
    one.until("peers", has_peer)


MIB = 1 << 20


def only_who_has_the_passphrase_is_a_peer(two: tuple[Machine, Machine]) -> None:
    one, other = two
    secret = one.node.home / "passphrase"
    secret.write_text("six words that nobody would guess\n")
    secret.chmod(0o600)
    other.watch()
    other.until("peers", is_there)
    one("peers", "passphrase", one.root, "--file", secret)
    one.watch()
    assert not has_peer(one.until("peers", is_there))
    assert "by passphrase" in one("status")
    mark = other.json("peers", "passphrase", other.root, "--file", secret)["mark"]
    one.until("peers", has_peer)
    for machine in two:
        assert f"made from a passphrase, mark {mark}" in machine("doctor")


def a_daemon_looks_for_the_key_as_soon_as_it_is_wanted(two: tuple[Machine, Machine]) -> None:
    """Nothing changes in the root or on the server, so no other cycle comes soon."""
    one, _ = two

    def takes_part(told: dict[str, Any]) -> bool:
        return [share["off"] for share in told["shares"]] == [""]

    one("peers", "off")
    one.watch()
    one.until("status", lambda live: live["phase"] == "idle")
    assert not takes_part(one.json("peers"))
    one("peers", "on")
    one.until("peers", takes_part)
    secret = one.node.home / "passphrase"
    secret.write_text("six words that nobody would guess\n")
    one("peers", "passphrase", one.root, "--file", secret)
    one("peers", "passphrase", one.root, "--clear")
    one.until("peers", takes_part)


def a_daemon_gets_blocks_from_its_neighbour(two: tuple[Machine, Machine]) -> None:
    one, other = two
    one.watch()
    one.until("peers", is_there)
    other.watch()
    one.until("peers", has_peer)
    data = os.urandom(16 * MIB)
    one.server.node.shape(SLOW_MBIT_S)
    (one.root / "image").write_bytes(data)
    image = other.root / "image"
    other.until("status", lambda live: live["phase"] == "idle" and image.is_file() and image.read_bytes() == data)
    got = other.json("peers")["figures"]["blocks_from_peers"]
    assert 0 < got <= one.json("peers")["figures"]["blocks_to_peers"]


def a_reconcile_without_a_daemon_asks_its_neighbour(two: tuple[Machine, Machine]) -> None:
    one, other = two
    data = os.urandom(16 * MIB)
    (one.root / "image").write_bytes(data)
    one("reconcile", one.root)
    one.watch()
    one.until("peers", is_there)
    one.server.node.shape(SLOW_MBIT_S)
    summary = other.json("reconcile", other.root)
    assert (other.root / "image").read_bytes() == data
    assert summary["blocks_from_peers"] > 0
    assert summary["blocks_received"] + summary["blocks_from_peers"] >= 16 * MIB // SHARE_BLOCK
    assert f"{summary['blocks_from_peers']} from peers" in other("status")


def roots_of_one_folder_of_a_container_are_neighbours(two: tuple[Machine, Machine]) -> None:
    """`?prefix=`: a share of its own, with a key of its own below the prefix."""
    one, other = two
    data = os.urandom(16 * MIB)
    parts = [machine.node.home / "part" for machine in two]
    for machine, part in zip(two, parts, strict=True):
        part.mkdir()
        machine("unlink", machine.root)
        machine.link(part, f"{CONTAINER}?prefix=inside")
    (parts[0] / "image").write_bytes(data)
    one("reconcile", parts[0])
    one.watch()
    one.until("peers", is_there)
    one.server.node.shape(SLOW_MBIT_S)
    summary = other.json("reconcile", parts[1])
    assert (parts[1] / "image").read_bytes() == data
    assert summary["blocks_from_peers"] > 0


def one_pull_has_blocks_of_this_machine_of_a_neighbour_and_of_the_server(two: tuple[Machine, Machine]) -> None:
    """All in one summary, where they add up; and what came from the neighbour is what the neighbour gave."""
    one, other = two
    # No block ends in NUL bytes: these are no part of what is sent of it.
    contents = {
        name: b"".join(os.urandom(SHARE_BLOCK - 1) + b"." for _ in range(count)) for name, count in BLOCKS_OF.items()
    }
    (one.root / "at the neighbour").write_bytes(contents["at the neighbour"])
    one("reconcile", one.root)
    one.watch(crooked=["deaf"])
    one.until("peers", is_there)
    one.until("status", lambda live: live["phase"] == "idle")
    third = Machine(one.node, one.server, home=one.node.home / "third")
    for file in ("in another root", "at the server alone"):
        (third.root / file).write_bytes(contents[file])
    third("reconcile", third.root, "--no-peers")
    with volume(other) as point:
        (point / "known by another name").write_bytes(contents["in another root"])
        other("flush", point)
        other.link(point, "another container")
        summary = other.json("reconcile", other.root)
        assert {path.name: path.read_bytes() for path in other.root.iterdir() if path.is_file()} == contents
    assert summary["blocks_from_roots"] == BLOCKS_OF["in another root"]
    assert 0 < summary["blocks_from_peers"] <= BLOCKS_OF["at the neighbour"]
    assert summary["blocks_received"] >= BLOCKS_OF["at the server alone"]
    assert summary["blocks_from_own"] == 0
    places = ("blocks_from_roots", "blocks_from_peers", "blocks_received")
    assert sum(summary[place] for place in places) == sum(BLOCKS_OF.values())
    assert summary["bytes_from_peers"] == summary["blocks_from_peers"] * SHARE_BLOCK
    given = one.json("peers")["figures"]
    assert given["bytes_to_peers"] == given["blocks_to_peers"] * SHARE_BLOCK
    in_vain = given["blocks_to_peers"] - summary["blocks_from_peers"]
    assert 0 <= in_vain <= summary["blocks_in_vain"]
    for key in ("blocks_to_peers", "bytes_to_peers"):
        assert summary[key] == 0


BLOCKS_OF = {"in another root": 20, "at the neighbour": 100, "at the server alone": 10}


@contextmanager
def volume(machine: Machine) -> Iterator[Path]:
    """A mounted volume of a machine, with blocks as the share has them."""
    folder, point = machine.node.home / "volume", machine.node.home / "mounted"
    point.mkdir()
    machine.node.run(BLOCKSYNC, "init", folder, "--block-size", str(SHARE_BLOCK))
    machine.node.run(BLOCKSYNC, "mount", folder, point)
    try:
        yield point
    finally:
        machine.node.run(BLOCKSYNC, "umount", point)


def what_one_daemon_gives_another_gets(two: tuple[Machine, Machine]) -> None:
    """To the byte, and in the summaries of the cycles, too."""
    one, other = two
    (one.root / "image").write_bytes(os.urandom(8 * MIB))
    one("reconcile", one.root)
    one.watch()
    one.until("peers", is_there)
    one.until("status", lambda live: live["phase"] == "idle")
    other.watch()
    other.until("status", lambda live: live["phase"] == "idle" and (other.root / "image").is_file())

    def has_got_all(told: dict[str, Any]) -> bool:
        """What was on its way when the cycle ended comes, too."""
        figures = told["figures"]
        return bool(figures["bytes_from_peers"] + figures["wasted_bytes"] == given["bytes_to_peers"])

    given = one.json("peers")["figures"]
    got = other.until("peers", has_got_all)["figures"]
    assert 0 < got["blocks_from_peers"] <= given["blocks_to_peers"]
    assert cycles(other, "blocks_from_peers") <= got["blocks_from_peers"]
    (one.root / "later").write_text("a cycle tells what was given until it ends")
    one.until("status", lambda _: cycles(one, "blocks_to_peers") == given["blocks_to_peers"])
    assert cycles(one, "bytes_to_peers") == given["bytes_to_peers"]


def cycles(machine: Machine, key: str) -> int:
    """What the cycles of a daemon say together."""
    lines = machine.log.read_text().splitlines(keepends=True)
    told = [json.loads(line) for line in lines if line.endswith("\n") and line.startswith("{")]
    return sum(each.get(key, 0) for each in told if each["event"] == "watch.cycle")


def a_daemon_that_may_open_a_packet_socket_gives_the_right_up(two: tuple[Machine, Machine]) -> None:
    """As the system unit has it, CAP_NET_RAW and nothing else, by the ambient set; and root, who has all."""
    one, other = two
    daemon = one.watch(before=["setpriv", "--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw",
                               "--bounding-set=-all,+net_raw", "--"])  # fmt: skip
    one.until("peers", is_there)
    assert "p_dgr" in sockets(one)
    assert all(set(each) == {"CapBnd:"} for each in capabilities(daemon)), capabilities(daemon)
    root = other.watch()
    one.until("peers", has_peer)
    assert "p_dgr" in sockets(other)
    for each in capabilities(root):
        assert each["CapEff:"] == each["CapPrm:"]
        assert not [name for name, held in each.items() if name != "CapBnd:" and held >> CAP_NET_RAW & 1]


def a_daemon_without_peers_gives_the_right_up_too(two: tuple[Machine, Machine]) -> None:
    one, _ = two
    daemon = one.watch("--no-peers", before=["setpriv", "--inh-caps=-all,+net_raw", "--ambient-caps=-all,+net_raw",
                                             "--bounding-set=-all,+net_raw", "--"])  # fmt: skip
    one.until("status", lambda live: live["phase"] == "idle")
    assert "p_dgr" not in sockets(one)
    assert all(set(each) == {"CapBnd:"} for each in capabilities(daemon)), capabilities(daemon)


def capabilities(process: subprocess.Popen[bytes]) -> list[dict[str, int]]:
    """The sets of each thread of a process that are not empty; the bounding set is a limit, and gives nothing."""
    found = []
    for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
        sets = [line.split() for line in status.read_text().splitlines() if line.startswith("Cap")]
        found.append({name: int(held, 16) for name, held in sets if int(held, 16)})
    assert found
    return found


def a_reconcile_that_is_told_so_asks_nobody(two: tuple[Machine, Machine]) -> None:
    asks_nobody(*two, "--no-peers")


def a_reconcile_of_a_root_whose_peers_are_off_asks_nobody(two: tuple[Machine, Machine]) -> None:
    asks_nobody(*two, "off")


def asks_nobody(one: Machine, other: Machine, why: str) -> None:
    data = os.urandom(8 * MIB)
    (one.root / "image").write_bytes(data)
    one("reconcile", one.root)
    one.watch()
    one.until("status", lambda live: live["phase"] == "idle")
    if why == "off":
        other("peers", "off")
    summary = other.json("reconcile", other.root, *(["--no-peers"] if why == "--no-peers" else []))
    assert (other.root / "image").read_bytes() == data
    assert summary["blocks_from_peers"] == 0
    assert one.json("peers")["figures"]["peers"] == []


_LOADED = """
import json, sys
from syncer.cli.main import run
code = run(sys.argv[1:])
sys.stderr.write(json.dumps(sorted(name for name in sys.modules if name.startswith(("syncer.peer.", "cryptography")))))
sys.exit(code)
"""

KEY_RULES = {
    "syncer.peer.exchange",
    "syncer.peer.exchange.lazily",
    "syncer.peer.session",
    "syncer.peer.session.keyring",
    "syncer.peer.sharekey",
    "syncer.peer.wire",
    "syncer.peer.wire.keys",
}
"""What a cycle needs to look after the share's key; and what loads the rest."""


def a_reconcile_that_lacks_nothing_loads_nothing_that_talks_with_peers(two: tuple[Machine, Machine]) -> None:
    """An empty network, and a cycle with nothing to do, cost nothing."""
    one, _ = two
    (one.root / "file").write_text("text")
    one("reconcile", one.root)
    ended = one.node.run(sys.executable, "-c", _LOADED, "reconcile", one.root)
    assert set(json.loads(ended.stderr)) <= KEY_RULES


def a_reconcile_that_was_always_alone_has_a_small_pull_from_the_server(two: tuple[Machine, Machine]) -> None:
    """It loads nothing that talks with peers, either."""
    one, other = two
    for machine in two:
        machine("reconcile", machine.root)
    (one.root / "file").write_bytes(bytes(range(256)) * 256)
    one("reconcile", one.root)
    (state,) = other.node.home.glob(".local/state/blocksync/roots/*")
    for _ in range(LOOKS):
        Solitude(str(state / "alone")).looked(heard=False)
    ended = other.node.run(sys.executable, "-c", _LOADED, "reconcile", other.root)
    assert (other.root / "file").stat().st_size == 1 << 16
    assert set(json.loads(ended.stderr)) <= KEY_RULES


CASES = (
    a_reconcile_without_a_daemon_asks_its_neighbour,
    a_reconcile_that_lacks_nothing_loads_nothing_that_talks_with_peers,
    a_daemon_that_may_open_a_packet_socket_gives_the_right_up,
    a_daemon_without_peers_gives_the_right_up_too,
    a_reconcile_that_was_always_alone_has_a_small_pull_from_the_server,
    one_pull_has_blocks_of_this_machine_of_a_neighbour_and_of_the_server,
    what_one_daemon_gives_another_gets,
    daemons_of_one_share_find_each_other_and_show_it,
    only_who_has_the_passphrase_is_a_peer,
    a_root_that_is_switched_off_or_paused_leaves_the_lan_at_once,
    a_daemon_that_was_started_without_peers_sends_no_frame,
    a_daemon_of_a_machine_whose_settings_say_no_sends_no_frame,
    a_new_key_is_taken_over_by_the_daemon_that_runs,
    a_daemon_gets_blocks_from_its_neighbour,
    a_daemon_looks_for_the_key_as_soon_as_it_is_wanted,
    a_reconcile_that_is_told_so_asks_nobody,
    a_reconcile_of_a_root_whose_peers_are_off_asks_nobody,
    roots_of_one_folder_of_a_container_are_neighbours,
)


@pytest.mark.parametrize("case", effort.first("programs on a LAN", CASES), ids=lambda case: case.__name__)
def test_the_program_on_a_network(
    two: tuple[Machine, Machine], case: Callable[[tuple[Machine, Machine]], None]
) -> None:
    case(two)
