"""What `doctor` says of the LAN."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from syncer.cli.diagnosis import Level
from syncer.cli.lancheck import of_battery, of_host, of_interfaces, of_rights
from syncer.cli.roots import Registry
from syncer.peer.links.interfaces import Facts, verdicts
from syncer.peer.links.rtnetlink import LOOPBACK, RUNNING, UP, Interface
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier

NEAR = bytes.fromhex("fe80") + bytes(13) + b"\1"
WIRE = Interface(index=2, name="eth0", mtu=1500, flags=UP | RUNNING, addresses=(NEAR,))
LO = Interface(index=1, name="lo", mtu=65536, flags=UP | RUNNING | LOOPBACK)


def test_interfaces_are_told_with_the_port_that_a_firewall_must_let_in() -> None:
    judged = verdicts([LO, WIRE], Peers(port=5), [Carrier.UDP6], lambda _: Facts(wireless=True))
    check = of_interfaces(judged, Peers(port=5))
    assert (check.level, check.text) == (Level.OK, "used: eth0 (Wi-Fi); not used: lo (a loopback)")
    assert "UDP 5 and TCP 5" in check.remedy


def test_an_interface_that_only_asks_is_told() -> None:
    settings = Peers(on_metered=Use.ASK)
    judged = verdicts([WIRE], settings, [Carrier.UDP6], lambda _: Facts(metered=True))
    assert of_interfaces(judged, settings).text == "used: eth0 (asks only: metered)"


def test_no_interface_is_a_warning_with_the_reasons() -> None:
    judged = verdicts([LO, WIRE], Peers(), [Carrier.UDP6], lambda _: Facts(metered=True))
    check = of_interfaces(judged, Peers())
    assert check.level is Level.WARN
    assert "lo (a loopback), eth0 (metered, and on_metered is off)" in check.text


@pytest.mark.parametrize(("held", "said"), [(True, "may be sent"), (False, "UDP is used")])
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
