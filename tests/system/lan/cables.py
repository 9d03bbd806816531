"""What networks do to frames: they are slow, lose, break off, carry less, and have no addresses."""

from __future__ import annotations

from tests.kit.netns import INTERFACE
from tests.kit.program import PROJECT, SHARE_BLOCK, WITHOUT_RAW, has_peer, is_there
from tests.system.lan.trial import MIB, SLOW_MBIT_S, Ground, has, pulled, put

OURS = "ether type 0x88b5"


def shaped_links(ground: Ground) -> None:
    """Blocks come from two neighbours with slow cables, and not from the server, whose cable is slower."""
    one, two, three = machines = ground.machines(3)
    files = ground.seed(one, image=6 * MIB)
    two("reconcile", two.root)
    two.watch()
    one.until("peers", has_peer)
    for machine in machines:
        machine.node.shape(60)
    ground.server.shape(4)
    pulled(three, files, share=0.8)


def a_fifth_of_our_frames_is_lost(ground: Ground) -> None:
    """Frames of Ethernet are asked again: the pull is complete, and much of it from the neighbour.

    It takes some seconds, so that who is asked again can still help.
    """
    one, two = ground.machines(2)
    files = ground.seed(one, image=24 * MIB)
    two.node.loses(200, OURS)
    pulled(two, files)


def a_fifth_of_all_frames_is_lost(ground: Ground) -> None:
    """Also of those of connections and of the server: slow, and complete."""
    one, two = ground.machines(2)
    files = ground.seed(one, image=2 * MIB)
    ground.server.shape(None)
    two.node.loses(200)
    pulled(two, files, share=0)


def a_cable_is_pulled_and_put_in_again_in_mid_transfer(ground: Ground) -> None:
    """What was under way is asked for again, and nobody is left out for good."""
    one, two = ground.machines(2)
    one.settings('upload_limit = "2MB"')
    files = ground.seed(one, image=8 * MIB)
    two.watch()
    two.until("peers", lambda told: has_peer(told) and told["figures"]["blocks_from_peers"] > 0)
    one.node.link_down()
    one.until("peers", lambda told: not is_there(told))
    one.node.link_up()
    two.until("status", lambda _: has(two, files))
    more = put(one, later=2 * MIB)
    two.until("status", lambda _: has(two, files | more))
    assert two.json("peers")["figures"]["blocks_from_peers"] > 0


WALL = """
add table inet filter
add chain inet filter input { type filter hook input priority 0; }
add rule inet filter input udp dport 17511 drop
add rule inet filter input tcp dport 17511 drop
"""
GUIDE = PROJECT / "docs/guide/lan.md"


def as_the_guide_says() -> list[str]:
    """The commands that open nftables."""
    (row,) = [line for line in GUIDE.read_text().splitlines() if line.strip().startswith("| nftables |")]
    command = row.split("`")[1]
    assert "udp" in command
    assert "the same with `tcp`" in row
    return [command, command.replace("udp", "tcp")]


def a_firewall_that_is_opened(ground: Ground) -> None:
    """Frames of Ethernet pass, connections do not: the server is used. The guide's commands open it."""
    one, two = ground.machines(2)
    files = put(one, image=2 * MIB)
    one("reconcile", one.root)
    daemon = one.watch()
    one.until("peers", is_there)
    ground.server.shape(SLOW_MBIT_S)
    one.node.namespace.do("nft", "-f", "-", text=WALL)
    try:
        two.watch()
        two.until("status", lambda live: has(two, files) and live["phase"] == "idle")
        told = two.until("peers", has_peer)
        assert told["figures"]["blocks_from_peers"] == 0
        for command in as_the_guide_says():
            one.node.namespace.do(*command.split())
        one.node.kill(daemon)
        one.watch()
        one.until("peers", is_there)
        files |= put(one, later=4 * MIB)
        two.until("status", lambda _: has(two, files))
        assert two.json("peers")["figures"]["blocks_from_peers"] > 0
    finally:
        one.node.namespace.do("nft", "delete", "table", "inet", "filter")


def an_interface_that_goes_in_mid_transfer(ground: Ground) -> None:
    """Two machines with two cables each: one of them is taken away, and what came by it comes by the other."""
    one, two = machines = ground.machines(2)
    left = {machine.node.number: machine.node for machine in machines}
    for node in left.values():
        node.add_interface("lan1")
    try:
        one.settings('upload_limit = "2MB"')
        files = ground.seed(one, image=6 * MIB)
        assert one.json("peers")["figures"]["links"] == ["lan0", "lan1"]
        two.watch()
        told = two.until("peers", lambda told: has_peer(told) and told["figures"]["blocks_from_peers"] > 0)
        assert len(told["figures"]["peers"]) == 1  # one peer, by whichever cable it was heard first
        left.pop(one.node.number).remove_interface("lan1")
        two.until("status", lambda _: has(two, files))
        assert one.json("peers")["figures"]["links"] == ["lan0"]
        more = put(one, later=2 * MIB)
        two.until("status", lambda _: has(two, files | more))
        assert two.json("peers")["figures"]["blocks_from_peers"] > 0
    finally:
        for node in left.values():
            node.remove_interface("lan1")


def a_link_local_address_that_changes_in_mid_transfer(ground: Ground) -> None:
    """Connections to the old one are dead, and nobody says so. Who gives says HELLO, and gives on at the new one."""
    one, two = ground.machines(2)
    one.settings('upload_limit = "2MB"')
    files = ground.seed(one, image=12 * MIB)
    two.watch()
    told = two.until("peers", lambda told: has_peer(told) and told["figures"]["blocks_from_peers"] > 0)
    other = f"fe80::77:{one.node.number:x}"
    one.node.namespace.ip(
        f"address add {other}/64 dev {INTERFACE} nodad", f"address del {one.node.link_local}/64 dev {INTERFACE}"
    )
    try:
        before = told["figures"]["blocks_from_peers"]
        two.until("peers", lambda now: [peer["addresses"][0] for peer in now["figures"]["peers"]] == [other])
        two.until("peers", lambda now: now["figures"]["blocks_from_peers"] > before + MIB // SHARE_BLOCK)
        two.until("status", lambda _: has(two, files))
    finally:
        one.node.namespace.ip(
            f"address add {one.node.link_local}/64 dev {INTERFACE} nodad", f"address del {other}/64 dev {INTERFACE}"
        )


def a_small_mtu(ground: Ground) -> None:
    """1400 bytes: frames and connections keep to it, and nothing is fragmented."""
    one, two = machines = ground.machines(2)
    for machine in machines:
        machine.node.namespace.ip(f"link set {INTERFACE} mtu 1400")
        machine.node.switch.ip(f"link set {machine.node.port} mtu 1400")
    try:
        files = ground.seed(one, image=6 * MIB)
        with ground.village.lan.capture() as capture:
            pulled(two, files)
            between = [told for told in capture.frames() if told.port in {one.node.port, two.node.port}]
        assert max(len(told.data) for told in between) <= 14 + 65_536  # TSO of veth: the kernel would cut it
        assert not [told for told in between if told.ethertype == 0x0800 and told.data[20:22] not in (b"\0\0", b"@\0")]
        assert max(len(told.data) for told in between if told.ethertype == 0x88B5) <= 14 + 1400
    finally:
        for machine in machines:
            machine.node.namespace.ip(f"link set {INTERFACE} mtu 1500")
            machine.node.switch.ip(f"link set {machine.node.port} mtu 1500")


def no_ipv4_at_all(ground: Ground) -> None:
    """Link-local addresses are enough between neighbours."""
    one, two = machines = ground.machines(2)
    for machine in machines:
        machine.node.namespace.ip(f"address flush dev {INTERFACE} scope global")
        machine.node.namespace.ip(f"address add fd99::{machine.node.number:x}/64 dev {INTERFACE} nodad")
    try:
        files = ground.seed(one, image=6 * MIB)
        with ground.village.lan.capture() as capture:
            pulled(two, files)
            assert not [told for told in capture.frames() if told.ethertype == 0x0800]
    finally:
        for machine in machines:
            machine.node.namespace.ip(f"address add {machine.node.ipv4}/24 broadcast + dev {INTERFACE}")


def one_with_udp_only_beside_two_with_ethernet(ground: Ground) -> None:
    """Who may not open a packet socket gets blocks from those who may, and gives them."""
    rich, poor, other = ground.machines(3)
    files = ground.seed(rich, image=4 * MIB)
    poor.watch(before=WITHOUT_RAW)
    poor.until("status", lambda _: has(poor, files))
    assert poor.json("peers")["figures"]["blocks_from_peers"] > 0
    rich("pause")
    rich.until("peers", lambda told: not has_peer(told))
    pulled(other, files)
    assert poor.json("peers")["figures"]["blocks_to_peers"] > 0
