"""What `doctor` says of the LAN."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from syncer.cli.doctor.diagnosis import Level
from syncer.cli.doctor.hostfirewall import firewall_manager, nft_rules
from syncer.cli.doctor.lancheck import of_battery, of_firewall, of_host, of_interfaces, of_rights
from syncer.cli.registry.roots import Registry
from syncer.peer.links.interfaces import Facts, verdicts
from syncer.peer.links.rtnetlink import LOOPBACK, RUNNING, UP, Interface
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier

NEAR = bytes.fromhex("fe80") + bytes(13) + b"\1"
WIRE = Interface(index=2, name="eth0", mtu=1500, flags=UP | RUNNING, addresses=(NEAR,))
LO = Interface(index=1, name="lo", mtu=65536, flags=UP | RUNNING | LOOPBACK)


def test_interfaces_are_told_and_on_wifi_why_peers_may_not_be_found() -> None:
    judged = verdicts([LO, WIRE], Peers(), [Carrier.UDP6], lambda _: Facts(wireless=True))
    check = of_interfaces(judged)
    assert (check.level, check.text) == (Level.OK, "used: eth0 (Wi-Fi); not used: lo (a loopback)")
    assert "access points keep their clients apart" in check.remedy
    judged = verdicts([LO, WIRE], Peers(), [Carrier.UDP6], lambda _: Facts())
    assert of_interfaces(judged).remedy == ""


def closing(name: str = "input", family: str = "inet") -> Any:
    """Rules that let nobody in."""
    chain = {"family": family, "table": "filter", "name": name, "type": "filter", "hook": "input", "policy": "drop"}
    return {"nftables": [{"chain": chain}]}


def test_a_firewall_that_keeps_peers_out_is_a_warning_with_the_commands_that_let_them_in() -> None:
    check = of_firewall(closing(), "", ["eth0"], 5)
    assert check.level is Level.WARN
    assert check.text == "the firewall keeps out UDP 5 on eth0, TCP 5 on eth0 (nftables, chain inet filter input)"
    assert "`nft insert rule inet filter input udp dport 5 accept` and `nft insert" in check.remedy
    assert "`ip6tables -I INPUT -p udp --dport 5" in of_firewall(closing("INPUT", "ip6"), "", ["eth0"], 5).remedy
    assert "`ufw allow in on eth0 to any port 5`" in of_firewall(closing(), "ufw", ["eth0"], 5).remedy
    assert "`firewall-cmd --permanent --add-port=5/udp" in of_firewall(closing(), "firewalld", ["eth0"], 5).remedy


def test_a_firewall_that_can_not_be_seen_is_no_warning() -> None:
    """Who is not root would be told of trouble that there is not."""
    check = of_firewall(None, "ufw", ["eth0"], 5)
    assert (check.level, check.text) == (
        Level.OK, "ufw runs; whether a firewall lets in UDP 5 and TCP 5 from the local network can't be told",
    )  # fmt: skip
    assert "ufw allow" in check.remedy
    assert "docs/guide/lan.md" in of_firewall(None, "", ["eth0"], 5).remedy


def test_an_open_port_is_told() -> None:
    assert "lets in UDP 5 and TCP 5" in of_firewall({"nftables": []}, "", ["eth0"], 5).text


def test_looking_at_the_hosts_firewall_is_no_failure_anywhere() -> None:
    nft_rules()
    assert firewall_manager() in {"", "ufw", "firewalld"}


def test_an_interface_that_only_asks_is_told() -> None:
    settings = Peers(on_metered=Use.ASK)
    judged = verdicts([WIRE], settings, [Carrier.UDP6], lambda _: Facts(metered=True))
    assert of_interfaces(judged).text == "used: eth0 (asks only: metered)"


def test_no_interface_is_a_warning_with_the_reasons() -> None:
    judged = verdicts([LO, WIRE], Peers(), [Carrier.UDP6], lambda _: Facts(metered=True))
    check = of_interfaces(judged)
    assert check.level is Level.WARN
    assert "lo (a loopback), eth0 (metered, and on_metered is off)" in check.text


@pytest.mark.parametrize(("held", "said"), [(True, "may be sent"), (False, "uses UDP")])
def test_the_right_to_send_ethernet_frames_is_told(held: bool, said: str) -> None:
    check = of_rights(Peers(), held=held)
    assert check.level is Level.OK
    assert said in check.text


@pytest.mark.parametrize("use", Use)
def test_what_a_battery_changes_is_told(use: Use) -> None:
    assert of_battery(use).text.startswith("on battery: ")


def test_who_is_silent_is_told_so_and_nothing_else(tmp_path: Path) -> None:
    registry = Registry({"XDG_STATE_HOME": str(tmp_path)})
    (check,) = of_host(registry, {**os.environ, "XDG_CONFIG_HOME": str(tmp_path)})
    assert (check.level, check.text) == (Level.OK, "off by BLOCKSYNC_PEERS=off: nothing is sent or heard")
