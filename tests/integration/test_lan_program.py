"""The real program on a network of its own: daemons that find each other, and what users see of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import effort
from tests.kit.netns import Lan
from tests.kit.program import BLOCKSYNC, Machine, Site, has_peer, is_there

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


CASES = (
    a_reconcile_without_a_daemon_asks_its_neighbour,
    a_reconcile_that_lacks_nothing_loads_nothing_that_talks_with_peers,
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
)


@pytest.mark.parametrize("case", CASES[: effort.count("programs on a LAN")], ids=lambda case: case.__name__)
def test_the_program_on_a_network(
    two: tuple[Machine, Machine], case: Callable[[tuple[Machine, Machine]], None]
) -> None:
    case(two)
