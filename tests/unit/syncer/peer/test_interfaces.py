"""Which interfaces are used, and what the machine says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncer.peer.links.host import is_on_battery, is_wireless, parse_metered
from syncer.peer.links.interfaces import Facts, usable, verdicts
from syncer.peer.links.rtnetlink import LOOPBACK, POINTOPOINT, RUNNING, UP, Interface
from syncer.peer.settings import Peers, Use
from syncer.peer.wire.carrier import Carrier

SIX = bytes.fromhex("fe80000000000000020000fffe000001")
FOUR = bytes(10) + b"\xff\xff" + bytes([192, 168, 1, 2])
PUBLIC = bytes.fromhex("20010db8000000000000000000000001")
LIVE = UP | RUNNING
ETH = Interface(index=2, name="eth0", mtu=1500, flags=LIVE, addresses=(PUBLIC, FOUR, SIX))
ALL = tuple(Carrier)


DEFAULT, UNKNOWN = Peers(), Facts()


def used(*found: Interface, settings: Peers = DEFAULT, facts: Facts = UNKNOWN) -> dict[str, tuple[Carrier, ...]]:
    each = usable(found, settings, ALL, lambda _: facts)
    return {one.interface.name: one.carriers for one in each}


def other(
    name: str, *, kind: str = "", master: int = 0, flags: int = LIVE, index: int = 3, hardware: int = 1
) -> Interface:
    return Interface(
        index=index, name=name, mtu=1500, flags=flags, hardware=hardware, kind=kind, master=master, addresses=(SIX,)
    )


def test_an_ethernet_interface_has_all_carriers_and_tells_its_near_addresses_the_best_first() -> None:
    (one,) = usable([ETH], Peers(), ALL, lambda _: Facts())
    assert one.carriers == ALL
    assert one.addresses == (SIX, FOUR)
    assert (one.use, one.metered, one.wireless) == (Use.ON, False, False)


def test_an_interface_of_a_vlan_is_a_wire_like_any_other() -> None:
    assert used(ETH, other("eth0.5", kind="vlan"))["eth0.5"] == used(ETH, other("eth1"))["eth1"]


@pytest.mark.parametrize(
    "interface",
    [
        other("lo", flags=LIVE | LOOPBACK, hardware=772),
        other("eth1", flags=UP),
        other("eth1", flags=RUNNING),
        other("ppp0", flags=LIVE | POINTOPOINT, hardware=512),
        other("wg0", kind="wireguard", hardware=65534, flags=LIVE | POINTOPOINT),
        other("tun0", kind="tun", hardware=65534, flags=LIVE | POINTOPOINT),
        other("tap0", kind="tun"),
        other("dummy0", kind="dummy"),
        other("vxlan0", kind="vxlan"),
        other("eth1", master=9),
        other("docker0", kind="bridge"),
    ],
    ids=lambda interface: interface.name,
)
def test_what_is_no_wire_to_other_machines_is_left_out(interface: Interface) -> None:
    assert used(ETH, interface) == {"eth0": ALL}
    first, second = verdicts([ETH, interface], Peers(), ALL, lambda _: UNKNOWN)
    assert (first.reason, first.usable is None) == ("", False)
    assert (second.reason != "", second.usable) == (True, None)


def test_a_bridge_is_used_if_a_wire_is_its_member_and_then_the_member_is_not() -> None:
    bridge = other("br0", kind="bridge", index=9)
    guest, wire = other("veth1", kind="veth", master=9, index=10), other("eth1", master=9, index=11)
    assert set(used(bridge, guest)) == set()
    assert set(used(bridge, guest, wire)) == {"br0"}


def test_a_container_has_a_veth_that_is_no_member_of_anything() -> None:
    assert set(used(other("eth0", kind="veth"))) == {"eth0"}


def test_names_that_the_user_gives_decide() -> None:
    tap, docker = other("tap0", kind="tun"), other("docker0", kind="bridge", index=4)
    assert set(used(ETH, tap, docker, settings=Peers(interfaces=("tap*",)))) == {"tap0"}
    assert set(used(ETH, tap, settings=Peers(interfaces=("*",), ignored_interfaces=("eth?",)))) == {"tap0"}
    assert set(used(ETH, settings=Peers(ignored_interfaces=("eth0",)))) == set()
    assert set(used(other("lo", flags=LIVE | LOOPBACK), settings=Peers(interfaces=("lo",)))) == set()


def test_carriers_are_those_that_are_open_set_and_possible_in_the_order_that_is_set() -> None:
    settings = Peers(carriers=(Carrier.UDP4, Carrier.ETHERNET))
    assert used(ETH, settings=settings) == {"eth0": (Carrier.UDP4, Carrier.ETHERNET)}
    assert used(other("eth1"), settings=settings) == {"eth1": (Carrier.ETHERNET,)}
    assert [one.carriers for one in usable([ETH], Peers(), [Carrier.UDP4], lambda _: Facts())] == [(Carrier.UDP4,)]
    assert usable([ETH], Peers(), [], lambda _: Facts()) == []


def test_an_interface_whose_packets_hold_no_frame_is_not_used() -> None:
    for mtu, carriers in (
        (1500, ALL),
        (160, (Carrier.ETHERNET, Carrier.UDP4)),
        (130, (Carrier.ETHERNET,)),
        (123, None),
    ):
        small = Interface(index=2, name="eth0", mtu=mtu, flags=LIVE, addresses=(FOUR, SIX))
        assert used(small).get("eth0") == carriers


@pytest.mark.parametrize(
    ("said", "named", "metered"),
    [(True, False, True), (False, True, False), (None, True, True), (None, False, False)],
)
def test_metered_is_what_networkmanager_says_else_the_setting(said: bool | None, named: bool, metered: bool) -> None:
    settings = Peers(metered_interfaces=("eth*",) if named else (), on_metered=Use.ASK)
    (one,) = usable([ETH], settings, ALL, lambda _: Facts(metered=said))
    assert (one.metered, one.serves) == (metered, not metered)
    assert bool(used(ETH, settings=Peers(), facts=Facts(metered=metered))) is not metered


@pytest.mark.parametrize(
    ("interface", "settings", "opened", "reason"),
    [
        (ETH, Peers(ignored_interfaces=("eth0",)), ALL, "one of ignored_interfaces"),
        (ETH, Peers(interfaces=("wl*",)), ALL, "not one of interfaces"),
        (ETH, Peers(metered_interfaces=("eth0",)), ALL, "metered, and on_metered is off"),
        (ETH, Peers(), (), "none of the carriers can be used on it"),
        (other("eth1", flags=UP), Peers(interfaces=("eth1",)), ALL, "down, or without a cable"),
    ],
)
def test_why_an_interface_is_not_used_can_be_told(
    interface: Interface, settings: Peers, opened: tuple[Carrier, ...], reason: str
) -> None:
    assert [each.reason for each in verdicts([interface], settings, opened, lambda _: UNKNOWN)] == [reason]


def test_nmcli_is_read_with_its_guesses_and_its_silence() -> None:
    text = (
        "GENERAL.DEVICE:wlan0\nGENERAL.METERED:yes (guessed)\n\nGENERAL.DEVICE:eth0\nGENERAL.METERED:no\n\n"
        "GENERAL.DEVICE:lo\nGENERAL.METERED:unknown\n\nGENERAL.DEVICE:usb0\nGENERAL.METERED:yes\n"
    )
    assert parse_metered(text) == {"wlan0": True, "eth0": False, "usb0": True}
    assert parse_metered("Error: NetworkManager is not running.\n") == {}


def test_wireless_is_what_sysfs_marks(tmp_path: Path) -> None:
    for name, mark in (("wlan0", "wireless"), ("wlan1", "phy80211"), ("eth0", "device")):
        (tmp_path / "net" / name / mark).mkdir(parents=True)
    assert [is_wireless(name, str(tmp_path)) for name in ("wlan0", "wlan1", "eth0", "gone", "..", "")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("supplies", "expected"),
    [
        ({}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Charging"}, "AC": {"type": "Mains", "online": "1"}}, False),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "Mains", "online": "0"}}, True),
        ({"BAT0": {"type": "Battery", "status": "Discharging"}, "AC": {"type": "USB", "online": "1"}}, False),
        ({"mouse": {"type": "Battery", "status": "Discharging", "scope": "Device"}}, False),
        ({"ups": {"type": "UPS", "status": "Discharging"}, "BAT0": {"type": "Battery", "status": "Full"}}, True),
    ],
)
def test_on_battery_is_when_one_is_emptied_and_nothing_feeds_it(
    tmp_path: Path, supplies: dict[str, dict[str, str]], expected: bool
) -> None:
    for name, values in supplies.items():
        (tmp_path / "power_supply" / name).mkdir(parents=True)
        for key, value in values.items():
            (tmp_path / "power_supply" / name / key).write_text(f"{value}\n")
    assert is_on_battery(str(tmp_path)) is expected
